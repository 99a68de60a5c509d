"""A witness can be replayed by somebody who shares no code with the verifier."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import mpmath
import pytest

from rlbhpc.verify import verify
from tests.verify.test_math import boxed, table

mpmath.mp.dps = 40
OPERATIONS = {
    "add": lambda *x: mpmath.fsum(x),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": lambda a, b: mpmath.power(a, b) if a else mpmath.mpf(0),
    "root": lambda n, a: mpmath.root(a, int(n)) if a > 0 or n == 2 else -mpmath.root(-a, int(n)),
    "abs": abs,
    "deg": mpmath.radians,
    "floor": mpmath.floor,
    "ceil": mpmath.ceil,
    "fact": mpmath.factorial,
    "binom": mpmath.binomial,
    "perm": lambda n, k: mpmath.factorial(n) / mpmath.factorial(n - k),
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "arccot": mpmath.acot,
    "lg": mpmath.log10,
    "cis": mpmath.expj,
    "gcd": lambda *x: math.gcd(*map(int, x)),
    "lcm": lambda *x: math.lcm(*map(int, x)),
    "max": max,
    "min": min,
}


def value(text: str, point: dict[str, Fraction]):
    """Evaluate a prefix expression; variables keep their dollar sign."""
    words = re.findall(r"[()]|[^\s()]+", text)

    def take():
        word = words.pop(0)
        if word != "(":
            number = point.get(word, word)
            if number in ("pi", "e"):
                return +getattr(mpmath.mp, number)
            if number == "i":
                return mpmath.mpc(0, 1)
            exact = Fraction(number)
            return mpmath.mpf(exact.numerator) / exact.denominator
        operation, args = words.pop(0), []
        while words[0] != ")":
            args.append(take())
        words.pop(0)
        return (OPERATIONS.get(operation) or getattr(mpmath, operation))(*args)

    return take()


def holds(claim: str) -> bool:
    """Whether one claim of a witness holds."""
    if " ~ " in claim:
        sides, margin = claim.split(" +- ")
        left, right = (value(side, {}) for side in sides.split(" ~ "))
        return abs(left - right) <= value(margin, {}) * (1 + mpmath.mpf(10) ** -6)
    sides, _, points = claim.partition(" @ ")
    left, right = sides.split(" = ")
    for text in points.split(" | ") if points else [""]:
        pairs = (pair.partition("=") for pair in text.split(",") if pair)
        point = {name: Fraction(number) for name, _, number in pairs}
        try:
            ours, theirs = value(left, point), value(right, point)
        except ZeroDivisionError:
            continue
        real = not (mpmath.im(ours) or mpmath.im(theirs)) or "i" in sides.split()
        if real and abs(ours - theirs) > mpmath.mpf(10) ** -25 * max(1, abs(ours)):
            return False
    return True


def test_every_right_answer_has_a_witness_that_holds():
    replayed, broken = 0, []
    for _, gold, answer, right in table("math_answers.tsv"):
        verdict = verify("math", gold, boxed(answer))
        claims = [part for part in verdict.witness.split("; ") if part and part[0] != '"']
        if not right or any(sign in verdict.witness for sign in ("app:", "oo", '"', " arg ")):
            continue
        replayed += bool(claims)
        broken += [(gold, answer, claim) for claim in claims if not holds(claim)]
    assert replayed > 300
    assert not broken


@pytest.mark.parametrize("claim", ["1/2 = 1/3", "(mul $x 2) = $x @ $x=1", "2 ~ 3 +- 1/2"])
def test_a_false_claim_does_not_hold(claim):
    assert not holds(claim)
