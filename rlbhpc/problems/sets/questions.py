"""Questions of all subjects, such as MMLU-Pro and GPQA, and questions with a figure."""

from __future__ import annotations

import hashlib
import re

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record

LETTERS = "ABCDEFGHIJ"


def parse_mmlu_pro(name: str, record: Record) -> Problem:
    """The letter is the gold; up to ten options stand under the question, and with the verifier."""
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
    """Order the four options by a hash: the file names the right one first."""
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
    """Booleans are the words True and False; options are letters in brackets, such as (b).

    Questions with a picture are left out.
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
    """Free-form answers: rules judge what they can, and RLPR needs no judge."""
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
    """The user's turn is the question, the reward's ground truth the reference answer."""
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
    """Multiple choice is left out: at large k a guess among five is always right once.

    ``precision`` is the number of decimals to which a float answer is to be given.
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
    """Problems with options are left out; the question's ``<image1>`` marks go."""
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
