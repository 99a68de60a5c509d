"""Omni-MATH-Rule: 2,821 olympiad problems whose answers rules can verify."""

from __future__ import annotations

from collections.abc import Sequence

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record
from rlbhpc.problems.subset import split_by_name

# The study trains on 2,000 and tests on 821. Its split was not published; this one is by hash with
# seed 0, so `train` and `test` mean the same problems everywhere. `rlbhpc stage` records the digest
# of both halves in the manifest.
N_TRAIN = 2000


def parse(name: str, record: Record) -> Problem:
    """Difficulty (1 to 10), domain and source go to the extras."""
    domain = record.get("domain")
    return make_problem(
        name,
        record.optional_text("id", "unique_id"),
        record.text("problem", "question"),
        record.text("answer"),
        "math",
        {
            "difficulty": record.optional_text("difficulty"),
            "domain": [str(field) for field in domain] if isinstance(domain, list) else [],
            "source": record.optional_text("source"),
        },
        solution=record.optional_text("solution"),
    )


def narrow(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """``train`` and ``test`` are the two halves of the hash split."""
    half = {"train": "train", "test": "holdout"}.get(subset)
    return split_by_name(problems, f"{half}[{N_TRAIN}]") if half else None


SET = FileSet(
    parse,
    Source(
        urls=(
            "https://raw.githubusercontent.com/KbsdJames/omni-math-rule/main/omni_math_rule.jsonl",
        )
    ),
    narrow=narrow,
    subsets=("train", "test"),
)
