"""What an answer can be: expression trees, and the values that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from importlib import resources
from typing import Final, NamedTuple, TypeAlias

# --- expression trees ----------------------------------------------------------------------------


class Op(StrEnum):
    """What a node of an expression computes from its arguments."""

    NUMBER = "number"
    SYMBOL = "symbol"
    CONSTANT = "constant"  # e, i, pi or infinity
    ADD = "add"  # of any number of arguments
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    POWER = "power"
    NEGATE = "negate"
    ROOT = "root"  # degree, radicand
    ABSOLUTE = "absolute"
    FLOOR = "floor"
    CEILING = "ceiling"
    FACTORIAL = "factorial"
    CHOOSE = "choose"
    KNOWN_FUNCTION = "known function"  # sin, log, …
    UNKNOWN_FUNCTION = "unknown function"  # f, g, …
    DEGREES = "degrees"  # an angle in degrees, as a number of radians
    PLUS_MINUS = "plus or minus"


class Node(NamedTuple):
    """One node of an expression.

    ``value`` holds the number of ``NUMBER``, the name of a symbol, a constant or a function, and
    the sign, ``"+-"`` or ``"-+"``, of ``PLUS_MINUS``.
    """

    op: Op
    args: tuple[Node, ...] = ()
    value: Fraction | str | None = None


def number_node(value: Fraction | int) -> Node:
    """Return a number."""
    return Node(Op.NUMBER, value=Fraction(value))


def symbol_node(name: str) -> Node:
    """Return a symbol such as ``x``."""
    return Node(Op.SYMBOL, value=name)


E: Final = Node(Op.CONSTANT, value="e")
I: Final = Node(Op.CONSTANT, value="i")  # noqa: E741 - the imaginary unit
PI: Final = Node(Op.CONSTANT, value="pi")
INFINITY: Final = Node(Op.CONSTANT, value="infinity")
ZERO: Final = number_node(0)


def negate(node: Node) -> Node:
    """Return ``-node``."""
    return Node(Op.NEGATE, (node,))


def add(*terms: Node) -> Node:
    """Return the sum of terms."""
    return Node(Op.ADD, terms)


def subtract(left: Node, right: Node) -> Node:
    """Return ``left - right``."""
    return add(left, negate(right))


def multiply(left: Node, right: Node) -> Node:
    """Return ``left * right``."""
    return Node(Op.MULTIPLY, (left, right))


def divide(top: Node, bottom: Node) -> Node:
    """Return ``top / bottom``."""
    return Node(Op.DIVIDE, (top, bottom))


def raise_to(base: Node, exponent: Node) -> Node:
    """Return ``base ^ exponent``."""
    return Node(Op.POWER, (base, exponent))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.args)


def free_names(node: Node) -> frozenset[str]:
    """Return the names of the symbols and of the unknown functions."""
    named_ops = (Op.SYMBOL, Op.UNKNOWN_FUNCTION)
    return frozenset(str(part.value) for part in walk(node) if part.op in named_ops)


def contains_op(node: Node, *ops: Op) -> bool:
    """Whether any of these operations occurs in an expression."""
    return any(part.op in ops for part in walk(node))


def contains_node(node: Node, searched: Node) -> bool:
    """Whether an expression, such as a constant, occurs within another."""
    return any(part == searched for part in walk(node))


def substitute(node: Node, replacements: Mapping[str, Node]) -> Node:
    """Replace symbols by other expressions."""
    if node.op is Op.SYMBOL and node.value in replacements:
        return replacements[str(node.value)]
    if not node.args:
        return node
    return node._replace(args=tuple(substitute(arg, replacements) for arg in node.args))


def choose_signs(node: Node, upper: bool) -> Node:
    """Return an expression with each ``±`` and ``∓`` replaced by its upper or its lower sign.

    A ``PLUS_MINUS`` node has two arguments; its ``value`` is ``"+-"`` for ``±`` and ``"-+"`` for
    ``∓``. The upper sign of ``a ± b`` makes it ``a + b``.
    """
    args = tuple(choose_signs(arg, upper) for arg in node.args)
    if node.op is not Op.PLUS_MINUS:
        return node._replace(args=args)
    left, right = args
    is_plus = (node.value == "+-") == upper
    return add(left, right) if is_plus else subtract(left, right)


def is_name(node: Node) -> bool:
    """Whether an expression only names what is asked for: ``x``, ``f(x)``, ``AB``, ``m_max``."""
    if node.op in (Op.SYMBOL, Op.UNKNOWN_FUNCTION) or node in (E, I):
        return True
    is_combined = node.op in (Op.MULTIPLY, Op.ABSOLUTE, Op.DEGREES)
    return is_combined and all(is_name(arg) for arg in node.args)


def is_label(node: Node) -> bool:
    """Whether an expression only says what was asked for: ``m + n``, ``⌊x⌋``, ``100a + b``.

    Such a label stands left of the equals sign in ``m + n = 113``. It holds two names or more, or
    is the value of a function, and each term of its sums holds a name. An expression of one
    variable beside a number (``x + 3``, ``2x``) is half of an equation, and so is one of
    coordinates (``x + y``).
    """
    names = free_names(node)
    is_function = node.op in (Op.FLOOR, Op.CEILING, Op.ABSOLUTE, Op.ROOT, Op.KNOWN_FUNCTION)
    if not is_function and (len(names) < 2 or not names.isdisjoint("xyz")):
        return False
    sums = [part for part in walk(node) if part.op is Op.ADD]
    return bool(names) and all(free_names(term) for total in sums for term in total.args)


# --- units of measure ----------------------------------------------------------------------------


class Unit(NamedTuple):
    """A rational factor times dimensions, as sorted (dimension, exponent) pairs.

    So ``5 m`` equals ``500 cm`` exactly, and ``30 mph`` differs from ``30 km/h``.
    """

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]


PERCENT: Final = Unit(Fraction(1, 100), (("%", 1),))
DEGREE: Final = Unit(Fraction(1), (("degree", 1),))
DIMENSIONLESS: Final = Unit(Fraction(1), ())

_DERIVED_DIMENSIONS: Final = {"m2": {"m": 2}, "m3": {"m": 3}, "m/s": {"m": 1, "s": -1}}

_PREFIXES: Final = {
    "f femto": "1e-15", "p pico": "1e-12", "n nano": "1e-9", "µ micro": "1e-6", "u micro": "1e-6",
    "m milli": "1/1000", "c centi": "1/100", "d deci": "1/10", "k kilo": "1000", "M mega": "1e6",
    "G giga": "1e9", "T tera": "1e12",
}  # fmt: skip


def table_lines(name: str) -> list[str]:
    """Return the lines of a table of this folder, without blank ones and comments."""
    text = resources.files("rlbhpc.verify.answer").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def single_dimension(name: str) -> Unit:
    """Return the unit of a dimension of its own, such as apples."""
    return Unit(Fraction(1), ((name, 1),))


def _load_units() -> dict[str, Unit]:
    """Read ``units.txt``: the unit for each symbol and name, with prefixes and plurals.

    A line is ``symbol | names | factor | dimension``, and a unit is the factor times powers of
    basic dimensions; ``_DERIVED_DIMENSIONS`` says which those are for areas and the like. A
    symbol, if not ``-``, also takes prefixes: km, kilometer. The first line that names a prefixed
    symbol or a plural keeps it.
    """
    units: dict[str, Unit] = {}
    prefixed_units: list[tuple[str, list[str], Unit]] = []
    for line in table_lines("units.txt"):
        symbol, names, factor, dimension = (cell.strip() for cell in line.split("|"))
        exponents = _DERIVED_DIMENSIONS.get(dimension, {dimension: 1})
        unit = Unit(Fraction(factor), tuple(sorted(exponents.items())))
        if symbol != "-":
            prefixed_units.append((symbol, names.replace("-", "").split(), unit))
            continue
        for name in names.split():
            _add_with_plurals(units, name, unit)
    for symbol, long_names, unit in prefixed_units:
        _add_with_prefixes(units, symbol, long_names, unit)
    units["percent"] = units["pct"] = units["percentage"] = PERCENT
    return units


def _add_with_prefixes(
    units: dict[str, Unit], symbol: str, long_names: list[str], unit: Unit
) -> None:
    """Enter a unit under its symbol and names, and its multiples (km, kilometer) under theirs.

    ``units`` is the table to fill. ``_PREFIXES`` maps a short and a long prefix, ``"k kilo"``, to
    its size. A prefixed symbol replaces no entry, since its letters may be a unit of their own
    (``min``).
    """
    units[symbol] = unit
    for name in long_names:
        _add_with_plurals(units, name, unit)
    for prefix, size in _PREFIXES.items():
        short_prefix, long_prefix = prefix.split()
        scaled = unit._replace(factor=unit.factor * Fraction(size))
        units.setdefault(short_prefix + symbol, scaled)
        for name in long_names:
            _add_with_plurals(units, long_prefix + name, scaled)


def _add_with_plurals(units: dict[str, Unit], name: str, unit: Unit) -> None:
    units[name] = unit
    if len(name) > 2:
        units.setdefault(name + "s", unit)
        units.setdefault(name + "es", unit)


_UNITS: Final = _load_units()


def unit_named(word: str) -> Unit | None:
    """Return the unit that a word names; a symbol of one or two letters only as it is written."""
    if len(word) <= 2:
        return _UNITS.get(word)
    return _UNITS.get(word) or _UNITS.get(word.lower())


# --- values --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or an expression, with its unit if it has one.

    ``literal`` is the text where the whole answer is one decimal literal (``6.02e23``): how many
    digits it shows is what a rounded gold answer is compared to.
    """

    tree: Node
    unit: Unit | None = None
    literal: str = ""


