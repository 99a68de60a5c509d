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
    compare_numbers,
    compare_quantities,
    with_axes,
)
from rlbhpc.verify.answer.numeric import exact
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
    is_label,
    is_name,
    num,
    option_letter,
    rename,
    symbols,
)
from rlbhpc.verify.answer.witness import claim_alike, claim_equal


def compare_residues(gold: Residue, answer: Residue | Quantity, _: Tolerance) -> str:
    """Return the rule by which two are one class; a modulus may be left out, but not changed."""
    if isinstance(answer, Residue):
        if not compare_numbers(gold.modulus, answer.modulus):
            return NO
        gap = exact(Node("add", (gold.tree, Node("neg", (answer.tree,)))))
        size = exact(gold.modulus)
        if gap is not None and size:
            count = gap / size
            if count.denominator != 1:
                return NO
            turned = Node("mul", (num(count), gold.modulus))
            claim_equal(gold.tree, Node("add", (answer.tree, turned)))
            return "congruent"
    return compare_numbers(gold.tree, answer.tree) and "residue"


def compare_clocks(gold: Clock, answer: Clock, _: Tolerance) -> str:
    """Return the rule by which two times of day are the same, or ``""``."""
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return NO
    if bool(gold.half) == bool(answer.half):
        equal = _hour(gold) == _hour(answer)
    else:
        halved, bare = (gold, answer) if gold.half else (answer, gold)
        # Without a.m. or p.m. an hour up to 12 means either half of the day.
        hour = _hour(halved) if bare.hour > 12 or bare.hour == 0 else halved.hour
        equal = hour == bare.hour
    if not equal:
        return NO
    ours, theirs = _seconds(gold), _seconds(answer)
    # What is left open, half a day, is written as a term of its own.
    turned = Node("add", (num(theirs), num(ours - theirs))) if ours != theirs else num(theirs)
    claim_equal(num(ours), turned)
    return "time of day"


def _seconds(clock: Clock) -> int:
    return (_hour(clock) * 60 + clock.minute) * 60 + clock.second


def _hour(clock: Clock) -> int:
    if not clock.half or clock.hour > 12:
        return clock.hour % 24
    return clock.hour % 12 + (12 if clock.half == "pm" else 0)


def compare_ratios(gold: Ratio, answer: Ratio, _: Tolerance) -> str:
    """Return the rule by which two ratios have the same terms, or ``""``."""
    if len(gold.terms) != len(answer.terms):
        return NO
    pairs = zip(gold.terms, answer.terms, strict=True)
    return "term by term" if all(compare_numbers(a, b) for a, b in pairs) else NO


def ratio_and_quotient(gold: Ratio | Quantity, answer: Ratio | Quantity, _: Tolerance) -> str:
    """Compare ``3:4`` with the fraction of the same two terms."""
    ours, theirs = (Ratio(_terms(v)) if isinstance(v, Quantity) else v for v in (gold, answer))
    return compare_ratios(ours, theirs, EXACT) and "quotient"


def _terms(quantity: Quantity) -> tuple[Node, ...]:
    tree = quantity.tree
    return tree.args if tree.op == "div" and quantity.unit is None else ()


# --- texts ---------------------------------------------------------------------------------------


def compare_based(gold: Based, answer: Based, _: Tolerance) -> str:
    """Compare digits and bases."""
    ours, theirs = (f"{side.digits} in base {side.base}" for side in (gold, answer))
    return alike(ours, theirs) and "digits and base"


def base_dropped(gold: Based, answer: Quantity, _: Tolerance) -> str:
    """Compare digits where the answer leaves out the base, as it may leave out a unit."""
    plain = answer.unit is None and alike(gold.digits, answer.digits.lstrip("0"))
    return "digits, base left out" if plain else NO


def compare_words(gold: Words, answer: Words, _: Tolerance) -> str:
    """Compare two texts; an answer may add what the thing is: ``an odd function`` is ``odd``."""
    head, _space, noun = answer.text.rpartition(" ")
    known = head in _NOUNS.get(noun, ())
    plain = head if known and head == gold.text else answer.text
    return alike(gold.text, plain) and "text"


