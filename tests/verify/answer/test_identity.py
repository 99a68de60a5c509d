"""Identity of expressions: equal on one branch is not equal."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify

DIFFERENT = [
    ("|x|+|y|", "|x+y|"),
    ("|ab|", "ab"),
    (r"\left\lfloor\frac{n}{2024}\right\rfloor", r"\left\lfloor\frac{n}{2025}\right\rfloor"),
    (r"\lfloor n/100 \rfloor", "0"),
    (r"\lceil x \rceil", r"\lfloor x \rfloor + 1"),
    (r"\lceil n/3 \rceil", r"\lfloor n/3 \rfloor + 1"),
    (r"\lfloor 2x \rfloor", r"2\lfloor x \rfloor"),
    (r"\lfloor x+y \rfloor", r"\lfloor x \rfloor + \lfloor y \rfloor"),
    (r"\left\lfloor\frac{n+5000}{10000}\right\rfloor", r"\left\lfloor\frac{n}{10000}\right\rfloor"),
    ("|x-1000|", "1000-x"),
    ("|2x-1000|", "1000-2x"),
    ("|x-5|+|x-6|", "|2x-11|"),
    ("|x|", "x"),
    ("|a-b|", "a-b"),
    ("|a-b|", "b-a"),
    (r"\sqrt{x^2}", "x"),
    (r"\sqrt{(x-7)^2}", "7-x"),
    (r"\sqrt{x^2y^2}", "xy"),
    (r"\sqrt{a^2-2ab+b^2}", "a-b"),
    (r"\max(x, 40)", "40"),
    (r"\min(a,b)", "a"),
    (r"\arcsin(\sin x)", "x"),
    (r"\arctan x + \arctan\frac1x", r"\frac{\pi}{2}"),
    ("(x^2)^{3/2}", "x^3"),
    (r"\sqrt[4]{x^4}", "x"),
    (r"\frac{|x|}{x}", "1"),
    (r"\frac{|x|}{x}", "-1"),
]
SAME = [
    ("|x-3|", "|3-x|"),
    ("|ab|", "|a||b|"),
    (r"\sqrt{x^2}", "|x|"),
    (r"\sqrt{ab}", r"\sqrt a \sqrt b"),
    (r"\max(a,b)", r"\frac{a+b+|a-b|}{2}"),
    (r"\lceil x \rceil", r"-\lfloor -x \rfloor"),
    (r"\lfloor n/2 \rfloor", r"\frac{2n-1+(-1)^n}{4}"),
    (r"\lceil n/2 \rceil", r"\lfloor (n+1)/2 \rfloor"),
    (r"\left\lfloor\frac{n}{2024}\right\rfloor", r"\left\lfloor\frac{2n}{4048}\right\rfloor"),
    (r"\ln(xy)", r"\ln x + \ln y"),
    (r"x^{\frac12}", r"\sqrt{x}"),
    (r"\sqrt[3]{x}", r"x^{1/3}"),
    ("(-1)^n", r"(-1)^{n+2}"),
    (r"\sin^2 x", r"\frac{1-\cos 2x}{2}"),
    (r"\frac{1}{\sqrt{x}+1}", r"\frac{\sqrt{x}-1}{x-1}"),
    (r"\arctan x", r"\arcsin\frac{x}{\sqrt{1+x^2}}"),
    ("e^{x+y}", "e^x e^y"),
    (r"\log_2 x", r"\frac{\ln x}{\ln 2}"),
    ("(a+b)^2", "a^2+2ab+b^2"),
]


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_equal_on_one_branch_only_is_different(gold, answer):
    for ours, theirs in ((gold, answer), (answer, gold)):
        verdict = verify("math", ours, rf"\boxed{{{theirs}}}")
        assert not verdict.right, verdict


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_equal_wherever_both_are_real_is_the_same(gold, answer):
    for ours, theirs in ((gold, answer), (answer, gold)):
        verdict = verify("math", ours, rf"\boxed{{{theirs}}}")
        assert verdict.right, verdict
