"""Whether two quantities are equal: units first, then numbers, then letters that writers choose.

The gold answer stands on the left. A unit may be left out on one side and must not be contradicted;
a percent or a degree sign also fixes the number itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from rlbhpc.verify.answer.grammar import parse_number
from rlbhpc.verify.answer.numeric import (
    Undecided,
    are_identical,
    rational_value,
    value_in_100_digits,
)
from rlbhpc.verify.answer.value import (
    DEGREE,
    INFINITY,
    PERCENT,
    PI,
    Node,
    Op,
    Quantity,
    Unit,
    contains_node,
    contains_op,
    free_names,
    multiply,
    negate,
    number_node,
    raise_to,
    substitute,
    symbol_node,
    walk,
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


EXACT: Final = Tolerance()
#: The rule of two values that are not the same.
DIFFERENT: Final = ""

_PairOfTrees: TypeAlias = tuple[Node, Node]


def compare_quantities(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Return the rule by which two quantities are equal, or ``""``.

    A ``Quantity`` is an expression, its ``tree``, with a ``unit`` or None. ``_trees_to_compare``
    deals with the units and gives pairs of expressions; one equal pair is enough. Else the two may
    be families of solutions that name their integer differently (``2kπ``, ``2nπ``), or the answer
    may lie within the tolerance.
    """
    for gold_tree, tree in _trees_to_compare(gold, answer):
        rule = compare_trees(gold_tree, tree)
        if rule:
            return rule
    if gold.unit is None and answer.unit is None and _same_family(gold.tree, answer.tree):
        return "constants renamed"
    return _compare_nearly(gold, answer, tolerance)


# --- units ---------------------------------------------------------------------------------------

# A percent sign may be left out where a number is too large for a share.
_SMALLEST_PERCENTAGE: Final = 2


def _trees_to_compare(gold: Quantity, answer: Quantity) -> list[_PairOfTrees]:
    """List pairs of expressions, the gold's first, of which one must be equal: units are settled.

    Two units must have the same dimensions; the answer is then converted to the gold's unit. One
    side may leave its unit out; ``_trees_without_unit`` lists what the other side may mean then.
    There are no pairs where two units contradict each other.
    """
    if gold.unit is not None and answer.unit is not None:
        if gold.unit.dimensions != answer.unit.dimensions:
            return []
        ratio = answer.unit.factor / gold.unit.factor
        scaled = answer.tree if ratio == 1 else multiply(answer.tree, number_node(ratio))
        return [(gold.tree, scaled)]
    may_drop_percent = _may_be_percentage(gold.tree)
    if gold.unit is not None:
        trees = _trees_without_unit(gold.tree, gold.unit, answer.tree, may_drop_percent)
        return [(tree, answer.tree) for tree in trees]
    if answer.unit is not None:
        trees = _trees_without_unit(answer.tree, answer.unit, gold.tree, may_drop_percent)
        return [(gold.tree, tree) for tree in trees]
    return [(gold.tree, answer.tree)]


def _trees_without_unit(
    tree: Node, unit: Unit, plain_tree: Node, may_drop_percent: bool
) -> list[Node]:
    """List the plain expressions that ``tree`` with its ``unit`` may mean beside ``plain_tree``.

    ``plain_tree`` is the other side, which has no unit. 50 % means the *share* 0.5; if
    ``may_drop_percent``, the other side may have left out the sign, and 50 is right as well.
    Degrees become radians (``Op.DEGREES``) where the other side is in radians, which a π or an
    angle in it shows; otherwise 30° is compared as 30.
    """
    if unit.dimensions == PERCENT.dimensions:
        share = multiply(tree, number_node(PERCENT.factor))
        return [tree, share] if may_drop_percent else [share]
    is_in_radians = contains_node(plain_tree, PI) or contains_op(plain_tree, Op.DEGREES)
    return [Node(Op.DEGREES, (tree,))] if unit == DEGREE and is_in_radians else [tree]


def _may_be_percentage(tree: Node) -> bool:
    value = rational_value(tree)
    return value is not None and abs(value) >= _SMALLEST_PERCENTAGE


# --- numbers -------------------------------------------------------------------------------------


def compare_trees(gold: Node, answer: Node) -> str:
    """Return the rule by which two expressions are equal, or ``""``.

    In turn: the same tree, the same infinity, equal numbers, and equal values wherever both are
    defined, which ``are_identical`` decides. ``rational_value`` is the exact value of an
    expression, or None. Products with an inverse matrix must be the same tree, since their factors
    do not commute.
    """
    if gold == answer:
        return "identical"
    gold_sign, sign = _sign_of_infinity(gold), _sign_of_infinity(answer)
    if gold_sign or sign:
        return "infinity" if gold_sign == sign else DIFFERENT
    if gold.op is Op.NUMBER and answer.op is Op.NUMBER:
        return "rational" if gold.value == answer.value else DIFFERENT
    if _multiplies_inverse_matrix(gold) or not are_identical(gold, answer):
        return DIFFERENT
    is_rational = rational_value(gold) is not None and rational_value(answer) is not None
    return "rational" if is_rational else "identity"


