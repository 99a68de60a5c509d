"""Chains of ``=``, ``<`` and ``∈``, and the intervals and unions that they describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from rlbhpc.verify.answer.grammar import Unreadable, parse, parse_if_readable
from rlbhpc.verify.answer.lexer import (
    CLOSE_PARENTHESIS,
    COLON,
    COMMA,
    OPEN_PARENTHESIS,
    Kind,
    Token,
    Tokens,
    split_at,
)
from rlbhpc.verify.answer.numeric import exact_value
from rlbhpc.verify.answer.value import (
    INFINITY,
    Grouping,
    Interval,
    Items,
    Named,
    Node,
    Op,
    Quantity,
    Region,
    Relation,
    Value,
    free_names,
    is_name,
    negate,
)

#: Reads tokens as a value of any kind.
ReadValue: TypeAlias = Callable[[Tokens], Value]

# --- intervals -----------------------------------------------------------------------------------


def interval_between(items: Sequence[Value], low_closed: bool, high_closed: bool) -> Interval:
    """Return the interval between two quantities."""
    low = _interval_end(items[0], infinite_end=negate(INFINITY))
    high = _interval_end(items[1], infinite_end=INFINITY)
    return Interval(low, high, low_closed and low is not None, high_closed and high is not None)


def _interval_end(item: Value, infinite_end: Node) -> Node | None:
    """Return the end of an interval that an item states; None for an infinite one.

    ``infinite_end`` is the infinity of this side, -∞ for a low end. An end with a unit is taken for
    degrees, and becomes radians (``Op.DEGREES``).
    """
    if not isinstance(item, Quantity):
        raise Unreadable("end of an interval")
    if item.tree == infinite_end:
        return None
    if item.tree == INFINITY:
        raise Unreadable("end of an interval")
    return item.tree if item.unit is None else Node(Op.DEGREES, (item.tree,))


def region_parts(value: Value) -> tuple[Interval | Quantity, ...]:
    """Return the intervals and points that a part of a union stands for.

    A ``Quantity`` is a point, a ``Region`` a union. ``Items`` are values in brackets: two in
    parentheses or square brackets are the ends of an interval, if they are not known to be a point;
    a set in braces is its members. ``Named`` is a value with a name, which says nothing here.
    """
    if isinstance(value, Named):
        return region_parts(value.value)
    if isinstance(value, Interval | Quantity):
        return (value,)
    if isinstance(value, Region):
        return value.parts
    if isinstance(value, Items):
        is_interval = value.is_ordered and len(value.items) == 2 and not value.is_point
        if is_interval and value.grouping is not Grouping.ANGLE:
            is_closed = value.grouping is Grouping.BRACKET
            return (interval_between(value.items, is_closed, is_closed),)
        points = tuple(item for item in value.items if isinstance(item, Quantity))
        if value.grouping is Grouping.SET and len(points) == len(value.items):
            return points
    raise Unreadable("part of a union")


def union_of(values: Sequence[Value]) -> Region:
    """Join intervals and points."""
    parts = [part for value in values for part in region_parts(value)]
    names = [value.name for value in values if isinstance(value, Interval | Region) and value.name]
    return Region(tuple(parts), names[0] if names else "")


# --- chains --------------------------------------------------------------------------------------

_ASCENDING_SIGNS: Final = {"<": "<", "<=": "<=", ">": "<", ">=": "<="}


class Chain(NamedTuple):
    """Sides, and the signs of the relations between them."""

    sides: list[Tokens]
    signs: list[str]


def read_chain(chain: Chain, read_value: ReadValue) -> Value:
    """Return the value of a chain that was split into its sides at top level: ``x = 6/2 = 3``.

    A chain has sides, which are tokens, and the signs between them. ``read_value`` reads tokens as
    a value of any kind; ``~`` is ≈. Equalities give a value, which may have a name, or an equation;
    ``in`` and inequalities of one variable an interval.
    """
    sides, signs = chain
    if "~" in signs:
        deciding = _deciding_part(chain)
        has_relation = bool(deciding.signs)
        return read_chain(deciding, read_value) if has_relation else read_value(deciding.sides[0])
    if set(signs) == {"="}:
        return _read_equality(sides, read_value)
    if signs[-1] == "in" and set(signs[:-1]) <= {"="}:
        return _read_membership(sides[-2], sides[-1], read_value)
    if set(signs) <= set(_ASCENDING_SIGNS):
        return _read_inequality([parse(side) for side in sides], signs)
    if signs == ["!="]:
        return Relation(("!=",), (parse(sides[0]), parse(sides[1])))
    raise Unreadable(f"relation {' '.join(signs)}")


def _deciding_part(chain: Chain) -> Chain:
    """Return the exact part of ``√3/3 ≈ 0.577``, and the value of ``x ≈ 0.577``."""
    position = chain.signs.index("~")
    exact_sides = chain.sides[: position + 1]
    if all(_only_names(side) for side in exact_sides):
        return Chain([chain.sides[position + 1]], [])
    return Chain(exact_sides, chain.signs[:position])


def _only_names(side: Tokens) -> bool:
    tree = parse_if_readable(side)
    has_words = any(token.kind is Kind.WORD for token in side)
    return not side or has_words or (tree is not None and is_name(tree))


# --- equalities ----------------------------------------------------------------------------------


def _read_equality(sides: list[Tokens], read_value: ReadValue) -> Value:
    """Read ``a = b = c``: a name or a label with its value, which is the last side, or an equation.

    ``x = 3`` keeps its name, since the gold answer may have another; ``Area = 6`` is only 6.
    ``parse_if_readable`` gives the expression of a side, or None; ``read_value`` a value of any
    kind.
    """
    first, last = parse_if_readable(sides[0]), parse_if_readable(sides[-1])
    if first is None and _is_label(sides[0]):
        return read_value(sides[-1])
    if first is not None and is_name(first):
        return Named(first, read_value(sides[-1]))
    if len(sides) == 2 and last is not None and is_name(last):
        return Named(last, read_value(sides[0]))
    return _read_equation(sides, read_value)


def _read_equation(sides: list[Tokens], read_value: ReadValue) -> Value:
    """Read a chain of expressions: a calculation is its result, an equation a relation.

    ``sides`` are the tokens between equals signs. In ``6*7 = 42 inches`` the last side has a unit
    and is no mere expression; the sides before it must have its value. Sides without variables are
    a calculation, which must not contradict itself. With variables, the first and the last side are
    an equation.
    """
    trees = [tree for tree in map(parse_if_readable, sides) if tree is not None]
    if len(trees) == len(sides) - 1 and parse_if_readable(sides[-1]) is None:
        result = read_value(sides[-1])  # "6*7 = 42 inches"
        computed_values = {exact_value(tree) for tree in trees}
        result_value = exact_value(result.tree) if isinstance(result, Quantity) else None
        if result_value is not None and computed_values == {result_value}:
            return result
    if len(trees) < len(sides):
        raise Unreadable("equation")
    if not any(map(free_names, trees)):
        values = set(map(exact_value, trees))
        if len(values) > 1 and None not in values:
            raise Unreadable("equation that does not hold")
        return read_value(sides[-1])
    if len(trees) == 2 or not any(map(free_names, trees[1:])):
        return Relation(("=",), (trees[0], trees[-1]))
    raise Unreadable("equation")


# What may stand before the parenthesis of a label: P(X > 2), E(X), det(A).
_LABEL_FUNCTIONS: Final = (
    Token(Kind.SYMBOL, "P"),
    Token(Kind.SYMBOL, "E"),
    *(Token(Kind.FUNCTION, name) for name in ("det", "max", "min", "gcd", "lcm")),
)


def _is_label(side: Tokens) -> bool:
    r"""Whether a side names and has no value: ``\text{Area}``, ``S_1:S_2``, ``(x,y)``, ``P(X>2)``.

    ``side`` is what stands before an equals sign. Of a list each piece must be a name. Coordinates
    have the order of the alphabet: ``(y,x)`` is no label of a point.
    """
    if not side or side[0].kind is Kind.WORD or side[0] in _LABEL_FUNCTIONS:
        return True
    if side[0] == OPEN_PARENTHESIS and side[-1] == CLOSE_PARENTHESIS:
        side = side[1:-1]
    pieces = split_at(side, COMMA, COLON)[0]
    trees = [parse_if_readable(piece) for piece in pieces]
    if len(pieces) < 2 or not all(tree is not None and is_name(tree) for tree in trees):
        return False
    letters = [token.text for token in side if token.kind is Kind.SYMBOL]
    return not set(letters) <= set("xyz") or letters == sorted(letters)


def _read_membership(member: Tokens, container: Tokens, read_value: ReadValue) -> Value:
    """Read ``x ∈ [1, 2]``: the value of the container, with the member's name.

    ``read_value`` reads tokens as a value of any kind. An interval and a union have a field for the
    name; other values become ``Named``, which is a value with a name.
    """
    name = parse_if_readable(member)
    if name is None or not is_name(name):
        raise Unreadable("member of what")
    value = read_value(container)
    if isinstance(value, Region | Interval) and name.op is Op.SYMBOL:
        return replace(value, name=str(name.value))
    return Named(name, value) if isinstance(value, Quantity | Items) else value


# --- inequalities --------------------------------------------------------------------------------


def _read_inequality(sides: list[Node], signs: list[str]) -> Value:
    """Read a chain of ``<`` and ``>``: an interval if it bounds one variable by numbers.

    A descending chain is turned round, so that only ``<`` and ``<=`` are left. ``_half_line``
    returns the interval of one inequality such as ``x < 5``, or None. The interval of ``1 < x < 5``
    has the low end of the first and the high end of the second. Any other chain stays a
    ``Relation``.
    """
    is_descending = signs[0] in (">", ">=")
    if any((sign in (">", ">=")) != is_descending for sign in signs):
        raise Unreadable("chain of two directions")
    ascending_signs = [_ASCENDING_SIGNS[sign] for sign in signs]
    if is_descending:
        sides, ascending_signs = sides[::-1], ascending_signs[::-1]
    if len(sides) == 3 and sides[1].op is Op.SYMBOL:
        lower = _half_line(sides[0], sides[1], ascending_signs[0])
        upper = _half_line(sides[1], sides[2], ascending_signs[1])
        if lower is not None and upper is not None:
            return replace(lower, high=upper.high, high_closed=upper.high_closed)
    half_line = _half_line(sides[0], sides[1], ascending_signs[0]) if len(sides) == 2 else None
    return half_line or Relation(tuple(ascending_signs), tuple(sides))


def _half_line(left: Node, right: Node, sign: str) -> Interval | None:
    """Return the interval that ``x < 5`` or ``5 < x`` describes; None for all else.

    One side must be a single variable (``Op.SYMBOL``), the other an expression without any.
    ``sign`` is ``<``, or ``<=``, for which the interval holds its end: it is closed there. An
    ``Interval`` has a low end, a high end, whether each is closed, and the variable. An infinite
    end is None and never closed.
    """
    is_closed = sign == "<="
    if left.op is Op.SYMBOL and not free_names(right):
        end = None if right == INFINITY else right
        return Interval(None, end, False, is_closed and end is not None, str(left.value))
    if right.op is Op.SYMBOL and not free_names(left):
        end = None if left == negate(INFINITY) else left
        return Interval(end, None, is_closed and end is not None, False, str(right.value))
    return None
