"""The ``choice`` verifier: one letter of several.

The gold answer is a letter, or the text of an option. The problem's ``extras`` may hold the options
(``choices``); then an answer may also be the text of an option, and a letter beside the text of
another option contradicts itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.compare import compare
from rlbhpc.verify.answer.extract import Extracted
from rlbhpc.verify.answer.extract import extract as extract
from rlbhpc.verify.answer.lexer import canonical as canonical
from rlbhpc.verify.answer.numeric import Undecided
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Choice, Quantity, Value, Words
from rlbhpc.verify.kinds.math import distinct as distinct
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "choice-5"
LETTERS: Final = "ABCDEFGHIJ"


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge which option a response commits to."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge which option an extracted answer chooses."""
    if answer is None or not answer.text.strip():
        return Verdict(Status.NO_ANSWER, rule="no answer")
    choices = problem.extras.get("choices") if problem is not None else None
    options = [read(str(choice)) for choice in choices or ()]
    right = _chosen(read(gold), options)
    chosen = _chosen(read(answer.text), options)
    form = canonical(answer.text)
    if not chosen:
        return Verdict(Status.NO_ANSWER, answer.text, form, f"{answer.rule}/no option")
    status = Status.RIGHT if chosen == right else Status.WRONG
    rule = f"{answer.rule}/option"
    return Verdict(status, answer.text, chosen, rule, stated=answer.stated)


def _chosen(value: Value, options: Sequence[Value]) -> str:
    """Return the letter that an answer chooses; nothing if it chooses none or several."""
    letter, rest = _letter(value), value
    if isinstance(value, Choice):
        if value.rest is None or not options:
            return letter
        rest = value.rest
    by_text = [
        LETTERS[index]
        for index, option in enumerate(options[: len(LETTERS)])
        if _same(option, rest)
    ]
    if letter and isinstance(value, Choice):
        return letter if by_text in ([], [letter]) else ""
    if len(by_text) == 1:
        return by_text[0]
    return letter if not by_text else ""


def _letter(value: Value) -> str:
    """Return a lone letter, in whatever case and dress it was written."""
    if isinstance(value, Choice):
        return value.letter
    name = ""
    if isinstance(value, Quantity) and value.tree.op == "sym" and value.unit is None:
        name = str(value.tree.value).upper()
    elif isinstance(value, Words):
        name = value.text.upper()
    return name if len(name) == 1 and name in LETTERS else ""


def _same(option: Value, answer: Value) -> bool:
    try:
        return bool(compare(option, answer))
    except Undecided:
        return False
