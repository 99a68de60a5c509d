"""Minerva: 272 university science problems of OCWCourses."""

from __future__ import annotations

from rlbhpc.problems.boxed import last_boxed
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """Gold is the last balanced box of the solution, units in roman type and all."""
    gold = last_boxed(record, "solution") if record.get("solution") else record.text("answer")
    course = record.optional_text("type")
    return make_problem(
        name,
        record.optional_text("idx", "id"),
        record.text("problem", "question"),
        gold,
        "math",
        {"course": course} if course else {},
        solution=record.optional_text("solution"),
    )


SET = FileSet(parse, Source("math-ai/minervamath", ("*.jsonl", "*.parquet")), splits=("test",))
