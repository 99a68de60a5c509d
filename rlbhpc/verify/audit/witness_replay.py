"""Replay what a RIGHT rests on, without any code of the verifier that said so.

Reads the claims that :mod:`rlbhpc.verify.answer.witness` describes and computes them anew, in 60
digits. What it evaluates comes from model text, so it runs in a worker that can be killed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from mpmath.ctx_mp import MPContext

HOLDS, FAILS, UNKNOWN, TEXT = "holds", "fails", "cannot be computed", "equal text"
WORKER: Final = "rlbhpc.verify.audit.witness_replay:replay"

_MP: Any = MPContext()
_MP.dps = 60
_CLOSE: Final = _MP.mpf(10) ** -25
# What decimal notation of a margin may lose.
_ROUNDING: Final = 1 + _MP.mpf(10) ** -6
_LARGEST_FACTORIAL: Final = 10_000
_CLAIM: Final = re.compile(r'(?:"[^"]*"|[^;"])+')
_TEXTS: Final = re.compile(r'"([^"]*)"(?: = "([^"]*)")?')
_WORD: Final = re.compile(r"[()]|[^\s()]+")

Point = Mapping[str, Any]


class _UndefinedError(Exception):
    """A value that does not exist, or that this page has no rule for."""


def replay(witness: str) -> str:
    """Say whether every claim of a witness holds.

    Two texts in quotes must be one. A single one claims that gold and answer read alike; there is
    nothing to compute in it.
    """
    results = [_replay(claim.strip()) for claim in _CLAIM.findall(witness) if claim.strip()]
    return next((word for word in (FAILS, UNKNOWN, HOLDS, TEXT) if word in results), UNKNOWN)


def _replay(claim: str) -> str:
    texts = _TEXTS.fullmatch(claim)
    if texts and texts[2] is None:
        return TEXT
    try:
        holds = texts[1] == texts[2] if texts else (_near if " ~ " in claim else _equal)(claim)
    except (_UndefinedError, ValueError, ArithmeticError, TypeError, LookupError):
        return UNKNOWN
    return HOLDS if holds else FAILS


def _near(claim: str) -> bool:
    """``a ~ b +- m``: two numbers differ by at most a margin."""
    sides, margin = claim.split(" +- ")
    left, right = (value(side, {}) for side in sides.split(" ~ "))
    return bool(abs(left - right) <= value(margin, {}) * _ROUNDING)


def _equal(claim: str) -> bool:
    """``a = b @ points``: one value at every point where both sides are defined, and at one."""
    sides, _, places = claim.partition(" @ ")
    left, right = sides.split(" = ")
    complex_numbers = "i" in _WORD.findall(sides)
    compared = 0
    for point in _points(places):
        try:
            pair = value(left, point), value(right, point)
        except (_UndefinedError, ZeroDivisionError, ValueError):
            continue
        if point and not complex_numbers and any(_MP.im(side) for side in pair):
            continue  # roots and logarithms of negative numbers: another branch is as good
        compared += 1
        if not _same(*pair):
            return False
    if not compared:
        raise _UndefinedError("no point where both sides are defined")
    return True


def _same(left: Any, right: Any) -> bool:
    return bool(left == right or abs(left - right) < _CLOSE * max(1, abs(left), abs(right)))


def _points(places: str) -> Iterator[Point]:
    for place in places.split(" | ") if places else [""]:
        pairs = (pair.partition("=") for pair in place.split(",") if pair)
        yield {name: _number(number) for name, _, number in pairs}


def _number(text: str) -> Any:
    exact = Fraction(text)
    return _MP.mpf(exact.numerator) / exact.denominator


def value(text: str, point: Point) -> Any:
    """Evaluate an expression in prefix form at a point."""
    words = _WORD.findall(text)[::-1]
    result = _taken(words, point)
    if words:
        raise ValueError(f"{text!r}: goes on after its end")
    return result


def _taken(words: list[str], point: Point) -> Any:
    """Evaluate the first expression of words that stand in reverse, and take it off."""
    word = words.pop()
    if word != "(":
        return _leaf(word, point)
    name = words.pop()
    arguments = []
    while words[-1] != ")":
        arguments.append(_taken(words, point))
    words.pop()
    if name.startswith("app:"):
        return _unknown_function(name, arguments)
    if name not in _OPERATIONS:
        raise _UndefinedError(name)
    return _OPERATIONS[name](*arguments)


def _leaf(word: str, point: Point) -> Any:
    if word.startswith("$"):
        return point[word]
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    return _number(word)


def _unknown_function(name: str, arguments: list[Any]) -> Any:
    """Any function will do, as long as it is the same on both sides."""
    seed = sum(map(ord, name))
    terms = (arg * (seed + index) for index, arg in enumerate(arguments, start=1))
    return _MP.sin(_MP.fsum(terms)) + seed


def _root(degree: Any, radicand: Any) -> Any:
    """The real root where there is one: of odd degree also of negative numbers."""
    if radicand == 0:
        return _MP.mpf(0)
    if _MP.isint(degree) and int(degree) % 2 and _MP.im(radicand) == 0 and radicand < 0:
        return -_MP.power(-radicand, 1 / degree)
    return _MP.power(radicand, 1 / degree)


def _power(base: Any, exponent: Any) -> Any:
    if base == 0 and exponent <= 0:
        raise _UndefinedError("power of zero")
    return _MP.power(base, exponent) if base else _MP.mpf(0)


def _factorial(number: Any) -> Any:
    if abs(number) > _LARGEST_FACTORIAL:
        raise _UndefinedError("factorial")
    return _MP.gamma(number + 1)


def _permutations(n: Any, k: Any) -> Any:
    return _factorial(n) / _factorial(n - k)


def _logarithm(number: Any, base: Any = None) -> Any:
    return _MP.log(number) if base is None else _MP.log(number) / _MP.log(base)


_CONSTANTS: Final = {"pi": +_MP.pi, "e": +_MP.e, "i": _MP.mpc(0, 1), "oo": _MP.inf}
_NAMES: Final = {
    "sgn": "sign", "Re": "re", "Im": "im", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arccot": "acot", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cis": "expj",
}  # fmt: skip
_FUNCTIONS: Final = (
    *_NAMES, "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp",
    "floor", "ceil", "sign", "arg", "erf",
)  # fmt: skip
_OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": lambda *terms: _MP.fsum(terms),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": _power,
    "root": _root,
    "abs": abs,
    "deg": lambda a: a * _MP.pi / 180,
    "fact": _factorial,
    "binom": lambda n, k: _permutations(n, k) / _factorial(k),
    "perm": _permutations,
    "max": max,
    "min": min,
    "gcd": lambda *numbers: _MP.mpf(math.gcd(*map(int, numbers))),
    "lcm": lambda *numbers: _MP.mpf(math.lcm(*map(int, numbers))),
    "ln": _logarithm,
    "log": _logarithm,
    "lg": lambda a, base=10: _logarithm(a, base),
    **{name: getattr(_MP, _NAMES.get(name, name)) for name in _FUNCTIONS},
}
