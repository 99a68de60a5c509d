"""The ``math`` verifier: is the committed answer the gold answer?

extract → read gold and answer by the same functions → compare (exact fractions, then identity to
80 digits, then structure). Nothing here can hang: reading is linear, evaluation is bounded by its
gates. ``docs/verification.md`` states the policy and its measured error rates.
"""

from __future__ import annotations

import importlib.metadata
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.compare import UnreadSideError, compare
from rlbhpc.verify.answer.compare_scalar import EXACT, Tolerance
from rlbhpc.verify.answer.extract import Extracted, extract
from rlbhpc.verify.answer.lexer import MAX_CHARS, Kind, canonical, tokenize
from rlbhpc.verify.answer.numeric import Undecided
from rlbhpc.verify.answer.quantity import read_unit
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.relations import interval_between
from rlbhpc.verify.answer.value import DEGREE, PERCENT, Grouping, Items, Quantity, Unit, Value
from rlbhpc.verify.registry import NO_ANSWER
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = f"math-17 mpmath-{importlib.metadata.version('mpmath')}"
# Problem sets whose decimal gold answers are rounded.
_ROUNDED_SETS: Final = ("minerva",)
_UNEVALUATED: Final = frozenset(("sum", "prod", "int", "lim"))


class Hints(NamedTuple):
    """What a problem says of its gold answer besides the answer itself."""

    is_list: bool = False
    answer_type: str = ""
    unit: str = ""
    tolerance: Tolerance = EXACT


_NO_HINTS: Final = Hints()


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge the committed answer of a response against the gold answer."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge an answer that was extracted."""
    return judge_with_hints(gold, answer, read_hints(problem))


def distinct(response: str, finish: str = "") -> str:
    """Return the committed answer; a string that no answer equals if there is none."""
    answer = extract(response, finish)
    return NO_ANSWER if answer is None else answer.text


def judge_with_hints(gold: str, answer: Extracted | None, hints: Hints) -> Verdict:
    """Judge an extracted answer under what is known of the gold answer.

    ``hints`` are what the problem states of it: whether it is a list, its type, its unit, its
    tolerance. ``_decide`` returns the status, and the rule by which the two are equal or differ. It
    stands in the verdict behind the rule by which the answer was found: ``box/rational``.
    """
    if answer is None or not answer.text.strip():
        return Verdict(Status.NO_ANSWER, rule="no answer")
    canonical_answer = canonical(answer.text)
    status, rule = _decide(gold, answer.text, canonical_answer, hints)
    return Verdict(
        status,
        answer=answer.text[:MAX_CHARS],
        canonical=canonical_answer[:MAX_CHARS],
        rule=f"{answer.rule}/{rule}",
        grader=FINGERPRINT,
        stated=answer.stated,
    )


def _decide(gold: str, answer: str, canonical_answer: str, hints: Hints) -> tuple[Status, str]:
    """Return the status, and the rule that decided.

    The canonical form of a text is the same for the same answer, however it is written. If the two
    forms differ and are no whole numbers, both texts are read as values and compared. ``compare``
    returns the rule by which they are equal, ``""`` if they differ. It raises
    :class:`UnreadSideError` if a text could not be read, :class:`Undecided` if it could not decide
    within its limits, its *gates*.
    """
    if not canonical_answer:
        return Status.NO_ANSWER, "empty"
    canonical_gold = _canonical_gold(gold)
    if canonical_answer == canonical_gold:
        return Status.RIGHT, "text"
    if canonical_answer.isdecimal() and canonical_gold.isdecimal():
        return Status.WRONG, "rational"
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return Status.WRONG, "too long to read"
    gold_value = _read_gold(gold, hints)
    is_list_expected = hints.is_list or isinstance(gold_value, Items)
    try:
        rule = compare(gold_value, read(answer, is_list_expected), hints.tolerance)
    except UnreadSideError:
        if _is_unevaluated(answer) and not _is_unevaluated(gold):
            return Status.NO_ANSWER, "restates the task"
        return Status.WRONG, "unread"
    except Undecided as gate:
        return Status.WRONG, f"gate: {gate}"
    if rule == "text" and ("*" in canonical_answer) != ("*" in canonical_gold):
        return Status.WRONG, "different"  # A · C is not the text AC
    return (Status.RIGHT, rule) if rule else (Status.WRONG, "different")


def _is_unevaluated(text: str) -> bool:
    """Whether a text holds a sum, a product, an integral or a limit to be evaluated."""
    tokens = tokenize(text)
    return any(token.kind is Kind.FUNCTION and token.text in _UNEVALUATED for token in tokens)


# --- gold answers --------------------------------------------------------------------------------


def read_hints(problem: Problem | None) -> Hints:
    """Return what a problem says of its gold answer besides the answer itself.

    OlympiadBench has the answer's type, whether there are several, the unit and the error that is
    allowed; Minerva's decimal answers are rounded.
    """
    if problem is None or (not problem.extras and problem.set_name not in _ROUNDED_SETS):
        return _NO_HINTS
    extras = problem.extras
    return Hints(
        is_list=bool(extras.get("is_multiple_answer")),
        answer_type=str(extras.get("answer_type") or ""),
        unit=str(extras.get("unit") or ""),
        tolerance=Tolerance(
            error=Fraction(str(extras.get("error") or 0)),
            rounded=problem.set_name in _ROUNDED_SETS,
        ),
    )


_AND: Final = re.compile("(?<![A-Za-z])and(?![A-Za-z])")
_canonical_gold: Final = lru_cache(maxsize=16384)(canonical)


@lru_cache(maxsize=16384)
def _read_gold(gold: str, hints: Hints) -> Value:
    """Return the gold answer as a value, read once per problem.

    ``hints`` are what the problem states of it. A unit that it states apart is added. Two values in
    brackets may be an interval or a point: the stated type of the answer tells.
    """
    value = read(gold, hints.is_list or _AND.search(gold) is not None)
    value = _with_unit(value, _read_unit_name(hints.unit))
    if hints.answer_type == "Interval" and isinstance(value, Items) and len(value.items) == 2:
        is_closed = value.grouping is Grouping.BRACKET
        return interval_between(value.items, is_closed, is_closed)
    if hints.answer_type == "Tuple" and isinstance(value, Items):
        return _as_point(value)
    return value


def _as_point(value: Items) -> Items:
    """Return a tuple, and the tuples in it, as points that are no intervals."""
    items = [_as_point(item) if isinstance(item, Items) else item for item in value.items]
    return Items(value.grouping, tuple(items), is_point=value.grouping is Grouping.TUPLE)


def _read_unit_name(unit_name: str) -> Unit | None:
    """Return the unit that a problem states for its gold answer; None if it is none.

    The token of a degree sign is ``deg``. A unit without dimensions (``units``) says nothing.
    """
    tokens = [token for token in tokenize(unit_name) if token.text not in ("{", "}")]
    texts = [token.text for token in tokens]
    if "deg" in texts:
        return DEGREE
    if texts == ["%"]:
        return PERCENT
    unit = read_unit(tokens) if tokens else None
    return unit if unit is not None and unit.dimensions else None


def _with_unit(value: Value, unit: Unit | None) -> Value:
    """Add a unit to the quantities of a gold answer that have none."""
    if isinstance(value, Items):
        return Items(value.grouping, tuple(_with_unit(item, unit) for item in value.items))
    if isinstance(value, Quantity) and value.unit is None:
        return Quantity(value.tree, unit, value.literal)
    return value