# What may be said of a thing, by the thing: an odd triangle is not what odd means.
_NOUNS: Final = {
    "function": "odd even increasing decreasing constant linear periodic".split(),
    "triangle": "right acute obtuse isosceles equilateral scalene".split(),
    "series": "convergent divergent geometric arithmetic alternating".split(),
    "sequence": "increasing decreasing constant geometric arithmetic bounded".split(),
}


def words_and_letters(gold: Words | Quantity, answer: Words | Quantity, _: Tolerance) -> str:
    r"""Compare a text with the letters of a product: ``\text{ab}`` beside ``ab``."""
    ours, theirs = (v.text if isinstance(v, Words) else _letters(v) for v in (gold, answer))
    return ours and alike(ours, theirs) and "text"


def alike(gold: str, answer: str) -> str:
    """Compare what was read as text."""
    if gold != answer:
        return NO
    claim_alike(gold, answer)
    return "alike"


def several_options(joined: Quantity | Words, listed: Items) -> str:
    """Compare ``ACD`` with the options of a list ``A, C, D``."""
    options = sorted(map(option_letter, listed.items))
    if listed.kind not in ("list", "set") or len(options) < 2 or not all(options):
        return NO
    letters = joined.text if isinstance(joined, Words) else _letters(joined)
    return alike(letters, "".join(options).lower())


def _letters(quantity: Quantity) -> str:
    named = quantity.unit is None and is_name(quantity.tree)
    return _spell(quantity.tree).lower() if named else ""


def _spell(node: Node) -> str:
    if node.op == "mul":
        return "".join(map(_spell, node.args))
    return str(node.value).removeprefix("bar ")  # a segment


# --- values of any kind --------------------------------------------------------------------------


def compare(gold: Value, answer: Value, tolerance: Tolerance = EXACT) -> str:
    """Return the rule by which two values are the same answer, or ``""`` if they differ.

    Raises
    ------
    Undecided
        If neither could be established; :class:`Unread` where a side could not be read.
    """
    if isinstance(gold, Based) and isinstance(answer, Opaque):
        return alike(gold.digits, answer.text.replace(" ", "")) and "digits, base left out"
    if isinstance(gold, Opaque) or isinstance(answer, Opaque):
        raise Unread("unread")
    if isinstance(gold, Residue) and isinstance(answer, Named):
        return NO  # one number of a class
    if isinstance(answer, Choice) or isinstance(gold, Choice):
        return _choice(gold, answer, tolerance)
    if isinstance(gold, Named) and isinstance(answer, Named) and _contradict(gold, answer):
        ours, theirs = _equation(gold, solved=True), _equation(answer, solved=True)
        return NO if ours is None or theirs is None else compare_relations(ours, theirs)
    gold, answer = _without_names(gold, answer)
    gold, answer = _as_ratio(gold, answer), _as_ratio(answer, gold)
    gold, answer = with_axes(gold, answer), with_axes(answer, gold)
    rule = _RULES.get((type(gold), type(answer)))
    return rule(gold, answer, tolerance) if rule is not None else NO


def _as_ratio(value: Value, other: Value) -> Value:
    """Read ``9:16`` as a ratio beside a fraction or a ratio."""
    if not isinstance(value, Clock) or not isinstance(other, Ratio | Quantity):
        return value
    plain = not value.half and not value.second and value.minute > 9
    return Ratio((num(value.hour), num(value.minute))) if plain else value


# --- names ---------------------------------------------------------------------------------------


