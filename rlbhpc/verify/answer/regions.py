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
from rlbhpc.verify.answer.numeric import Undecided, exact, numeric, rational, same
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
    symbols,
)
from rlbhpc.verify.answer.witness import claim_alike, claim_equal

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
        ours, theirs = list(_parts(gold)), list(_parts(answer))
    except Unreadable:
        return NO
    ours, theirs = _joined(ours), _joined(theirs)
    if len(ours) != len(theirs):
        return NO
    matched = []
    for part in ours:
        match = next((other for other in theirs if _same_part(part, other)), None)
        if match is None:
            return NO
        theirs.remove(match)
        matched.append(match)
    claim_alike(_shape(ours), _shape(matched))
    return "region"


def _shape(parts: list[Interval | Quantity]) -> str:
    """Write which ends are closed and which infinite: ``(-oo, b] u {a}``."""
    return " u ".join(map(_brackets, parts)) or "{}"


def _brackets(part: Interval | Quantity) -> str:
    if isinstance(part, Quantity):
        return "{a}"
    low = "(["[part.low_closed] + ("-oo" if part.low is None else "a")
    return f"{low}, {'oo' if part.high is None else 'b'}{')]'[part.high_closed]}"


def _parts(value: Value) -> tuple[Interval | Quantity, ...]:
    if isinstance(value, Items) and value.kind == "list":
        return tuple(part for item in value.items for part in region_parts(item))
    return region_parts(value)


def _joined(parts: list[Interval | Quantity]) -> list[Interval | Quantity]:
    """Join intervals and points that touch: ``(0,1) ∪ [1,2)`` is ``(0,2)``."""
    if len(parts) < 2 or not any(isinstance(part, Interval) for part in parts):
        return parts
    try:
        pieces = sorted(map(_as_interval, parts), key=lambda piece: order_key(piece.low))
        joined = [pieces[0]]
        for piece in pieces[1:]:
            if low_end(piece) > high_end(joined[-1]):
                joined.append(piece)
            else:
                joined[-1] = _hull(joined[-1], piece)
    except Unreadable:
        return parts
    return [
        Quantity(piece.low) if piece.low is not None and piece.low == piece.high else piece
        for piece in joined
    ]


def _as_interval(part: Interval | Quantity) -> Interval:
    if isinstance(part, Interval):
        return part
    if part.unit is not None or symbols(part.tree):
        raise Unreadable("a point with a unit")
    return Interval(part.tree, part.tree, True, True)


def _hull(left: Interval, right: Interval) -> Interval:
    """Return the interval from where the left one begins to where the later one ends."""
    closed = left.low_closed or low_end(right) < low_end(left)
    higher = max(left, right, key=high_end)
    return Interval(left.low, higher.high, closed, higher.high_closed, left.name or right.name)


def _same_part(a: Interval | Quantity, b: Interval | Quantity) -> bool:
    if isinstance(a, Interval) and isinstance(b, Interval):
        closed = (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed)
        return closed and _same_end(a.low, b.low) and _same_end(a.high, b.high)
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        return bool(compare_quantities(a, b, EXACT))
    return False


def _same_end(a: Node | None, b: Node | None) -> bool:
    return a is b if a is None or b is None else bool(compare_numbers(a, b))


def compare_relations(gold: Relation, answer: Relation) -> str:
    """Return the rule by which two chains or equations say the same, or ``""``."""
    if gold.ops != answer.ops:
        return NO
    if len(gold.sides) == len(answer.sides) and all(
        compare_numbers(a, b) for a, b in zip(gold.sides, answer.sides, strict=True)
    ):
        claim_alike(" ".join(gold.ops), " ".join(answer.ops))
        return "side by side"
    if len(gold.ops) > 1:
        return NO
    ours, theirs = _difference(gold), _difference(answer)
    factor = _factor(ours, theirs) if symbols(ours) == symbols(theirs) else None
    ordered = gold.ops[0] not in ("=", "!=")
    if factor is None or (ordered and factor < 0):
        return NO
    _claim_proportional(ours, theirs, ordered)
    claim_alike(gold.ops[0], answer.ops[0])
    return "proportional"


def _claim_proportional(a: Node, b: Node, ordered: bool) -> None:
    """Note that a = c b, with c as a number; of inequalities also that c is positive."""
    values = {name: num(value) for name, value in _point(a).items()}
    factor = Node("div", (rename(a, values), rename(b, values)))
    ratio = rational(factor)
    factor = factor if ratio is None else num(ratio)
    claim_equal(a, Node("mul", (factor, b)))
    if ordered:
        claim_equal(Node("abs", (factor,)), factor)


def _difference(relation: Relation) -> Node:
    left, right = relation.sides
    return Node("add", (left, Node("neg", (right,))))


def _factor(a: Node, b: Node) -> float | None:
    """Return the real constant c with a = c·b, or None if there is none."""
    point = _point(a)
    try:
        above, below = numeric(a, point), numeric(b, point)
    except Undecided:
        return None
    if not below or not above or abs((above / below).imag) > 1e-12:
        return None
    # The ratio at one point as an exact quotient of the two trees at that point.
    values = {name: num(value) for name, value in point.items()}
    crossed = (Node("mul", (a, rename(b, values))), Node("mul", (b, rename(a, values))))
    return (above / below).real if same(*crossed) else None


def _point(node: Node) -> dict[str, Fraction]:
    """Return the point at which the factor is found."""
    names = sorted(symbols(node))
    return {name: Fraction(3 + 2 * i, 7) + Fraction(i, 13) for i, name in enumerate(names)}
