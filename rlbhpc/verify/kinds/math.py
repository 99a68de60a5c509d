"""The ``math`` verifier: is the committed answer the gold answer?

extract → read gold and answer by the same functions → compare (exact fractions, then identity to
80 digits, then structure) → Math-Verify in a killable worker for what could not be read.
``docs/verification.md`` states the policy and its measured error rates.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.compare import compare
from rlbhpc.verify.answer.compare_scalar import EXACT, NeedsSymbols, Tolerance
from rlbhpc.verify.answer.exact import Undecided
from rlbhpc.verify.answer.extract import Extracted, committed, extract
from rlbhpc.verify.answer.intervals import interval
from rlbhpc.verify.answer.lexer import MAX_CHARS, canonical, tokenize
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.unit_table import DEGREE, PERCENT, Unit
from rlbhpc.verify.answer.units import read_unit
from rlbhpc.verify.answer.value import Items, Opaque, Quantity, Relation, Value
from rlbhpc.verify.answer.witness import claims_of_a_comparison, joined
from rlbhpc.verify.running.pool import Result, shared_pool
from rlbhpc.verify.verdict import Status, Verdict

_VERSION: Final = 3
FINGERPRINT: Final = f"math-{_VERSION} " + " ".join(
    f"{name}-{importlib.metadata.version(name)}"
    for name in ("math-verify", "latex2sympy2_extended", "sympy", "mpmath")
)
WORKER: Final = "rlbhpc.verify.answer.symbolic:decide"
_MAX_SYMBOLIC: Final = 300
_NONE: Final = "\0"
_TASKS: Final = frozenset(("sum", "prod", "int", "lim"))


class Job(NamedTuple):
    """A comparison that only the symbolic worker can make, and the verdict it would complete."""

    payload: dict[str, str]
    verdict: Verdict


class Hints(NamedTuple):
    """What a problem says of its gold answer besides the answer itself."""

    listed: bool = False
    kind: str = ""
    unit: str = ""
    tolerance: Tolerance = EXACT


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge the committed answer of a response against the gold answer."""
    outcome = quick(gold, response, problem)
    if isinstance(outcome, Job):
        return settle(outcome, shared_pool(WORKER).run([outcome.payload])[0])
    return outcome


def distinct(response: str) -> str:
    """Return the committed answer; a string that no answer equals if there is none."""
    answer = committed(response)
    return _NONE if answer is None else answer


def quick(gold: str, response: str, problem: Problem | None = None) -> Verdict | Job:
    """Judge without leaving the process, or say what the worker must be asked.

    Nothing here can hang: reading is linear, evaluation is bounded by its gates.
    """
    return judge(gold, extract(response), hints(problem))


def judge(gold: str, found: Extracted | None, hint: Hints) -> Verdict | Job:
    """Judge an answer that was extracted, under what is known of the gold answer."""
    if found is None or not found.text.strip():
        return Verdict(Status.NO_ANSWER, rule="no answer")
    form = canonical(found.text)
    verdict = Verdict(Status.WRONG, found.text[:MAX_CHARS], form[:MAX_CHARS], found.rule)
    if not form:
        return _ruled(verdict, Status.NO_ANSWER, "empty")
    gold_form = canonical(gold)
    if form == gold_form:
        return _ruled(verdict, Status.RIGHT, "text", f'"{form[:MAX_CHARS]}"')
    if form.isdecimal() and gold_form.isdecimal():
        return _ruled(verdict, Status.WRONG, "rational")
    if len(found.text) > MAX_CHARS or len(gold) > MAX_CHARS:
        return _ruled(verdict, Status.WRONG, "too long to read")
    return _compared(gold, found.text, verdict, hint)


