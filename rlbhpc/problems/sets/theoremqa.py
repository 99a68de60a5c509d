"""TheoremQA: 800 questions that a theorem answers, of which those with a picture are left out."""

from __future__ import annotations

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem | None:
    """Booleans are the words True and False; options are letters in brackets, such as (b)."""
    if record.get("Picture"):
        return None
    kind = record.text("Answer_type")
    gold = record.text("Answer")
    if kind == "option":
        gold = gold.strip().strip("()").upper()
    verifier = "choice" if kind == "option" else "math"
    return make_problem(
        name,
        record.optional_text("id"),
        record.text("Question"),
        gold,
        verifier,
        {"category": kind},
    )


SET = FileSet(parse, Source("TIGER-Lab/TheoremQA", ("data/*.parquet",)), splits=("test",))