def _contradict(gold: Named, answer: Named) -> bool:
    """Say whether two names cannot be of one thing: ``x`` and ``y``, ``f(x)`` and ``f(2x)``.

    Only single letters contradict each other; longer names are but labels.
    """
    ours, theirs = gold.name, answer.name
    if not {ours.op, theirs.op} <= {"sym", "app"}:
        return False
    if ours.op != theirs.op:
        # A graph may be called y, or by its function's own name; else a number is no function.
        letter, function = (ours, theirs) if ours.op == "sym" else (theirs, ours)
        return len(str(letter.value)) == 1 and letter.value not in ("y", function.value)
    if len(str(ours.value)) == len(str(theirs.value)) == 1 and ours.value != theirs.value:
        return True
    (base, _, index), (other_base, _, other) = (str(n.value).partition("_") for n in (ours, theirs))
    if base == other_base and index != other and index and other:
        return not (index.isalpha() and other.isalpha())  # a_{n+1} is no a_n
    if ours.args == theirs.args:
        return False
    bound = {str(arg.value) for arg in theirs.args if arg.op == "sym"}
    free = _free(answer.value) - bound
    gold_bound = {str(arg.value) for arg in ours.args if arg.op == "sym"}
    if len(bound) != len(theirs.args) or len(gold_bound) != len(ours.args):
        return True
    return bool(free & gold_bound)


def _free(value: Value) -> frozenset[str]:
    return symbols(value.tree) if isinstance(value, Quantity) else frozenset()


def _without_names(gold: Value, answer: Value) -> tuple[Value, Value]:
    """Drop ``x =``; beside an equation it becomes one, and a bound variable is renamed."""
    if isinstance(gold, Named) and isinstance(answer, Named):
        return gold.value, _rebound(gold.name, answer)
    if isinstance(gold, Quantity) and isinstance(answer, Named) and answer.name.op == "app":
        names = symbols(gold.tree)
        if len(names) == 1:
            bound = Node("sym", (), next(iter(names)))
            return gold, _rebound(answer.name._replace(args=(bound,)), answer)
    if isinstance(gold, Relation) and isinstance(answer, Named):
        answer = _equation(answer, solved=False) or answer
    elif isinstance(answer, Relation) and isinstance(gold, Named):
        gold = _equation(gold, solved=True) or gold
    return (
        gold.value if isinstance(gold, Named) else gold,
        answer.value if isinstance(answer, Named) else answer,
    )


def _rebound(name: Node, answer: Named) -> Value:
    """``f(x) = x²`` beside ``f(n) = n²``: the answer's value in the gold's variable."""
    value = answer.value
    if not isinstance(value, Quantity) or len(name.args) != len(answer.name.args):
        return value
    names = {
        str(theirs.value): ours
        for ours, theirs in zip(name.args, answer.name.args, strict=True)
        if ours.op == theirs.op == "sym"
    }
    index, other = (str(node.value).partition("_")[2] for node in (name, answer.name))
    if len(index) == len(other) == 1 and index.isalpha() and other.isalpha():
        names[other] = Node("sym", (), index)
    return Quantity(rename(value.tree, names), value.unit, value.digits)


def _equation(named: Named, solved: bool) -> Relation | None:
    """Read ``y = 2x`` as an equation; a gold answer solved for a number asks for as much."""
    if isinstance(named.value, Quantity) and named.value.unit is None:
        if solved and not symbols(named.value.tree):
            return None
        return Relation(("=",), (named.name, named.value.tree))
    return None


# --- several values ------------------------------------------------------------------------------

_ORDERED: Final = frozenset(("tuple", "bracket", "angle"))


def _items(gold: Items, answer: Items, tolerance: Tolerance) -> str:
    ours, theirs = gold.kind, answer.kind
    if ours in _ORDERED and theirs == "list":
        named = _by_name(answer.items)
        if named is None and len(gold.items) == 2 and not gold.point:
            return NO  # (a, b) may be an interval, which is no list of its ends
        return _in_order(gold.items, named or answer.items, tolerance)
    if ours in _ORDERED and theirs in _ORDERED:
        if len(gold.items) == 2 and {ours, theirs} == {"tuple", "bracket"}:
            return NO  # an open interval is no closed one
        return _in_order(gold.items, answer.items, tolerance)
    if ours in _ORDERED:
        return NO
    if theirs in _ORDERED:
        coordinates = _by_name(gold.items)
        if coordinates is not None and theirs == "tuple":
            return _in_order(coordinates, answer.items, tolerance)
        # Two in brackets may be an interval or a point; three or more were but listed.
        long_list = ours == "list" and len(gold.items) > 2
        return _in_order(gold.items, answer.items, tolerance) if long_list else NO
    if _name_different_things(gold.items) and _name_different_things(answer.items):
        return _any_order(gold.items, answer.items, tolerance)
    if _letters_differ(gold.items, answer.items):
        return NO
    left, right = _values(gold.items), _values(answer.items)
    if "set" in (ours, theirs):
        if len(right) > 4 * len(left) + 8:
            return NO  # repetitions beyond reason are not looked for
        left, right = _distinct(left, tolerance), _distinct(right, tolerance)
    if _name_different_things(answer.items):
        return _in_order(left, right, tolerance)
    return _any_order(left, right, tolerance)


