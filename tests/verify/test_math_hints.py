"""What a problem says of its gold answer: its unit, its kind, how many it has, its rounding."""

from __future__ import annotations

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify import verify
from tests.verify.test_math import boxed


def olympiad(gold: str, **extras: object) -> Problem:
    return Problem("olympiadbench/0", {"question": ""}, gold, "math", extras)


@pytest.mark.parametrize(
    ("gold", "extras", "answer", "expected"),
    [
        ("27,54,108,135", {"is_multiple_answer": True}, "135, 108, 54, 27", True),
        ("312,123,231", {"is_multiple_answer": True}, "123,231,312", True),
        ("312,123,231", {}, "123,231,312", False),
        ("45", {"unit": "minute"}, r"45 \text{ minutes}", True),
        ("45", {"unit": "minute"}, r"\frac34 \text{ hours}", True),
        ("45", {"unit": "minute"}, r"45 \text{ hours}", False),
        ("166", {"unit": "$cm^2$"}, r"166 \text{ cm}^2", True),
        ("166", {"unit": "$cm^2$"}, r"166 \text{ cm}", False),
        ("4.2", {"unit": "%", "error": "1e-1"}, "4.25", True),
        ("4.2", {"unit": "%", "error": "1e-1"}, "4.35", False),
        ("4.2", {"unit": "%", "error": "1e-1"}, r"0.042", True),
        ("4.2", {"unit": "%", "error": "1e-1"}, r"\frac{12}{169}", False),
        ("4.2", {}, "4.25", False),
        ("(2,5)", {"answer_type": "Interval"}, "2<x<5", True),
        ("[2,5]", {"answer_type": "Interval"}, r"2\le x\le 5", True),
        ("(1,2,3)", {"answer_type": "Interval"}, "(1,2,3)", True),
        ("(2,5)", {"answer_type": "Tuple"}, "2<x<5", False),
        ("(2,5)", {"answer_type": "Tuple"}, "2, 5", True),
        ("(2,5)", {}, "2, 5", False),
        ("[2,5]", {"answer_type": "Tuple"}, "2, 5", False),
        ("((1,2),(3,4))", {"answer_type": "Tuple"}, "((1,2),(3,4))", True),
        ("27,54", {"is_multiple_answer": True, "unit": "cm"}, "540 mm, 270 mm", True),
        ("27,54", {"is_multiple_answer": True, "unit": "cm"}, "27 m, 54 m", False),
        (r"5 \text{ cm}", {"unit": "m"}, r"5 \text{ m}", False),
        (r"5 \text{ cm}", {"unit": "m"}, r"0.05 \text{ m}", True),
        ("5", {"unit": "units"}, r"5 \text{ m}", True),
        ("5", {"unit": "nonsense and more"}, "5", True),
        ("90", {"unit": "^{\\circ}"}, r"\frac{\pi}{2}", True),
        ("90", {}, r"\frac{\pi}{2}", False),
    ],
)
def test_olympiadbench_fields_are_honoured(gold, extras, answer, expected):
    assert verify("math", gold, boxed(answer), olympiad(gold, **extras)).right == expected


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("0.36", "0.3571", True),
        ("0.36", "0.351", False),
        ("0.36", "0.4", False),
        ("0.5", "0.49", False),
        ("12", "12.3", False),
        ("12.34", "12.344", True),
        ("12.34", "12.36", False),
        ("2.2778e3", "2277.8", True),
    ],
)
def test_minerva_decimals_are_rounded_ones(gold, answer, expected):
    problem = Problem("minerva/0", {"question": ""}, gold, "math")
    assert verify("math", gold, boxed(answer), problem).right == expected
    if expected and "e" not in gold:
        assert not verify("math", gold, boxed(answer)).right
