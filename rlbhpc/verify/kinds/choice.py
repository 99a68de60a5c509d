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
from rlbhpc.verify.answer.lexer import canonical
from rlbhpc.verify.answer.numeric import Undecided
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import OPTION_LETTERS, Choice, Value, Words, symbol_name
from rlbhpc.verify.kinds.math import distinct as distinct
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "choice-7"


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge which option a response commits to."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge which option an extracted answer chooses.

    ``gold`` is the letter or the text of an option. ``extras["choices"]`` of a problem are the
    texts of all options, if it states them. ``read`` gives the value of a text; ``_chosen_letter``
    the letter that a value chooses, ``""`` if it is none or more than one.
    """
    if answer is None or not answer.text.strip():
        return Verdict(Status.NO_ANSWER, rule="no answer")
    choices = problem.extras.get("choices") if problem is not None else None
    options = [read(str(choice)) for choice in choices or ()]
    gold_letter = _chosen_letter(read(gold), options)
    letter = _chosen_letter(read(answer.text), options)
    if not letter:
        canonical_answer = canonical(answer.text)
        return Verdict(Status.NO_ANSWER, answer.text, canonical_answer, f"{answer.rule}/no option")
    status = Status.RIGHT if letter == gold_letter else Status.WRONG
    return Verdict(status, answer.text, letter, f"{answer.rule}/option", stated=answer.stated)


def _chosen_letter(answer: Value, options: Sequence[Value]) -> str:
    """Return the letter that an answer chooses; ``""`` if it chooses none or several.

    ``options`` are the options in the order of their letters; there are none if the problem does
    not state them. An answer may be a letter, the text of an option, or a ``Choice``: a letter with
    the text beside it as its ``content``. A letter beside the text of another option contradicts
    itself.
    """
    letter = _lone_letter(answer)
    content: Value | None = answer.content if isinstance(answer, Choice) else answer
    if content is None or not options:
        return letter
    letters_by_text = [
        OPTION_LETTERS[index]
        for index, option in enumerate(options[: len(OPTION_LETTERS)])
        if _is_same(option, content)
    ]
    if isinstance(answer, Choice):
        return letter if letters_by_text in ([], [letter]) else ""
    if len(letters_by_text) == 1:
        return letters_by_text[0]
    return "" if letters_by_text else letter


def _lone_letter(answer: Value) -> str:
    """Return a lone letter, in whatever case and dress it was written."""
    if isinstance(answer, Choice):
        return answer.letter
    text = answer.text if isinstance(answer, Words) else symbol_name(answer)
    letter = text.upper()
    return letter if len(letter) == 1 and letter in OPTION_LETTERS else ""


def _is_same(option: Value, answer: Value) -> bool:
    try:
        return bool(compare(option, answer))
    except Undecided:
        return False