def _multiplies_inverse_matrix(node: Node) -> bool:
    """Whether capital letters are matrices, of which the order counts: ``AB^{-1}``.

    Real gold answers have capital letters that commute, such as ``RC``, and none with an inverse.
    """
    capitals = [name for name in free_names(node) if len(name) == 1 and name.isupper()]
    inverses = {raise_to(symbol_node(name), negate(number_node(1))) for name in capitals}
    return len(capitals) > 1 and any(part in inverses for part in walk(node))


def _sign_of_infinity(node: Node) -> int:
    """Return the sign of an infinity, 0 for anything else."""
    if node.op is Op.NEGATE:
        return -_sign_of_infinity(node.args[0])
    return int(node == INFINITY)


# --- rounded gold answers ------------------------------------------------------------------------

# The share of a rounded gold answer by which an answer may differ even if its digits are few.
_MAX_ROUNDING_SHARE: Final = Fraction(1, 100)
_FEWEST_DIGITS: Final = 2
_MAX_ADDED_DIGITS: Final = 2
_FLOAT_SLACK: Final = 1 + 1e-9


def _compare_nearly(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> str:
    """Return the rule by which an answer is near enough to the gold number, or ``""``.

    The margin is the error that the problem states. Without one, and if the gold is rounded, it is
    half a unit of the gold's last digit. A *literal* is a decimal as it was written. Expressions
    with variables have no margin. ``_trees_to_compare`` gives pairs of expressions with their units
    settled.
    """
    margin, rule = tolerance.error, "within the stated error"
    if not margin and _may_round(gold.literal, answer.literal, tolerance):
        margin, rule = _half_last_digit(gold.literal, tolerance), "rounds to the gold"
    if not margin or free_names(gold.tree) or free_names(answer.tree):
        return DIFFERENT
    for gold_tree, tree in _trees_to_compare(gold, answer):
        try:
            gold_value, value = value_in_100_digits(gold_tree), value_in_100_digits(tree)
        except Undecided:
            continue
        # The margin is stated in the gold's own terms; a percent read as a share shrinks it.
        scale = 1
        if gold_tree != gold.tree:
            scale = abs(gold_value / value_in_100_digits(gold.tree))
        if abs(gold_value - value) <= float(margin) * scale * _FLOAT_SLACK:
            return rule
    return DIFFERENT


def _may_round(gold_literal: str, literal: str, tolerance: Tolerance) -> bool:
    """Whether the gold is a rounded number and the answer a finer form of such a number.

    Literals are decimals as they were written (``6.02e23``), empty for other expressions. A gold in
    e-notation is rounded, and any in a problem set of rounded golds (``tolerance.rounded``). An
    answer that is an integer counts things, and one with many more digits than the gold is another
    computation: neither is accepted.
    """
    is_rounded = tolerance.rounded or "e" in gold_literal
    if not is_rounded or not gold_literal or not literal:
        return False
    if "e" not in literal and parse_number(literal.lstrip("-")).denominator == 1:
        return False
    gold_digits = _significant_digits(gold_literal)
    added_digits = _significant_digits(literal) - gold_digits
    return gold_digits >= _FEWEST_DIGITS and added_digits <= _MAX_ADDED_DIGITS


def _significant_digits(literal: str) -> int:
    mantissa = literal.lstrip("-").partition("e")[0]
    if "." in mantissa and "e" not in literal:
        mantissa = mantissa.rstrip("0")  # the canonical form does not keep them
    return len(mantissa.replace(".", "").lstrip("0"))


def _half_last_digit(literal: str, tolerance: Tolerance) -> Fraction:
    """Return half a unit of the last digit of a gold literal, at most 1 % of its value.

    ``3.14`` gives 0.005 and ``6.02e23`` gives 5e20. It is 0 where the gold is not known to be
    rounded.
    """
    mantissa, _, exponent = literal.partition("e")
    decimal_count = len(mantissa.partition(".")[2])
    if not exponent and not (decimal_count and tolerance.rounded):
        return Fraction(0)
    half = Fraction(1, 2) * Fraction(10) ** (int(exponent or 0) - decimal_count)
    return min(half, abs(parse_number(literal)) * _MAX_ROUNDING_SHARE)


# --- letters that writers choose -----------------------------------------------------------------

_COUNTING_LETTERS: Final = frozenset("kmnlKN")


def _same_family(gold: Node, answer: Node) -> bool:
    """Whether two families of solutions such as ``π/3 + 2kπ`` differ only in their integer's name.

    Each must have exactly one variable, a letter by which integers are called (``k``, ``m``,
    ``n``). The π shows that the family counts turns.
    """
    gold_names, names = free_names(gold), free_names(answer)
    counts_turns = gold_names | names <= _COUNTING_LETTERS and contains_node(gold, PI)
    if not counts_turns or len(gold_names) != 1 or len(names) != 1:
        return False
    (gold_name,), (name,) = gold_names, names
    renamed = substitute(answer, {name: symbol_node(gold_name)})
    return bool(compare_trees(gold, renamed))
