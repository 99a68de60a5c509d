"""Families of notation that honest models write, and their near misses."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify

CASES = [
    (r"\frac{\sqrt3}{3}", r"\frac{\sqrt3}{3}≈0.577", True), (r"\frac{\sqrt3}{3}", "0.577", False),
    (r"\frac{\sqrt3}{3}", r"\frac{1}{\sqrt{3}} \approx 0.58", True),
    ("(0,2)", r"(0,1)\cup[1,2)", True), ("(0,2)", r"(0,1)\cup(1,2)", False),
    ("(0,2)", r"(0,1)\cup\{1\}\cup(1,2)", True), (r"(-\infty,5)", r"(-\infty,3]\cup(3,5)", True),
    (r"[2,\infty)", r"[2,\infty)\cup(10^{400},\infty)", True),
    ("[0,3]", r"[0,2]\cup[1,3]", True), ("[0,3]", r"[0,2)\cup(2,3]", False),
    (r"(0,1)\cup(1,2)", "(0,2)", False), (r"[0,1]\cup\{2\}", r"[0,1]\cup\{2\}", True),
    (r"\{1,2\}", r"\text{The set }\{1,2\}", True), (r"\{1,2\}", r"\text{The set }\{1,3\}", False),
    ("(3,4)", r"\text{the point }(3,4)", True), ("[0,1)", r"\text{the interval } [0,1)", True),
    ("5", r"\text{at most } 5", False), ("5", r"\text{not } 5", False),
    ("Ae^x", "Ce^x", True), ("Ae^x", "Ce^{2x}", False), ("x^2+C", "x^2+K", True),
    ("x^2+C", "x^2+c", True), ("x^2+C", "x^3+K", False),
    (r"C_1e^x+C_2e^{-x}", "Ae^x+Be^{-x}", True),
    (r"C_1e^x+C_2xe^x", "(A+Bx)e^x", True), ("A", "B", False), ("ax+b", "cx+d", False),
    ("Ax", "Bx", False), ("kx", "cx", False),
    ("100000", "1,00,000", True), ("100000", "1,00,00", False), ("1,00,000", "100000", True),
    ("10,20,300", "300, 20, 10", True), ("205000", "2,05,000", True),
    ("(2,3)", "2i+3j", True), ("(2,3)", "3i+2j", False), ("(2,-3,1)", "2i-3j+k", True),
    (r"\langle 2,3\rangle", r"2\mathbf{i}+3\mathbf{j}", True), ("2i+3j", "(2,3)", True),
    (r"\begin{pmatrix}2\\3\end{pmatrix}", r"2\hat{i}+3\hat{j}", True), ("(2,3,0)", "2i+3j", True),
    ("(2,3)", "2i+3j+k", False), ("2+3i", "2+3j", True), ("(2,3)", "2+3i", False),
    ("5", "5个", True), ("12", "12元", True), ("3", "3 厘米", True), ("1,2", "1或2", True),
    ("1", "1或2", False), ("C", "故选：C", True), ("C", "故选：D", False),
    (r"\emptyset", "无解", True),
    ("B", "选B", True), ("5", "约5", True), ("-1,3", "x=-1或x=3", True),
    ("y''", r"y^{\prime\prime}", True), ("y'", r"y^{\prime\prime}", False),
    ("y'", r"y^{\prime}", True), ("f''(x)", r"f^{\prime\prime}(x)", True),
    ("-\\frac12", r"-{1 \over 2}", True), ("5", r"\text{The maximum value } 5", True),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "right"), CASES)
def test_family(gold, answer, right):
    verdict = verify("math", gold, f"\\boxed{{{answer}}}")
    assert verdict.right == right, verdict
