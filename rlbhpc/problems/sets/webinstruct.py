"""WebInstruct-verified: about 232,000 questions of all subjects with short reference answers."""

from __future__ import annotations

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """Free-form answers: rules judge what they can, and RLPR needs no judge."""
    kind = record.optional_text("answer_type")
    return make_problem(
        name,
        record.optional_text("id"),
        record.text("question"),
        record.text("answer"),
        "choice" if kind == "Multiple Choice" else "math",
        {"category": record.optional_text("category"), "kind": kind},
    )


SET = FileSet(
    parse,
    Source("TIGER-Lab/WebInstruct-verified", ("data/*.parquet",)),
    splits=("test", "train"),
)