def _name_different_things(items: Sequence[Value]) -> bool:
    """Say whether each item names something else, so that the order follows the names."""
    names = [item.name for item in items if isinstance(item, Named)]
    bases = {str(name.value).partition("_")[0] + str(name.args) for name in names}
    return len(names) == len(items) == len(bases)


def _letters_differ(gold: Sequence[Value], answer: Sequence[Value]) -> bool:
    """Say whether both name their values by single letters, and none alike."""
    ours, theirs = (
        {str(item.name.value) for item in items if isinstance(item, Named)}
        for items in (gold, answer)
    )
    single = all(len(name) == 1 for name in ours | theirs)
    return bool(single and ours and theirs and ours.isdisjoint(theirs))


def _by_name(items: Sequence[Value]) -> tuple[Value, ...] | None:
    """Order ``y = 3, x = -1`` by its names."""
    named = [item for item in items if isinstance(item, Named)]
    if len(named) != len(items) or len({item.name for item in named}) != len(named):
        return None
    names = {_coordinate(item) for item in named}
    usual = names <= set(_COORDINATES)
    order = list(_COORDINATES) if usual else sorted(names, key=_greek_last)
    in_order = sorted(named, key=lambda item: order.index(_coordinate(item)))
    return tuple(item.value for item in in_order)


# Polar, cylindrical and spherical coordinates, as they are written.
_COORDINATES: Final = ("r", "rho", "theta", "phi", "z")


def _coordinate(item: Named) -> str:
    return str(item.name.value).lstrip("\\").removeprefix("var")


def _greek_last(name: str) -> tuple[bool, str]:
    """Latin letters come before Greek ones."""
    return (name in _COORDINATES and len(name) > 1, name)


