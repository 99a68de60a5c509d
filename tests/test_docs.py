"""The generated pages of docs/ are current, and the study files in them are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import yaml

from rlbhpc.cli.main import VERBS, cli
from rlbhpc.launch.cluster import Cluster
from rlbhpc.launch.script import SHARED_OPTIONS, SIZE_OPTIONS
from rlbhpc.study.complaints import validated
from rlbhpc.study.expand import expand
from rlbhpc.study.schema import Recipe, StudyFile
from rlbhpc.study.tree import parse

ROOT = Path(__file__).parents[1]
INSTALLED_BY_NAME = re.compile(r"\binstall(?:\s+-\S+)*[\s\"'`f]*\brlbhpc\b(?!\s+with)[^\n]{0,20}")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_is_sent_to_a_package_index_for_our_name() -> None:
    """The name is not ours there: whoever registers it would run code on users' machines."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    sent = []
    for name in listed.stdout.decode().split("\0"):
        if name in {"", "CHANGELOG.md"} or not (ROOT / name).is_file():
            continue
        text = (ROOT / name).read_text(errors="ignore")
        sent += [(name, match[0]) for match in INSTALLED_BY_NAME.finditer(text)]
    assert not sent


def test_the_line_of_a_sample_is_read_in_at_most_twenty_files() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.split("## The line of a sample")[1].split("\n## ")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", section, re.M)
    assert 0 < len(files) <= 20
    assert not [name for name in files if not (ROOT / "rlbhpc" / name).is_file()]


def test_the_study_on_the_reference_page_is_valid() -> None:
    page = (ROOT / "docs/study-file.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert blocks
    for block in blocks:
        assert isinstance(yaml.safe_load(block), dict)
        validated(expand(parse(block, "docs/study-file.md")), StudyFile)


def test_recipes_on_the_page_about_training_are_valid() -> None:
    page = (ROOT / "docs/training.md").read_text()
    (block,) = re.findall(r"```yaml\n# recipes that mix\n(.*?)```", page, re.S)
    for recipe in yaml.safe_load(block.replace("1e-3", "0.001")).values():
        Recipe.model_validate(recipe)


def test_entries_of_a_cluster_on_the_pages_are_valid() -> None:
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"```yaml\n# in a cluster's file\n(.*?)```", page.read_text(), re.S)
    ]
    assert len(blocks) == 2
    for block in blocks:
        Cluster.model_validate(yaml.safe_load(block))


def test_every_key_of_the_schema_is_on_the_page() -> None:
    from rlbhpc.study.fields import Entry

    page = (ROOT / "docs/study-file.md").read_text()

    def entries(kind: type[Entry]) -> list[type[Entry]]:
        return [kind, *(e for sub in kind.__subclasses__() for e in entries(sub))]

    # The cluster table has a page of its own.
    studies = [e for e in entries(Entry)[1:] if not e.__module__.startswith("rlbhpc.launch")]
    for entry in studies:
        for name, field in entry.model_fields.items():
            assert f"| `{field.alias or name}` |" in page, f"{entry.__name__}.{name}"
            assert field.description, f"{entry.__name__}.{name} is not explained"


def test_quoted_symptoms_are_messages_of_the_program() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    source = "".join(p.read_text() for p in sorted((ROOT / "rlbhpc").rglob("*.py")))
    # Messages are written over several lines; the literals of one message join without quotes.
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell) if " " in text]
    assert len(quoted) > 10
    assert [text for text in quoted if text not in joined] == []


def anchors(page: str) -> set[str]:
    """What headings can be linked as: a repeated one gets a number, as on GitHub."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", page, re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return names


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for name, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                broken.append(f"{page.name}: {name}#{anchor}")
    assert broken == []


def test_the_verbs_and_options_that_pages_name_exist() -> None:
    unknown = []
    for page in PAGES:
        text = page.read_text()
        for command in (
            *re.findall(r"`rlbhpc ([a-z][^`]*)`", text),
            *re.findall(r"^rlbhpc (.+)$", text, re.M),
        ):
            verb, *words = command.partition("#")[0].split()
            named = {word.partition("=")[0].rstrip(".,;") for word in words if word[:2] == "--"}
            if verb not in VERBS or named - options_of(verb):
                unknown.append(f"{page.name}: rlbhpc {command}")
    assert unknown == []


def options_of(verb: str) -> set[str]:
    """The long options of a verb; ``launch`` passes on those that sbatch knows."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    passed = {f"--{one}" for one in SHARED_OPTIONS | SIZE_OPTIONS} if verb == "launch" else set()
    return passed.union(*(parameter.opts for parameter in command.params))


def test_every_pitfall_names_a_test_that_exists_or_says_why_not() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", (ROOT / "docs/pitfalls.md").read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 31))
    named = {test for _, text in rows for test in re.findall(r"`(tests/[^`]+)`", text)}
    for test in named:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


def test_the_site_lists_every_page() -> None:
    """`make site` refuses a page that its navigation leaves out; this says so without building."""
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}
