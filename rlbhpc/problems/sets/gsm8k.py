"""GSM8K: grade-school word problems, 1,319 test and 7,473 train."""

from __future__ import annotations

import re

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """Take what stands after the last ``####`` of the worked solution as gold."""
    solution = record.text("answer", "solution")
    steps, mark, tail = solution.rpartition("####")
    gold = tail.strip().replace(",", "")
    if not mark or not gold:
        raise UserError(f"{record.place}: field `answer` has nothing after a last ####")
    return make_problem(
        name,
        record.optional_text("id", "unique_id"),
        record.text("question", "problem"),
        gold,
        "math",
        # The marks of a calculator that no model here has are left out.
        solution=re.sub(r"<<.*?>>", "", steps).strip(),
    )


SET = FileSet(
    parse,
    Source("openai/gsm8k", ("main/*.parquet",)),
    splits=("test", "train"),
)
