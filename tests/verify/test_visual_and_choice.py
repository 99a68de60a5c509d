"""Answers to pictures, and lettered choices."""

from __future__ import annotations

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify import verify, verify_many
from rlbhpc.verify.kinds.math import FINGERPRINT as MATH
from rlbhpc.verify.verdict import Status


def vista(gold: str, kind: str, precision: float | None = None, unit: str | None = None) -> Problem:
    extras = {"answer_type": kind, "precision": precision, "unit": unit}
    return Problem("mathvista/1", {"question": "?"}, gold, "visual", extras)


@pytest.mark.parametrize(
    ("gold", "kind", "precision", "answer", "expected"),
    [
        ("5", "integer", None, "5", True),
        ("5", "integer", None, "5.0", True),
        ("5", "integer", None, "5.3", False),
        ("0.3", "float", 1.0, "0.3", True),
        ("0.3", "float", 1.0, "0.31", True),
        ("0.3", "float", 1.0, "0.349", True),
        ("0.3", "float", 1.0, "0.36", False),
        ("0.3", "float", 1.0, r"\frac{1}{3}", True),
        ("0.3", "float", 1.0, "30", False),
        ("1.45", "float", 2.0, "1.4", False),
        ("1.45", "float", 2.0, "1.454", True),
        ("0.3", "float", None, "0.31", False),
        ("[1, 2]", "list", None, "[1, 2]", True),
        ("[1, 2]", "list", None, "1, 2", True),
        ("[1, 2]", "list", None, "(1, 2)", True),
        ("[1, 2]", "list", None, r"\left[1,2\right]", True),
        ("[1, 2]", "list", None, "[2, 1]", False),
        ("[1, 2]", "list", None, "1", False),
        ("[1, 2, 3]", "list", None, "[1, 2]", False),
        ("['a', 'b']", "list", None, "['a', 'b']", True),
        ("Yes", "text", None, r"\text{yes}", True),
        ("Yes", "text", None, r"\text{no}", False),
        ("Evelyn", "text", None, r"\text{Evelyn}", True),
    ],
)
def test_precision_lists_and_texts(gold, kind, precision, answer, expected):
    verdict = verify("visual", gold, f"\\boxed{{{answer}}}", vista(gold, kind, precision))
    assert verdict.right == expected, verdict


def test_a_unit_may_be_dropped_but_not_contradicted():
    problem = vista("1.5", "float", 1.0, "cm")
    said = ["1.5", r"1.5\text{ cm}", r"15\text{ mm}", r"1.5\text{ m}"]
    verdicts = verify_many("visual", [("1.5", f"\\boxed{{{text}}}", problem) for text in said])
    assert [verdict.right for verdict in verdicts] == [True, True, True, False]


def test_a_picture_answer_stands_on_the_math_graders_versions():
    assert MATH in verify("visual", "5", r"\boxed{5}").grader


OPTIONS = Problem(
    "made/1", {"question": "?"}, "B", "choice", {"choices": ["12", "13", r"\frac{1}{2}", "east"]}
)


@pytest.mark.parametrize(
    ("gold", "response", "status"),
    [
        ("B", r"\boxed{B}", Status.RIGHT),
        ("B", r"\boxed{\textbf{(B)}\ 13}", Status.RIGHT),
        ("B", r"\boxed{13}", Status.RIGHT),
        ("B", r"\boxed{\text{b}}", Status.RIGHT),
        ("B", "The answer is (B).", Status.RIGHT),
        ("B", "The answer is B. 13", Status.RIGHT),
        ("B", r"\boxed{A}", Status.WRONG),
        ("B", r"\boxed{12}", Status.WRONG),
        ("B", r"\boxed{\text{(B) } 12}", Status.NO_ANSWER),
        ("B", r"\boxed{A, B}", Status.NO_ANSWER),
        ("B", r"\boxed{A \text{ or } B}", Status.NO_ANSWER),
        ("B", r"\boxed{14}", Status.NO_ANSWER),
        ("B", r"\boxed{AB}", Status.NO_ANSWER),
        ("B", r"\boxed{z}", Status.NO_ANSWER),
        ("B", "A careful look shows nothing", Status.NO_ANSWER),
        ("C", r"\boxed{0.5}", Status.RIGHT),
        ("D", r"\boxed{\text{East}}", Status.RIGHT),
        ("13", r"\boxed{B}", Status.RIGHT),
        ("13", r"\boxed{C}", Status.WRONG),
    ],
)
def test_choices(gold, response, status):
    assert verify("choice", gold, response, OPTIONS).status is status


def test_choices_without_known_options():
    assert verify("choice", "C", r"\boxed{\text{(C)}}").right
    assert not verify("choice", "A", "A careful analysis shows \\boxed{B}").right
