"""Sets judged by tests, choices or words: programs, images, science."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Deferred, Record

# ---- questions -----------------------------------------------------------------------------------
# Questions of all subjects, such as MMLU-Pro and GPQA, and questions with a figure.


LETTERS = "ABCDEFGHIJ"


def parse_mmlu_pro(name: str, record: Record) -> Problem:
    """Turn a record of MMLU-Pro into a multiple-choice problem, whose gold answer is a letter.

    Up to ten options stand under the question, and in the extras for the verifier. ``name`` is the
    problem set; `record.text` refuses a record without the field.
    """
    options = [str(option) for option in record.need("options")]
    gold = record.text("answer")
    if gold not in LETTERS[: len(options)]:
        raise UserError(f"{record.place}: answer {gold!r} is none of {len(options)} options")
    question = with_options(record.text("question"), options)
    extras = {"choices": options, "category": record.optional_text("category")}
    return make_problem(name, record.optional_text("question_id"), question, gold, "choice", extras)


def with_options(question: str, options: list[str]) -> str:
    """A question with one lettered option a line."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question, "Options:", *lines])


def parse_gpqa(name: str, record: Record) -> Problem:
    """Turn a record of GPQA into a multiple-choice problem with four options.

    The file names the right option first, so the options are ordered by a hash, which is the same
    everywhere. Gold is the letter of the right one. ``name`` is the problem set; `record.text`
    refuses a record without the field.
    """
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


def parse_theoremqa(name: str, record: Record) -> Problem | None:
    """Turn a record of TheoremQA into a problem; None for a question with a picture.

    Gold is True or False for booleans, and for options a letter, which the file has in brackets:
    (b). ``name`` is the problem set; `record.text` refuses a record without the field.
    """
    if record.get("Picture"):
        return None
    kind = record.text("Answer_type")
    gold = record.text("Answer")
    verifier = "math"
    if kind == "option":
        gold = gold.strip().strip("()").upper()
        verifier = "choice"
    local_id, question = record.optional_text("id"), record.text("Question")
    return make_problem(name, local_id, question, gold, verifier, {"category": kind})


def parse_webinstruct(name: str, record: Record) -> Problem:
    """Turn a record of WebInstruct-verified into a problem.

    Most answers are free-form: the rules for mathematics judge what they can, and training by RLPR
    needs no judge. ``name`` is the problem set; `record.text` refuses a record without the field.
    """
    kind = record.optional_text("answer_type")
    return make_problem(
        name,
        record.optional_text("id"),
        record.text("question"),
        record.text("answer"),
        "choice" if kind == "Multiple Choice" else "math",
        {"category": record.optional_text("category"), "kind": kind},
    )


def parse_rlpr_train(name: str, record: Record) -> Problem:
    """Turn a record of RLPR's training set into a problem.

    The question is the only turn of the user in ``prompt``; gold is the reward's ground truth.
    `record.ground_truth` and `record.index` read the answer and the number that verl's format has.
    """
    turns = record.need("prompt")
    turns = turns if isinstance(turns, list) else []
    spoken = [turn for turn in turns if isinstance(turn, dict) and turn.get("role") == "user"]
    user_turns = [turn.get("content") for turn in spoken]
    if len(user_turns) != 1 or not isinstance(user_turns[0], str):
        raise UserError(f"{record.place}: `prompt` is no conversation with one user's turn")
    record.need("reward_model")
    gold = record.ground_truth()
    if gold is None:
        raise UserError(f"{record.place}: `reward_model` has no `ground_truth`")
    return make_problem(name, record.index(), user_turns[0], gold, "math")


MMLU_PRO = FileSet(
    parse_mmlu_pro, Source("TIGER-Lab/MMLU-Pro", ("data/*.parquet",)), splits=("test", "validation")
)
GPQA = FileSet(
    parse_gpqa, Source("Idavidrein/gpqa", ("*.csv",)), splits=("diamond", "main", "extended")
)
THEOREMQA = FileSet(
    parse_theoremqa, Source("TIGER-Lab/TheoremQA", ("data/*.parquet",)), splits=("test",)
)
WEBINSTRUCT = FileSet(
    parse_webinstruct,
    Source("TIGER-Lab/WebInstruct-verified", ("data/*.parquet",)),
    splits=("test", "train"),
)
RLPR_TRAIN = FileSet(
    parse_rlpr_train, Source("openbmb/RLPR-Train-Dataset", ("*.parquet",)), splits=("train",)
)


