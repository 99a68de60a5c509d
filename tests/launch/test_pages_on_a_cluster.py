"""The commands of the pages on launching, run in order by an ordinary user of a real Slurm."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.launch.made import tiny
from tests.launch.site import ROOT, Site, site
from tests.launch.test_on_a_cluster import study_at

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

# What a page says for a reader's own, and what it is on this site.
HERE = {
    "/scratch/me/runs": "results",
    "/path/to/runs": "results",
    "NAME": "my-site",
    "models/Qwen2.5-7B": "model",
    "models/my-rl": "rl",
    "math500,aime24": "countdown",
    "--watch 300": "--watch 60",
    "-p short": "-p low",
    "-p gpu -A my-account": "-p low -A dev",
    "my-rl-against-Qwen2.5-7B": "rl-against-model",
}
# Run in tests/problems/test_stage.py.
NEEDS_A_NETWORK = "rlbhpc stage"
# Nothing is left to cancel once everything has ended.
CODES = {"cancel": (0, 4)}


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each block of code, with the reader's own replaced."""
    text = (ROOT / "docs" / page).read_text()
    for theirs, ours in HERE.items():
        text = re.sub(rf"(?<![\w-]){re.escape(theirs)}(?![\w-])", ours, text)
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)


def commands(text: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in text.splitlines()]


def run(site: Site, command: str) -> str:
    """One command of a page, as it stands there; its output."""
    done = site.run("bash", "-c", command)
    allowed = CODES.get(command.split()[1], (0,))
    assert done.returncode in allowed, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def reader(site: Site) -> Site:
    """A user with `rlbhpc` on the path, two models and a study, as the pages suppose."""
    study = study_at(site, tiny(4))
    study.rename(site.folder / "math.yaml")
    shutil.copytree(site.folder / "model", site.folder / "rl")
    weights = site.folder / "rl" / "generation_config.json"
    weights.write_text(weights.read_text().rstrip() + "\n")
    program = site.folder / "bin" / "rlbhpc"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {site.python} -m rlbhpc "$@"\n')
    program.chmod(0o755)
    site.environment["PATH"] = f"{program.parent}:{site.environment['PATH']}"
    site.environment["HOME"] = str(site.folder)
    (site.folder / "results").mkdir()
    site.own()
    return site


def fill_in(site: Site) -> None:
    """Edit the entry that doctor has written, as the pages say."""
    path = site.folder / ".config" / "rlbhpc" / "clusters" / "my-site.yaml"
    written = yaml.safe_load(path.read_text())
    own = yaml.safe_load(site.cluster().read_text())
    path.write_text(yaml.safe_dump({**written, **own}))
    site.own()


def begin_small(study: Path) -> None:
    settings = yaml.safe_load(study.read_text())
    settings["problem_sets"]["countdown"].update(limit=20, n=16)
    settings["sampling"].update(max_tokens=12, n=16)
    # Processors alone, and one core a task: vLLM would be two minutes at its start.
    settings["engine"] = {"name": "hf", "dtype": "float32"}
    study.write_text(yaml.safe_dump(settings))


def test_the_first_study_goes_as_its_page_says(reader: Site) -> None:
    study = reader.folder / "study.yaml"
    for language, text in blocks("first-study.md"):
        if language == "python":
            program = text if "import rlbhpc" in text else "import rlbhpc\n" + OPENED + text
            done = reader.run(reader.python, "-c", program)
            assert done.returncode == 0, done.stderr
        if language:
            continue
        for command in commands(text):
            if command.startswith(NEEDS_A_NETWORK):
                continue
            run(reader, command)
            if "--write" in command:
                fill_in(reader)
            if command.startswith("rlbhpc init"):
                begin_small(study)
    assert (reader.folder / "curves.nc").is_file()
    assert reader.status("study.yaml")["missing"] == 0


OPENED = 'tree = rlbhpc.open_cube("runs/rl-against-model")\n'


def test_launching_goes_as_its_page_says(reader: Site) -> None:
    run(reader, "rlbhpc doctor results --write my-site")
    fill_in(reader)
    study = reader.folder / "math.yaml"
    study.write_text(study.read_text() + "cluster: my-site\n")
    listing, *_ = [text for language, text in blocks("launch.md") if not language]
    notebook, *_ = [text for language, text in blocks("launch.md") if language == "python"]
    for command in commands(listing):
        if "--watch" in command:
            reader.idle()
        run(reader, command)
    assert reader.status("math.yaml")["missing"] == 0
    study.write_text(study.read_text().replace("n: 4", "n: 6"))
    done = reader.run(reader.python, "-c", notebook + "\nprint(launch.jobs())")
    assert done.returncode == 0, done.stderr
    assert "'sample'" in done.stdout
    reader.idle()
    assert reader.status("math.yaml")["missing"] == 0
