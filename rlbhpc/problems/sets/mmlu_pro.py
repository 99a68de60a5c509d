"""MMLU-Pro: 12,032 questions of fourteen subjects with up to ten options."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """The letter is the gold; options stand under the question, and with the verifier."""
    options = [str(option) for option in record.need("options")]
    gold = record.text("answer")
    if gold not in LETTERS[: len(options)]:
        raise UserError(f"{record.place}: answer {gold!r} is none of {len(options)} options")
    return make_problem(
        name,
        record.optional_text("question_id"),
        with_options(record.text("question"), options),
        gold,
        "choice",
        {"choices": options, "category": record.optional_text("category")},
    )


def with_options(question: str, options: list[str]) -> str:
    """A question with one lettered option a line."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question, "Options:", *lines])


LETTERS = "ABCDEFGHIJ"
SET = FileSet(
    parse, Source("TIGER-Lab/MMLU-Pro", ("data/*.parquet",)), splits=("test", "validation")
)
