"""The package as a user installs it: a wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from rlbhpc import __version__
from rlbhpc.study.draft import template_menu
from tests.wheel import PIP, ROOT, build_wheel

# What no verb reads: caches, and pages for those who read the source.
NOT_READ = {".pyc", ".md", ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``rlbhpc`` of a fresh environment that holds the wheel.

    Dependencies are those of the environment that tests, so that no package index is needed.
    """
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    files = [p for p in (ROOT / "rlbhpc").rglob("*") if p.is_file() and p.suffix not in NOT_READ]
    assert {p.relative_to(ROOT).as_posix() for p in files} - names == set()
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    words = ["--python", str(python), "install", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, *PIP, *words], check=True)
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    own = Path(next(p for p in sys.path if p.endswith("site-packages")))
    # Behind the wheel, and without the editable hooks of the checkout that .pth files there bring.
    (site / "dependencies.pth").write_text(f"{own}\n")
    return folder / "env/bin/rlbhpc"


def call(rlbhpc: Path, folder: Path, *words: object) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [rlbhpc, *map(str, words)], cwd=folder, env=clean, capture_output=True, text=True
    )
    assert done.returncode in (0, 3), f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_holds_all_that_its_verbs_read(installed: Path, tmp_path: Path) -> None:
    assert call(installed, tmp_path, "--version") == f"rlbhpc, version {__version__}\n"
    where = subprocess.run(
        [installed.with_name("python"), "-c", "import rlbhpc; print(rlbhpc.__file__)"],
        cwd=tmp_path, env={}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert where.startswith(str(installed.parents[1]))
    models = ROOT / "configs/checkpoints"
    call(installed, tmp_path, "init", "--base", models / "countdown-base", "--trained",
         models / "countdown-rl", "--cluster", "local", "-o", "study.yaml")  # fmt: skip
    assert "8,192 samples in all" in call(installed, tmp_path, "check", "study.yaml")
    assert "countdown" in call(installed, tmp_path, "plan", "study.yaml")
    for name in template_menu():
        call(installed, tmp_path, "init", name)
    launch = ("launch", "study.yaml", "--cluster", "preemptible-university")
    assert "3 scripts for cluster preemptible-university" in call(installed, tmp_path, *launch)
    call(installed, tmp_path, "demo")
    report = ("report", "demo", "--compare", "base:rl", "-o", "out")
    call(installed, tmp_path, *report)
    assert (tmp_path / "out/report.html").is_file()
    call(installed, tmp_path, "view", "demo", "-o", "web")
    assert (tmp_path / "web/index.html").is_file()
    claims = json.loads((tmp_path / "out/claim.json").read_text())["claims"]
    assert claims[0]["K"] == 256
