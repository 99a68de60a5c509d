"""Texts as models write them on competition mathematics: prose, LaTeX, inequalities, a last box.

Every response draws its own sentences and its own numbers, so two of them differ over their whole
length and not only in their ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

_OPENINGS: Final = (
    "To solve this problem, we first set up the notation: let $x = {a}$ and $y > {b}$.",
    "Okay, so we are told that ${a} < n < {c}$, and we need to find how many such $n$ work.",
    "Let's break it down step by step. Denote by $S_{{{a}}}$ the sum of the first {a} terms.",
    "We start from the constraint $x + y \\le {c}$ with $x, y > 0$.",
    "**Step 1: Understand the problem.** We want all real $x$ with $|x - {a}| < {b}$.",
)
_SENTENCES: Final = (
    "Since ${a} > {b}$, the inequality $x^2 - {a}x + {b} < 0$ holds between its two roots.",
    "Expanding, we get $(x + {a})(x - {b}) = x^2 + {c}x - {d}$, which is positive for $x > {b}$.",
    "By the AM-GM inequality, $\\frac{{a + b}}{{2}} \\geq \\sqrt{{ab}}$, so the minimum is at "
    "least $2\\sqrt{{{c}}}$.",
    "Now consider the case $x < {a}$: then $f(x) = {b}x + {c}$, which is increasing.",
    "For the second case, $x \\ge {a}$, we have $f(x) = -{b}x + {d}$ and hence $f(x) < {c}$.",
    "Substituting back into the first equation gives\n\\[\n{a}x + {b}y = {c} \\implies y = "
    "\\frac{{{c} - {a}x}}{{{b}}}.\n\\]",
    "Therefore $\\sum_{{k=1}}^{{{a}}} k = \\frac{{{a} \\cdot {b}}}{{2}} = {c}$.",
    "We can check small values: for $n = {a}$ we get ${b} < {c}$, and for $n = {d}$ it fails.",
    "The discriminant is $\\Delta = {a}^2 - 4 \\cdot {b} \\cdot {c} = {d} > 0$, so there are two "
    "distinct real roots.",
    "Note that $\\gcd({a}, {b}) = 1$, so there are integers $u, v$ with ${a}u + {b}v = 1$.",
    "Using the law of cosines, $c^2 = {a}^2 + {b}^2 - 2 \\cdot {a} \\cdot {b} \\cos C$, which is "
    "less than ${c}$ exactly when $\\cos C > \\frac{{{d}}}{{{a}}}$.",
    "This means that the probability is $P(X > {a}) = 1 - P(X \\leq {a}) = \\frac{{{b}}}{{{c}}}$.",
    "Wait, let me reconsider. If $x = {a}$ then $x^2 = {b}$, but we need $x^2 < {c}$.",
    "**Step {e}:** Simplify the expression.\n\n$$\\frac{{{a}x^2 - {b}x}}{{x}} = {a}x - {b}, \\quad "
    "x \\neq 0$$",
    "So the sequence satisfies $a_{{n+1}} = {a}a_n - {b}$ for all $n \\geq 1$, with $a_1 = {c}$.",
    "Modulo {a}, we have ${b} \\equiv {c} \\pmod{{{a}}}$, which rules out the odd values.",
    "- If $k = {a}$, then there are $\\binom{{{b}}}{{{e}}}$ ways to choose the remaining elements.",
    "- If $k > {a}$, no arrangement is possible, because ${b} + {c} > {d}$.",
    "Let $M$ be the midpoint of $\\overline{{AB}}$; then $AM = MB = {a}$ and $\\angle AMC = "
    "{b}^\\circ$.",
    "Differentiating, $f'(x) = {a}x^2 - {b}x + {c}$, and $f'(x) = 0$ when $x = \\frac{{{b} \\pm "
    "\\sqrt{{{d}}}}}{{{a}}}$.",
    "The area of the triangle is $\\frac{{1}}{{2}} \\cdot {a} \\cdot {b} = {c}$ square units.",
    "Combining both, ${a} \\le x < {b}$ and $x \\neq {c}$, so the solution set is an interval.",
    "Hmm, that gives {a}, which is larger than {b}; let me double-check the arithmetic: "
    "{a} - {b} = {c}.",
    "Multiplying both sides by ${a}$ (which is $> 0$, so the direction is kept) we obtain "
    "${b}x > {c}$.",
    "```python\nfor x in range({a}, {b}):\n    if x % {e} == 0 and x < {c}:\n        n += 1\n```",
    "As $x \\to \\infty$, the ratio $\\frac{{{a}x + {b}}}{{{c}x - {d}}}$ tends to "
    "$\\frac{{{a}}}{{{c}}}$.",
)  # fmt: skip
_CLOSINGS: Final = (
    "Therefore, the answer is $\\boxed{{{answer}}}$.",
    "Thus, the final answer is\n\\[\n\\boxed{{{answer}}}\n\\]",
    "So we get $$\\boxed{{{answer}}}$$",
    "**Final Answer:** \\(\\boxed{{{answer}}}\\)",
    "Hence the value we are looking for is $\\boxed{{{answer}}}$, as required.",
)
LENGTH: Final = 2900


def answers(draw: random.Random) -> Iterator[str]:
    """Answers in the shapes of MATH500's gold answers: numbers, closed forms, tuples, …"""
    while True:
        a, b, c = draw.randrange(2, 10**6), draw.randrange(2, 999), draw.randrange(2, 99)
        shapes = [str(a)] * 12 + [f"{a}.{b}", f"-{a}", f"{a:,}", rf"\frac{{{a}}}{{{b}}}"] + [
            rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}", rf"{a}\sqrt{{{b}}}", rf"{b}\pi", rf"{a}+{b}i",
            f"{c}x^2-{b}x+{a}", rf"{a}^\circ", f"({a},{b})", f"({b},{a}]", f"{a},{b}",
            f"{a:o}_{{8}}",
            rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}", rf"\text{{ {b} cm}}",
        ]  # fmt: skip
        yield draw.choice(shapes)


def response(draw: random.Random, answer: str) -> str:
    """Write a response of about 2,900 characters that commits to an answer."""
    sentences = [_sentence(draw, _OPENINGS)]
    length = len(sentences[0])
    while length < LENGTH - 80:
        sentence = _sentence(draw, _SENTENCES)
        sentences.append(sentence)
        length += len(sentence) + 1
    sentences.append(draw.choice(_CLOSINGS).format(answer=answer))
    return draw.choice((" ", "\n", "\n\n")).join(sentences)


def _sentence(draw: random.Random, templates: tuple[str, ...]) -> str:
    a, b, c, d = (int(draw.random() * 1000) + 2 for _ in range(4))
    return draw.choice(templates).format(a=a, b=b, c=c, d=d, e=a % 8 + 1)
