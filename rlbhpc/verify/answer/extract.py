r"""The committed answer of a response, found in linear time.

A response is read strictly first: a box, an ``<answer>`` tag, a marker, a phrase such as "the
answer is". Within a rule the last one counts. Only a response that has none of these is read
leniently, and only if it was finished: one that is nothing but an answer, or the last value of the
last sentence that holds one. In a response that was cut, a last number is an accident. The rules
are a table: :mod:`rlbhpc.verify.answer.statements`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rlbhpc.problems.record import ends_in_box
from rlbhpc.verify.answer.statements import (
    OPENINGS,
    TURN_ENDS,
    compile_patterns,
    find_bare_value,
    find_last_value,
    find_marker,
    find_phrase,
    find_tag,
)
from rlbhpc.verify.answer.statements import Extracted as Extracted

#: Names of the rules, from the surest to the last resort.
RULES: Final = ("box", "tag", "marker", "phrase", "bare", "last value")

_CUT_AT_LIMIT: Final = "length"
_ENDED_BY_ITSELF: Final = "eos"


def extract(response: str, finish: str = "") -> Extracted | None:
    """Return the answer that a response commits to, or None if it commits to none.

    An open ``<think>`` is a response that never came to its answer. ``finish``: how the response
    ended, if that is known. One that was cut (``"length"``) within a box has no answer, whatever it
    boxed before; of any other only what it had finished counts, and no last sentence. Where marks
    of a chat's turns follow the first turn, that turn alone is read, and it was finished.
    """
    text: str | None = response
    # Most responses hold no mark of a turn or a thought.
    if ("<" in response or "INST]" in response) and _MARKUP.search(response) is not None:
        turn = _first_turn(_final_channel(response))
        if turn != response:
            finish = _ENDED_BY_ITSELF
        text = _after_thinking(turn)
    if text is None:
        return None
    return _read_spoken(text, finish)


def _read_spoken(text: str, finish: str) -> Extracted | None:
    """Return the answer that the strongest rule finds in a response without its thoughts, or None.

    ``finish`` says how the response ended; ``"length"`` is one that was cut. ``first_task`` cuts
    off the next task that a model sets itself after its answer. ``_find_statement`` finds a box, a
    tag, a marker or a phrase. Only where there is none, and nothing was cut, ``_find_unstated``
    takes a last value.
    """
    text = text if text.isascii() else _INVISIBLE.sub("", text)
    task = first_task(text)
    if task is not text:
        text, finish = task, _ENDED_BY_ITSELF  # what a model leaves for another task is finished
    was_cut = finish == _CUT_AT_LIMIT
    if was_cut and ends_in_box(text):
        return None
    statement = _find_statement(text, was_cut)
    return statement if statement or was_cut else _find_unstated(text, finish)


# The last clause that was finished, of a response that was cut.
_FINISHED: Final = re.compile(r".*(?:[\n。！？]|[.!?]\s|</answer>)", re.DOTALL)
_COMPLETE_ENDINGS: Final = (".", "$", "**", "\\)", "\\]", "!", "。", ")")


def _find_statement(text: str, was_cut: bool = False) -> Extracted | None:
    """Return the answer that a text states by a box, a tag, a marker or a phrase, or None.

    A *tag* is ``<answer>…</answer>``, a *marker* ``#### 18``, a *phrase* "the answer is 18" whose
    whole clause is a value. Of prose behind the last box nothing counts: it checks or explains, and
    only a tag or a marker replaces the box. ``was_cut``: the response reached its longest length,
    so behind the box its last, unfinished clause is left out.
    """
    box = find_last_box(text)
    boxed = None if box is None else _answer_of_box(text, box)
    if was_cut:
        finished = _FINISHED.match(text)
        text = "" if finished is None else finished[0]
    behind_box = text if box is None else text[box.end :]
    return find_tag(behind_box) or find_marker(behind_box) or boxed or find_phrase(behind_box)


def _find_unstated(text: str, finish: str) -> Extracted | None:
    """Read leniently: a response that is its answer, or the last value of its last sentence.

    Where nobody knows how a response ended, it must end as a sentence does: a number that stands
    last may have been cut.
    """
    is_finished = bool(finish) or text.rstrip().endswith(_COMPLETE_ENDINGS)
    return find_bare_value(text) or (find_last_value(text) if is_finished else None)


# --- boxes ---------------------------------------------------------------------------------------


class Box(NamedTuple):
    """What a box holds, and where it begins and ends in its text."""

    content: str
    start: int
    end: int


_MAX_JOINED_BOXES: Final = 16
_FILLED_BOX: Final = re.compile(r"boxed\{[^}]")
_BOX_NAME: Final = re.compile(r"\\f?boxed|\\fbox")
_BOX_OR_BRACE: Final = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{|\\.|[{}]", re.DOTALL)


def find_last_box(text: str) -> Box | None:
    r"""Return the last closed box, joined with those before it that form one answer with it.

    A ``Box`` is what ``\boxed{…}`` holds, and where it starts and ends in the text. Given the text
    between two boxes, ``_separator_of_boxes`` returns what joins them (a comma, "or"), or None if
    the later one stands alone.
    """
    if "box" not in text:
        return None
    boxes = [box for box in _closed_boxes(text) if box.content.strip()]
    if not boxes:
        return None
    last = boxes[-1]
    answer, start = last.content.strip(), last.start
    for box in reversed(boxes[-_MAX_JOINED_BOXES:-1]):
        separator = _separator_of_boxes(text[box.end : start])
        if separator is None:
            break
        start = box.start
        if box.content.strip() != answer:
            answer = box.content.strip() + separator + answer
    return Box(answer, start, last.end)


def _closed_boxes(text: str) -> list[Box]:
    r"""List every box whose brace closes, in order, in one pass over the text.

    A ``Box`` is what ``\boxed{…}`` holds, and where it starts and ends in the text. A box around
    another one is left out; the inner one then ends where the outer one does.
    """
    boxes: list[Box] = []
    # The match that opened each open brace: a box, or a plain brace.
    openings: list[re.Match[str]] = []
    first_box = _BOX_NAME.search(text)
    start = len(text) if first_box is None else first_box.start()
    for token in _BOX_OR_BRACE.finditer(text, start):
        if token[0].endswith("{") and token[0] != "\\{":
            openings.append(token)
        elif token[0] == "}" and openings:
            opening = openings.pop()
            if opening[0] == "{":
                continue
            if boxes and boxes[-1].start > opening.start():
                # An inner box is the answer; the outer one only says where it ends.
                boxes[-1] = boxes[-1]._replace(end=token.end())
            else:
                content = text[opening.end() : token.start()]
                boxes.append(Box(content, opening.start(), token.end()))
    return boxes


_INVISIBLE_MARKUP: Final = re.compile(
    r"\\(?:quad|qquad|text|textrm|mathrm|mbox|left|right|[,;:!\s()\[\]])|[\s${}*~]+"
)
_LABEL_OF_BOX: Final = re.compile(r"\(?(?:[a-h]|i{1,3}|iv|v|\d)\)|[A-Za-z](?:_\d+)?=")
_AND_SEPARATOR: Final = re.compile(r"(?:[,;&]|and)*")
_OR_SEPARATOR: Final = re.compile(r",?or,?")
_MAX_SEPARATOR_CHARS: Final = 80


def _separator_of_boxes(between: str) -> str | None:
    """Return what joins two boxes to one answer, or None if the later one stands alone.

    ``between`` is the text between them. They join when nothing but ``and``, ``or``, a comma or a
    label such as ``(b)`` and ``y =`` stands there: any other word, and the end of a sentence, makes
    the later box the answer. Markup that shows nothing is dropped first.
    """
    if len(between) > _MAX_SEPARATOR_CHARS:
        return None
    words = _LABEL_OF_BOX.sub(",", _INVISIBLE_MARKUP.sub("", between))
    if _AND_SEPARATOR.fullmatch(words):
        return ", "
    return r" \text{ or } " if _OR_SEPARATOR.fullmatch(words) else None


_UNIT_BEHIND_BOX: Final = re.compile(
    r"[$\s]*(?:\\text\{\s*|\\[,;: ]\s*)*"
    r"(\\?%|(?:percent|dozen|hundred|thousand|million|billion|seconds|minutes|hours|days|weeks|months|"
    r"years|dollars|cents|degrees|radians|[km]?grams|"
    r"(?:(?:square|cubic)\s+)?(?:inches|feet|miles|yards|(?:centi|milli|kilo)?met(?:er|re)s)|"
    r"[ckm]m|kg|[ck]?m/(?:s|h|min)|mph)\b(?!\s*[\^/]|\s+(?:and|of|per|more|less|point|squared|cubed)))"
)
# A factor, a power or a constant that the formula goes on with: "$\\boxed{5}\\times 10^3$".
_FACTOR_BEHIND_BOX: Final = re.compile(
    r"\s*((?:\+(?=\s*[CKck]\s*[$\\])|\\times|\\cdot|\\(?:pi|sqrt)(?![A-Za-z])|"
    r"\^(?!\{?(?:\*|\\dagger)))[^$\n=]{0,40}?)(?:\$|\\[)\]])"
)
# One with a space at the start of a line is a bullet.
_MINUS_BEFORE_BOX: Final = re.compile(r"[=$(\[]\s*-\s*$|^\s*-$", re.MULTILINE)
_CHARS_BEFORE_BOX: Final = 60


def _answer_of_box(text: str, box: Box) -> Extracted:
    r"""Return the answer of a box with the minus sign before it and the unit or factor behind it.

    Models leave such parts outside: ``= -\boxed{5}``, ``\boxed{5}\%``, ``\boxed{5}\times 10^3``.
    ``"box"`` is the name of the rule by which the answer was found.
    """
    answer = box.content
    before = text[max(0, box.start - _CHARS_BEFORE_BOX) : box.start]
    has_minus = before.endswith(("-", "- ")) and _MINUS_BEFORE_BOX.search(before) is not None
    if has_minus and not answer.startswith("-"):
        is_sum = "+" in answer or "-" in answer
        answer = f"-({answer})" if is_sum else f"-{answer}"
    unit = _UNIT_BEHIND_BOX.match(text, box.end)
    factor = _FACTOR_BEHIND_BOX.match(text, box.end)
    if unit is not None:
        answer += r"\%" if unit[1].endswith("%") else rf" \text{{ {unit[1]}}}"
    elif factor is not None:
        answer += f" {factor[1]}"
    return Extracted(answer, "box")


# --- turns, thoughts, tasks ----------------------------------------------------------------------

_TURN_END: Final = compile_patterns(*TURN_ENDS, flags=re.NOFLAG)
# Whether a response may hold a mark; one class of letters is sought twice as fast as the names.
_MARKUP: Final = re.compile(r"<[|/｜te<s]|\[/?INST")
_THINK_TAG: Final = re.compile(r"<(/?)(?:think|thinking)>")
_INVISIBLE: Final = re.compile("[\u200b-\u200d\u2060\ufeff]")
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
    """Return a response without its ``<think>`` blocks; None if the last one stays open.

    A closing tag without an opening one closes the block that the prompt opened, so that nothing
    before it was spoken.
    """
    spoken_parts: list[str] = []
    is_thinking, start = False, 0
    for tag in _THINK_TAG.finditer(response):
        is_closing = bool(tag[1])
        if is_closing:
            if not is_thinking:
                spoken_parts.clear()
            is_thinking, start = False, tag.end()
        elif not is_thinking:
            spoken_parts.append(response[start : tag.start()])
            is_thinking = True
    if is_thinking:
        return None
    return "\n".join([*spoken_parts, response[start:]])


# Those that begin with a line are found in no time; the prompt's own words are sought apart.
_OPENING: Final = compile_patterns(
    *(row for row in OPENINGS if row.name != "instruction"), flags=re.NOFLAG
)
_INSTRUCTION: Final = compile_patterns(
    *(row for row in OPENINGS if row.name == "instruction"), flags=re.NOFLAG
)
# A rule may stand between the steps of one solution: before it a value is no answer.
_RULE: Final = compile_patterns(*(row for row in OPENINGS if row.name == "rule"))
_MAX_OPENINGS: Final = 16


def first_task(text: str) -> str:
    """Return the text before a next task that the model sets itself, if that text has an answer.

    ``find_opening`` returns where another task may begin (``Question:``), or None. An opening
    without an answer before it is part of the solution, and the next one is tried. Without any box
    a last value is an answer, too; with one, a formula before it may be a step. If nothing is cut
    off, ``text`` itself is returned.
    """
    start = find_opening(text)
    for _ in range(_MAX_OPENINGS):
        if start is None:
            return text
        before = text[:start]
        answer = _find_statement(before)
        has_box = _FILLED_BOX.search(text) is not None
        if answer is None and not has_box and not _RULE.match(text, start):
            answer = _find_unstated(before, _ENDED_BY_ITSELF)
        if answer is not None:
            return before
        start = find_opening(text, start + 1)
    return text


def find_opening(text: str, start: int = 0) -> int | None:
    """Return where another task may begin, from a position on."""
    lower_text = text.lower()
    if len(lower_text) != len(text):
        lower_text = text  # a letter such as İ, which is two small ones
    openings = (_OPENING.search(lower_text, start), _INSTRUCTION.search(lower_text, start))
    return min((opening.start() for opening in openings if opening is not None), default=None)
