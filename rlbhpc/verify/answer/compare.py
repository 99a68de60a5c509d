"""Whether two values are the same answer.

Every comparison either says yes by a named rule, says no (``""``), or raises :class:`Undecided`.
The gold answer stands on the left: it decides what may be left out (a unit, the name of a variable,
a base) and what may not be contradicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

from rlbhpc.verify.answer.compare_scalar import (
    EXACT,
    NO,
    Tolerance,
    Unread,
    as_coordinates,
    compare_numbers,
    compare_quantities,
)
from rlbhpc.verify.answer.numeric import Undecided, exact
from rlbhpc.verify.answer.regions import compare_regions, compare_relations
from rlbhpc.verify.answer.value import (
    Based,
    Choice,
    Clock,
    Interval,
    Items,
    Matrix,
    Named,
    Node,
    Opaque,
    Quantity,
    Ratio,
    Region,
    Relation,
    Residue,
    Value,
    Words,
    has,
    is_label,
    is_name,
    num,
    option_letter,
    rename,
    subtract,
    symbols,
)


def compare(gold: Value, answer: Value, tolerance: Tolerance = EXACT) -> str:
    """Return the rule by which two values are the same answer, or ``""`` if they differ.

    Raises
    ------
    Undecided
        If neither could be established; :class:`Unread` where a side could not be read.
    """
    if isinstance(gold, Based) and isinstance(answer, Opaque):
        same_digits = gold.digits == answer.text.replace(" ", "")
        return "digits, base left out" if same_digits else NO
    if isinstance(gold, Opaque) or isinstance(answer, Opaque):
        raise Unread("unread")
    if isinstance(gold, Residue) and isinstance(answer, Named):
        return NO  # one number of a class
    if isinstance(answer, Choice) or isinstance(gold, Choice):
        return _compare_choices(gold, answer, tolerance)
    if isinstance(gold, Named) and isinstance(answer, Named) and _contradict(gold, answer):
        gold_equation = _equation(gold, solved=True)
        equation = _equation(answer, solved=True)
        if gold_equation is None or equation is None:
            return NO
        return compare_relations(gold_equation, equation)
    gold, answer = _without_names(gold, answer)
    gold, answer = _as_ratio(gold, answer), _as_ratio(answer, gold)
    gold, answer = as_coordinates(gold, answer), as_coordinates(answer, gold)
    rule = _RULES.get((type(gold), type(answer)))
    return NO if rule is None else rule(gold, answer, tolerance)


def _as_ratio(value: Value, other: Value) -> Value:
    """Read ``9:16`` as a ratio beside a fraction or a ratio."""
    if not isinstance(value, Clock) or not isinstance(other, Ratio | Quantity):
        return value
    if value.half or value.second or value.minute < 10:
        return value
    return Ratio((num(value.hour), num(value.minute)))


# --- names ---------------------------------------------------------------------------------------


def _contradict(gold: Named, answer: Named) -> bool:
    """Say whether two names cannot be of one thing: ``x`` and ``y``, ``f(x)`` and ``f(2x)``.

    Only single letters contradict each other; longer names are but labels.
    """
    gold_name, name = gold.name, answer.name
    if not {gold_name.op, name.op} <= {"sym", "app"}:
        # |x| = 3 is no x = 3, and xy = 6 no x = 6; but y(x) = 2x is y = 2x.
        if gold_name == name or not (_is_expression(gold_name) or _is_expression(name)):
            return False
        return not (_is_applied(gold_name, gold.value) or _is_applied(name, answer.value))
    if gold_name.op != name.op:
        # A graph may be called y, or by its function's own name; else a number is no function.
        letter, function = (gold_name, name) if gold_name.op == "sym" else (name, gold_name)
        return len(str(letter.value)) == 1 and letter.value not in ("y", function.value)
    if len(str(gold_name.value)) == len(str(name.value)) == 1 and gold_name.value != name.value:
        return True
    gold_base, gold_index = _base_and_index(gold_name)
    base, index = _base_and_index(name)
    if base == gold_base and index != gold_index and index and gold_index:
        return not (index.isalpha() and gold_index.isalpha())  # a_{n+1} is no a_n
    if gold_name.args == name.args:
        return False
    variables = {str(arg.value) for arg in name.args if arg.op == "sym"}
    gold_variables = {str(arg.value) for arg in gold_name.args if arg.op == "sym"}
    if len(variables) != len(name.args) or len(gold_variables) != len(gold_name.args):
        return True  # f(2x)
    tree = answer.value.tree if isinstance(answer.value, Quantity) else num(0)
    return not (symbols(tree) - variables).isdisjoint(gold_variables)


def _is_expression(name: Node) -> bool:
    """Whether a name is computed of small letters, as ``xy`` and ``|x|`` are, and ``AB`` is not."""
    letters = symbols(name)
    return name.op in ("mul", "abs") and all(letter.islower() for letter in letters)


def _is_applied(name: Node, value: Value) -> bool:
    """Whether ``y(x)``, read as a product, is a function of the variable in its value."""
    if name.op != "mul" or not isinstance(value, Quantity):
        return False
    return not symbols(name.args[1]).isdisjoint(symbols(value.tree))


def _base_and_index(name: Node) -> tuple[str, str]:
    """Cut ``a_n`` into ``a`` and ``n``."""
    base, _, index = str(name.value).partition("_")
    return base, index


def _without_names(gold: Value, answer: Value) -> tuple[Value, Value]:
    """Drop ``x =``; beside an equation it becomes one, and a bound variable is renamed."""
    if isinstance(gold, Named) and isinstance(answer, Named):
        return gold.value, _rebound(gold.name, answer)
    if isinstance(gold, Quantity) and isinstance(answer, Named) and answer.name.op == "app":
        variables = symbols(gold.tree)
        if len(variables) == 1:
            variable = Node("sym", (), next(iter(variables)))
            return gold, _rebound(answer.name._replace(args=(variable,)), answer)
    if isinstance(gold, Relation) and isinstance(answer, Named):
        answer = _equation(answer, solved=False) or answer
    elif isinstance(answer, Relation) and isinstance(gold, Named):
        gold = _equation(gold, solved=True) or gold
    return _value_of(gold), _value_of(answer)


def _value_of(value: Value) -> Value:
    return value.value if isinstance(value, Named) else value


def _rebound(gold_name: Node, answer: Named) -> Value:
    """``f(x) = x²`` beside ``f(n) = n²``: the answer's value in the gold's variable."""
    value, name = answer.value, answer.name
    if not isinstance(value, Quantity) or len(gold_name.args) != len(name.args):
        return value
    renamed = {
        str(variable.value): gold_variable
        for gold_variable, variable in zip(gold_name.args, name.args, strict=True)
        if gold_variable.op == variable.op == "sym"
    }
    gold_index, index = _base_and_index(gold_name)[1], _base_and_index(name)[1]
    if len(gold_index) == len(index) == 1 and gold_index.isalpha() and index.isalpha():
        renamed[index] = Node("sym", (), gold_index)
    return Quantity(rename(value.tree, renamed), value.unit, value.digits)


def _equation(named: Named, solved: bool) -> Relation | None:
    """Read ``y = 2x`` as an equation; a gold answer solved for a number asks for as much."""
    if not isinstance(named.value, Quantity) or named.value.unit is not None:
        return None
    if solved and not symbols(named.value.tree):
        return None
    return Relation(("=",), (named.name, named.value.tree))


# --- several values ------------------------------------------------------------------------------

_ORDERED: Final = frozenset(("tuple", "bracket", "angle"))


def _compare_items(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    if gold.kind in _ORDERED:
        return _compare_with_point(gold, answer, tolerance)
    if answer.kind in _ORDERED:
        return _compare_list_with_point(gold, answer, tolerance)
    if _name_different_things(gold.items) and _name_different_things(answer.items):
        return _any_order(gold.items, answer.items, tolerance)
    if _letters_differ(gold.items, answer.items):
        return NO
    gold_values, values = _values(gold.items), _values(answer.items)
    if len(values) > 4 * len(gold_values) + 8:
        return NO  # repetitions beyond reason are not looked for
    once = _distinct(gold_values, tolerance)
    if "set" in (gold.kind, answer.kind) or len(once) == len(gold_values):
        # A solution that the answer lists twice is still one solution.
        gold_values, values = once, _distinct(values, tolerance)
    if _name_different_things(answer.items):
        return _in_order(gold_values, values, tolerance)
    return _any_order(gold_values, values, tolerance)


def _compare_with_point(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    """Compare what stands in brackets, a point or an interval, with several values."""
    if answer.kind in _ORDERED:
        if len(gold.items) == 2 and {gold.kind, answer.kind} == {"tuple", "bracket"}:
            return NO  # an open interval is no closed one
        return _in_order(gold.items, answer.items, tolerance)
    if answer.kind != "list":
        return NO
    coordinates = _by_name(answer.items)
    if coordinates is None and len(gold.items) == 2 and not gold.point:
        return NO  # (a, b) may be an interval, which is no list of its ends
    return _in_order(gold.items, coordinates or answer.items, tolerance)


def _compare_list_with_point(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    coordinates = _by_name(gold.items)
    if coordinates is not None and answer.kind == "tuple":
        return _in_order(coordinates, answer.items, tolerance)
    # Two in brackets may be an interval or a point; three or more were but listed.
    if gold.kind != "list" or len(gold.items) < 3:
        return NO
    return _in_order(gold.items, answer.items, tolerance)


def _name_different_things(items: Sequence[Value]) -> bool:
    """Say whether each item names something else, so that the order follows the names."""
    names = [item.name for item in items if isinstance(item, Named)]
    bases = {_base_and_index(name)[0] + str(name.args) for name in names}
    return len(names) == len(items) == len(bases)


def _letters_differ(gold: Sequence[Value], answer: Sequence[Value]) -> bool:
    """Say whether both name their values by single letters, and none alike."""
    gold_names = {str(item.name.value) for item in gold if isinstance(item, Named)}
    names = {str(item.name.value) for item in answer if isinstance(item, Named)}
    if not gold_names or not names or any(len(name) != 1 for name in gold_names | names):
        return False
    return gold_names.isdisjoint(names)


# Polar, cylindrical and spherical coordinates, as they are written.
_COORDINATES: Final = ("r", "rho", "theta", "phi", "z")


def _by_name(items: Sequence[Value]) -> tuple[Value, ...] | None:
    """Order ``y = 3, x = -1`` by its names; None unless each item has a name of its own."""
    values = {_coordinate(item): item.value for item in items if isinstance(item, Named)}
    if len(values) != len(items):
        return None
    if values.keys() <= set(_COORDINATES):
        return tuple(values[name] for name in _COORDINATES if name in values)
    return tuple(values[name] for name in sorted(values, key=_greek_last))


def _coordinate(item: Named) -> str:
    return str(item.name.value).lstrip("\\").removeprefix("var")


def _greek_last(name: str) -> tuple[bool, str]:
    """Latin letters come before Greek ones."""
    return (name in _COORDINATES and len(name) > 1, name)


def _values(items: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(map(_value_of, items))


def _in_order(gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance) -> str:
    if len(gold) != len(answer):
        return NO
    rules = (compare(*pair, tolerance) for pair in zip(gold, answer, strict=True))
    return "in order" if all(rules) else NO


def _any_order(gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance) -> str:
    if len(gold) != len(answer):
        return NO
    unmatched = list(answer)
    for gold_item in gold:
        for index, item in enumerate(unmatched):
            if compare(gold_item, item, tolerance):
                del unmatched[index]
                break
        else:
            return NO
    return "in any order"


def _distinct(items: Sequence[Value], tolerance: Tolerance) -> tuple[Value, ...]:
    different: list[Value] = []
    for item in items:
        if not any(_repeats(earlier, item, tolerance) for earlier in different):
            different.append(item)
    return tuple(different)


def _repeats(earlier: Value, item: Value, tolerance: Tolerance) -> bool:
    try:
        return bool(compare(earlier, item, tolerance))
    except Undecided:
        return False


def _compare_items_with_one(gold: Items, answer: Value, tolerance: Tolerance) -> str:
    if isinstance(answer, Quantity | Words) and _are_several_options(answer, gold):
        return "options"
    if len(gold.items) != 1 or gold.kind == "member":
        return NO
    return compare(gold.items[0], answer, tolerance)


def _compare_one_with_items(gold: Quantity | Words, answer: Items, tolerance: Tolerance) -> str:
    if _are_several_options(gold, answer):
        return "options"
    if not answer.items or answer.kind == "member":
        return NO
    if len(answer.items) > 1:
        # "15/4 or 3.75" is one value, written in two ways; "5,5" may be a decimal.
        first, second, *more = answer.items
        if more or answer.kind != "list" or first == second or _name_different_things(answer.items):
            return NO
        if not compare(gold, second, tolerance):
            return NO
    return compare(gold, answer.items[0], tolerance)


# --- matrices, choices, labels -------------------------------------------------------------------


def _compare_matrices(gold: Matrix, answer: Matrix, _: Tolerance) -> str:
    if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
        return NO
    for gold_row, row in zip(gold.rows, answer.rows, strict=True):
        if not all(compare_numbers(*cells) for cells in zip(gold_row, row, strict=True)):
            return NO
    return "entry by entry"


def _compare_vectors(gold: Matrix | Items, answer: Matrix | Items, tolerance: Tolerance) -> str:
    gold_coordinates, coordinates = _coordinates(gold), _coordinates(answer)
    if not gold_coordinates or not coordinates:
        return NO
    return _in_order(gold_coordinates, coordinates, tolerance) and "vector"


def _coordinates(value: Matrix | Items) -> Sequence[Value]:
    """Return the cells of a column or a row, and the items that have an order; else nothing."""
    if isinstance(value, Items):
        return value.items if value.kind in _ORDERED else ()
    is_vector = len(value.rows) == 1 or len(value.rows[0]) == 1
    return [Quantity(cell) for row in value.rows for cell in row] if is_vector else ()


def _compare_choices(gold: Value, answer: Value, tolerance: Tolerance) -> str:
    """Compare letter with letter, or the text beside the letter with the other side."""
    gold_letter, letter = option_letter(gold), option_letter(answer)
    gold_text = gold.rest if isinstance(gold, Choice) else gold
    text = answer.rest if isinstance(answer, Choice) else answer
    if gold_letter and letter:
        both_in_words = isinstance(gold_text, Words) and isinstance(text, Words)
        texts_differ = both_in_words and gold_text != text
        return "choice" if gold_letter == letter and not texts_differ else NO
    if gold_text is None or text is None:
        return NO
    return compare(gold_text, text, tolerance) and "choice text"


def _compare_with_label(gold: Quantity, answer: Relation, tolerance: Tolerance) -> str:
    """Compare a number with what ``m + n = 113`` says that its left side is."""
    value = _labelled_number(answer)
    if value is None or symbols(gold.tree):
        return NO
    return compare(gold, value, tolerance) and "labelled"


def _compare_label_with_value(gold: Relation, answer: Quantity, tolerance: Tolerance) -> str:
    """Compare ``NO/BO = 1/2`` with its right side; a sum, as of ``a + b = 1``, is an equation."""
    value = _labelled_number(gold)
    if value is None or symbols(answer.tree) or has(gold.sides[0], "add"):
        return NO
    return compare(value, answer, tolerance) and "labelled"


def _labelled_number(relation: Relation) -> Quantity | None:
    if relation.ops != ("=",) or symbols(relation.sides[1]) or not is_label(relation.sides[0]):
        return None
    return Quantity(relation.sides[1])


# --- residues, times, ratios, digits, texts ------------------------------------------------------


def _compare_residues(gold: Residue, answer: Residue | Quantity, _: Tolerance) -> str:
    """Compare two classes of numbers; a modulus may be left out, but not changed."""
    if isinstance(answer, Residue):
        if not compare_numbers(gold.modulus, answer.modulus):
            return NO
        difference = exact(subtract(gold.tree, answer.tree))
        modulus = exact(gold.modulus)
        if difference is not None and modulus:
            return "congruent" if difference % modulus == 0 else NO
    return compare_numbers(gold.tree, answer.tree) and "residue"


def _compare_clocks(gold: Clock, answer: Clock, _: Tolerance) -> str:
    """Compare two times of day."""
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return NO
    gold_hour, hour = _hour_of_day(gold), _hour_of_day(answer)
    # Without a.m. or p.m. an hour from 1 to 12 means either half of the day.
    if bool(gold.half) != bool(answer.half):
        bare = answer if gold.half else gold
        if 1 <= bare.hour <= 12:
            gold_hour, hour = gold.hour, answer.hour
    return "time of day" if gold_hour == hour else NO


def _hour_of_day(clock: Clock) -> int:
    if not clock.half or clock.hour > 12:
        return clock.hour % 24
    return clock.hour % 12 + (12 if clock.half == "pm" else 0)


def _compare_ratios(gold: Ratio, answer: Ratio, _: Tolerance) -> str:
    if len(gold.terms) != len(answer.terms):
        return NO
    pairs = zip(gold.terms, answer.terms, strict=True)
    return "term by term" if all(compare_numbers(*terms) for terms in pairs) else NO


def _compare_ratio_with_quotient(
    gold: Ratio | Quantity, answer: Ratio | Quantity, tolerance: Tolerance
) -> str:
    """Compare ``3:4`` with the fraction of the same two terms."""
    return _compare_ratios(_ratio_of(gold), _ratio_of(answer), tolerance) and "quotient"


def _ratio_of(value: Ratio | Quantity) -> Ratio:
    if isinstance(value, Ratio):
        return value
    is_quotient = value.tree.op == "div" and value.unit is None
    return Ratio(value.tree.args if is_quotient else ())


def _compare_based(gold: Based, answer: Based, _: Tolerance) -> str:
    return "digits and base" if gold == answer else NO


def _compare_without_base(gold: Based, answer: Quantity, _: Tolerance) -> str:
    """Compare digits where the answer leaves out the base, as it may leave out a unit."""
    same_digits = gold.digits == answer.digits.lstrip("0")
    return "digits, base left out" if same_digits and answer.unit is None else NO


def _compare_words(gold: Words, answer: Words, _: Tolerance) -> str:
    """Compare two texts; an answer may add what the thing is: ``an odd function`` is ``odd``."""
    if answer.text == gold.text:
        return "text"
    said, _space, noun = answer.text.rpartition(" ")
    adds_nothing = noun == "wins" or said in _ADJECTIVES.get(noun, ())
    return "text" if said == gold.text and adds_nothing else NO


# What may be said of a thing, by the thing: an odd triangle is not what odd means.
_ADJECTIVES: Final = {
    "function": "odd even increasing decreasing constant linear periodic".split(),
    "triangle": "right acute obtuse isosceles equilateral scalene".split(),
    "series": "convergent divergent geometric arithmetic alternating".split(),
    "sequence": "increasing decreasing constant geometric arithmetic bounded".split(),
}


def _compare_letters(gold: Words | Quantity, answer: Words | Quantity, _: Tolerance) -> str:
    r"""Compare a text with the letters of a product: ``\text{ab}`` beside ``ab``."""
    letters = _letters(gold)
    return "text" if letters and letters == _letters(answer) else NO


def _are_several_options(letters: Quantity | Words, options: Items) -> bool:
    """Whether ``ACD`` names the options of a list ``A, C, D``."""
    names = sorted(map(option_letter, options.items))
    if options.kind not in ("list", "set") or len(names) < 2 or not all(names):
        return False
    return _letters(letters) == "".join(names).lower()


def _letters(value: Words | Quantity) -> str:
    """Return a text, or the letters of a product of names; nothing for another expression."""
    if isinstance(value, Words):
        return value.text
    return _spelled(value.tree).lower() if value.unit is None and is_name(value.tree) else ""


def _spelled(name: Node) -> str:
    if name.op == "mul":
        return "".join(map(_spelled, name.args))
    return str(name.value).removeprefix("bar ")  # a segment


# --- which rule compares which kinds -------------------------------------------------------------


def _compare_regions(gold: Value, answer: Value, _: Tolerance) -> str:
    return compare_regions(gold, answer)


def _compare_relations(gold: Relation, answer: Relation, _: Tolerance) -> str:
    return compare_relations(gold, answer)


_Rule = Callable[[Any, Any, Tolerance], str]
_REGION: Final = (Interval, Region)
_TEXT: Final = (Quantity, Words)
# Kinds of gold values, kinds of answers, and the rule for them; of two rules the first counts.
_RULES_OF_KINDS: Final[tuple[tuple[tuple[type, ...], tuple[type, ...], _Rule], ...]] = (
    ((Quantity,), (Quantity,), compare_quantities),
    (_REGION, (*_REGION, Items), _compare_regions),
    ((Items,), _REGION, _compare_regions),
    ((Items,), (Items,), _compare_items),
    ((Items,), _TEXT, _compare_items_with_one),
    (_TEXT, (Items,), _compare_one_with_items),
    ((Quantity,), (Relation,), _compare_with_label),
    ((Relation,), (Quantity,), _compare_label_with_value),
    ((Relation,), (Relation,), _compare_relations),
    ((Matrix,), (Matrix,), _compare_matrices),
    ((Matrix,), (Items,), _compare_vectors),
    ((Items,), (Matrix,), _compare_vectors),
    ((Based,), (Based,), _compare_based),
    ((Based,), (Quantity,), _compare_without_base),
    ((Clock,), (Clock,), _compare_clocks),
    ((Residue,), (Residue, Quantity), _compare_residues),
    ((Ratio,), (Ratio,), _compare_ratios),
    ((Ratio,), (Quantity,), _compare_ratio_with_quotient),
    ((Quantity,), (Ratio,), _compare_ratio_with_quotient),
    ((Words,), (Words,), _compare_words),
    ((Words,), (Quantity,), _compare_letters),
    ((Quantity,), (Words,), _compare_letters),
)
_RULES: Final[dict[tuple[type, type], _Rule]] = {
    kinds: rule
    for gold_kinds, answer_kinds, rule in reversed(_RULES_OF_KINDS)
    for kinds in product(gold_kinds, answer_kinds)
}
