"""Whether two expressions are one: a test of identity at points that nobody chose.

Analytic expressions that agree to 80 digits at a few such points are equal, in the spirit of
Schwartz (1980) and Zippel (1979). Absolute values, steps, roots and logarithms have branches, which
agree on one side and differ on the other. Trees that hold any are also compared on both sides of
zero in every mix of signs, from a thousandth to ten million, beside and between their own
constants, and at integers if they hold steps. A point where a side leaves the reals says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import islice, pairwise, product
from typing import Final

from rlbhpc.verify.answer.exact import Undecided, exact
from rlbhpc.verify.answer.numeric import Point, agree, pick, real_values
from rlbhpc.verify.answer.tree import Node, has, has_const, num, rename, symbols, walk

_STEPS: Final = ("floor", "ceil")
_BRANCHES: Final = (*_STEPS, "abs", "root")
_BRANCHING: Final = frozenset("max min ln log lg sgn sign arcsin arccos arctan arccot arg".split())
_INTEGER_LETTERS: Final = frozenset("nmkNMKpqjl")
_INTEGERS: Final = range(3, 40)
_SIZES: Final = tuple(Fraction(10) ** power for power in range(-3, 8))
_LARGE: Final = (97, 211, 1009, 2500, 10007, 65537, 123456, 999983, 10**6)
_BESIDE: Final = Fraction(1, 10**6)  # how near to the fall of a step it is looked at
_PERIODIC: Final = frozenset("sin cos tan cot sec csc".split())
_TURNS: Final = tuple(Fraction(11 * step, 13) for step in range(1, 9))  # all around a circle
_MOST_CONSTANTS: Final = 12
_EVALUATIONS: Final = 20_000  # of single nodes, in all
_FEWEST_POINTS: Final = 20


def same(a: Node, b: Node) -> bool:
    """Whether two expressions are equal, at every point where both are real and defined.

    Raises :class:`Undecided` if neither equality nor inequality could be established.
    """
    if a == b:
        return True
    names = sorted(symbols(a) | symbols(b))
    if not names:
        left, right = exact(a), exact(b)
        if left is not None and right is not None:
            return left == right
        return agree(a, b, {})
    steps = has(a, *_STEPS) or has(b, *_STEPS)
    counts = only_counts(names)
    if not about_integers(a, b):
        decided = _agreements(a, b, general_points(names))
        if decided is None:
            return False
        if decided < 2 and not counts:
            raise Undecided("no point where both are defined")
        counts = decided < 2
    if counts:
        decided = _agreements(a, b, integer_points(names))
        if decided is None:
            return False
        if decided < 2:
            raise Undecided("no point where both are defined")
    return _same_on_branches(a, b, names, steps, counts) and _same_if_complex(a, b)


def _same_if_complex(a: Node, b: Node) -> bool:
    """Whether ``|z|`` and what it is compared to agree at a point off the real line, too."""
    if symbols(a) | symbols(b) != {"z"} or not (has(a, "abs") or has(b, "abs")):
        return True
    point = Node("add", (num(2), Node("mul", (num(3), Node("const", (), "i")))))
    try:
        return agree(rename(a, {"z": point}), rename(b, {"z": point}), {})
    except Undecided:
        return True


def about_integers(a: Node, b: Node) -> bool:
    """Whether a comparison is about integers alone: steps, and only letters that count."""
    steps = has(a, *_STEPS) or has(b, *_STEPS)
    return steps and only_counts(symbols(a) | symbols(b))


def only_counts(names: Iterable[str]) -> bool:
    """Whether all names are letters that count."""
    return _INTEGER_LETTERS.issuperset(names)


def general_points(names: list[str]) -> list[Point]:
    """Points of no special kind, all of them positive."""
    return [{name: pick(name, index) for name in names} for index in range(3)]


def integer_points(names: list[str]) -> list[Point]:
    """Integers, all different and all moving: what steps and parities are about."""
    return [
        {name: Fraction(n + 7 * place * (1 + n % 3)) for place, name in enumerate(names)}
        for n in _INTEGERS
    ]


def _agreements(a: Node, b: Node, points: Iterable[Point]) -> int | None:
    """Count the points at which both agree to 80 digits; None if they differ at one."""
    decided = 0
    for point in points:
        try:
            if not agree(a, b, point):
                return None
            decided += 1
        except Undecided:
            continue
    return decided


def _same_on_branches(a: Node, b: Node, names: list[str], steps: bool, counts: bool) -> bool:
    """Compare where a branch may change; complex numbers have none of these."""
    if any(has_const(node, "i") for node in (a, b)):
        return True
    points = signed_points(names)
    if _has_branches(a) or _has_branches(b):
        points += _values_at(names, _landmarks(a, b), steps)
    if counts and steps:
        points = [point for point in points if all(v > 0 == v % 1 for v in point.values())]
    size = sum(1 for node in (a, b) for _ in walk(node))
    for point in islice(points, max(_FEWEST_POINTS, _EVALUATIONS // size)):
        try:
            values = real_values(a, b, point)
        except Undecided:
            continue
        if values is not None and abs(values[0] - values[1]) > 1e-12 * max(map(abs, values)):
            return False
    return True


def _has_branches(node: Node) -> bool:
    return any(
        part.op in _BRANCHES
        or (part.op == "fn" and part.value in _BRANCHING)
        or (part.op == "pow" and not _is_whole(part.args[1]))
        for part in walk(node)
    )


def _is_whole(node: Node) -> bool:
    return isinstance(node.value, Fraction) and node.value.denominator == 1


def signed_points(names: list[str]) -> list[Point]:
    """Points in every mix of signs of up to three names; of more, signs that move."""
    signs = list(product((1, -1), repeat=min(len(names), 3)))[1:]
    return [
        {name: pick(name, index) * sign[place % 3] for place, name in enumerate(names)}
        for index, sign in enumerate(signs, start=3)
    ]


def _landmarks(a: Node, b: Node) -> list[Fraction]:
    """Return the numbers beside which a branch may begin: constants, their quotients, sizes."""
    constants = {
        abs(part.value)
        for node in (a, b)
        for part in walk(node)
        if isinstance(part.value, Fraction) and 0 < abs(part.value) <= 10**9
    }
    first = sorted(constants)[:_MOST_CONSTANTS]
    quotients = {x / y for x, y in product(first, repeat=2)} | {
        x * y for x, y in product(first, first)
    }
    marks = sorted(constants | quotients)
    between = [(x + y) / 2 for x, y in pairwise(sorted(constants))]
    turns = _TURNS if any(part.value in _PERIODIC for node in (a, b) for part in walk(node)) else ()
    return [*sorted(constants), *between, *turns, *marks[: 3 * _MOST_CONSTANTS]]


def _values_at(names: list[str], marks: list[Fraction], steps: bool) -> list[Point]:
    """Points at which one name is beside a landmark or of another size, and the others are not."""
    values: list[Fraction] = [Fraction(0)]
    for mark in marks:
        values += [mark, mark - Fraction(1, 3), mark + Fraction(2, 7), mark - 1, mark + 1]
    values += [size * Fraction(13, 11) for size in _SIZES]
    if steps:
        values += [Fraction(n) for n in (1, 2, 3, *_LARGE)] + [Fraction(1, 2), Fraction(5, 2)]
        falls = {Fraction(0), *(mark % 1 for mark in marks), *(-mark % 1 for mark in marks)}
        values += [2 + fall + side for fall in falls for side in (_BESIDE, -_BESIDE)]
    every = list(dict.fromkeys(sign * value for value in values for sign in (1, -1)))
    return list(_spread(names, every))


def _spread(names: list[str], values: list[Fraction]) -> Iterator[Point]:
    for index, value in enumerate(values):
        for place, name in enumerate(names):
            others = {other: pick(other, index) for other in names if other != name}
            if value % 1 == 0:
                others = {other: Fraction(2 + index % 5 + place) for other in others}
            yield {name: value, **others}
