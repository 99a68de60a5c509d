"""Competitions whose answers are plain numbers: AIME 2024 and 2025, AMC 2023."""

from __future__ import annotations

from rlbhpc.problems.boxed import last_boxed
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """Gold is ``answer``, or the solution's box in files that have no answer field.

    AMC answers come as floats (27.0) where a column is numeric; leading zeros of AIME stay.
    """
    answer = record.optional_text("answer", "Answer") or last_boxed(record, "solution")
    number, dot, zeros = answer.partition(".")
    return make_problem(
        name,
        record.optional_text("id", "ID", "unique_id"),
        record.text("problem", "question", "Problem"),
        number if dot and not zeros.strip("0") else answer,
        "math",
        solution=record.optional_text("solution", "Solution"),
    )


AIME24 = FileSet(parse, Source("HuggingFaceH4/aime_2024", ("data/*.parquet",)))
AIME25 = FileSet(parse, Source("math-ai/aime25", ("*.jsonl", "*.parquet")))
AMC23 = FileSet(parse, Source("math-ai/amc23", ("*.jsonl", "*.parquet", "data/*.parquet")))
