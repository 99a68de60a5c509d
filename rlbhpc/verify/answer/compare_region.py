"""Whether two intervals, unions, or solved and unsolved relations are the same."""

from __future__ import annotations

from fractions import Fraction

from rlbhpc.verify.answer.compare_scalar import (
    EXACT,
    NO,
    compare_numbers,
    compare_quantities,
)
from rlbhpc.verify.answer.exact import Undecided, rational
from rlbhpc.verify.answer.identity import same
from rlbhpc.verify.answer.intervals import high_end, low_end, order_key, region_parts
from rlbhpc.verify.answer.numerals import Unreadable
from rlbhpc.verify.answer.numeric import numeric
from rlbhpc.verify.answer.tree import Node, num, rename, symbols
from rlbhpc.verify.answer.value import Interval, Items, Quantity, Region, Relation, Value
from rlbhpc.verify.answer.witness import claim_alike, claim_equal


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