def _values(items: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(item.value if isinstance(item, Named) else item for item in items)


def _in_order(gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance) -> str:
    if len(gold) != len(answer):
        return NO
    rules = (compare(a, b, tolerance) for a, b in zip(gold, answer, strict=True))
    return "in order" if all(rules) else NO


def _any_order(gold: Sequence[Value], answer: Sequence[Value], tolerance: Tolerance) -> str:
    if len(gold) != len(answer):
        return NO
    unmatched = list(answer)
    for item in gold:
        equal = (at for at, other in enumerate(unmatched) if compare(item, other, tolerance))
        place = next(equal, None)
        if place is None:
            return NO
        del unmatched[place]
    return "in any order"


def _distinct(items: Sequence[Value], tolerance: Tolerance) -> tuple[Value, ...]:
    different: list[Value] = []
    for item in items:
        if not any(compare(other, item, tolerance) for other in different):
            different.append(item)
    return tuple(different)


def _gold_of_one(gold: Items, answer: Value, tolerance: Tolerance) -> str:
    if isinstance(answer, Quantity | Words) and several_options(answer, gold):
        return "options"
    alone = len(gold.items) == 1 and gold.kind != "member"
    return compare(gold.items[0], answer, tolerance) if alone else NO


def _answer_of_one(gold: Quantity | Words, answer: Items, tolerance: Tolerance) -> str:
    items = answer.items
    if several_options(gold, answer):
        return "options"
    # "15/4 or 3.75" is one value, written in two ways; "5,5" may be a decimal.
    twice = len(items) == 2 and answer.kind == "list" and items[0] != items[1]
    twice = twice and not _name_different_things(items)
    if (
        not items
        or answer.kind == "member"
        or (items[1:] and not (twice and compare(gold, items[1], tolerance)))
    ):
        return NO
    return compare(gold, items[0], tolerance)


# --- the rest ------------------------------------------------------------------------------------


def _matrices(gold: Matrix, answer: Matrix, _: Tolerance) -> str:
    if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
        return NO
    cells = (
        compare_numbers(a, b)
        for ours, theirs in zip(gold.rows, answer.rows, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    return "entry by entry" if all(cells) else NO


def _vectors(gold: Matrix | Items, answer: Matrix | Items, tolerance: Tolerance) -> str:
    ours, theirs = _coordinates(gold), _coordinates(answer)
    return _in_order(ours, theirs, tolerance) and "vector" if ours and theirs else NO


def _coordinates(value: Matrix | Items) -> Sequence[Value]:
    """Return the cells of a column or a row, and the items that have an order; else nothing."""
    if isinstance(value, Items):
        return value.items if value.kind in _ORDERED else ()
    in_line = 1 in (len(value.rows), len(value.rows[0]))
    return [Quantity(cell) for row in value.rows for cell in row] if in_line else ()


def _choice(gold: Value, answer: Value, tolerance: Tolerance) -> str:
    """Compare letter with letter, or the text beside the letter with the other side."""
    ours, theirs = option_letter(gold), option_letter(answer)
    if ours and theirs:
        texts = {side.rest for side in (gold, answer) if isinstance(side, Choice)}
        texts = {text for text in texts if isinstance(text, Words)}
        return "choice" if len(texts) < 2 and alike(ours, theirs) else NO
    ours_rest = gold.rest if isinstance(gold, Choice) else gold
    theirs_rest = answer.rest if isinstance(answer, Choice) else answer
    if ours_rest is None or theirs_rest is None:
        return NO
    return compare(ours_rest, theirs_rest, tolerance) and "choice text"


def _labelled(gold: Quantity, answer: Relation, tolerance: Tolerance) -> str:
    """Compare a number with what ``m + n = 113`` says that its left side is."""
    if answer.ops != ("=",) or symbols(gold.tree) or symbols(answer.sides[1]):
        return NO
    value = Quantity(answer.sides[1])
    return compare(gold, value, tolerance) and "labelled" if is_label(answer.sides[0]) else NO


_REGION: Final = (Interval, Region)


_Rule = Callable[[Any, Any, Tolerance], str]


def _types(kinds: Any) -> tuple[type, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _either_way(kind: type, other: type, rule: _Rule) -> tuple[tuple[type, type, _Rule], ...]:
    return (kind, other, rule), (other, kind, rule)


_RULES_OF_KINDS: Final[tuple[tuple[Any, Any, _Rule], ...]] = (
    (Quantity, Quantity, compare_quantities),
    (_REGION, (*_REGION, Items), lambda gold, answer, _: compare_regions(gold, answer)),
    (Items, _REGION, lambda gold, answer, _: compare_regions(gold, answer)),
    (Items, Items, _items),
    (Items, (Quantity, Words), _gold_of_one),
    ((Quantity, Words), Items, _answer_of_one),
    (Quantity, Relation, _labelled),
    (Relation, Relation, lambda gold, answer, _: compare_relations(gold, answer)),
    (Matrix, Matrix, _matrices),
    *_either_way(Matrix, Items, _vectors),
    (Based, Based, compare_based),
    (Based, Quantity, base_dropped),
    (Clock, Clock, compare_clocks),
    (Residue, (Residue, Quantity), compare_residues),
    (Ratio, Ratio, compare_ratios),
    *_either_way(Ratio, Quantity, ratio_and_quotient),
    (Words, Words, compare_words),
    *_either_way(Words, Quantity, words_and_letters),
)
# By the two types of a gold value and an answer; of two rules the first one above.
_RULES: Final[dict[tuple[type, type], _Rule]] = {
    (ours, theirs): rule
    for golds, answers, rule in reversed(_RULES_OF_KINDS)
    for ours, theirs in product(_types(golds), _types(answers))
}
