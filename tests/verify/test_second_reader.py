"""Math-Verify as second grader: what it agrees to, and which veto speaks against its yes."""

from __future__ import annotations

import pytest

from rlbhpc.verify.running.second_reader import decide

SUM = r"\sum_{k=1}^{4} k"


@pytest.mark.parametrize(
    ("gold", "answer", "why"),
    [
        ("5", "5", ""), (r"\frac12", "0.5", ""), ("2x", "x+x", ""), ("x_1", "x_1", ""),
        ("x=5", "x=5", ""), ("x<5", "x<5", ""), (r"\{1,2\}", r"\{2,1\}", ""),
        ("(1,2)", "(1,2)", ""),
        ("5", "6", "symbolic"), ("x", "y", "symbolic"), ("0.3333", r"\frac13", "symbolic"),
        ("{", "5", "unparsed"), ("5", r"\begin{oops}", "unparsed"),
        (SUM, SUM, ""), (SUM, "10", ""),
        ("10", SUM, "veto unevaluated"),
        ("0.5", r"\int_0^1 x dx", "veto unevaluated"),
        (r"\frac{x^2}{2}", r"\int x dx", "veto unevaluated"),
        ("5", "x=5", "veto other_symbols"), ("x=5", "5", "veto other_symbols"),
        ("204_5", "204_6", "veto subscripts"), (r"x_{12}", r"x_{ 12 }", ""),
        (r"\{1,2\}", "(1,2)", "veto brackets"),
        ("(1,2)", r"\{1,2\}", "veto brackets"),
        ("5", "2+3=5", "veto half_equation"), ("10", r"\prod_{k=1}^{1} 10", "veto unevaluated"),
        (r"\text{a}", "a", "veto words"), ("a", r"\text{a}", "veto words"),
        ("0.33333333", "0.333333333", "veto apart"), ("0.3333333333", "0.33333333333", ""),
    ],
)  # fmt: skip
def test_decisions(gold: str, answer: str, why: str) -> None:
    decision = decide({"gold": gold, "answer": answer})
    assert decision == {"equal": not why, "why": why or "symbolic"}