class Grouping(StrEnum):
    """How several values were put together."""

    LIST = "list"  # commas without brackets
    SET = "set"
    TUPLE = "tuple"
    BRACKET = "bracket"
    ANGLE = "angle"


@dataclass(frozen=True, slots=True)
class Items:
    """Several values.

    A tuple of two may mean an open interval and a bracket of two a closed one; ``is_point`` says
    that it means a point.
    """

    grouping: Grouping
    items: tuple[Value, ...]
    is_point: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether another order of the items would be another value."""
        return self.grouping not in (Grouping.LIST, Grouping.SET)


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
    """A union of intervals and points; without any it is the empty set."""

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

    ``signs`` holds only ``=``, ``!=``, ``<`` and ``<=``: a descending chain is read backwards.
    """

    signs: tuple[str, ...]
    sides: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base that was written down."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """``a : b : c``."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Text, lower case, without articles and punctuation."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A lettered choice with what stood beside it."""

    letter: str
    content: Value | None = None


@dataclass(frozen=True, slots=True)
class Unread:
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
    | Ratio
    | Words
    | Choice
    | Unread
)

OPTION_LETTERS: Final = "ABCDEFGHIJ"


def option_letter(value: Value) -> str:
    """Return the letter of an option; nothing for any other value."""
    if isinstance(value, Choice):
        return value.letter
    name = symbol_name(value)
    return name if name and name in OPTION_LETTERS else ""


def symbol_name(value: Value) -> str:
    """Return the name of a value that is one symbol, such as ``x``; nothing for any other."""
    if isinstance(value, Quantity) and value.tree.op is Op.SYMBOL and value.unit is None:
        return str(value.tree.value)
    return ""
