"""Whether two times of day, or two ratios, are the same."""

from __future__ import annotations

from rlbhpc.verify.answer.compare_scalar import NO, Tolerance, compare_numbers
from rlbhpc.verify.answer.exact import exact
from rlbhpc.verify.answer.tree import Node, num
from rlbhpc.verify.answer.value import Clock, Quantity, Ratio, Residue
from rlbhpc.verify.answer.witness import claim_equal


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


def ratio_and_quotient(gold: Ratio, answer: Quantity, tolerance: Tolerance) -> str:
    """Compare ``3:4`` with the fraction of the same two terms."""
    return compare_ratios(gold, Ratio(_terms(answer)), tolerance) and "quotient"


def quotient_and_ratio(gold: Quantity, answer: Ratio, tolerance: Tolerance) -> str:
    """Compare the fraction of two terms with ``3:4``."""
    return compare_ratios(Ratio(_terms(gold)), answer, tolerance) and "quotient"


def _terms(quantity: Quantity) -> tuple[Node, ...]:
    tree = quantity.tree
    return tree.args if tree.op == "div" and quantity.unit is None else ()
