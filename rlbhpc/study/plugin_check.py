"""A first look at the Python files that a study brings, in a child: one may hang, or end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.study.expand import expand
from rlbhpc.study.include import load_tree

# Seconds for all of them; PyTorch alone takes a few.
PATIENCE: Final = 120


def brought(study: Path, overrides: Sequence[str] = ()) -> dict[str, list[str]]:
    """Names that each file of a study holds; refused if it raises, exits or outlasts `PATIENCE`."""
    if study.suffix == ".json":
        return {}
    references = plugins.references(expand(load_tree(study, overrides)).plain())
    files = list(dict.fromkeys(str(plugins.path_of(reference)) for reference in references))
    if not files:
        return {}
    output, ending = in_child(__name__, *files)
    answers = [json.loads(line) for line in output.splitlines()]
    for answer in answers:
        if "error" in answer:
            raise UserError(answer["error"])
    if len(answers) < len(files):
        raise UserError(f"{files[len(answers)]}: importing it {ending}")
    return {file: answer["names"] for file, answer in zip(files, answers, strict=True)}


def in_child(module: str, *arguments: str, data: bytes = b"") -> tuple[str, str]:
    """Run a module of this package: what it printed, and how it ended, in words.

    Its user's files find no others beside them, as in a job.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            input=data, stdout=subprocess.PIPE, check=False, timeout=PATIENCE,
        )  # fmt: skip
        output, ending = child.stdout, f"ended with {_ending(child.returncode)}"
    except subprocess.TimeoutExpired as late:
        output, ending = late.stdout or b"", f"took more than {PATIENCE} s"
    return output.decode(errors="replace"), ending


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _look(file: str) -> dict[str, object]:
    try:
        with plugins.alone(Path(file)) as copy:
            return {"names": plugins.names(copy)}
    except UserError as error:
        return {"error": str(error)}


def answers() -> TextIO:
    """Open what a child answers on; all that its user's files and their children print is told."""
    opened = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return opened


if __name__ == "__main__":
    parent = answers()
    for name in sys.argv[1:]:
        print(json.dumps(_look(name)), file=parent, flush=True)
