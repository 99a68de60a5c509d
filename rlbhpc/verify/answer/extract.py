r"""The committed answer of a response, found in linear time.

A response is read strictly first: a box, an ``<answer>`` tag, a marker, a phrase such as "the
answer is". Within a rule the last one counts. Only a response that has none of these is read
leniently, and only if it was finished: one that is nothing but an answer, or the last value of the
last sentence that holds one. In a response that was cut, a last number is an accident. The rules
are a table: :mod:`rlbhpc.verify.answer.patterns`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rlbhpc.problems.record import ends_in_box
from rlbhpc.verify.answer.boxes import FLAT_BOX, joins, last_box, suffix_of_box, with_surroundings
from rlbhpc.verify.answer.patterns import OPENINGS, TURN_ENDS, compiled
from rlbhpc.verify.answer.statements import Extracted as Extracted
from rlbhpc.verify.answer.statements import bare, last_value, marker, phrase, tag

#: Names of the rules, from the surest to the last resort.
RULES: Final = ("box", "tag", "marker", "phrase", "bare", "last value")

_TURN_END: Final = compiled(TURN_ENDS, re.NOFLAG)
_WITHIN_LINE: Final = ("announcement", "instruction")
# Those that begin with a line are found in no time; the others are slow, and hardly ever there.
_OPENING: Final = compiled(
    tuple(row for row in OPENINGS if row.name not in _WITHIN_LINE), re.NOFLAG
)
_SLOW_OPENING: Final = compiled(
    tuple(row for row in OPENINGS if row.name in _WITHIN_LINE), re.NOFLAG
)
# A rule may stand between the steps of one solution: before it a value is no answer.
_RULE: Final = compiled(tuple(row for row in OPENINGS if row.name == "rule"))
_SLOW_STEMS: Final = (" question", " problem", " exercise", " task", "step by step", "逐步推理",
                      "boxed{}")  # fmt: skip
_THINK: Final = re.compile(r"<(/?)(?:think|thinking)>")
# Whether a response may hold a mark; one class of letters is sought twice as fast as the names.
_MARKUP: Final = re.compile(r"<[|/｜te<s]|\[/?INST")
_INVISIBLE: Final = re.compile("[\u200b-\u200d\u2060\ufeff]")
_EARLIER_BOX: Final = re.compile("box")
_MOST_OPENINGS: Final = 16


def extract(response: str, finish: str = "") -> Extracted | None:
    """Return the committed answer, or None if the response commits to none.

    An open ``<think>`` is a response that never came to its answer. ``finish``: how the response
    ended, if that is known. One that was cut (``"length"``) within a box has no answer, whatever it
    boxed before; of any other only what it had finished counts, and no last sentence.
    """
    text: str | None = response
    if ("<" in response or "INST]" in response) and _MARKUP.search(response) is not None:
        turn = _first_turn(_final_channel(response))
        finish = finish if turn == response else "eos"  # a turn that was ended is finished
        text = _after_thinking(turn)
    if text is None:
        return None
    return _from_last_box(text) or _from_whole(text, finish)


def _from_last_box(text: str) -> Extracted | None:
    """Find the answer where one box stands last and nothing before it matters, else None.

    Nearly every response ends so. Its last box is searched from the end, and only two loops in C
    run over the rest: for an earlier box, which a regex finds sooner than ``in``.
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    end = text.find("}", start) + 1
    answer = text[start + len("\\boxed{") : end - 1] if end else "{"
    if "{" in answer or "\\" in answer:
        box = FLAT_BOX.match(text, start)
        if box is None:
            return None
        answer, end = box[1], box.end()
    if not answer or answer.isspace() or "box" in answer:
        return None
    if _EARLIER_BOX.search(text, 0, start) is not None:
        between = text[text.rfind("}", 0, start) + 1 : start]
        if joins(between) is not None:
            return None
    if _first_opening(text[:start]) is not None:
        return None
    suffix = _suffix(text[end:])
    if suffix is None:
        return None
    return Extracted(with_surroundings(text, start, answer.strip(), suffix), "box")


