r"""Mathematics in words: GSM8K, MATH, Minerva, OlympiadBench, Omni-MATH, DAPO, competitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem, split_by_name
from rlbhpc.problems.prompts import get_prompt
from rlbhpc.problems.record import Record, last_boxed

_LEVELS: Final = re.compile(r"levels\[([1-5])-([1-5])\]")
# The study trains on 2,000 of Omni-MATH-Rule's 2,821 and tests on 821. Its split was not published;
# this one is by hash with seed 0, so `train` and `test` mean the same problems everywhere. `rlbhpc
# stage` records the digest of both halves in the manifest.
_OMNI_HALVES: Final = {"train": "train[2000]", "test": "holdout[2000]"}


def parse_gsm8k(name: str, record: Record) -> Problem:
    """Turn a record of GSM8K into a problem; what is after the last ``####`` is the gold answer.

    ``name`` is the problem set. The methods of a record give the first field of these names.
    """
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


def parse_math(name: str, record: Record) -> Problem:
    """Turn a record of MATH into a problem.

    Gold is ``answer``; older files of MATH have it only in the last box of the solution. Subject
    and level go to the extras, where the record has them. `last_boxed` finds the content of that
    box. The methods of a record give the first field of the names.
    """
    gold = record.optional_text("answer") or last_boxed(record, "solution")
    extras = {
        key: record.text(*fields)
        for key, fields in {"subject": ("subject", "type"), "level": ("level",)}.items()
        if record.get(*fields) is not None
    }
    return _problem_with_solution(name, record, ("unique_id", "id"), gold, extras)


def narrow_math(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """``levels[3-5]`` is what several recipes train on; a few problems have no level at all."""
    match = _LEVELS.fullmatch(subset)
    if match is None or match[1] > match[2]:
        return None
    wanted = {str(level) for level in range(int(match[1]), int(match[2]) + 1)}
    return [p for p in problems if p.extras.get("level", "").removeprefix("Level ") in wanted]


def parse_minerva(name: str, record: Record) -> Problem:
    """Gold is the last balanced box of the solution, units in roman type and all."""
    gold = last_boxed(record, "solution") if record.get("solution") else record.text("answer")
    course = record.optional_text("type")
    return _problem_with_solution(
        name, record, ("idx", "id"), gold, {"course": course} if course else {}
    )


def _problem_with_solution(
    name: str, record: Record, ids: tuple[str, ...], gold: str, extras: dict[str, str]
) -> Problem:
    """Make a problem of a record that may hold a worked solution.

    ``ids`` are the names that the field of the id may have; ``gold`` is the reference answer.
    """
    return make_problem(
        name,
        record.optional_text(*ids),
        record.text("problem", "question"),
        gold,
        "math",
        extras,
        solution=record.optional_text("solution"),
    )


def parse_olympiadbench(name: str, record: Record) -> Problem:
    """Turn a record of OlympiadBench into a problem.

    Gold is the list ``final_answer``; how to compare it stands in the extras. ``answer_type`` is
    Numerical, Expression, Tuple or Interval. Where ``is_multiple_answer`` is true the one string of
    the list names several answers, separated by commas. ``error`` is an absolute tolerance, empty
    where the answer is exact.
    """
    answers = record.need("final_answer", "answer")
    answers = [answers] if isinstance(answers, str) else answers
    is_list = isinstance(answers, list) and bool(answers)
    if not is_list or not all(isinstance(answer, str) for answer in answers):
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


def parse_omni(name: str, record: Record) -> Problem:
    """Turn a record of Omni-MATH into a problem; difficulty is from 1 to 10."""
    return make_problem(
        name,
        record.optional_text("id", "unique_id"),
        record.text("problem", "question"),
        record.text("answer"),
        "math",
        {
            "difficulty": record.optional_text("difficulty"),
            "domain": record.texts("domain"),
            "source": record.optional_text("source"),
        },
        solution=record.optional_text("solution"),
    )


def narrow_omni(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """``train`` and ``test`` are the two halves of the hash split."""
    return split_by_name(problems, _OMNI_HALVES.get(subset, ""))


def parse_dapo(name: str, record: Record) -> Problem:
    """Turn a record of DAPO into a problem: the reward's ground truth is the gold answer.

    The file of DAPO's authors holds every problem a hundred times, inside its prompt; the source
    here is a later edition with each problem once, in English. A file of the first shape is read,
    too, if it has each problem once: ``before`` and ``after``, the words of the template `dapo`
    around a problem, are taken off. `record.ground_truth` and `record.index` read the answer and
    the number that verl's format has.
    """
    messages = record.need("prompt")
    if not isinstance(messages, str):
        messages = messages[-1].get("content") if len(messages) else None
    if not isinstance(messages, str):
        raise UserError(f"{record.place}: `prompt` is neither a text nor a conversation")
    before, after = get_prompt("dapo").text.split("{question}")
    question = messages.removeprefix(before.rpartition("<|im_start|>user\n")[2])
    question = question.removesuffix(after.partition("<|im_end|>")[0])
    gold = record.ground_truth()
    if gold is None:
        gold = record.text("solution", "answer")
    return make_problem(name, record.index(), question, gold, "math")


GSM8K = FileSet(parse_gsm8k, Source("openai/gsm8k", ("main/*.parquet",)), splits=("test", "train"))
MATH = FileSet(
    parse_math,
    Source("nlile/hendrycks-MATH-benchmark", ("data/*.parquet",)),
    splits=("train", "test"),
    narrow=narrow_math,
    subsets=("levels[3-5]",),
)
# The 500 of its test problems that PRM800K held out.
MATH500 = FileSet(parse_math, Source("HuggingFaceH4/MATH-500", ("test.jsonl",)))
MINERVA = FileSet(
    parse_minerva, Source("math-ai/minervamath", ("*.jsonl", "*.parquet")), splits=("test",)
)
# The 675 open-ended, text-only problems in English.
OLYMPIADBENCH = FileSet(
    parse_olympiadbench,
    Source("Hothan/OlympiadBench", ("OlympiadBench/OE_TO_maths_en_COMP/*.parquet",)),
)
OMNI = FileSet(
    parse_omni,
    Source(
        urls=(
            "https://raw.githubusercontent.com/KbsdJames/omni-math-rule/main/omni_math_rule.jsonl",
        )
    ),
    narrow=narrow_omni,
    subsets=("train", "test"),
)
DAPO_MATH = FileSet(parse_dapo, Source("open-r1/DAPO-Math-17k-Processed", ("en/*.parquet",)))


def parse_competition(name: str, record: Record) -> Problem:
    """Turn a record of a competition such as AIME or AMC into a problem.

    Gold is ``answer``, or the solution's box in files that have no answer field. AMC answers come
    as floats (27.0) where a column is numeric; leading zeros of AIME stay. ``math-ai/aime25`` has
    ``id``, ``problem``, ``answer`` in test.jsonl and BeyondAIME ``problem``, ``answer``: inspect
    tasks and training code that read them agree. `last_boxed` finds the content of that box.
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
    """Turn a record as MathArena publishes competitions into a problem: numbered, with subjects.

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


AIME24 = FileSet(parse_competition, Source("HuggingFaceH4/aime_2024", ("data/*.parquet",)))
AIME25 = FileSet(parse_competition, Source("math-ai/aime25", ("*.jsonl", "*.parquet")))
AIME26 = FileSet(parse_arena, Source("MathArena/aime_2026", ("data/*.parquet",)))
HMMT25 = FileSet(parse_arena, Source("MathArena/hmmt_feb_2025", ("data/*.parquet",)))
HMMT26 = FileSet(parse_arena, Source("MathArena/hmmt_feb_2026", ("data/*.parquet",)))
BEYOND_AIME = FileSet(
    parse_competition, Source("ByteDance-Seed/BeyondAIME", ("*.parquet", "data/*.parquet"))
)
LIVE = FileSet(
    parse_live, Source("opencompass/LiveMathBench", ("*.jsonl", "*.parquet")), splits=("en", "cn")
)
AMC23 = FileSet(
    parse_competition, Source("math-ai/amc23", ("*.jsonl", "*.parquet", "data/*.parquet"))
)
