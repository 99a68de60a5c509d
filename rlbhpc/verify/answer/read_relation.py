"""Chains of ``=``, ``<`` and ``∈``: what an answer names, bounds or equates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, number, parse
from rlbhpc.verify.answer.lexer import Tokens
from rlbhpc.verify.answer.numeric import exact, numeric
from rlbhpc.verify.answer.regions import meet
from rlbhpc.verify.answer.value import (
    Interval,
    Items,
    Matrix,
    Named,
    Node,
    Quantity,
    Region,
    Relation,
    Residue,
    Value,
    has,
    is_name,
    num,
    rename,
    symbols,
)

Read = Callable[[Tokens], Value]

_ORDERS: Final = {"<": "<", "<=": "<=", ">": "<", ">=": "<="}


def read_residue(tokens: Tokens) -> Residue | None:
    r"""``x \equiv 7 \pmod{12}``, ``7 (mod 12)`` and ``7 \bmod 12``, if that is what it is."""
    words = [place for place, token in enumerate(tokens) if token == ("w", "mod")]
    if len(words) != 1:
        return None
    before, after = list(tokens[: words[0]]), list(tokens[words[0] + 1 :])
    if before[-1:] == [("o", "(")] and after[-1:] == [("o", ")")]:
        before, after = before[:-1], after[:-1]
    for sign in (("r", "mod="), ("r", "=")):
        if sign in before:
            before = before[before.index(sign) + 1 :]
    return Residue(parse(before), parse(after))


def read_relation(sides: list[Tokens], ops: list[str], read: Read) -> Value:
    """Read a chain that was cut into its sides at top level."""
    if "=>" in ops or "<=>" in ops:
        last = max(position for position, op in enumerate(ops) if op in ("=>", "<=>")) + 1
        sides, ops = sides[last:], ops[last:]
        return read_relation(sides, ops, read) if ops else read(sides[0])
    if ops[-1] == "=" and _is_cut_off(sides[-2], sides[-1]):
        return read_relation(sides[:-1], ops[:-1], read) if ops[1:] else read(sides[0])
    if "~" in ops:
        sides, ops = _exact_part(sides, ops)
        if not ops:
            return read(sides[0])
    if ops == ["mod="] and sides[0][:1] in _FUNCTION_NAMES:
        return _equality(sides, read)  # f ≡ 0: the same everywhere
    if ops == ["->"] and all(len(side) == 1 and side[0][0] == "s" for side in sides):
        return Relation(("->",), (parse(sides[0]), parse(sides[1])))  # p implies q
    if set(ops) == {"="} or ops == ["->"]:
        return _equality(sides, read)
    if ops == ["in"]:
        return _member(sides, read)
    if ops[:-1].count("=") == len(ops) - 1 and ops[-1] == "in":
        return _member(sides[-2:], read)
    if set(ops) <= set(_ORDERS) or ops == ["!="]:
        return _inequality([parse(side) for side in sides], ops)
    raise Unreadable(f"relation {' '.join(ops)}")


_FUNCTION_NAMES: Final = [[("s", name)] for name in "fgh"]


def _is_cut_off(exact_side: Tokens, side: Tokens) -> bool:
    """Whether a side shows the first decimals of the one before, such as ``0.577…``."""
    value = _tree(exact_side)
    if len(side) != 2 or side[0][0] != "n" or side[1] != ("o", "...") or _tree(side) is not None:
        return False
    if value is None or symbols(value):
        return False
    unit = Fraction(1, 10 ** len(side[0][1].partition(".")[2]))
    rest = numeric(value).real - float(number(side[0][1]))
    return -unit / 2 <= rest < unit  # rounded, or cut off


def _exact_part(sides: list[Tokens], ops: list[str]) -> tuple[list[Tokens], list[str]]:
    """Of ``√3/3 ≈ 0.577`` the exact part decides; of ``x ≈ 0.577`` the value."""
    position = ops.index("~")
    left = sides[: position + 1]
    if all(_names(side) for side in left):
        return sides[position + 1 : position + 2], []
    return left, ops[:position]


def _names(side: Tokens) -> bool:
    if not side or any(kind == "w" for kind, _ in side):
        return True
    tree = _tree(side)
    return tree is not None and is_name(tree)


def _equality(sides: list[Tokens], read: Read) -> Value:
    """Read ``a = b = c``: a name or a label with its value, which is the last side, or an equation.

    ``x = 3`` keeps its name, since the gold answer may have another; ``Area = 6`` is only 6.
    """
    trees = [_tree(side) for side in sides]
    first, last = trees[0], trees[-1]
    if first is None and _label(sides[0]):
        _refuse_false_label(sides[0], last)
        return read(sides[-1])
    if first is not None and is_name(first):
        return Named(first, read(sides[-1]))
    if len(sides) == 2 and last is not None and is_name(last):
        return Named(last, read(sides[0]))
    if first is not None and last is None and _is_power_of_names(first):
        matrix = read(sides[-1])
        if isinstance(matrix, Matrix):
            return matrix
    if first is not None and last is not None and _has_a_value(first) and not symbols(last):
        return read(sides[-1])  # functions at numbers: f(1) + f(2) = 5
    return _equation(trees, sides[-1], read)


def _refuse_false_label(label: Tokens, value: Node | None) -> None:
    """Refuse ``(y, x) = …``, whose order is its own, and a sum that is not what follows it."""
    letters = [text for kind, text in label if kind == "s"]
    if set(letters) <= set("xyz") and letters != sorted(letters):
        raise Unreadable("coordinates in an order of their own")
    total = _progression(label)
    if total is not None and value is not None and exact(value) not in (None, total):
        raise Unreadable("equation that does not hold")


def _equation(trees: list[Node | None], last_side: Tokens, read: Read) -> Value:
    """Read a chain of expressions: a calculation is its result, an equation a relation."""
    readable = [tree for tree in trees if tree is not None]
    if trees[-1] is None and len(readable) == len(trees) - 1:
        result = read(last_side)  # "6*7 = 42 inches"
        sizes = {exact(tree) for tree in readable}
        if isinstance(result, Quantity) and None not in sizes and sizes == {exact(result.tree)}:
            return result
    if len(readable) < len(trees):
        raise Unreadable("equation")
    if not any(map(symbols, readable)):
        sizes = set(map(exact, readable))
        if len(sizes) > 1 and None not in sizes:
            raise Unreadable("equation that does not hold")
        return read(last_side)
    if len(readable) == 2 or not any(map(symbols, readable[1:])):
        return Relation(("=",), (readable[0], readable[-1]))
    raise Unreadable("equation")


def _progression(side: Tokens) -> Fraction | None:
    """Return the sum ``1 + 3 + ... + 9`` of numbers at equal steps: (first + last) · count / 2."""
    terms = [number(text) for kind, text in side if kind == "n"]
    steps = {after - before for before, after in pairwise(terms[:-1])}
    if {text for kind, text in side if kind == "o"} != {"+", "..."} or len(steps) != 1:
        return None
    step = steps.pop()
    return (terms[0] + terms[-1]) * ((terms[-1] - terms[0]) / step + 1) / 2 if step else None


def _has_a_value(side: Node) -> bool:
    """Whether a side is a sum of functions at numbers, or an expression in ``ζ(2)``."""
    if side.op == "add" and all(map(_has_a_value, side.args)):
        return True
    plain = side.op == "app" or symbols(side) == {"\\zeta"}
    return plain and not has(side, "sym")


def _is_power_of_names(node: Node) -> bool:
    r"""``A^{-1}``, ``AB``, ``A^T``: what a matrix may be called."""
    return is_name(node.args[0] if node.op == "pow" else node)


def _tree(side: Tokens) -> Node | None:
    try:
        return parse(side)
    except Unreadable:
        return None


# What begins with one of these is measured or computed, and is never the answer itself.
_LABELS: Final = frozenset(("int", "lim", "deg", "||", "#", "mathbb"))
_DERIVATIVE: Final = [("f", "frac"), ("o", "{"), ("s", "d"), ("o", "}"), ("o", "{"), ("s", "d")]


def _label(side: Tokens) -> bool:
    r"""``\text{Area}``, ``S_1:S_2``, ``(x,y)``, ``P(X > 2)``: it names and has no value."""
    if not side or side[0][0] == "w":
        return True
    if ("o", "...") in side and all(kind in "no" for kind, _ in side):
        return True  # 1 + 2 + ... + 10
    if side[0] in (("f", "sum"), ("f", "prod")):
        return len({token for token in side if token[0] == "s"} - {("s", "oo")}) == 1
    if side[0][1] in _LABELS or side[:6] == _DERIVATIVE or side[:2] == [("s", "n"), ("o", "(")]:
        return True
    letters = [text for kind, text in side if kind in ("s", "w", "f", "n")]
    outside = [token for token in side if token[1] not in ("_", "{", "}")]
    return bool(letters) and outside[0][1] not in "0123456789-" and _only_names(side)


def _only_names(side: Tokens) -> bool:
    """Whether cutting at ``:`` and ``,`` within one pair of brackets leaves names."""
    inner = list(side)
    if inner[0][1] == "(" and inner[-1][1] == ")":
        inner = inner[1:-1]
    pieces: list[list[tuple[str, str]]] = [[]]
    for token in inner:
        if token in (("o", ","), ("o", ":")):
            pieces.append([])
        else:
            pieces[-1].append(token)
    if len(pieces) > 1:
        return all(piece and (t := _tree(piece)) is not None and is_name(t) for piece in pieces)
    return side[0] in (
        ("s", "P"),
        ("s", "E"),
        *(("f", name) for name in ("det", "max", "min", "gcd", "lcm")),
    )


def _member(sides: list[Tokens], read: Read) -> Value:
    name = _tree(sides[0])
    if name is None and _label(sides[0]):
        return read(sides[1])
    if name is None or not is_name(name):
        raise Unreadable("member of what")
    value = read(sides[1])
    if isinstance(value, Region | Interval) and name.op == "sym":
        return replace(value, name=str(name.value))
    return Named(name, value) if isinstance(value, Quantity | Items) else value


# --- inequalities --------------------------------------------------------------------------------


def _inequality(sides: list[Node], ops: list[str]) -> Value:
    if ops == ["!="]:
        return _unequal(sides)
    falling = [op in (">", ">=") for op in ops]
    if any(falling) and not all(falling):
        raise Unreadable("chain of two directions")
    orders = [_ORDERS[op] for op in ops]
    if falling[0]:
        sides, orders = sides[::-1], orders[::-1]
    names = frozenset().union(*(symbols(side) for side in sides))
    if len(names) == 1 and len(sides) in (2, 3):
        name = next(iter(names))
        pieces = [
            _half_line(sides[index], sides[index + 1], orders[index], name)
            for index in range(len(orders))
        ]
        if all(piece is not None for piece in pieces):
            bounds = [piece for piece in pieces if piece is not None]
            return bounds[0] if len(bounds) == 1 else meet(bounds[0], bounds[1])
    return Relation(tuple(orders), tuple(sides))


def _unequal(sides: list[Node]) -> Value:
    for left, right in (sides, sides[::-1]):
        if left.op == "sym" and not symbols(right):
            name = str(left.value)
            return Region((Interval(None, right), Interval(right, None)), name)
    return Relation(("!=",), tuple(sides))


def _half_line(left: Node, right: Node, order: str, name: str) -> Interval | Region | None:
    """Solve ``left < right`` for the one variable, where it is linear or an absolute value."""
    closed = order == "<="
    if left == Node("sym", (), name) and not symbols(right):
        return Interval(None, _end(right), False, closed and _end(right) is not None, name)
    if right == Node("sym", (), name) and not symbols(left):
        return Interval(_end(left), None, closed and _end(left) is not None, False, name)
    if left.op == "abs" and left.args[0].op == "sym" and not symbols(right):
        return Interval(Node("neg", (right,)), right, closed, closed, name)
    if right.op == "abs" and right.args[0].op == "sym" and not symbols(left):
        low = Interval(None, Node("neg", (left,)), False, closed)
        return Region((low, Interval(left, None, closed, False)), name)
    if "abs" in (left.op, right.op):
        return _distance(left, right, closed, name)
    return _linear(left, right, closed, name)


def _distance(left: Node, right: Node, closed: bool, name: str) -> Interval | Region | None:
    """Solve ``|f| < r`` and ``r < |f|`` for a linear f and a positive number r."""
    near = left.op == "abs"
    of, radius = (left.args[0], right) if near else (right.args[0], left)
    size = None if symbols(radius) else exact(radius)
    if size is None or size <= 0:
        return None
    above, below = num(size), num(-size)
    if near:
        ends = _linear(below, of, closed, name), _linear(of, above, closed, name)
    else:
        ends = _linear(of, below, closed, name), _linear(above, of, closed, name)
    first, other = ends
    if first is None or other is None:
        return None
    if near:
        met = meet(first, other)
        return met if isinstance(met, Interval) else None
    low, high = (first, other) if first.low is None else (other, first)
    return Region((low, high), name)


def _end(node: Node) -> Node | None:
    """Return an end of an interval: None where it is infinite."""
    inner = node.args[0] if node.op == "neg" else node
    return None if inner == Node("const", (), "oo") else node


def _linear(left: Node, right: Node, closed: bool, name: str) -> Interval | None:
    """Solve ``left < right`` if the difference has one slope at three points."""
    values = []
    for x in map(Fraction, (0, 1, 2)):
        difference = Node("add", (left, Node("neg", (right,))))
        value = exact(rename(difference, {name: num(x)}))
        if value is None:
            return None
        values.append(value)
    slope = values[1] - values[0]
    if slope == 0 or values[2] - values[1] != slope:
        return None
    # Two points more than a line needs: a polynomial of low degree cannot pass.
    for x in (Fraction(7, 3), Fraction(-11, 5)):
        if exact(rename(difference, {name: num(x)})) != values[0] + slope * x:
            return None
    end = num(-values[0] / slope)
    if slope > 0:
        return Interval(None, end, False, closed, name)
    return Interval(end, None, closed, False, name)
