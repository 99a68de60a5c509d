"""The generated pages of docs/ are current, and the study files in them are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from rlbhpc.study.expand import expand
from rlbhpc.study.load import validated
from rlbhpc.study.tree import parse

ROOT = Path(__file__).parents[1]


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


def test_the_study_on_the_reference_page_is_valid() -> None:
    page = (ROOT / "docs/study-file.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert blocks
    for block in blocks:
        assert isinstance(yaml.safe_load(block), dict)
        validated(expand(parse(block, "docs/study-file.md")))


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
