"""What an answer can be: the values that answers are read as and compared as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rlbhpc.verify.answer.tree import Node
from rlbhpc.verify.answer.units import Unit


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