def _compared(gold: str, answer: str, verdict: Verdict, hint: Hints) -> Verdict | Job:
    ours = _gold_value(gold, hint)
    listed = hint.listed or isinstance(ours, Items)
    try:
        with claims_of_a_comparison() as claims:
            rule = compare(ours, read(answer, listed), hint.tolerance)
    except NeedsSymbols:
        if _is_task(answer) and not _is_task(gold):
            return _ruled(verdict, Status.NO_ANSWER, "restates the task")
        if _worth_asking(ours, gold, answer):
            return Job({"gold": gold, "answer": answer}, verdict)
        return _ruled(verdict, Status.WRONG, "unread")
    except Undecided as gate:
        return _ruled(verdict, Status.WRONG, f"gate: {gate}")
    if not rule:
        return _ruled(verdict, Status.WRONG, "different")
    return _ruled(verdict, Status.RIGHT, rule, joined(claims))


def settle(job: Job, result: Result) -> Verdict:
    """Complete a verdict with what the worker said."""
    if result.outcome == "done":
        status = Status.RIGHT if result.value["equal"] else Status.WRONG
        return _ruled(job.verdict, status, str(result.value["why"]))
    if result.outcome in ("timeout", "limit"):
        return _ruled(job.verdict, Status.TIMEOUT, result.value or result.outcome)
    return _ruled(job.verdict, Status.ERROR, str(result.value))


def _ruled(verdict: Verdict, status: Status, rule: str, witness: str = "") -> Verdict:
    return replace(verdict, status=status, rule=f"{verdict.rule}/{rule}", witness=witness)


# --- gold ----------------------------------------------------------------------------------------


def hints(problem: Problem | None) -> Hints:
    """Read OlympiadBench's answer type, multiplicity, unit and error, and Minerva's rounding."""
    if problem is None:
        return Hints()
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


@lru_cache(maxsize=16384)
def _gold_value(gold: str, hint: Hints) -> Value:
    """Read the gold answer, once per problem."""
    value = read(gold, hint.listed)
    unit = _unit(hint.unit)
    if unit is not None:
        value = _with_unit(value, unit)
    if hint.kind == "Interval" and isinstance(value, Items) and len(value.items) == 2:
        closed = value.kind == "bracket"
        return interval(value.items, closed, closed)
    if hint.kind == "Tuple" and isinstance(value, Items):
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


def _with_unit(value: Value, unit: Unit) -> Value:
    if isinstance(value, Items):
        return Items(value.kind, tuple(_with_unit(item, unit) for item in value.items))
    if isinstance(value, Quantity) and value.unit is None:
        return Quantity(value.tree, unit, value.digits)
    return value


# --- what may go to the worker -------------------------------------------------------------------


def _is_task(text: str) -> bool:
    """Whether a text holds a sum, a product, an integral or a limit to be evaluated."""
    return any(kind == "f" and name in _TASKS for kind, name in tokenize(text))


def _worth_asking(value: Value, gold: str, answer: str) -> bool:
    """Whether computer algebra could say more: of mathematics in one alphabet, not too large."""
    foreign = isinstance(value, Opaque | Relation) or _is_foreign(answer)
    return foreign and _is_askable(gold) and _is_askable(answer) and _same_letters(gold, answer)


def _is_foreign(text: str) -> bool:
    """Whether a text holds what the reader has no grammar for, rather than a slip of the pen."""
    return _is_task(text) or any(kind in ("u", "r") for kind, _ in tokenize(text))


def _same_letters(gold: str, answer: str) -> bool:
    """Whether two texts hold the same symbols; a variable that a task binds may be any letter."""
    if _is_task(gold):
        return True
    ours, theirs = ({t for kind, t in tokenize(text) if kind == "s"} for text in (gold, answer))
    return ours == theirs


def _is_askable(text: str) -> bool:
    """Whether a text is mathematics of a size that the worker can be asked about."""
    if len(text) > _MAX_SYMBOLIC or '"' in text or "__" in text:
        return False
    tokens = tokenize(text)
    words = sum(kind == "w" for kind, _ in tokens)
    digits = max((len(t) for kind, t in tokens if kind == "n"), default=0)
    powers = sum(t == "^" for _, t in tokens)
    factorials = sum(t == "!" for _, t in tokens)
    return words <= 2 and digits <= 12 and powers <= 12 and factorials <= 4
