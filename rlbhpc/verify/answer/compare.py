"""Whether two values are the same answer.

Every comparison either says yes by a named rule, says no (``""``), or raises :class:`Undecided`.
The gold answer stands on the left: it decides what may be left out (a unit, the name of a variable,
a base) and what may not be contradicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, Final, TypeAlias

from rlbhpc.verify.answer.compare_scalar import (
    DIFFERENT,
    EXACT,
    Tolerance,
    compare_quantities,
    compare_trees,
)
from rlbhpc.verify.answer.grammar import Unreadable
from rlbhpc.verify.answer.numeric import Undecided, approximate, are_identical
from rlbhpc.verify.answer.relations import region_parts
from rlbhpc.verify.answer.value import (
    ZERO,
    Based,
    Choice,
    Grouping,
    Interval,
    Items,
    Matrix,
    Named,
    Node,
    Op,
    Quantity,
    Ratio,
    Region,
    Relation,
    Unread,
    Value,
    Words,
    free_names,
    is_label,
    multiply,
    number_node,
    option_letter,
    substitute,
    subtract,
    symbol_node,
)


class UnreadSideError(Undecided):
    """A side could not be read."""


def compare(gold: Value, answer: Value, tolerance: Tolerance = EXACT) -> str:
    """Return the rule by which two values are the same answer, or ``""`` if they differ.

    ``gold`` is the reference answer, ``answer`` the one to judge; both were read from texts. A
    *rule* is a short name of what made them equal, such as ``"in order"``. ``Named`` is a value
    with a name (``x = 3``), ``Based`` digits in a base, ``Choice`` a lettered option, ``Unread`` a
    text that could not be read. ``_COMPARISONS`` has a function for each pair of types that can be
    equal.

    Raises :class:`Undecided` if neither could be established; :class:`UnreadSideError` where a side
    could not be read.
    """
    if isinstance(gold, Unread) or isinstance(answer, Unread):
        raise UnreadSideError("unread")
    if isinstance(answer, Choice) or isinstance(gold, Choice):
        return _compare_choices(gold, answer, tolerance)
    if isinstance(gold, Named) and isinstance(answer, Named) and not _may_name_same(gold, answer):
        gold_equation, equation = _equation_of(gold), _equation_of(answer)
        if gold_equation is None or equation is None:
            return DIFFERENT
        return _compare_relations(gold_equation, equation, tolerance)
    gold, answer = _without_names(gold, answer)
    compare_kinds = _COMPARISONS.get((type(gold), type(answer)))
    return DIFFERENT if compare_kinds is None else compare_kinds(gold, answer, tolerance)


# --- names ---------------------------------------------------------------------------------------


def _may_name_same(gold: Named, answer: Named) -> bool:
    """Whether two names may be of one thing: ``x`` and ``y`` may not, nor ``f(x)`` and ``f(2x)``.

    A ``Named`` is a value with a name: ``f(x) = 3`` has the tree of ``f(x)`` as its ``name`` and 3
    as its ``value``. A name's ``op`` says what it is: a symbol, a function with its ``args``, or a
    combination such as ``xy`` or ``|x|``. Only single letters contradict each other; longer names
    are but labels of what was asked for.
    """
    gold_name, name = gold.name, answer.name
    simple_ops = {Op.SYMBOL, Op.UNKNOWN_FUNCTION}
    if not {gold_name.op, name.op} <= simple_ops:
        # |x| = 3 is no x = 3, and xy = 6 no x = 6.
        return gold_name == name or not (_is_computed(gold_name) or _is_computed(name))
    if gold_name.op is not name.op:
        # A graph may be called y, or by its function's own name; else a number is no function.
        is_gold_letter = gold_name.op is Op.SYMBOL
        letter, function = (gold_name, name) if is_gold_letter else (name, gold_name)
        return len(str(letter.value)) > 1 or letter.value in ("y", function.value)
    if _is_other_letter(str(gold_name.value), str(name.value)):
        return False
    return gold_name.args == name.args or _may_rename_arguments(gold_name, answer)


def _is_computed(name: Node) -> bool:
    """Whether a name is computed of small letters, as ``xy`` and ``|x|`` are, and ``AB`` is not."""
    is_combined = name.op in (Op.MULTIPLY, Op.ABSOLUTE)
    return is_combined and all(letter.islower() for letter in free_names(name))


def _is_other_letter(gold_name: str, name: str) -> bool:
    """Whether two names are two letters; names of several letters are only labels."""
    return len(gold_name) == len(name) == 1 and gold_name != name


def _may_rename_arguments(gold_name: Node, answer: Named) -> bool:
    """Whether an answer that defines ``f(x)`` may be read as one that defines the gold's ``f(n)``.

    ``gold_name`` and ``answer.name`` are functions with arguments. Each argument must be a plain
    variable. The answer's value must not use a letter of the gold's arguments in another sense,
    since renaming would mix the two up.
    """
    for argument in (*gold_name.args, *answer.name.args):
        if argument.op is not Op.SYMBOL:
            return False  # f(2x)
    variables = free_names(answer.name) - {str(answer.name.value)}
    gold_variables = free_names(gold_name) - {str(gold_name.value)}
    tree = answer.value.tree if isinstance(answer.value, Quantity) else ZERO
    return (free_names(tree) - variables).isdisjoint(gold_variables)


def _without_names(gold: Value, answer: Value) -> tuple[Value, Value]:
    """Return both values without ``x =``, in a form in which they can be compared.

    ``Named`` is a value with a name, ``Quantity`` an expression, ``Relation`` an equation or an
    inequality. Of two functions, the answer's variable is renamed to the gold's: ``f(x) = x²``
    beside ``f(n) = n²``. Beside an equation, the named side becomes an equation, too.
    """
    if isinstance(gold, Named) and isinstance(answer, Named):
        return gold.value, _with_gold_variables(gold.name, answer)
    if isinstance(gold, Quantity) and isinstance(answer, Named):
        variables = free_names(gold.tree)
        if answer.name.op is Op.UNKNOWN_FUNCTION and len(variables) == 1:
            gold_name = answer.name._replace(args=tuple(map(symbol_node, variables)))
            return gold, _with_gold_variables(gold_name, answer)
    if isinstance(gold, Relation) and isinstance(answer, Named):
        answer = _equation_of(answer, may_be_solved=True) or answer
    elif isinstance(answer, Relation) and isinstance(gold, Named):
        gold = _equation_of(gold) or gold
    return _value_of(gold), _value_of(answer)


def _value_of(value: Value) -> Value:
    return value.value if isinstance(value, Named) else value


def _with_gold_variables(gold_name: Node, answer: Named) -> Value:
    """Return the value of an answer such as ``f(x) = x²`` in the variable of the gold's ``f(n)``.

    A name's ``args`` are the function's arguments. A value that is no expression, or has another
    number of arguments, stays as it is.
    """
    value, name = answer.value, answer.name
    if not isinstance(value, Quantity) or len(gold_name.args) != len(name.args):
        return value
    replacements = {
        str(variable.value): gold_variable
        for gold_variable, variable in zip(gold_name.args, name.args, strict=True)
        if gold_variable.op is variable.op is Op.SYMBOL
    }
    return Quantity(substitute(value.tree, replacements), value.unit, value.literal)


def _equation_of(named: Named, may_be_solved: bool = False) -> Relation | None:
    """Return ``y = 2x`` as an equation; None where a gold answer is solved for a number."""
    if not isinstance(named.value, Quantity) or named.value.unit is not None:
        return None
    if not may_be_solved and not free_names(named.value.tree):
        return None
    return Relation(("=",), (named.name, named.value.tree))


# --- several values ------------------------------------------------------------------------------


def _compare_items(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    """Return the rule by which two groups of values are the same, or ``""``.

    Bracketed groups (points, intervals, vectors) are *ordered*; lists such as ``1, 2`` and sets are
    not, and may come in any order. If only the answer names its items (``x = 1, y = 2``), the gold
    is taken to be in that order. ``_value_of`` drops a name, ``_without_repeats`` drops later
    equals.
    """
    if gold.is_ordered or answer.is_ordered:
        return _compare_with_ordered(gold, answer, tolerance)
    if _has_own_names(gold.items) and _has_own_names(answer.items):
        return _compare_in_any_order(gold.items, answer.items, tolerance)
    gold_values, values = list(map(_value_of, gold.items)), list(map(_value_of, answer.items))
    distinct_gold_values = _without_repeats(gold_values, tolerance)
    is_set = Grouping.SET in (gold.grouping, answer.grouping)
    if is_set or len(distinct_gold_values) == len(gold_values):
        # A solution that the answer lists twice is still one solution.
        gold_values, values = distinct_gold_values, _without_repeats(values, tolerance)
    if _has_own_names(answer.items):
        return _compare_in_order(gold_values, values, tolerance)
    return _compare_in_any_order(gold_values, values, tolerance)


def _compare_with_ordered(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    """Compare two groups of values; at least one stands in brackets: a point or an interval.

    ``is_ordered`` is true of the bracketed ones; ``is_point`` says that ``(1, 2)`` is known to be a
    point and no interval. A list with names (``x = 1, y = 2``) states the coordinates of a point:
    ``_sorted_by_name`` returns its values in the order of the names, or None unless all have one.
    """
    if gold.is_ordered and answer.is_ordered:
        groupings = {gold.grouping, answer.grouping}
        if len(gold.items) == 2 and groupings == {Grouping.TUPLE, Grouping.BRACKET}:
            return DIFFERENT  # an open interval is no closed one
        return _compare_in_order(gold.items, answer.items, tolerance)
    point, listed = (gold, answer) if gold.is_ordered else (answer, gold)
    if listed.grouping is not Grouping.LIST:
        return DIFFERENT
    coordinates = _sorted_by_name(listed.items)
    is_gold_point = gold.is_ordered and gold.is_point
    if coordinates is None and len(point.items) < 3 and not is_gold_point:
        return DIFFERENT  # (a, b) may be an interval, which is no list of its ends
    listed_items = coordinates or listed.items
    if gold.is_ordered:
        return _compare_in_order(gold.items, listed_items, tolerance)
    return _compare_in_order(listed_items, answer.items, tolerance)


def _has_own_names(items: Sequence[Value]) -> bool:
    """Whether each item has a name that no other item has, as in ``x = 1, y = 2``.

    A ``Named`` item holds its name as an expression tree. An index makes no other name: ``x_1 = 2,
    x_2 = 3`` are two solutions for ``x``, whose order says nothing.
    """
    names = set()
    for item in items:
        if isinstance(item, Named):
            letter = str(item.name.value).partition("_")[0]
            names.add((letter, item.name.args))
    return len(names) == len(items)


def _sorted_by_name(items: Sequence[Value]) -> list[Value] | None:
    """Order ``y = 3, x = -1`` by its names; None unless each item has a name of its own."""
    values = {str(item.name.value): item.value for item in items if isinstance(item, Named)}
    if len(values) != len(items):
        return None
    return [values[name] for name in sorted(values)]


def _compare_in_order(gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance) -> str:
    if len(gold) != len(answer):
        return DIFFERENT
    pairs = zip(gold, answer, strict=True)
    return "in order" if all(compare(*pair, tolerance) for pair in pairs) else DIFFERENT


def _compare_in_any_order(
    gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance
) -> str:
    """Return ``"in any order"`` if the items of both sides match one to one, else ``""``.

    Each gold item takes the first item of the answer that is the same and not taken yet.
    """
    if len(gold) != len(answer):
        return DIFFERENT
    unmatched = list(answer)
    for gold_item in gold:
        for index, item in enumerate(unmatched):
            if compare(gold_item, item, tolerance):
                del unmatched[index]
                break
        else:
            return DIFFERENT
    return "in any order"


def _without_repeats(items: Sequence[Value], tolerance: Tolerance) -> list[Value]:
    """Return the items that differ from all earlier ones."""
    distinct_items: list[Value] = []
    for item in items:
        if not any(_are_same(earlier, item, tolerance) for earlier in distinct_items):
            distinct_items.append(item)
    return distinct_items


def _are_same(left: Value, right: Value, tolerance: Tolerance) -> bool:
    try:
        return bool(compare(left, right, tolerance))
    except Undecided:
        return False


def _compare_items_with_one(gold: Items, answer: Value, tolerance: Tolerance) -> str:
    if len(gold.items) != 1:
        return DIFFERENT
    return compare(gold.items[0], answer, tolerance)


def _compare_one_with_items(gold: Value, answer: Items, tolerance: Tolerance) -> str:
    """Compare one gold value with an answer of several items; return the rule, or ``""``.

    Two items can be right only as one value that is written in two ways: ``15/4 or 3.75``. Then
    both must equal the gold. Items with names of their own (``x = 5, y = 5``) are two values.
    """
    if len(answer.items) == 1:
        return compare(gold, answer.items[0], tolerance)
    is_pair = len(answer.items) == 2 and answer.grouping is Grouping.LIST
    if not is_pair or answer.items[0] == answer.items[1]:  # "5,5" may be a decimal
        return DIFFERENT
    if _has_own_names(answer.items) or not compare(gold, answer.items[1], tolerance):
        return DIFFERENT
    return compare(gold, answer.items[0], tolerance)


# --- matrices and vectors ------------------------------------------------------------------------


def _compare_matrices(gold: Matrix, answer: Matrix, _: Tolerance) -> str:
    """Return ``"entry by entry"`` if two matrices have one shape and equal entries, else ``""``.

    The tolerance, which every comparison is given, has no use here.
    """
    if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
        return DIFFERENT
    for gold_row, row in zip(gold.rows, answer.rows, strict=True):
        if not all(compare_trees(*cells) for cells in zip(gold_row, row, strict=True)):
            return DIFFERENT
    return "entry by entry"


def _compare_vectors(gold: Matrix | Items, answer: Matrix | Items, tolerance: Tolerance) -> str:
    gold_coordinates, coordinates = _coordinates_of(gold), _coordinates_of(answer)
    if not gold_coordinates or not coordinates:
        return DIFFERENT
    return _compare_in_order(gold_coordinates, coordinates, tolerance) and "vector"


def _coordinates_of(vector: Matrix | Items) -> Sequence[Value]:
    """Return the cells of a column or a row, and the items that have an order; else nothing."""
    if isinstance(vector, Items):
        return vector.items if vector.is_ordered else ()
    is_column_or_row = len(vector.rows) == 1 or len(vector.rows[0]) == 1
    cells = [cell for row in vector.rows for cell in row]
    return list(map(Quantity, cells)) if is_column_or_row else ()


# --- intervals -----------------------------------------------------------------------------------


def _compare_regions(gold: Value, answer: Value, _: Tolerance) -> str:
    """Return ``"region"`` if two unions of intervals and points are the same, else ``""``.

    ``_pieces_of`` lists the intervals and points of a value; each must have its equal on the other
    side, in any order. The ``name`` of an interval is the variable of an inequality such as ``x <
    5``: sides that bound two variables differ. The tolerance, which every comparison is given, has
    no use here.
    """
    names = {v.name for v in (gold, answer) if isinstance(v, Interval | Region) and v.name}
    if len(names) > 1:
        return DIFFERENT
    try:
        gold_pieces, pieces = _pieces_of(gold), _pieces_of(answer)
    except Unreadable:
        return DIFFERENT
    if len(gold_pieces) != len(pieces):
        return DIFFERENT
    for gold_piece in gold_pieces:
        match = next((piece for piece in pieces if _same_piece(gold_piece, piece)), None)
        if match is None:
            return DIFFERENT
        pieces.remove(match)
    return "region"


def _pieces_of(value: Value) -> list[Interval | Quantity]:
    if isinstance(value, Items) and value.grouping is Grouping.LIST:
        return [piece for item in value.items for piece in region_parts(item)]
    return list(region_parts(value))


def _same_piece(gold: Interval | Quantity, answer: Interval | Quantity) -> bool:
    """Whether two pieces of a union of intervals and points are the same.

    A ``Quantity`` is a point. An ``Interval`` has a low and a high end, None for an infinite one,
    and says of each end whether it is closed, that is, belongs to the interval.
    """
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return bool(compare_quantities(gold, answer, EXACT))
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return False
    if (gold.low_closed, gold.high_closed) != (answer.low_closed, answer.high_closed):
        return False
    return _same_end(gold.low, answer.low) and _same_end(gold.high, answer.high)


def _same_end(gold: Node | None, answer: Node | None) -> bool:
    if gold is None or answer is None:
        return gold is answer
    return bool(compare_trees(gold, answer))


# --- equations, inequalities, labels -------------------------------------------------------------


def _compare_relations(gold: Relation, answer: Relation, _: Tolerance) -> str:
    """Return the rule by which two equations or inequalities are the same, or ``""``.

    A ``Relation`` is a chain such as ``a < b <= c``: ``sides`` are the expressions, ``signs`` what
    stands between them. Chains must agree side by side. A single relation may also be a multiple of
    the other, as ``2x = 4y`` is of ``x = 2y``: the difference of its sides is a constant times that
    of the other. In an inequality the constant must be positive, since a negative one turns the
    sign. ``DIFFERENT`` is ``""``. The tolerance, which every comparison is given, has no use here.
    """
    if gold.signs != answer.signs:
        return DIFFERENT
    pairs = zip(gold.sides, answer.sides, strict=True)  # as many as signs, and one more
    if all(compare_trees(*sides) for sides in pairs):
        return "side by side"
    if len(gold.signs) > 1:
        return DIFFERENT
    gold_difference, difference = subtract(*gold.sides), subtract(*answer.sides)
    if free_names(gold_difference) != free_names(difference):
        return DIFFERENT
    factor = _constant_ratio(gold_difference, difference)
    is_equation = gold.signs[0] in ("=", "!=")
    if factor is None or (factor < 0 and not is_equation):
        return DIFFERENT
    return "proportional"


def _constant_ratio(top: Node, bottom: Node) -> float | None:
    """Return the real constant c for which top = c·bottom everywhere, or None if there is none.

    Both are expressions in the same variables. A *point* gives each variable an arbitrary fraction.
    The ratio of the two values there is the only candidate for c; an identity in the variables then
    shows whether it holds everywhere.
    """
    point = {}
    # Different fractions of no special kind, so that nothing cancels by accident.
    for index, name in enumerate(sorted(free_names(top))):
        point[name] = Fraction(3 + 2 * index, 7) + Fraction(index, 13)
    try:
        top_value, bottom_value = approximate(top, point), approximate(bottom, point)
    except Undecided:
        return None
    if not top_value or not bottom_value:
        return None
    # top(x) · bottom(point) = bottom(x) · top(point) everywhere, without any rounding.
    values = {name: number_node(value) for name, value in point.items()}
    left = multiply(top, substitute(bottom, values))
    right = multiply(bottom, substitute(top, values))
    return (top_value / bottom_value).real if are_identical(left, right) else None


def _compare_with_label(gold: Quantity, answer: Relation, tolerance: Tolerance) -> str:
    """Compare a number with what ``m + n = 113`` says that its left side is."""
    label, value = answer.sides[0], answer.sides[-1]
    is_labelled = answer.signs == ("=",) and is_label(label) and not free_names(value)
    if not is_labelled or free_names(gold.tree):
        return DIFFERENT
    return compare_quantities(gold, Quantity(value), tolerance) and "labelled"


# --- ratios, digits, texts, choices --------------------------------------------------------------


def _compare_ratios(gold: Ratio, answer: Ratio, _: Tolerance) -> str:
    if len(gold.terms) != len(answer.terms):
        return DIFFERENT
    pairs = zip(gold.terms, answer.terms, strict=True)
    return "term by term" if all(compare_trees(*terms) for terms in pairs) else DIFFERENT


def _compare_ratio_with_quotient(
    gold: Ratio | Quantity, answer: Ratio | Quantity, tolerance: Tolerance
) -> str:
    """Compare ``3:4`` with the fraction of the same two terms."""
    return _compare_ratios(_ratio_of(gold), _ratio_of(answer), tolerance) and "quotient"


def _ratio_of(value: Ratio | Quantity) -> Ratio:
    if isinstance(value, Ratio):
        return value
    is_quotient = value.tree.op is Op.DIVIDE and value.unit is None
    return Ratio(value.tree.args if is_quotient else ())


def _compare_based(gold: Based, answer: Based, _: Tolerance) -> str:
    return "digits and base" if gold == answer else DIFFERENT


def _compare_without_base(gold: Based, answer: Quantity, _: Tolerance) -> str:
    """Compare digits where the answer leaves out the base, as it may leave out a unit."""
    has_same_digits = gold.digits == answer.literal.lstrip("0")
    return "digits, base left out" if has_same_digits and answer.unit is None else DIFFERENT


def _compare_words(gold: Words, answer: Words, _: Tolerance) -> str:
    """Compare two texts; of the winner of a game ``Petya wins`` says no more than ``Petya``."""
    return "text" if gold.text == answer.text.removesuffix(" wins") else DIFFERENT


def _compare_choices(gold: Value, answer: Value, tolerance: Tolerance) -> str:
    """Return the rule by which an answer chooses the gold's option, or ``""``.

    At least one side is a ``Choice``: an option's letter, and as its ``content`` the text beside
    it. Two letters decide, unless the words beside them contradict each other. Where a side has no
    letter, the contents are compared.
    """
    gold_letter, letter = option_letter(gold), option_letter(answer)
    gold_content = gold.content if isinstance(gold, Choice) else gold
    content = answer.content if isinstance(answer, Choice) else answer
    if gold_letter and letter:
        both_in_words = isinstance(gold_content, Words) and isinstance(content, Words)
        texts_differ = both_in_words and gold_content != content
        return "choice" if gold_letter == letter and not texts_differ else DIFFERENT
    if gold_content is None or content is None:
        return DIFFERENT
    return compare(gold_content, content, tolerance) and "choice text"


# --- which comparison is for which types ---------------------------------------------------------

_Comparison: TypeAlias = Callable[[Any, Any, Tolerance], str]
_REGION: Final = (Interval, Region)
_TEXT: Final = (Quantity, Words)
# Types of gold values, types of answers, and their comparison; of two the first counts.
_COMPARISONS_OF_TYPES: Final[tuple[tuple[tuple[type, ...], tuple[type, ...], _Comparison], ...]] = (
    ((Quantity,), (Quantity,), compare_quantities),
    (_REGION, (*_REGION, Items), _compare_regions),
    ((Items,), _REGION, _compare_regions),
    ((Items,), (Items,), _compare_items),
    ((Items,), _TEXT, _compare_items_with_one),
    (_TEXT, (Items,), _compare_one_with_items),
    ((Quantity,), (Relation,), _compare_with_label),
    ((Relation,), (Relation,), _compare_relations),
    ((Matrix,), (Matrix,), _compare_matrices),
    ((Matrix,), (Items,), _compare_vectors),
    ((Items,), (Matrix,), _compare_vectors),
    ((Based,), (Based,), _compare_based),
    ((Based,), (Quantity,), _compare_without_base),
    ((Ratio,), (Ratio,), _compare_ratios),
    ((Ratio,), (Quantity,), _compare_ratio_with_quotient),
    ((Quantity,), (Ratio,), _compare_ratio_with_quotient),
    ((Words,), (Words,), _compare_words),
)
_COMPARISONS: Final[dict[tuple[type, type], _Comparison]] = {
    types: comparison
    for gold_types, answer_types, comparison in reversed(_COMPARISONS_OF_TYPES)
    for types in product(gold_types, answer_types)
}
