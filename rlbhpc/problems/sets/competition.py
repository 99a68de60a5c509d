"""Competitions: AIME, AMC, HMMT, BeyondAIME and LiveMathBench."""

from __future__ import annotations

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record, last_boxed


def parse(name: str, record: Record) -> Problem:
    """Gold is ``answer``, or the solution's box in files that have no answer field.

    AMC answers come as floats (27.0) where a column is numeric; leading zeros of AIME stay.
    ``math-ai/aime25`` has ``id``, ``problem``, ``answer`` in test.jsonl and BeyondAIME ``problem``,
    ``answer``: inspect tasks and training code that read them agree.
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


def parse_arena(name: str, record: Record) -> Problem:
    """As MathArena publishes competitions: numbered, with a list of subjects.

    Cards of aime_2025 and loaders of hmmt_feb_2026 list ``problem_idx``, ``problem``, ``answer``
    and ``problem_type``. The answers of AIME are integers.
    """
    has_subjects = isinstance(record.get("problem_type"), list)
    return make_problem(
        name,
        record.text("problem_idx"),
        record.text("problem"),
        record.text("answer"),
        "math",
        {"subject": record.texts("problem_type")} if has_subjects else {},
    )


def parse_live(name: str, record: Record) -> Problem:
    """LiveMathBench: some questions have options, and their answer is a letter.

    ``question``, ``answer`` and ``question_type`` are what OpenCompass' loader and those of others
    read (datasets/livemathbench/livemathbench.py); its first release had ``options`` as well. The
    release is cut into configurations ``v202412_AMC_en``, in English and Chinese, of which the
    hard ones repeat problems of others.
    """
    choices = record.texts("options")
    question = "\n".join((record.text("question"), *choices))
    extras = {"kind": record.optional_text("question_type")}
    verifier = "choice" if choices else "math"
    return make_problem(name, "", question, record.text("answer"), verifier, extras)


AIME24 = FileSet(parse, Source("HuggingFaceH4/aime_2024", ("data/*.parquet",)))
AIME25 = FileSet(parse, Source("math-ai/aime25", ("*.jsonl", "*.parquet")))
AIME26 = FileSet(parse_arena, Source("MathArena/aime_2026", ("data/*.parquet",)))
HMMT25 = FileSet(parse_arena, Source("MathArena/hmmt_feb_2025", ("data/*.parquet",)))
HMMT26 = FileSet(parse_arena, Source("MathArena/hmmt_feb_2026", ("data/*.parquet",)))
BEYOND_AIME = FileSet(parse, Source("ByteDance-Seed/BeyondAIME", ("*.parquet", "data/*.parquet")))
LIVE = FileSet(
    parse_live, Source("opencompass/LiveMathBench", ("*.jsonl", "*.parquet")), splits=("en", "cn")
)
AMC23 = FileSet(parse, Source("math-ai/amc23", ("*.jsonl", "*.parquet", "data/*.parquet")))
