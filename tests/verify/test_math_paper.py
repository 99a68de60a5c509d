"""The study's own grader: what it takes for the answer, and by which of its rules it accepts it."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.answer.lexer import MAX_CHARS
from rlbhpc.verify.kinds import math_paper
from rlbhpc.verify.verdict import Status

MATRIX = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"


# What each rule takes, and the response that it takes it from.
TAKEN = {
    "box": {
        r"so $\boxed{\frac{1}{2}}$": r"\frac{1}{2}", r"\boxed{4} or \boxed{5}.": "5",
        r"\boxed 5$ and 7": "5", r"\boxed{5": "5", r"\boxed{ 5. }": "5",
    },
    "phrase": {
        "The answer is 41. No, the answer is 42.": "42", "the final answer is: 42/.": "42",
        "答案是 7": "7", "The answer is 5\nand not 6": "5",
    },
    "last number": {
        "From 1,234 it is 5,678.": "5678", "We get 4, then -5.5": "-5.5", "so .5": ".5",
    },
}  # fmt: skip


@pytest.mark.parametrize("rule", TAKEN)
def test_what_is_taken_for_the_answer(rule: str) -> None:
    for response, answer in TAKEN[rule].items():
        verdict = verify("math-paper", answer, response)
        assert (verdict.answer, verdict.rule) == (answer, f"{rule}/text")
        assert math_paper.distinct(response) == answer


@pytest.mark.parametrize("response", ["I don't know", "The answer is", r"5, or \boxed{}"])
def test_no_answer(response: str) -> None:
    verdict = verify("math-paper", "5", response)
    assert (verdict.status, verdict.answer) == (Status.NO_ANSWER, "")
    assert verdict.rule == "no answer"


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        ("5", "x=5", "text"), ("50", r"50\%", "text"), ("x^2", "X^2", "text"),
        ("East", r"\text{east}", "text"), ("90", r"90^{\circ}", "value"),
        ("90", r"90^\degree", "text"), ("2^3", "23", ""),
        # A number is near its like, and all are that differ by a factor of a hundred.
        ("10000", "10001", "number"), ("10000", "10002", ""), ("10000", "9999", "number"),
        ("10000", "9998", ""), ("10001", "10000", "number"), ("1,000", "1000.0", "number"),
        ("0", "0.0", "number"), ("0", "0.00001", ""), ("5", "0", ""), ("1e5", "100000", "number"),
        ("50", "0.5", "gold / 100"), ("0.5", "50", "gold · 100"), ("0.5", "5", ""),
        ("(1,2)", "1,2", "text without brackets"), ("[1,2]", "(1,2)", "text without brackets"),
        (r"\{1,2\}", "1,2", "text without brackets"), ("1,2", "2,1", ""),
        ("5", r"5\text{ cm}", "value"), (r"90^\circ", "90", "value"), ("5", "y=5", "value"),
        (r"\frac12", "0.5", "value"), (r"\frac13", "0.3333", "value"), (r"\frac13", "0.333", ""),
        (r"\sqrt{-1}", "i", "value"), ("5", r"\frac10", ""), (r"\frac20", r"\frac10", ""),
        ("x+1", "1+x", "value"), ("x+1", "x+2", ""), ("5", "x-x+5", "value"),
        ("5", "x", ""), ("x", r"\frac52", ""),
        ("12", r"\text{(B) }12.0", "value"), (r"\text{(B) }12", r"\frac{24}{2}", "value"),
        ("(1,2)", r"(\frac22,2)", "value"), ("(1,2)", r"(\frac42,1)", ""),
        ("(1,2)", r"(\frac22,2,3)", ""), ("x=1,x=2", r"\frac22,2", "value"),
        ("(1,2)", r"(\frac22,\text{east})", ""), ("1", r"(\frac22,2)", ""),
        ("((1,2),3)", r"(1,2,\frac62)", "value"), (MATRIX, r"(1,2,3,\frac82)", "value"),
        (MATRIX, r"(1,2,3,\frac72)", ""), (MATRIX, MATRIX.replace("4", r"\frac82"), "value"),
        (r"(-\infty,5)", r"x<\frac{10}{2}", "value"), (r"(5,\infty)", r"x>\frac{10}{2}", "value"),
        (r"(5,\infty)", r"x<\frac{10}{2}", ""), ("(5,6)", r"x>\frac{10}{2}", ""),
        (r"(0,1)\cup(2,3)", r"(0,\frac22)\cup[2,3]", "value"),
        (r"(0,1)\cup\{2\}", r"(0,\frac22)\cup\{2\}", "value"), (r"(0,1)\cup\{2\}", "(0,1)", ""),
        ("x+y=3", "y+x-3=0", "value"), ("x+y=3", "3=x+y", "value"), ("x+y=3", "x+y=4", ""),
        ("x+y=3", "x+y", ""), ("y=2x", "2x", "value"),
        ("B", r"\text{(B)}", "text without brackets"),
        (r"\text{no solution}", r"\emptyset", "value"), (r"\text{no solution}", "AB", ""),
        ("+".join("1" * 4), "4", "value"), ("+".join("1" * MAX_CHARS), "+1" * MAX_CHARS, ""),
    ],
)  # fmt: skip
def test_which_rule_accepts_it(gold: str, answer: str, rule: str) -> None:
    verdict = verify("math-paper", gold, f"\\boxed{{{answer}}}")
    assert verdict.rule == f"box/{rule or 'different'}"
    assert verdict.right == bool(rule)
    assert verdict.answer == answer[:MAX_CHARS]
    assert len(verdict.canonical) <= MAX_CHARS