@lru_cache(maxsize=4096)
def _suffix(following: str) -> str | None:
    """Return what the text behind a box adds to its answer; None if it may hold another answer.

    Few endings are written again and again, such as a full stop and the end of a formula.
    """
    if any(mark in following for mark in ("box", "####", "\nA:", "answer")):
        return None
    if following.count("}") > following.count("{") or _first_opening(following) is not None:
        return None  # a brace too many may close a box around the last one
    return suffix_of_box(following)


def _from_whole(text: str, finish: str) -> Extracted | None:
    text = text if text.isascii() else _INVISIBLE.sub("", text)
    first = first_task(text)
    if first is not text:
        text, finish = first, "eos"  # what a model leaves behind for another task it has finished
    was_cut = finish == "length"
    if was_cut and ends_in_box(text):
        return None
    return _stated(text, was_cut) or (None if was_cut else _unstated(text, finish))


# The last clause that was finished, of a response that was cut.
_FINISHED: Final = re.compile(r".*(?:[\n。！？]|[.!?]\s|</answer>)", re.DOTALL)


def _stated(text: str, was_cut: bool = False) -> Extracted | None:
    """Read strictly: a box, a tag, a marker, or a phrase whose whole clause is a value.

    Of prose behind a box nothing counts: it checks or explains, and only a tag or a marker replaces
    the box.
    """
    box = last_box(text)
    boxed = None
    if box is not None:
        suffix = suffix_of_box(text[box.end :])
        boxed = Extracted(with_surroundings(text, box.start, box.text, suffix), "box")
    if was_cut:
        finished = _FINISHED.match(text)
        text = "" if finished is None else finished[0]
    behind_box = text if box is None else text[box.end :]
    return tag(behind_box) or marker(behind_box) or boxed or phrase(behind_box)


_COMPLETE: Final = (".", "$", "**", "\\)", "\\]", "!", "。", ")")


def _unstated(text: str, finish: str) -> Extracted | None:
    """Read leniently: a response that is its answer, or the last value of its last sentence.

    Where nobody knows how a response ended, it must end as a sentence does: a number that stands
    last may have been cut.
    """
    answer = bare(text)
    if answer is None and (finish or text.rstrip().endswith(_COMPLETE)):
        answer = last_value(text)
    return answer


# --- turns, thoughts, tasks ----------------------------------------------------------------------

_CHANNEL: Final = "<|channel|>"
_FINAL_CHANNEL: Final = re.compile(
    r"<\|channel\|>final\s*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>"
)


def _final_channel(response: str) -> str:
    """Return what stands in the last final channel, where a response has channels."""
    if _CHANNEL not in response:
        return response
    finals = list(_FINAL_CHANNEL.finditer(response))
    return response[finals[-1].end() :] if finals else "<think>"


def _first_turn(response: str) -> str:
    end = _TURN_END.search(response, 1)
    return response if end is None else response[: end.start()]


def _after_thinking(response: str) -> str | None:
    """Drop closed think blocks; None if the last one stays open.

    A closing tag without an opening one closes the block that the prompt opened.
    """
    spoken: list[str] = []
    is_thinking, start = False, 0
    for mark in _THINK.finditer(response):
        if mark[1]:
            if not is_thinking:
                spoken.clear()
            is_thinking, start = False, mark.end()
        elif not is_thinking:
            spoken.append(response[start : mark.start()])
            is_thinking = True
    if is_thinking:
        return None
    spoken.append(response[start:])
    return "\n".join(spoken)


def first_task(text: str) -> str:
    """Cut off what follows the first answer under the opening of another task.

    Without any box a last value is an answer, too; with one, a formula before it may be a step.
    """
    start = _first_opening(text)
    for _ in range(_MOST_OPENINGS):
        if start is None:
            return text
        before = text[:start]
        answer = _stated(before)
        if answer is None and "boxed" not in text and not _RULE.match(text, start):
            answer = _unstated(before, "eos")
        if answer is not None:
            return before
        start = _first_opening(text, start + 1)
    return text


def _first_opening(text: str, start: int = 0) -> int | None:
    """Return where another task may begin, from a position on."""
    small = text.lower()
    if len(small) != len(text):
        small = text  # a letter such as İ, which is two small ones
    openings = [_OPENING.search(small, start)]
    if any(stem in small for stem in _SLOW_STEMS):
        openings.append(_SLOW_OPENING.search(small, start))
    return min((opening.start() for opening in openings if opening is not None), default=None)
