"""GPQA: questions for graduates, four options each; 198 in its diamond set, 448 in the main one."""

from __future__ import annotations

import hashlib

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record
from rlbhpc.problems.sets.mmlu_pro import LETTERS, with_options


def parse(name: str, record: Record) -> Problem:
    """Order the options by a hash: the file names the right one first."""
    question, right = record.text("Question").strip(), record.text("Correct Answer").strip()
    wrong = [record.text(f"Incorrect Answer {i}").strip() for i in (1, 2, 3)]

    def rank(option: str) -> bytes:
        return hashlib.sha256(f"{question}\0{option}".encode()).digest()

    options = sorted([right, *wrong], key=rank)
    return make_problem(
        name,
        record.optional_text("Record ID"),
        with_options(question, options),
        LETTERS[options.index(right)],
        "choice",
        {"choices": options, "category": record.optional_text("High-level domain")},
    )


SET = FileSet(parse, Source("Idavidrein/gpqa", ("*.csv",)), splits=("diamond", "main", "extended"))
