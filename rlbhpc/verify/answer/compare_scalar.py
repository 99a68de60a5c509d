"""Whether two quantities are equal: units first, then numbers, then letters that writers choose.

The gold answer stands on the left. A unit may be left out on one side and must not be contradicted;
a percent or a degree sign also fixes the number itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Final

from rlbhpc.verify.answer.grammar import number
from rlbhpc.verify.answer.numeric import Undecided, constant, rational, same
from rlbhpc.verify.answer.units import DEGREE, PERCENT, RADIAN, Unit, unit_named
from rlbhpc.verify.answer.value import (
    Items,
    Matrix,
    Node,
    Quantity,
    Value,
    has,
    has_const,
    negate,
    num,
    rename,
    symbols,
)


@dataclass(frozen=True)
class Tolerance:
    """What else a gold number accepts besides its equal.

    ``error``: largest absolute difference, as a problem set states it. ``rounded``: whether decimal
    gold answers are rounded ones, so that a value that rounds to the gold's digits is right. Gold
    answers in e-notation always are.
    """

    error: Fraction = Fraction(0)
    rounded: bool = False


class Unread(Undecided):
    """A side could not be read, or two kinds of values have no comparison here."""


EXACT: Final = Tolerance()
NO: Final = ""

# Two bare expressions, the gold answer's first.
_Pair = tuple[Node, Node]


def compare_quantities(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Return the rule by which two quantities are equal, or ``""``."""
    for pair in _pairs_without_units(gold, answer):
        rule = compare_numbers(*pair)
        if rule:
            return rule
    if gold.unit is None and answer.unit is None:
        for renamed in _with_letters_renamed(gold.tree, answer.tree):
            if compare_numbers(gold.tree, renamed):
                return "constants renamed"
    return _compare_nearly(gold, answer, tolerance)


# --- units ---------------------------------------------------------------------------------------


def _pairs_without_units(gold: Quantity, answer: Quantity) -> list[_Pair]:
    """List pairs of bare expressions, one of which must be equal: what the units leave open."""
    if gold.unit is not None and answer.unit is not None:
        return _pairs_of_units(gold.tree, gold.unit, answer.tree, answer.unit)
    if gold.unit is not None:
        return _pairs_of_one_unit(gold.tree, gold.unit, answer.tree, gold.tree)
    if answer.unit is not None:
        pairs = _pairs_of_one_unit(answer.tree, answer.unit, gold.tree, gold.tree)
        return [(plain, measured) for measured, plain in pairs]
    return [(gold.tree, answer.tree)]


def _pairs_of_units(gold: Node, gold_unit: Unit, answer: Node, unit: Unit) -> list[_Pair]:
    if gold_unit.dims == unit.dims:
        ratio = unit.factor / gold_unit.factor
        return [(gold, answer if ratio == 1 else Node("mul", (answer, num(ratio))))]
    if {gold_unit, unit} == {DEGREE, RADIAN}:
        return [(_in_radians(gold, gold_unit), _in_radians(answer, unit))]
    return []


def _in_radians(tree: Node, unit: Unit) -> Node:
    return Node("deg", (tree,)) if unit == DEGREE else tree


def _pairs_of_one_unit(measured: Node, unit: Unit, plain: Node, gold: Node) -> list[_Pair]:
    """List such pairs, the measured side first, where one side alone has a unit."""
    if unit.dims == PERCENT.dims:
        share = (Node("mul", (measured, num(Fraction(1, 100)))), plain)
        return [(measured, plain), share] if _is_no_share(gold) else [share]
    if unit == DEGREE and (has_const(plain, "pi") or has(plain, "deg")):
        return [(Node("deg", (measured,)), plain)]
    pairs = [(measured, plain)]
    if plain.op == "mul" and plain.args[1].op == "sym" and not symbols(measured):
        letter = unit_named(str(plain.args[1].value))  # "5m" read as five times m
        if letter is not None and letter.dims == unit.dims:
            scaled = Node("mul", (plain.args[0], num(letter.factor / unit.factor)))
            pairs.append((measured, scaled))
    return pairs


def _is_no_share(tree: Node) -> bool:
    """Whether a number is too large for a share, so that the percent sign may be left out."""
    value = rational(tree)
    return value is not None and abs(value) >= 2


# --- numbers -------------------------------------------------------------------------------------