def parse_geometry3k(name: str, record: Record) -> Problem:
    """The question's ``<image>`` mark goes: where the figure stands is the prompt's to say."""
    question = record.text("problem", "question").replace("<image>", "").strip()
    images = record.images("images", "image")
    local_id = record.optional_text("id")
    return make_problem(name, local_id, question, record.text("answer"), "math", images=images)


def parse_mathvista(name: str, record: Record) -> Problem | None:
    """Turn a record of MathVista into a problem with an image; None for multiple choice.

    At large k a guess among five options is right at least once, so such questions say nothing.
    ``precision`` is the number of decimals to which a float answer is to be given. ``name`` is the
    problem set; `record.text` refuses a record without the field.
    """
    if record.text("question_type") == "multi_choice":
        return None
    return make_problem(
        name,
        record.text("pid", "id"),
        record.text("question"),
        record.text("answer"),
        "visual",
        {
            "answer_type": record.text("answer_type"),
            "precision": record.get("precision"),
            "unit": record.optional_text("unit"),
        },
        record.images("decoded_image", "image"),
    )


def parse_mathvision(name: str, record: Record) -> Problem | None:
    """Turn a record of MathVision into a problem with an image; None for one with options.

    The ``<image1>`` marks are taken out of the question: where the figure stands is the prompt's to
    say. ``name`` is the problem set; `record.text` refuses a record without the field.
    """
    if record.get("options"):
        return None
    return make_problem(
        name,
        record.text("id"),
        re.sub(r"<image\d*>", "", record.text("question")).strip(),
        record.text("answer"),
        "math",
        {"level": record.optional_text("level"), "subject": record.optional_text("subject")},
        record.images("decoded_image", "image"),
    )


# 2,101 train, 300 validation and 601 test problems; of MathVista's testmini (1,000) the 460 and of
# MathVision's (304) the 114 without multiple choice.
GEOMETRY3K = FileSet(
    parse_geometry3k,
    Source("hiyouga/geometry3k", ("data/*.parquet",)),
    splits=("test", "train", "validation"),
)
MATHVISTA = FileSet(
    parse_mathvista, Source("AI4Math/MathVista", ("data/testmini*.parquet",)), splits=("testmini",)
)
MATHVISION = FileSet(
    parse_mathvision,
    Source("MathLLMs/MathVision", ("data/testmini*.parquet",)),
    splits=("testmini",),
)


# ---- code ----------------------------------------------------------------------------------------
# Programs judged by tests: HumanEval+, MBPP+ and LiveCodeBench.


# HumanEval+ v0.1.10 (164 problems) and MBPP+ v0.2.0 (378), as evalplus releases them.


EVALPLUS_INPUTS: Final = ("base_input", "plus_input")


def parse_evalplus(name: str, record: Record) -> Problem:
    """Turn a record of HumanEval+ or MBPP+ into a problem; tests decide, so gold is empty.

    Expected outputs follow from running ``prompt + canonical_solution``. ``tests`` holds the lists
    of argument lists ``base_input`` and ``plus_input`` as JSON has them; they are large, so they
    stay in their file until they are read (`Deferred`). MBPP+ needs them turned into tuples, sets
    and so on per task, which is the verifier's part.
    """
    prompt = record.text("prompt")
    return make_problem(
        name,
        record.text("task_id"),
        # evalplus strips the task before it puts it into a code fence.
        prompt.strip(),
        "",
        "code",
        {
            "format": "evalplus",
            "prompt": prompt,
            "entry_point": record.text("entry_point"),
            "canonical_solution": record.text("canonical_solution"),
            "contract": record.optional_text("contract"),
            "atol": record.get("atol") or 0,
            "tests": Deferred.of(record, *EVALPLUS_INPUTS),
        },
    )


def _evalplus_set(path: str) -> FileSet:
    return FileSet(
        parse_evalplus, Source(urls=(f"https://github.com/evalplus/{path}",)), big=EVALPLUS_INPUTS
    )


HUMANEVAL = _evalplus_set("humanevalplus_release/releases/download/v0.1.10/HumanEvalPlus.jsonl.gz")
MBPP = _evalplus_set("mbppplus_release/releases/download/v0.2.0/MbppPlus.jsonl.gz")


# LiveCodeBench, code generation, release v5: 880 problems of May 2023 to January 2025.
#
# "v5" is used for two things: the whole release, and the window 2024-08 to 2025-01 (279 problems).
# They differ by 15 points of pass@1 in some papers, so a study must say which it means.


