r"""The cases of ``answers.txt``: responses to a gold answer, whether they are right, and why.

The file is blocks. A head says family, gold answer, verdict and reason; each line below it is a
response. ``@ 5`` stands for a response that boxes 5, and ``⏎`` for the end of a line::

    [labels] 113 | right | the label says what was asked for
    @ m+n=113
    Final Answer⏎⏎$$m+n=113$$
"""

from __future__ import annotations

from importlib import resources
from typing import Final, NamedTuple

_BOXED: Final = "Working it through, we obtain $\\boxed{{{}}}$."


class Case(NamedTuple):
    """One labelled response."""

    family: str
    gold: str
    response: str
    right: bool
    reason: str


def cases() -> list[Case]:
    """Read all cases; a head that is malformed raises ``ValueError`` with its line."""
    text = resources.files("rlbhpc.verify.benchmark").joinpath("answers.txt").read_text("utf-8")
    labelled: list[Case] = []
    head: tuple[str, str, bool, str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("[") and "] " in line and line.count(" | ") >= 2:
            head = _head(line, number)
        elif line and not line.startswith("# "):
            if head is None:
                raise ValueError(f"answers.txt, line {number}: a response before any head")
            family, gold, right, reason = head
            boxed = line.startswith("@ ")
            response = _BOXED.format(line[2:]) if boxed else line.replace("⏎", "\n")
            labelled.append(Case(family, gold, response, right, reason))
    return labelled


def _head(line: str, number: int) -> tuple[str, str, bool, str]:
    family, _, rest = line[1:].partition("] ")
    gold, verdict, reason = rest.split(" | ", 2)
    if verdict not in ("right", "wrong") or not reason:
        raise ValueError(f"answers.txt, line {number}: wanted gold | right or wrong | reason")
    return family, gold, verdict == "right", reason
