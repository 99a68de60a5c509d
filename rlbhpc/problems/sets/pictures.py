"""Questions with a figure: Geometry3K, MathVista and MathVision."""

from __future__ import annotations

import re

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


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