# What the benchmark itself lists as unsound, by question id (AtCoder) or title (LeetCode). Results
# are worth reporting with and without: subset `2024-08..2025-01/sound`.
ERRATA: Final = {
    **dict.fromkeys(
        (
            "abc311_c", "abc326_d", "abc327_b", "abc333_e", "abc343_e", "abc362_c",
            "find-words-containing-character", "find-the-peaks",
            "generate-binary-strings-without-adjacent-zeros",
        ),
        "several outputs are right, one is accepted",
    ),
    **dict.fromkeys(("abc337_e", "abc355_e"), "interactive"),
    **dict.fromkeys(
        ("abc350_c", "apply-operations-to-make-string-empty", "most-frequent-ids"),
        "wrong tests",
    ),
}  # fmt: skip

# The two sentences of lcb_runner, byte for byte.
WITH_STARTER: Final = (
    "You will use the following starter code to write the solution to the problem and enclose "
    "your code within delimiters."
)
WITHOUT_STARTER: Final = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly "
    "test on the sample inputs). Enclose your code within delimiters as follows. Ensure that when "
    "the python program runs, it reads the inputs, runs the algorithm and writes output to STDOUT."
)
LIVECODEBENCH_TESTS: Final = ("private_test_cases",)
_WINDOW: Final = re.compile(r"(\d{4}-\d{2}(?:-\d{2})?)\.\.(\d{4}-\d{2}(?:-\d{2})?)")


def parse_livecodebench(name: str, record: Record) -> Problem | None:
    """Turn a record of LiveCodeBench into a problem; None for one that belongs to a later release.

    The question is the statement and the ``### Format:`` block with the starter code. Tests decide,
    so gold is empty. ``tests`` are the private tests as published: JSON, or base64 of zlib of a
    pickled string, read and unpacked only when a program is judged (`Deferred`). ``erratum`` says
    what is known to be wrong with the problem.
    """
    if record.file.name == "test6.jsonl":
        return None  # The sixth part belongs to release v6.
    starter = record.optional_text("starter_code")
    sentence = WITH_STARTER if starter else WITHOUT_STARTER
    code = starter or "# YOUR CODE HERE"
    local_id = record.text("question_id")
    title = record.optional_text("question_title")
    return make_problem(
        name,
        local_id,
        f"{record.text('question_content')}\n\n### Format: {sentence}\n```python\n{code}\n```",
        "",
        "code",
        {
            "format": "livecodebench",
            "date": _contest_day(record).isoformat(),
            "platform": record.optional_text("platform"),
            "difficulty": record.optional_text("difficulty"),
            "starter_code": starter,
            "func_name": _read_metadata(record).get("func_name") or "",
            "public_tests": record.text("public_test_cases"),
            "tests": Deferred.of(record, *LIVECODEBENCH_TESTS),
            "erratum": ERRATA.get(local_id) or ERRATA.get(_title_slug(title), ""),
        },
    )


def narrow(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """Return the problems of a subset of LiveCodeBench; None for a name that it does not have.

    The subset is a window ``FROM..TO`` of contest days or months, both ends included; ``all``; or
    ``sound``, those without a known error.
    """
    if subset == "all":
        return list(problems)
    if subset == "sound":
        return [problem for problem in problems if not problem.extras["erratum"]]
    match = _WINDOW.fullmatch(subset)
    if match is None:
        return None
    # As text "2025-01-31" < "2025-01~", so a month includes all of its days.
    first, last = match[1], match[2] + "~"
    return [problem for problem in problems if first <= problem.extras["date"] <= last]


def _contest_day(record: Record) -> date:
    """Return the day of a problem's contest, by which windows of dates are cut."""
    value = record.need("contest_date")
    if isinstance(value, datetime):
        return value.date()
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        raise UserError(f"{record.place}: contest_date {value!r} is no date") from None


def _read_metadata(record: Record) -> dict[str, str]:
    """Return a record's field ``metadata``, which is JSON inside JSON; empty if there is none."""
    value = record.get("metadata") or {}
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{record.place}: field `metadata` is not a JSON object")
    return value


def _title_slug(title: str) -> str:
    """LeetCode's way of writing a title in an address; the errata use it."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


LIVECODEBENCH = FileSet(
    parse_livecodebench,
    Source("livecodebench/code_generation_lite", tuple(f"test{n}.jsonl" for n in ("", 2, 3, 4, 5))),
    narrow=narrow,
    subsets=("all", "FROM..TO", "sound"),
    subset_needed="a window of contest dates such as 2024-08..2025-01, or `all`",
    big=LIVECODEBENCH_TESTS,
)