def compare_numbers(gold: Node, answer: Node) -> str:
    """Return the rule by which two bare expressions are equal, or ``""``."""
    if gold == answer:
        return "identical"
    signs_of_infinity = [_infinity(gold), _infinity(answer)]
    if any(signs_of_infinity):
        return "infinity" if signs_of_infinity[0] == signs_of_infinity[1] else NO
    if gold.op == "num" and answer.op == "num":
        return "rational" if gold.value == answer.value else NO
    if _is_task(answer) and not _is_task(gold):
        return NO
    if symbols(answer) - symbols(gold) == {"j"} and has_const(gold, "i"):
        answer = rename(answer, {"j": Node("const", (), "i")})  # an engineer's j
    if not same(gold, answer):
        return NO
    both_rational = rational(gold) is not None and rational(answer) is not None
    return "rational" if both_rational else "identity"


def _infinity(node: Node) -> int:
    """Return the sign of an infinity, 0 for anything else."""
    if node.op == "neg":
        return -_infinity(node.args[0])
    return int(node.op == "const" and node.value == "oo")


def _is_task(node: Node) -> bool:
    """Whether an expression of numbers is a task rather than its result."""
    return node.op == "fn" and node.value in ("max", "min", "gcd", "lcm") and not symbols(node)


# --- rounded gold answers ------------------------------------------------------------------------

# The share of a rounded gold answer by which an answer may differ even if its digits are few.
_ROUNDED_SHARE: Final = Fraction(1, 100)


