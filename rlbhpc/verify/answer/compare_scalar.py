"""Whether two quantities are equal: units first, then letters that writers choose, then numbers.

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
    num,
    rename,
    symbols,
)
from rlbhpc.verify.answer.witness import claim_equal, claim_near

# --- letters that writers choose -----------------------------------------------------------------


_CONSTANTS: Final = frozenset(
    "A B C D K c k C_0 C_1 C_2 C_3 c_0 c_1 c_2 c_3 K_1 K_2 k_1 k_2 A_1 A_2".split()
)
_AXES: Final = ("i", "j", "k")


_INTEGRATED: Final = frozenset(("x", "t", "u", "y", "s", "\\theta"))
# Where the constants of two antiderivatives are compared: no zero or pole that an exercise has.
_SOMEWHERE: Final = num(Fraction(37, 53))
_INTEGERS: Final = frozenset("kmnlKN")


def other_letters(gold: Node, answer: Node) -> Iterator[Node]:
    r"""Yield the answer with its arbitrary letters named as those of the gold answer.

    Constants of integration are added (``x^2 + C``) or scale a function of the variable
    (``A e^x``). The integer of a family of angles stands beside π (``\pi/3 + 2k\pi``).
    """
    gold_names, answer_names = symbols(gold), symbols(answer)
    if not gold_names or not answer_names:
        return
    ours = {name for name in gold_names & _CONSTANTS if _is_arbitrary(gold, name)}
    theirs = answer_names & _CONSTANTS - (gold_names - ours)
    variables = gold_names - ours
    if variables and variables == answer_names - theirs and 0 < len(ours) == len(theirs) <= 3:
        yield from _renamed(answer, theirs, ours)
        if ours == {"C"} and len(variables) == 1 and variables <= _INTEGRATED:
            yield from _shifted(gold, answer, theirs, ours, next(iter(variables)))
    counted = gold_names | answer_names <= _INTEGERS and len(gold_names) == len(answer_names) == 1
    if counted and gold.op == "add" and has_const(gold, "pi"):
        yield from _renamed(answer, answer_names, gold_names)


def _shifted(
    gold: Node, answer: Node, theirs: Set[str], ours: Set[str], variable: str
) -> Iterator[Node]:
    """Yield the answer plus what its constant of integration may take up: a number."""
    added = Node("sym", (), next(iter(ours)))
    for renamed in _renamed(answer, theirs, ours):
        if all(_only_added(node, added) for node in (gold, renamed)):
            start, end = (rename(node, {variable: _SOMEWHERE}) for node in (renamed, gold))
            yield Node("add", (renamed, end, Node("neg", (start,))))


def _only_added(node: Node, letter: Node) -> bool:
    """Whether a letter is one term of a sum, and in no other term."""
    terms = node.args if node.op == "add" else ()
    return [letter.value in symbols(term) for term in terms].count(True) == terms.count(letter) == 1


def _renamed(node: Node, old: Set[str], new: Set[str]) -> Iterator[Node]:
    for names in permutations(sorted(new)):
        pairs = zip(sorted(old), names, strict=True)
        yield rename(node, {name: Node("sym", (), ours) for name, ours in pairs})


def _is_arbitrary(node: Node, name: str) -> bool:
    symbol = Node("sym", (), name)
    return (node.op == "add" and symbol in node.args) or _scales(node, symbol)


def _scales(node: Node, symbol: Node) -> bool:
    """Whether a letter scales one function of the variable: ``A e^x``, ``e^{-x} (A cos x + B)``."""
    name = str(symbol.value)
    terms = node.args if node.op == "add" else (node,)
    scaled = [_factors(term) for term in terms if name in symbols(term)]
    if len(scaled) != 1:
        return False
    if symbol in scaled[0]:
        return any(map(_grows, scaled[0]))
    holders = [factor for factor in scaled[0] if name in symbols(factor)]
    return len(holders) == 1 and holders[0].op == "add" and _scales(holders[0], symbol)


def _factors(node: Node) -> list[Node]:
    if node.op != "mul":
        return [node]
    return [factor for arg in node.args for factor in _factors(arg)]


def _grows(factor: Node) -> bool:
    """Whether a factor is an exponential or a function of the variable."""
    return factor.op == "fn" or (factor.op == "pow" and bool(symbols(factor.args[1])))


def with_axes(value: Value, other: Value) -> Value:
    """Read ``2i + 3j`` as coordinates beside a tuple or a vector."""
    if isinstance(other, Matrix):
        size = len(other.rows) * len(other.rows[0])
    elif isinstance(other, Items) and other.kind in ("tuple", "bracket", "angle"):
        size = len(other.items)
    else:
        return value
    if not isinstance(value, Quantity) or value.unit is not None:
        return value
    parts = _components(value.tree)
    if parts is None:
        return value
    zeros = (num(0),) * (size - len(parts))
    return Items("tuple", tuple(map(Quantity, parts + zeros)), point=True)


def _components(node: Node) -> tuple[Node, ...] | None:
    """Coordinates of ``2i + 3j``: None for what is no sum of scaled unit vectors."""
    node = _axes_as_symbols(node)
    names = symbols(node) & {"j", "k"}
    if "j" not in names or has(node, "pow", "abs", "fn", "app"):
        return None
    axes = _AXES if "k" in names else _AXES[:2]
    zero = {name: num(0) for name in axes}
    parts = tuple(rename(node, {**zero, name: num(1)}) for name in axes)
    pairs = zip(parts, axes, strict=True)
    whole = Node("add", tuple(Node("mul", (part, Node("sym", (), axis))) for part, axis in pairs))
    return parts if same(node, whole) else None


def _axes_as_symbols(node: Node) -> Node:
    """Write the constant i, and letters with a hat, as plain symbols."""
    if node.op == "const" and node.value == "i":
        return Node("sym", (), "i")
    if node.op == "sym" and str(node.value) in ("hat i", "hat j", "hat k"):
        return Node("sym", (), str(node.value)[-1])
    return node._replace(args=tuple(map(_axes_as_symbols, node.args))) if node.args else node


# --- quantities ----------------------------------------------------------------------------------


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
# The share of a rounded gold answer by which an answer may differ even if its digits are few.
_ROUNDED_SHARE: Final = Fraction(1, 100)

NO: Final = ""


def compare_quantities(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Return the rule by which two quantities are equal, or ``""``."""
    for left, right in _readings(gold, answer):
        rule = compare_numbers(left, right)
        if rule:
            return rule
    if gold.unit is None and answer.unit is None:
        for renamed in other_letters(gold.tree, answer.tree):
            if compare_numbers(gold.tree, renamed):
                return "constants renamed"
    return _nearly(gold, answer, tolerance)


