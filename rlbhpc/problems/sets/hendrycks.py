"""MATH (Hendrycks et al.) and MATH500, the 500 of its test problems that PRM800K held out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rlbhpc.problems.boxed import last_boxed
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record

_LEVELS: Final = re.compile(r"levels\[([1-5])-([1-5])\]")


def parse(name: str, record: Record) -> Problem:
    """Take ``answer`` as gold; older files of MATH have it only in the solution's last box."""
    gold = record.optional_text("answer") or last_boxed(record, "solution")
    extras = {
        key: record.text(*fields)
        for key, fields in {"subject": ("subject", "type"), "level": ("level",)}.items()
        if record.get(*fields) is not None
    }
    return make_problem(
        name,
        record.optional_text("unique_id", "id"),
        record.text("problem", "question"),
        gold,
        "math",
        extras,
        solution=record.optional_text("solution"),
    )


def narrow(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """``levels[3-5]`` is what several recipes train on; a few problems have no level at all."""
    match = _LEVELS.fullmatch(subset)
    if match is None:
        return None
    easiest, hardest = map(int, match.groups())
    if easiest > hardest:
        return None
    wanted = {str(level) for level in range(easiest, hardest + 1)}
    return [p for p in problems if p.extras.get("level", "").removeprefix("Level ") in wanted]


MATH = FileSet(
    parse,
    Source("nlile/hendrycks-MATH-benchmark", ("data/*.parquet",)),
    splits=("train", "test"),
    narrow=narrow,
    subsets=("levels[3-5]",),
)
MATH500 = FileSet(parse, Source("HuggingFaceH4/MATH-500", ("test.jsonl",)))
