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
from rlbhpc.verify.answer.compare import compare
from rlbhpc.verify.answer.compare_scalar import EXACT, Tolerance, Unread
from rlbhpc.verify.answer.extract import Extracted, extract
from rlbhpc.verify.answer.lexer import MAX_CHARS, canonical, tokenize
from rlbhpc.verify.answer.numeric import Undecided
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.regions import interval
from rlbhpc.verify.answer.units import DEGREE, PERCENT, Unit, read_unit
from rlbhpc.verify.answer.value import Items, Quantity, Value
from rlbhpc.verify.registry import NO_ANSWER
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = f"math-15 mpmath-{importlib.metadata.version('mpmath')}"
_TASKS: Final = frozenset(("sum", "prod", "int", "lim"))


class Hints(NamedTuple):
    """What a problem says of its gold answer besides the answer itself."""

    listed: bool = False
    kind: str = ""
    unit: str = ""
    tolerance: Tolerance = EXACT


_NO_HINTS: Final = Hints()


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge the committed answer of a response against the gold answer."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge an answer that was extracted."""
    return judge(gold, answer, hints(problem))


def distinct(response: str, finish: str = "") -> str:
    """Return the committed answer; a string that no answer equals if there is none."""
    answer = extract(response, finish)
    return NO_ANSWER if answer is None else answer.text


def judge(gold: str, answer: Extracted | None, hint: Hints) -> Verdict:
    """Judge an answer under what is known of the gold answer."""
    if answer is None or not answer.text.strip():
        return Verdict(Status.NO_ANSWER, rule="no answer")
    form = canonical(answer.text)
    status, rule = _decision(gold, answer.text, form, hint)
    return Verdict(
        status,
        answer=answer.text[:MAX_CHARS],
        canonical=form[:MAX_CHARS],
        rule=f"{answer.rule}/{rule}",
        grader=FINGERPRINT,
        stated=answer.stated,
    )


def _decision(gold: str, answer: str, form: str, hint: Hints) -> tuple[Status, str]:
    """Return the status, and the rule that decided."""
    if not form:
        return Status.NO_ANSWER, "empty"
    gold_form = _gold_form(gold)
    if form == gold_form:
        return Status.RIGHT, "text"
    if form.isdecimal() and gold_form.isdecimal():
        return Status.WRONG, "rational"
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return Status.WRONG, "too long to read"
    gold_value = _gold_value(gold, hint.listed, hint.kind, hint.unit)
    listed = hint.listed or isinstance(gold_value, Items)
    try:
        rule = compare(gold_value, read(answer, listed), hint.tolerance)
    except Unread:
        if _is_task(answer) and not _is_task(gold):
            return Status.NO_ANSWER, "restates the task"
        return Status.WRONG, "unread"
    except Undecided as gate:
        return Status.WRONG, f"gate: {gate}"
    if rule in ("options", "text") and ("*" in form) != ("*" in gold_form):
        return Status.WRONG, "different"  # A · C is neither the options A and C nor the text AC
    return (Status.RIGHT, rule) if rule else (Status.WRONG, "different")


# --- gold ----------------------------------------------------------------------------------------


def hints(problem: Problem | None) -> Hints:
    """Read OlympiadBench's answer type, multiplicity, unit and error, and Minerva's rounding."""
    if problem is None or (not problem.extras and problem.set_name != "minerva"):
        return _NO_HINTS
    extras = problem.extras
    error = extras.get("error")
    return Hints(
        listed=bool(extras.get("is_multiple_answer")),
        kind=str(extras.get("answer_type") or ""),
        unit=str(extras.get("unit") or ""),
        tolerance=Tolerance(
            error=Fraction(str(error)) if error else Fraction(0),
            rounded=problem.set_name == "minerva",
        ),
    )


_AND: Final = re.compile("(?<![A-Za-z])and(?![A-Za-z])")
_gold_form: Final = lru_cache(maxsize=16384)(canonical)


@lru_cache(maxsize=16384)
def _gold_value(gold: str, listed: bool, kind: str, unit_name: str) -> Value:
    """Read the gold answer, once per problem."""
    value = read(gold, listed or _AND.search(gold) is not None)
    value = _with_unit(value, _unit(unit_name))
    if kind == "Interval" and isinstance(value, Items) and len(value.items) == 2:
        closed = value.kind == "bracket"
        return interval(value.items, closed, closed)
    if kind == "Tuple" and isinstance(value, Items):
        return _pointed(value)
    return value


def _pointed(value: Items) -> Items:
    items = tuple(_pointed(item) if isinstance(item, Items) else item for item in value.items)
    return Items(value.kind, items, point=value.kind == "tuple")


def _unit(text: str) -> Unit | None:
    tokens = [token for token in tokenize(text) if token[1] not in ("{", "}")]
    texts = [text for _, text in tokens]
    if "deg" in texts:
        return DEGREE
    if texts == ["%"]:
        return PERCENT
    unit = read_unit(tokens) if tokens else None
    return unit if unit is not None and unit.dims else None


def _with_unit(value: Value, unit: Unit | None) -> Value:
    if isinstance(value, Items):
        return Items(value.kind, tuple(_with_unit(item, unit) for item in value.items))
    if isinstance(value, Quantity) and value.unit is None:
        return Quantity(value.tree, unit, value.digits)
    return value


def _is_task(text: str) -> bool:
    """Whether a text holds a sum, a product, an integral or a limit to be evaluated."""
    return any(kind == "f" and name in _TASKS for kind, name in tokenize(text))
