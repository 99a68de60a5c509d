"""Families of notation that honest models write, and their near misses."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify

CASES = [
    (r"\frac{\sqrt3}{3}", r"\frac{\sqrt3}{3}≈0.577", True), (r"\frac{\sqrt3}{3}", "0.577", False),
    (r"\frac{\sqrt3}{3}", r"\frac{1}{\sqrt{3}} \approx 0.58", True),
    ("(0,2)", r"(0,1)\cup(1,2)", False), ("[0,3]", r"[0,2)\cup(2,3]", False),
    (r"(0,1)\cup(1,2)", "(0,2)", False), (r"[0,1]\cup\{2\}", r"[0,1]\cup\{2\}", True),
    (r"\{1,2\}", r"\text{The set }\{1,2\}", True), (r"\{1,2\}", r"\text{The set }\{1,3\}", False),
    ("(3,4)", r"\text{the point }(3,4)", True), ("[0,1)", r"\text{the interval } [0,1)", True),
    ("5", r"\text{at most } 5", False), ("5", r"\text{not } 5", False), ("Ae^x", "Ce^{2x}", False),
    ("x^2+C", "x^3+K", False), ("A", "B", False), ("ax+b", "cx+d", False), ("Ax", "Bx", False),
    ("kx", "cx", False), ("100000", "1,00,00", False), ("10,20,300", "300, 20, 10", True),
    ("(2,3)", "3i+2j", False), ("(2,3)", "2i+3j+k", False), ("(2,3)", "2+3i", False),
    ("12", "12元", True), ("3", "3 厘米", True), ("1", "1或2", False),
    ("C", "故选：D", False), ("y''", r"y^{\prime\prime}", True), ("y'", r"y^{\prime\prime}", False),
    ("y'", r"y^{\prime}", True), ("f''(x)", r"f^{\prime\prime}(x)", True),
    ("5", r"\text{The maximum value } 5", True),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "right"), CASES)
def test_family(gold, answer, right):
    verdict = verify("math", gold, f"\\boxed{{{answer}}}")
    assert verdict.right == right, verdict
