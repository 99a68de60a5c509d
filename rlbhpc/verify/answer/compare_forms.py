"""Whether two texts, options, digits in a base, times of day, ratios or residues are the same."""

from __future__ import annotations

from typing import Final

from rlbhpc.verify.answer.compare_scalar import EXACT, NO, Tolerance, compare_numbers
from rlbhpc.verify.answer.exact import exact
from rlbhpc.verify.answer.tree import Node, is_name, num
from rlbhpc.verify.answer.value import (
    Based,
    Clock,
    Items,
    Quantity,
    Ratio,
    Residue,
    Words,
    option_letter,
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