def _readings(gold: Quantity, answer: Quantity) -> list[tuple[Node, Node]]:
    """List pairs of bare expressions, one of which must be equal: what the units leave open."""
    ours, theirs = gold.unit, answer.unit
    if ours is not None and theirs is not None:
        return _both_units(gold, answer, ours, theirs)
    if ours is not None:
        return _one_unit(gold.tree, answer.tree, ours, gold.tree)
    if theirs is not None:
        swapped = _one_unit(answer.tree, gold.tree, theirs, gold.tree)
        return [(left, right) for right, left in swapped]
    return [(gold.tree, answer.tree)]


def _both_units(
    gold: Quantity, answer: Quantity, ours: Unit, theirs: Unit
) -> list[tuple[Node, Node]]:
    if ours.dims == theirs.dims:
        ratio = theirs.factor / ours.factor
        right = answer.tree if ratio == 1 else Node("mul", (answer.tree, num(ratio)))
        return [(gold.tree, right)]
    if {ours, theirs} == {DEGREE, RADIAN}:
        left = Node("deg", (gold.tree,)) if ours == DEGREE else gold.tree
        right = Node("deg", (answer.tree,)) if theirs == DEGREE else answer.tree
        return [(left, right)]
    return []


def _one_unit(measured: Node, plain: Node, unit: Unit, gold: Node) -> list[tuple[Node, Node]]:
    """List such pairs where one side alone has a unit."""
    if unit.dims == PERCENT.dims:
        share = (Node("mul", (measured, num(Fraction(1, 100)))), plain)
        return [(measured, plain), share] if _is_no_share(gold) else [share]
    if unit == DEGREE and (has_const(plain, "pi") or has(plain, "deg")):
        return [(Node("deg", (measured,)), plain)]
    pairs = [(measured, plain)]
    if plain.op == "mul" and plain.args[1].op == "sym" and not symbols(measured):
        named = unit_named(str(plain.args[1].value))  # "5m" read as five times m
        if named is not None and named.dims == unit.dims:
            scaled = Node("mul", (plain.args[0], num(named.factor / unit.factor)))
            pairs.append((measured, scaled))
    return pairs


