"""Whether two texts, or two strings of digits in a base, are the same."""

from __future__ import annotations

from typing import Final

from rlbhpc.verify.answer.compare_scalar import NO, Tolerance
from rlbhpc.verify.answer.tree import Node, is_name
from rlbhpc.verify.answer.value import Based, Items, Quantity, Words, option_letter
from rlbhpc.verify.answer.witness import claim_alike


def compare_based(gold: Based, answer: Based, _: Tolerance) -> str:
    """Compare digits and bases."""
    return (
        alike(*(f"{side.digits} in base {side.base}" for side in (gold, answer)))
        and "digits and base"
    )


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


def words_and_letters(gold: Words, answer: Quantity, _: Tolerance) -> str:
    r"""Compare a text with the letters of a product: ``\text{ab}`` beside ``ab``."""
    return gold.text and alike(gold.text, _letters(answer)) and "text"


def letters_and_words(gold: Quantity, answer: Words, _: Tolerance) -> str:
    """Compare the letters of a product with a text."""
    return answer.text and alike(_letters(gold), answer.text) and "text"


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
    if quantity.unit is not None or not is_name(quantity.tree):
        return ""
    return _spell(quantity.tree).lower()


def _spell(node: Node) -> str:
    if node.op == "mul":
        return "".join(map(_spell, node.args))
    return str(node.value).removeprefix("bar ")  # a segment
