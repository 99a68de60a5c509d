"""Exact rational values of expression trees, under a budget of digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.tree import Node


class Undecided(Exception):  # noqa: N818 - an outcome, not a fault
    """The value is too large, undefined at every point tried, or of an unknown operation."""


_BUDGET: Final = 400_000  # bits that one exact evaluation may produce in all


class _Exact:
    """Exact evaluation of one tree under a budget of bits."""

    def __init__(self) -> None:
        self.left = _BUDGET

    def value(self, node: Node) -> Fraction | None:
        if node.op == "num":
            assert isinstance(node.value, Fraction)
            return node.value
        if node.op not in _EXACT and node.op != "fn":
            return None
        args = []
        for arg in node.args:
            value = self.value(arg)
            if value is None:
                return None
            args.append(value)
        if node.op == "fn":
            result = self.function(str(node.value), args)
        else:
            result = _EXACT[node.op](self, args)
        if result is not None:
            self.spend(result.numerator.bit_length() + result.denominator.bit_length())
        return result

    def spend(self, bits: float) -> None:
        self.left -= int(bits)
        if self.left < 0:
            raise Undecided("too many digits")

    def power(self, args: list[Fraction]) -> Fraction | None:
        base, exponent = args
        if exponent.denominator != 1:
            root = self.root([Fraction(exponent.denominator), base])
            return None if root is None else self.power([root, Fraction(exponent.numerator)])
        if base == 0 and exponent <= 0:
            raise Undecided("0 to a power that is not positive")
        if base in (0, 1):
            return base
        if base == -1:
            return Fraction(-1 if exponent % 2 else 1)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * bits > self.left:
            raise Undecided("power too large")
        return base ** int(exponent)

    def root(self, args: list[Fraction]) -> Fraction | None:
        degree, value = args
        if degree.denominator != 1 or not 1 <= degree <= 64:
            return None
        n = int(degree)
        if value < 0:
            inner = self.root([degree, -value]) if n % 2 else None
            return None if inner is None else -inner
        top, bottom = _integer_root(value.numerator, n), _integer_root(value.denominator, n)
        return None if top is None or bottom is None else Fraction(top, bottom)

    def factorial(self, args: list[Fraction]) -> Fraction | None:
        n = args[0]
        if n.denominator != 1 or n < 0:
            return None
        if n > 20 and n * n.numerator.bit_length() > self.left:
            raise Undecided("factorial too large")
        return Fraction(math.factorial(int(n)))

    def function(self, name: str, args: list[Fraction]) -> Fraction | None:
        if name in ("max", "min"):
            return max(args) if name == "max" else min(args)
        if name not in ("gcd", "lcm") or any(arg.denominator != 1 for arg in args):
            return None
        return Fraction((math.gcd if name == "gcd" else math.lcm)(*map(int, args)))

    def choose(self, args: list[Fraction], ordered: bool) -> Fraction | None:
        n, k = args
        if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
            return None
        few = k if ordered else min(k, n - k)
        if few * n.numerator.bit_length() > self.left:
            raise Undecided("binomial too large")
        return Fraction((math.perm if ordered else math.comb)(int(n), int(k)))


def _integer_root(value: int, n: int) -> int | None:
    if value in (0, 1) or n == 1:
        return value
    if n == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > 4000:
        return None
    low, high = 1, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**n < value:
            low = middle + 1
        else:
            high = middle
    return low if low**n == value else None


def _divide(_: _Exact, args: list[Fraction]) -> Fraction | None:
    if args[1] == 0:
        raise Undecided("division by zero")
    return args[0] / args[1]


_EXACT: Final[dict[str, Callable[[_Exact, list[Fraction]], Fraction | None]]] = {
    "add": lambda _, args: sum(args, Fraction(0)),
    "mul": lambda _, args: args[0] * args[1],
    "div": _divide,
    "neg": lambda _, args: -args[0],
    "abs": lambda _, args: abs(args[0]),
    "floor": lambda _, args: Fraction(math.floor(args[0])),
    "ceil": lambda _, args: Fraction(math.ceil(args[0])),
    "pow": _Exact.power,
    "root": _Exact.root,
    "fact": _Exact.factorial,
    "binom": lambda self, args: self.choose(args, ordered=False),
    "perm": lambda self, args: self.choose(args, ordered=True),
}


def exact(node: Node) -> Fraction | None:
    """Exact value of a tree, None if it is not rational by sight.

    Raises :class:`Undecided` where the value is undefined or has too many digits.
    """
    return _Exact().value(node)


def rational(node: Node) -> Fraction | None:
    """Exact value of a tree, None also where it is undefined or too long."""
    try:
        return exact(node)
    except Undecided:
        return None
