"""Intervals and their unions: built from what an answer lists, and compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Final

from rlbhpc.verify.answer.compare_scalar import EXACT, NO, compare_numbers, compare_quantities
from rlbhpc.verify.answer.grammar import Unreadable
from rlbhpc.verify.answer.numeric import Undecided, exact, numeric, same
from rlbhpc.verify.answer.value import (
    Interval,
    Items,
    Named,
    Node,
    Quantity,
    Region,
    Relation,
    Value,
    num,
    rename,
    subtract,
    symbols,
)

_MOST_LISTED: Final = 100


def interval(items: Sequence[Value], low_closed: bool, high_closed: bool) -> Interval:
    """Return the interval between two quantities."""
    ends: list[Node | None] = []
    infinity = Node("const", (), "oo")
    for item, missing in zip(items, (Node("neg", (infinity,)), infinity), strict=True):
        if not isinstance(item, Quantity) or (item.tree == infinity != missing):
            raise Unreadable("end of an interval")
        tree = Node("deg", (item.tree,)) if item.unit is not None else item.tree
        ends.append(None if item.tree == missing else tree)
    low, high = ends
    return Interval(low, high, low_closed and low is not None, high_closed and high is not None)


def region_parts(value: Value) -> tuple[Interval | Quantity, ...]:
    """Read a value as a part of a union of intervals."""
    if isinstance(value, Named):
        return region_parts(value.value)
    if isinstance(value, Interval | Quantity):
        return (value,)
    if isinstance(value, Region):
        return value.parts
    if isinstance(value, Items):
        two_ends = len(value.items) == 2 and not value.point
        if value.kind in ("tuple", "bracket") and two_ends:
            closed = value.kind == "bracket"
            return (interval(value.items, closed, closed),)
        if value.kind == "set" and all(isinstance(item, Quantity) for item in value.items):
            return tuple(item for item in value.items if isinstance(item, Quantity))
    raise Unreadable("part of a union")


def without(whole: Interval, points: Sequence[Node]) -> tuple[Interval, ...]:
    """Return the intervals that remain of one when inner points are taken out."""
    low, high = order_key(whole.low), order_key(whole.high, missing=float("inf"))
    if not all(low < order_key(point) < high for point in points):
        raise Unreadable("a point outside of the interval")
    ends = [whole.low, *sorted(points, key=order_key), whole.high]
    parts = [Interval(a, b) for a, b in pairwise(ends)]
    parts[0] = replace(parts[0], low_closed=whole.low_closed)
    parts[-1] = replace(parts[-1], high_closed=whole.high_closed)
    return tuple(parts)


def complement(hole: Interval) -> tuple[Interval, ...]:
    """Return all reals without an interval."""
    below = Interval(None, hole.low, False, not hole.low_closed)
    above = Interval(hole.high, None, not hole.high_closed, False)
    sides = ((hole.low, below), (hole.high, above))
    return tuple(side for end, side in sides if end is not None)


def integers_within(bounds: Interval, domain: str) -> tuple[Quantity, ...]:
    """List the integers of an interval; ``domain`` names the numbers that are meant."""
    if bounds.low is None or bounds.high is None:
        raise Unreadable("a set without an end")
    low, high = exact(bounds.low), exact(bounds.high)
    if low is None or high is None or high - low > _MOST_LISTED:
        raise Unreadable("a set that is not listed")
    first = math.ceil(low) if bounds.low_closed else math.floor(low) + 1
    last = math.floor(high) if bounds.high_closed else math.ceil(high) - 1
    if domain != "mathbb Z" and not (domain == "mathbb N" and first >= 1):
        raise Unreadable("members of what")
    return tuple(Quantity(num(member)) for member in range(first, last + 1))


def meet(a: Interval | Region, b: Interval | Region) -> Value:
    """Intersection of two intervals, or unions of them, of one variable."""
    if isinstance(a, Region) or isinstance(b, Region):
        pairs = product(region_parts(a), region_parts(b))
        common = [
            meet(left, right)
            for left, right in pairs
            if isinstance(left, Interval) and isinstance(right, Interval)
        ]
        parts = [part for part in common if isinstance(part, Interval) and not is_empty(part)]
        return Region(tuple(replace(part, name="") for part in parts), a.name)
    bounded_below = [part for part in (a, b) if part.low is not None]
    bounded_above = [part for part in (a, b) if part.high is not None]
    lower = max(bounded_below, key=low_end) if bounded_below[1:] else (bounded_below or [a])[0]
    upper = min(bounded_above, key=high_end) if bounded_above[1:] else (bounded_above or [a])[0]
    return Interval(lower.low, upper.high, lower.low_closed, upper.high_closed, a.name)


def is_empty(bounds: Interval) -> bool:
    """Whether no number lies between two ends."""
    return low_end(bounds) >= high_end(bounds)


def low_end(bounds: Interval) -> tuple[float, bool]:
    """Return where an interval begins, in the order of all ends: at a closed end before an open."""
    return order_key(bounds.low), not bounds.low_closed


def high_end(bounds: Interval) -> tuple[float, bool]:
    """Return where an interval ends, in the order of all ends: at an open end before a closed."""
    return order_key(bounds.high, float("inf")), bounds.high_closed or bounds.high is None


def order_key(node: Node | None, missing: float = float("-inf")) -> float:
    """Return a real number to sort ends by; ``missing`` stands for an infinite end."""
    if node is None:
        return missing
    try:
        return numeric(node).real
    except Undecided as error:
        raise Unreadable("end of an interval") from error


def meet_all(parts: Sequence[Value]) -> Value | None:
    """Intersect inequalities that were joined by ``and``; None if they are no intervals."""
    result: Value | None = None
    for part in parts:
        if not isinstance(part, Interval | Region) or not part.name:
            return None
        if result is None:
            result = part
        elif isinstance(result, Interval | Region) and result.name == part.name:
            result = meet(result, part)
        else:
            return None
    return result


def union(values: Sequence[Value]) -> Region:
    """Join intervals and points."""
    parts: list[Interval | Quantity] = []
    name = ""
    for value in values:
        if isinstance(value, Interval | Region):
            name = name or value.name
        parts.extend(region_parts(value))
    return Region(tuple(parts), name)


def difference(whole: Value, points: Value) -> Value:
    """Read an interval without finitely many of its points, or all reals without one."""
    if isinstance(points, Named):
        points = points.value
    parts = region_parts(whole)
    holes = () if isinstance(points, Quantity | Items) else region_parts(points)
    if isinstance(points, Items) and points.kind in ("tuple", "bracket"):
        holes = region_parts(points)
    if len(holes) == 1 and isinstance(holes[0], Interval):
        if parts != (Interval(None, None),):
            raise Unreadable("difference of intervals")
        return Region(complement(holes[0]))
    items = points.items if isinstance(points, Items) else (points,)
    trees = [item.tree for item in items if isinstance(item, Quantity)]
    if len(parts) != 1 or not isinstance(parts[0], Interval) or len(trees) != len(items):
        raise Unreadable("difference of sets")
    return Region(without(parts[0], trees))


# --- comparison ----------------------------------------------------------------------------------


def compare_regions(gold: Value, answer: Value) -> str:
    """Return ``"region"`` if two values are one union of intervals and points, or ``""``."""
    names = [v.name for v in (gold, answer) if isinstance(v, Interval | Region) and v.name]
    if len(set(names)) > 1:
        return NO
    try:
        gold_pieces, pieces = _disjoint_pieces(gold), _disjoint_pieces(answer)
    except Unreadable:
        return NO
    if len(gold_pieces) != len(pieces):
        return NO
    for gold_piece in gold_pieces:
        match = next((piece for piece in pieces if _same_piece(gold_piece, piece)), None)
        if match is None:
            return NO
        pieces.remove(match)
    return "region"


def _disjoint_pieces(value: Value) -> list[Interval | Quantity]:
    """List intervals and points, those that touch as one: ``(0,1) ∪ [1,2)`` is ``(0,2)``."""
    if isinstance(value, Items) and value.kind == "list":
        pieces = [piece for item in value.items for piece in region_parts(item)]
    else:
        pieces = list(region_parts(value))
    if len(pieces) < 2 or not any(isinstance(piece, Interval) for piece in pieces):
        return pieces
    try:
        intervals = sorted(map(_as_interval, pieces), key=lambda piece: order_key(piece.low))
        disjoint = [intervals[0]]
        for interval_ in intervals[1:]:
            if low_end(interval_) > high_end(disjoint[-1]):
                disjoint.append(interval_)
            else:
                disjoint[-1] = _hull(disjoint[-1], interval_)
    except Unreadable:
        return pieces
    return [_as_point(piece) for piece in disjoint]


def _as_interval(piece: Interval | Quantity) -> Interval:
    if isinstance(piece, Interval):
        return piece
    if piece.unit is not None or symbols(piece.tree):
        raise Unreadable("a point with a unit")
    return Interval(piece.tree, piece.tree, True, True)


def _as_point(piece: Interval) -> Interval | Quantity:
    """Return the one point of an interval without length, else the interval."""
    if piece.low is not None and piece.low == piece.high:
        return Quantity(piece.low)
    return piece


def _hull(left: Interval, right: Interval) -> Interval:
    """Return the interval from where the left one begins to where the later one ends."""
    closed = left.low_closed or low_end(right) < low_end(left)
    higher = max(left, right, key=high_end)
    return Interval(left.low, higher.high, closed, higher.high_closed, left.name or right.name)


def _same_piece(gold: Interval | Quantity, answer: Interval | Quantity) -> bool:
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return bool(compare_quantities(gold, answer, EXACT))
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return False
    if (gold.low_closed, gold.high_closed) != (answer.low_closed, answer.high_closed):
        return False
    return _same_end(gold.low, answer.low) and _same_end(gold.high, answer.high)


def _same_end(gold: Node | None, answer: Node | None) -> bool:
    if gold is None or answer is None:
        return gold is answer
    return bool(compare_numbers(gold, answer))


def compare_relations(gold: Relation, answer: Relation) -> str:
    """Return the rule by which two chains or equations say the same, or ``""``."""
    if gold.ops != answer.ops:
        return NO
    pairs = zip(gold.sides, answer.sides, strict=True)  # as many as signs, and one more
    if all(compare_numbers(*sides) for sides in pairs):
        return "side by side"
    if len(gold.ops) > 1 or gold.ops == ("->",):
        return NO
    gold_difference, difference = subtract(*gold.sides), subtract(*answer.sides)
    if symbols(gold_difference) != symbols(difference):
        return NO
    factor = _constant_ratio(gold_difference, difference)
    is_equation = gold.ops[0] in ("=", "!=")
    if factor is None or (factor < 0 and not is_equation):
        return NO
    return "proportional"


def _constant_ratio(top: Node, bottom: Node) -> float | None:
    """Return the real constant c with top = c·bottom, or None if there is none."""
    names = sorted(symbols(top))
    point = {
        name: Fraction(3 + 2 * index, 7) + Fraction(index, 13) for index, name in enumerate(names)
    }
    try:
        top_value, bottom_value = numeric(top, point), numeric(bottom, point)
    except Undecided:
        return None
    if not top_value or not bottom_value:
        return None
    ratio = top_value / bottom_value
    if abs(ratio.imag) > 1e-12:
        return None
    # top(x) · bottom(point) = bottom(x) · top(point) everywhere, without any rounding.
    values = {name: num(value) for name, value in point.items()}
    left = Node("mul", (top, rename(bottom, values)))
    right = Node("mul", (bottom, rename(top, values)))
    return ratio.real if same(left, right) else None