def _compare_nearly(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Accept an answer within a stated error, or one that rounds to a rounded gold answer."""
    margin, rule = tolerance.error, "within the stated error"
    if not margin and _may_round(gold.digits, answer.digits, tolerance):
        margin, rule = _half_unit(gold.digits, tolerance.rounded), "rounds to the gold"
    if not margin or symbols(gold.tree) or symbols(answer.tree):
        return NO
    for gold_tree, tree in _pairs_without_units(gold, answer):
        try:
            difference = abs(constant(gold_tree) - constant(tree))
        except Undecided:
            continue
        # The margin is stated in the gold's own terms; a percent read as a share shrinks it.
        is_scaled = gold_tree != gold.tree
        scale = abs(constant(gold_tree) / constant(gold.tree)) if is_scaled else 1
        if difference <= float(margin) * scale * (1 + 1e-9):
            return rule
    return NO


def _may_round(gold: str, answer: str, tolerance: Tolerance) -> bool:
    """Whether a gold literal is a rounded one and an answer a less rounded literal of its kind.

    An integer counts things, and one with many more digits than the gold is another computation.
    """
    if not gold or not answer or not ("e" in gold or tolerance.rounded):
        return False
    if _significant_digits(gold) < 2:
        return False
    if "e" not in answer and number(answer.lstrip("-")).denominator == 1:
        return False
    return _significant_digits(answer) <= _significant_digits(gold) + 2


def _significant_digits(literal: str) -> int:
    mantissa = literal.lstrip("-").partition("e")[0]
    if "." in mantissa and "e" not in literal:
        mantissa = mantissa.rstrip("0")  # the canonical form does not keep them
    return len(mantissa.replace(".", "").lstrip("0"))


def _half_unit(literal: str, decimals_count: bool) -> Fraction:
    """Half a unit of the last digit that the gold answer shows, at most 1 % of its value."""
    mantissa, _, exponent = literal.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not exponent and (not decimals or not decimals_count):
        return Fraction(0)
    half = Fraction(1, 2) * Fraction(10) ** (int(exponent or 0) - decimals)
    return min(half, abs(number(literal)) * _ROUNDED_SHARE)


# --- letters that writers choose -----------------------------------------------------------------

_CONSTANTS: Final = frozenset(
    "A B C D K c k C_0 C_1 C_2 C_3 c_0 c_1 c_2 c_3 K_1 K_2 k_1 k_2 A_1 A_2".split()
)
_INTEGRATED: Final = frozenset(("x", "t", "u", "y", "s", "\\theta"))
_INTEGERS: Final = frozenset("kmnlKN")
# Where the constants of two antiderivatives are compared: no zero or pole that an exercise has.
_SOMEWHERE: Final = num(Fraction(37, 53))


def _with_letters_renamed(gold: Node, answer: Node) -> Iterator[Node]:
    r"""Yield the answer with its arbitrary letters named as those of the gold answer.

    Constants of integration are added (``x^2 + C``) or scale a function of the variable
    (``A e^x``). The integer of a family of angles stands beside π, as a factor (``k\pi``) or in a
    term (``\pi/3 + 2k\pi``).
    """
    gold_names, names = symbols(gold), symbols(answer)
    if not gold_names or not names:
        return
    gold_constants = {name for name in gold_names & _CONSTANTS if _is_arbitrary(gold, name)}
    variables = gold_names - gold_constants
    constants = names & _CONSTANTS - variables
    is_pair = 0 < len(gold_constants) == len(constants) <= 3
    if is_pair and variables and variables == names - constants:
        yield from _renamed(answer, constants, gold_constants)
        if gold_constants == {"C"} and len(variables) == 1 and variables <= _INTEGRATED:
            yield from _shifted(gold, answer, constants, next(iter(variables)))
    count_turns = gold_names | names <= _INTEGERS and len(gold_names) == len(names) == 1
    if count_turns and gold.op in ("add", "mul") and has_const(gold, "pi"):
        yield from _renamed(answer, names, gold_names)


def _shifted(gold: Node, answer: Node, constants: Set[str], variable: str) -> Iterator[Node]:
    """Yield the answer plus what its constant of integration may take up: a number."""
    for renamed in _renamed(answer, constants, {"C"}):
        if _only_adds(gold, "C") and _only_adds(renamed, "C"):
            gold_value = rename(gold, {variable: _SOMEWHERE})
            value = rename(renamed, {variable: _SOMEWHERE})
            yield Node("add", (renamed, gold_value, negate(value)))


def _only_adds(node: Node, name: str) -> bool:
    """Whether a letter is one term of a sum, and in no other term."""
    terms = node.args if node.op == "add" else ()
    holders = [term for term in terms if name in symbols(term)]
    return holders == [Node("sym", (), name)]


def _renamed(node: Node, names: Set[str], gold_names: Set[str]) -> Iterator[Node]:
    for order in permutations(sorted(gold_names)):
        pairs = zip(sorted(names), order, strict=True)
        yield rename(node, {name: Node("sym", (), gold_name) for name, gold_name in pairs})


def _is_arbitrary(node: Node, name: str) -> bool:
    symbol = Node("sym", (), name)
    return (node.op == "add" and symbol in node.args) or _scales_a_function(node, symbol)


def _scales_a_function(node: Node, symbol: Node) -> bool:
    """Whether a letter scales one function of the variable: ``A e^x``, ``e^{-x} (A cos x + B)``."""
    name = str(symbol.value)
    terms = node.args if node.op == "add" else (node,)
    scaled = [_factors(term) for term in terms if name in symbols(term)]
    if len(scaled) != 1:
        return False
    if symbol in scaled[0]:
        return any(map(_is_function, scaled[0]))
    holders = [factor for factor in scaled[0] if name in symbols(factor)]
    return len(holders) == 1 and holders[0].op == "add" and _scales_a_function(holders[0], symbol)


def _factors(node: Node) -> list[Node]:
    if node.op != "mul":
        return [node]
    return [factor for arg in node.args for factor in _factors(arg)]


def _is_function(factor: Node) -> bool:
    """Whether a factor is an exponential or a function of the variable."""
    return factor.op == "fn" or (factor.op == "pow" and bool(symbols(factor.args[1])))


# --- unit vectors --------------------------------------------------------------------------------


def as_coordinates(value: Value, other: Value) -> Value:
    """Read ``2i + 3j`` as the point (2, 3) where the other side is a tuple or a vector."""
    if isinstance(other, Matrix):
        dimension = len(other.rows) * len(other.rows[0])
    elif isinstance(other, Items) and other.kind in ("tuple", "bracket", "angle"):
        dimension = len(other.items)
    else:
        return value
    if not isinstance(value, Quantity) or value.unit is not None:
        return value
    components = _components(value.tree)
    if components is None:
        return value
    missing = dimension - len(components)
    coordinates = components + [num(0)] * missing
    return Items("tuple", tuple(map(Quantity, coordinates)), point=True)


def _components(node: Node) -> list[Node] | None:
    """Return the factors of the unit vectors i, j, k; None for what is no sum of scaled ones."""
    node = _axes_as_symbols(node)
    names = symbols(node) & {"j", "k"}
    if "j" not in names or has(node, "pow", "abs", "fn", "app"):
        return None
    axes = ["i", "j", "k"] if "k" in names else ["i", "j"]
    components = []
    for axis in axes:
        only_this_axis = {name: num(int(name == axis)) for name in axes}
        components.append(rename(node, only_this_axis))
    terms = [
        Node("mul", (component, Node("sym", (), axis)))
        for component, axis in zip(components, axes, strict=True)
    ]
    return components if same(node, Node("add", tuple(terms))) else None


def _axes_as_symbols(node: Node) -> Node:
    """Write the constant i, and letters with a hat, as plain symbols."""
    if node.op == "const" and node.value == "i":
        return Node("sym", (), "i")
    if node.op == "sym" and str(node.value) in ("hat i", "hat j", "hat k"):
        return Node("sym", (), str(node.value)[-1])
    return node._replace(args=tuple(map(_axes_as_symbols, node.args))) if node.args else node
