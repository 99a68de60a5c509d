"""OlympiadBench: the 675 open-ended, text-only English maths problems."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """Gold is the list ``final_answer``; how to compare it stands in the extras.

    ``answer_type`` is Numerical, Expression, Tuple or Interval. Where ``is_multiple_answer`` is
    true the one string of the list names several answers, separated by commas. ``error`` is an
    absolute tolerance, empty where the answer is exact.
    """
    answers = record.need("final_answer", "answer")
    answers = [answers] if isinstance(answers, str) else answers
    if (
        not isinstance(answers, list)
        or not all(isinstance(answer, str) for answer in answers)
        or not answers
    ):
        raise UserError(f"{record.place}: field `final_answer` must be a list of strings")
    question = record.text("question", "problem")
    context = record.optional_text("context")
    return make_problem(
        name,
        record.optional_text("id"),
        f"{context}\n\n{question}" if context else question,
        ", ".join(answers),
        "math",
        {
            "answer_type": record.optional_text("answer_type"),
            "is_multiple_answer": bool(record.get("is_multiple_answer")) or len(answers) > 1,
            "unit": record.optional_text("unit"),
            "error": record.optional_text("error"),
            "subject": record.optional_text("subfield", "subject"),
        },
    )


SET = FileSet(
    parse, Source("Hothan/OlympiadBench", ("OlympiadBench/OE_TO_maths_en_COMP/*.parquet",))
)
