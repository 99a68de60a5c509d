"""What an answer can be: expression trees, and the values that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

from rlbhpc.verify.answer.units import Unit

# --- expression trees ----------------------------------------------------------------------------


class Node(NamedTuple):
    """One node of an expression.

    ``op`` is one of ``num sym const add mul div pow neg root abs floor ceil fact binom perm fn app
    deg pm``; ``value`` holds the number of ``num``, the name of ``sym``, ``const``, ``fn``, ``app``
    and the sign of ``pm``.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Fraction | str | int | None = None


_NO_NAMES: Final[frozenset[str]] = frozenset()


def num(value: Fraction | int) -> Node:
    """Return a number."""
    return Node("num", (), Fraction(value) if isinstance(value, int) else value)


def negate(node: Node) -> Node:
    """Return ``-node``."""
    return Node("neg", (node,))


def subtract(left: Node, right: Node) -> Node:
    """Return ``left - right``."""
    return Node("add", (left, negate(right)))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.args)


def symbols(node: Node) -> frozenset[str]:
    """Names of the free symbols and of the unknown functions."""
    if node.op == "num":
        return _NO_NAMES
    names = set()
    stack = [node]
    while stack:
        top = stack.pop()
        stack += top.args
        if top.op == "sym" or top.op == "app":
            names.add(str(top.value))
    return frozenset(names)


def has(node: Node, *ops: str) -> bool:
    """Whether any of these operations occurs."""
    if not node.args:
        return node.op in ops
    return any(n.op in ops for n in walk(node))


def has_const(node: Node, name: str) -> bool:
    """Whether a constant such as ``pi`` occurs."""
    return any(n.op == "const" and n.value == name for n in walk(node))


def rename(node: Node, names: Mapping[str, Node]) -> Node:
    """Replace symbols by nodes."""
    if node.op == "sym" and node.value in names:
        return names[str(node.value)]
    if not node.args:
        return node
    return node._replace(args=tuple(rename(arg, names) for arg in node.args))


def choose_signs(node: Node, plus: bool) -> Node:
    """Settle every ``±`` on one side (``∓`` on the other)."""
    if node.op == "pm":
        left, right = (choose_signs(arg, plus) for arg in node.args)
        if (node.value == "+-") != plus:
            right = Node("neg", (right,))
        return Node("add", (left, right))
    if not node.args:
        return node
    return node._replace(args=tuple(choose_signs(arg, plus) for arg in node.args))


def is_name(node: Node) -> bool:
    """Whether an expression only names what is asked for: ``x``, ``f(x)``, ``AB``, ``m_max``."""
    if node.op in ("sym", "app"):
        return True
    if node.op in ("mul", "abs", "deg"):
        return all(is_name(arg) for arg in node.args)
    return node.op == "const" and node.value in ("e", "i")


def is_label(node: Node) -> bool:
    """Whether an expression only says what was asked for: ``m + n``, ``⌊x⌋``, ``100a + b``.

    An expression of one variable beside a number (``x + 3``, ``2x``) is half of an equation, and
    so is one of coordinates (``x + y``).
    """
    names = symbols(node)
    whole = node.op in ("floor", "ceil", "abs", "root", "fn")
    if not whole and (len(names) < 2 or not names.isdisjoint("xyz")):
        return False
    sums = (part.args for part in walk(node) if part.op == "add")
    return bool(names) and all(symbols(term) for terms in sums for term in terms)


# --- values --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or an expression, with its unit if it has one.

    ``digits`` is the literal where the whole answer is one decimal literal (``6.02e23``): how many
    digits it shows is what a rounded gold answer is compared to.
    """

    tree: Node
    unit: Unit | None = None
    digits: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """Several values. ``kind``: ``list`` (bare commas), ``set``, ``tuple``, ``bracket``, ``angle``.

    A tuple of two may mean an open interval and a bracket of two a closed one; ``point`` says that
    the problem set calls it a tuple.
    """

    kind: str
    items: tuple[Value, ...]
    point: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """A real interval; a missing end is infinite. ``name`` is the variable of an inequality."""

    low: Node | None
    high: Node | None
    low_closed: bool = False
    high_closed: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Region:
    """A union of intervals and points; empty is the empty set."""

    parts: tuple[Interval | Quantity, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of expressions, row by row."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """``x = …``, ``f(n) = …``: a value and the name that it was given."""

    name: Node
    value: Value


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of sides such as ``f(2) < f(1) < f(4)`` or an equation that is solved for nothing.

    ``ops`` holds only ``=``, ``!=``, ``<`` and ``<=``: a descending chain is read backwards.
    """

    ops: tuple[str, ...]
    sides: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base that was written down."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day in the digits that were written; ``half`` is ``am``, ``pm`` or nothing."""

    hour: int
    minute: int
    second: int
    half: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """``a : b : c``."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Residue:
    """``7 (mod 12)``: a class of integers."""

    tree: Node
    modulus: Node


@dataclass(frozen=True, slots=True)
class Words:
    """Text, lower case, without articles and punctuation."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A lettered choice with what stood beside it."""

    letter: str
    rest: Value | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """An answer that could not be read; only its canonical text is known."""

    text: str


Value: TypeAlias = (
    Quantity
    | Items
    | Interval
    | Region
    | Matrix
    | Named
    | Relation
    | Based
    | Clock
    | Ratio
    | Residue
    | Words
    | Choice
    | Opaque
)


def option_letter(value: Value) -> str:
    """Return the letter of an option; nothing for any other value."""
    if isinstance(value, Choice):
        return value.letter
    if isinstance(value, Quantity) and value.tree.op == "sym" and value.unit is None:
        name = str(value.tree.value)
        return name if name in "ABCDEFGHIJ" else ""
    return ""