def _is_no_share(tree: Node) -> bool:
    """Whether a number is too large for a share, so that the percent sign may be left out."""
    value = rational(tree)
    return value is not None and abs(value) >= 2


def compare_numbers(a: Node, b: Node) -> str:
    """Return the rule by which two bare expressions are equal, or ``""``."""
    rule = _rule_of_equality(a, b)
    if rule:
        claim_equal(*_same_imaginary(a, b))
    return rule


def _rule_of_equality(a: Node, b: Node) -> str:
    if a == b:
        return "identical"
    infinite = [_infinity(node) for node in (a, b)]
    if any(infinite):
        return "infinity" if infinite[0] == infinite[1] else NO
    if a.op == "num" and b.op == "num":
        return "rational" if a.value == b.value else NO
    if _undone(b) and not _undone(a):
        return NO
    a, b = _same_imaginary(a, b)
    if same(a, b):
        both = rational(a) is not None and rational(b) is not None
        return "rational" if both else "identity"
    return NO


def _infinity(node: Node) -> int:
    if node.op == "neg":
        return -_infinity(node.args[0])
    return int(node.op == "const" and node.value == "oo")


def _undone(node: Node) -> bool:
    """Whether an expression of numbers is a task rather than its result."""
    return node.op == "fn" and node.value in ("max", "min", "gcd", "lcm") and not symbols(node)


def _same_imaginary(a: Node, b: Node) -> tuple[Node, Node]:
    """Read an engineer's j as i where the gold answer has i and no j."""
    if symbols(b) - symbols(a) != {"j"} or not has_const(a, "i"):
        return a, b
    return a, rename(b, {"j": Node("const", (), "i")})


def _nearly(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Accept an answer within a stated error, or one that rounds to a rounded gold answer."""
    margin = tolerance.error
    rule = "within the stated error"
    if not margin and _may_round(gold.digits, answer.digits, tolerance):
        margin, rule = _half_unit(gold.digits, tolerance.rounded), "rounds to the gold"
    if not margin or symbols(gold.tree) or symbols(answer.tree):
        return NO
    for left, right in _readings(gold, answer):
        try:
            gap = abs(constant(left) - constant(right))
        except Undecided:
            continue
        # The margin is stated in the gold's own terms; a percent read as a share shrinks it.
        scale = abs(constant(left) / constant(gold.tree)) if left != gold.tree else 1
        if gap <= float(margin) * scale * (1 + 1e-9):
            claim_near(left, right, margin * Fraction(float(scale)).limit_denominator(10**6))
            return rule
    return NO


def _may_round(gold: str, answer: str, tolerance: Tolerance) -> bool:
    """Whether a gold literal is a rounded one and an answer a less rounded literal of its kind.

    An integer counts things, and one with many more digits than the gold is another computation.
    """
    if not gold or not answer or not ("e" in gold or tolerance.rounded):
        return False
    if _significant(gold) < 2:
        return False
    counts = "e" not in answer and number(answer.lstrip("-")).denominator == 1
    return not counts and _significant(answer) <= _significant(gold) + 2


def _significant(digits: str) -> int:
    mantissa = digits.lstrip("-").partition("e")[0]
    if "." in mantissa and "e" not in digits:
        mantissa = mantissa.rstrip("0")  # the canonical form does not keep them
    return len(mantissa.replace(".", "").lstrip("0"))


def _half_unit(digits: str, decimals_count: bool) -> Fraction:
    """Half a unit of the last digit that the gold answer shows, at most 1 % of its value."""
    mantissa, _, exponent = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not exponent and (not decimals or not decimals_count):
        return Fraction(0)
    half = Fraction(1, 2) * Fraction(10) ** (int(exponent or 0) - decimals)
    return min(half, abs(number(digits)) * _ROUNDED_SHARE)
