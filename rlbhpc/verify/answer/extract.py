"""The committed answer of a response, found in linear time.

A response is read strictly first: a box, an ``<answer>`` tag, a marker, a phrase such as "the
answer is". Within a rule the last commitment counts. Only one that has none of these is read
leniently, and only if it was finished: a response that is nothing but an answer, or the last value
of its last sentence that holds one. In a response that was cut, a last number is an accident.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from rlbhpc.problems.record import ends_in_box
from rlbhpc.verify.answer.around_box import joined, scale
from rlbhpc.verify.answer.commit import CUE, bare, last_value, marker, phrase, tag
from rlbhpc.verify.answer.commit import Extracted as Extracted

#: Names of the rules, from the surest to the last resort.
RULES: Final = ("box", "tag", "marker", "phrase", "bare", "last value")

# What a model writes after its turn belongs to another turn.
_TURN_END: Final = re.compile(
    r"<(?:\|(?:im_end|im_start|endoftext|end_of_text|eot_id|end|user)\||/s|end_of_turn|eos"
    r"|｜end▁of▁sentence｜)>"
)
_THINK: Final = re.compile(r"<(/?)(?:think|thinking)>")
# Whether a response may hold either; one class of letters is sought twice as fast as the names.
_MARKUP: Final = re.compile(r"<[|/｜te]")
_INVISIBLE: Final = re.compile("[\u200b-\u200d\u2060\ufeff]")
# A base model that goes on after its answer, with a question of its own.
_NEXT_TASK: Final = re.compile(
    r"\n[#* ]*(?:Human|User|Question|Problem|Q|Instruction|Exercise|Example|Input)"
    r"\s*(?:\d*\s*[:：]|\d+\.\s)"
)
_QUESTION: Final = re.compile(r"\n[#* ]*(?:Human|User|Question|Problem|Q)\b")
_EARLIER_BOX: Final = re.compile("box")
_BRACES: Final = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{|\\.|[{}]", re.DOTALL)
_MAX_JOINED: Final = 16


def extract(response: str, finish: str = "") -> Extracted | None:
    """Return the committed answer, or None if the response commits to none.

    An open ``<think>`` is a response that never came to its answer. ``finish``: how the response
    ended, if that is known. One that was cut (``"length"``) within a box has no answer, whatever it
    boxed before; of any other only what it had finished counts, and no last sentence.
    """
    body: str | None = response
    if "<" in response and _MARKUP.search(response) is not None:
        body = _after_thinking(_own_turn(_final_channel(response)))
    if body is None:
        return None
    return _from_last_box(body) or _from_whole(body, finish)


def _from_last_box(body: str) -> Extracted | None:
    """Find the answer where one box stands last and nothing before it matters, else None.

    Nearly every response ends so. Its last box is searched from the end, and only two loops in C
    run over the rest: for markup, and for an earlier box, which a regex finds sooner than ``in``.
    """
    start = body.rfind("\\boxed{")
    if start < 0:
        return None
    end = body.find("}", start) + 1
    text = body[start + len("\\boxed{") : end - 1] if end else "{"
    if "{" in text or "\\" in text:
        box = _FLAT_BOX.match(body, start)
        if box is None:
            return None
        text, end = box[1], box.end()
    if not text or text.isspace() or "box" in text:
        return None
    if _EARLIER_BOX.search(body, 0, start) is not None:
        between = body[body.rfind("}", 0, start) + 1 : start]
        if _glue(between) is not None or _NEXT_TASK.search(body, 0, start) is not None:
            return None
        if _PART.search(body) is not None:
            return None
    suffix = _suffix(body[end:])
    return None if suffix is None else Extracted(joined(body, start, text.strip(), suffix), "box")


@lru_cache(maxsize=4096)
def _suffix(rest: str) -> str | None:
    """Return what the text behind a box adds to its answer; None if it may hold another answer.

    Few endings are written again and again, such as a full stop and the end of a formula.
    """
    if any(mark in rest for mark in ("box", "####", "\nA:", "answer")):
        return None
    if rest.count("}") > rest.count("{") or _NEXT_TASK.search(rest) is not None:
        return None  # a brace too many may close a box around the last one
    return scale(rest)


# The last clause that was finished, of a response that was cut.
_FINISHED: Final = re.compile(r".*(?:[\n。！？]|[.!?]\s|</answer>)", re.DOTALL)


def _from_whole(body: str, finish: str) -> Extracted | None:
    body = _INVISIBLE.sub("", body)
    first = _first_task(body)
    if first is not body:
        body, finish = first, "eos"  # what a model leaves behind for another task it has finished
    cut = finish == "length"
    if cut and ends_in_box(body):
        return None
    return _committed(body, cut) or (None if cut else _last_value(body, finish))


def _committed(body: str, cut: bool) -> Extracted | None:
    """Read strictly: a box, a tag, a marker, or a phrase whose whole clause is a value.

    Of prose behind a box nothing counts: it checks or explains, and only a tag or a marker replaces
    the box.
    """
    box = _box(body)
    boxed = None
    if box is not None:
        boxed = Extracted(joined(body, box.start, box.text, scale(body[box.end :])), "box")
    if cut:
        clauses = _FINISHED.match(body)
        body = "" if clauses is None else clauses[0]
    rest = body if box is None else body[box.end :]
    return tag(rest) or marker(rest) or boxed or phrase(rest)


def _last_value(body: str, finish: str) -> Extracted | None:
    """Read leniently: a response that is its answer, or the last value of its last sentence.

    Where nobody knows how a response ended, it must end as a sentence does: a number that stands
    last may have been cut.
    """
    answer = bare(body)
    if answer is None and (finish or body.rstrip().endswith(_COMPLETE)):
        answer = last_value(body)
    return answer


_COMPLETE: Final = (".", "$", "**", "\\)", "\\]", "!", "。", ")")


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


def _own_turn(response: str) -> str:
    end = _TURN_END.search(response, 1)
    return response if end is None else response[: end.start()]


def _after_thinking(response: str) -> str | None:
    """Drop closed think blocks; None if the last one stays open.

    A closing tag without an opening one closes the block that the prompt opened.
    """
    spoken: list[str] = []
    inside, start = False, 0
    for mark in _THINK.finditer(response):
        if mark[1]:
            if not inside:
                spoken.clear()
            inside, start = False, mark.end()
        elif not inside:
            spoken.append(response[start : mark.start()])
            inside = True
    if inside:
        return None
    spoken.append(response[start:])
    return "\n".join(spoken)


def _first_task(body: str) -> str:
    """Cut off what follows the first answer under the heading of another question.

    Without a box, a last value is an answer too, if the heading begins a question: an example or an
    input may be a part of a solution.
    """
    boxes = "boxed" in body
    for task in islice(_NEXT_TASK.finditer(body), _MAX_JOINED):
        before = body[: task.start()]
        if boxes:
            answer: object = _box(before)
        else:
            answer = marker(before) or phrase(before)
            if answer is None and _QUESTION.match(task[0]):
                answer = _last_value(before, "eos")
        if answer is not None:
            return before
    return body


# --- boxes ---------------------------------------------------------------------------------------


# A box whose braces nest four deep at most; its alternatives begin differently, so it is linear.
_PLAIN: Final = r"[^{}\\]++|\\."
_NESTED: Final = rf"\{{(?:{_PLAIN}|\{{(?:{_PLAIN}|\{{(?:{_PLAIN})*+\}})*+\}})*+\}}"
_FLAT_BOX: Final = re.compile(rf"\\boxed\{{((?:{_PLAIN}|{_NESTED})*+)\}}", re.DOTALL)


class _Box(NamedTuple):
    text: str
    start: int
    end: int


def _box(body: str) -> _Box | None:
    """Return the last balanced box, joined with its neighbours where they form one answer."""
    if "box" not in body:
        return None
    boxes = _balanced_boxes(body)
    filled = [box for box in boxes if box.text.strip()]
    if not filled:
        return None if boxes else _bare_box(body) or _unclosed_box(body)
    parts_of_one = _parts(body, boxes)
    if parts_of_one is not None:
        return parts_of_one
    joined, glues = [filled[-1]], [""]
    for box in reversed(filled[-_MAX_JOINED:-1]):
        glue = _glue(body[box.end : joined[0].start])
        if glue is None:
            break
        if box.text.strip() != joined[0].text.strip():
            joined.insert(0, box)
            glues.insert(0, glue)
        else:
            joined[0] = joined[0]._replace(start=box.start)
    names = [_name_before(body, box.start) for box in joined]
    if len(joined) == 1 or not all(names):
        names = [""] * len(joined)  # a lone box is its value
    parts = zip(names, joined, glues, strict=True)
    text = "".join(name + box.text.strip() + glue for name, box, glue in parts)
    start, end = joined[0].start, filled[-1].end
    if len(joined) > 1 and body[:start].rstrip("$ ").endswith("("):
        closing = body[end:].lstrip("$ ")
        text = f"({text})" if closing.startswith((")", "\\right)")) else text
    return _Box(text, start, end)


# "(a) The cost is …" at the beginning of a line.
_PART: Final = re.compile(r"^[ \t*#>-]*+(?:[Pp]art ?)?\(([a-h])\)", re.MULTILINE)


def _parts(body: str, boxes: list[_Box]) -> _Box | None:
    """Join the boxes of an answer in parts (a), (b), …, if each part holds one box."""
    labels = list(islice(_PART.finditer(body), _MAX_JOINED))
    if not 1 < len(labels) == len(boxes):
        return None
    for label, box, letter in zip(labels, boxes, "abcdefgh", strict=False):
        if label[1] != letter or label.end() > box.start:
            return None
    if any(box.end > label.start() for box, label in zip(boxes, labels[1:], strict=False)):
        return None
    if CUE.search(body, labels[-1].end(), boxes[-1].start) and not CUE.search(
        body, labels[0].end(), boxes[0].start
    ):
        return None  # steps, of which the last gives the answer
    return _Box(", ".join(box.text.strip() for box in boxes), boxes[0].start, boxes[-1].end)


_NAME: Final = re.compile(r"(?<![A-Za-z\\\\])([A-Za-z](?:_\d+)?\s*=)\s*\$?\s*$")


def _name_before(body: str, start: int) -> str:
    """Return the ``x =`` that stands right before a box, if one does."""
    match = _NAME.search(body, max(0, start - 20), start)
    return match[1] if match is not None else ""


def _balanced_boxes(body: str) -> list[_Box]:
    """Find every box whose brace closes, in order, a box around a box left out: one pass."""
    boxes: list[_Box] = []
    open_braces: list[int] = []  # where a box opened, or -1 for a plain brace
    content: list[int] = []
    for token in _BRACES.finditer(body, _first_box(body)):
        mark = token[0]
        if mark == "{":
            open_braces.append(-1)
        elif mark == "}":
            if not open_braces:
                continue
            start = open_braces.pop()
            if start >= 0:
                text = body[content.pop() : token.start()]
                if not (boxes and boxes[-1].start > start):
                    boxes.append(_Box(text, start, token.end()))
                else:
                    # An inner box is the answer; the outer one only says where it ends.
                    boxes[-1] = boxes[-1]._replace(end=token.end())
        elif mark.endswith("{") and len(mark) > 2:
            open_braces.append(token.start())
            content.append(token.end())
    return boxes


def _first_box(body: str) -> int:
    r"""Where to start the scan: of ``\\boxed``, a box on a new line, at the second backslash."""
    places = [
        position
        for name in ("\\boxed", "\\fbox", "\\framebox")
        if (position := body.find(name)) >= 0
    ]
    return min(places, default=len(body))


# The brace is missing, but the formula and the sentence are complete: "$\\boxed{8$."
_UNCLOSED_BOX: Final = re.compile(rf"\\boxed\{{((?:[^{{}}$\\]|\\.|{_NESTED})+)\$[.!]?\s*$")
_BARE_BOX: Final = re.compile(r"\\boxed\s*([^\s{}$][^\n$]{0,200})")


def _bare_box(body: str) -> _Box | None:
    r"""``\boxed 7`` and ``\boxed\frac12``: a box without braces, up to the end of its formula."""
    position = body.rfind("\\boxed")
    match = _BARE_BOX.match(body, position) if position >= 0 else None
    if match is None:
        return None
    text = match[1]
    if not text.startswith("\\"):
        text = text.split()[0]
    text = text.split("\\)")[0].split("\\]")[0].rstrip(" .,;:!*")
    return _Box(text, position, match.end()) if text else None


def _unclosed_box(body: str) -> _Box | None:
    position = body.rfind("\\boxed{")
    match = _UNCLOSED_BOX.match(body, position) if position >= 0 else None
    return None if match is None else _Box(match[1], position, match.end())


_GLUE_NOISE: Final = re.compile(
    r"\\(?:quad|qquad|text|textrm|mathrm|mbox|left|right|[,;:!\s()\[\]])|[\s${}*~]+"
)
_GLUE_LABEL: Final = re.compile(
    r"\(?(?:[a-h]|i{1,3}|iv|v|\d)\)|[A-Za-z](?:_\d+)?="
    r"|(?:second|third|fourth)(?:root|solution|value|number|part)(?:is|:)"
)
_GLUE: Final = re.compile(r"(?P<list>(?:[,;&]|and)*)|(?P<either>,?or,?)")


def _glue(between: str) -> str | None:
    """Say how two boxes join, or None if the later one stands alone.

    They join when nothing but ``and``, ``or``, a comma or a part label stands between them: any
    other word (a retraction above all), and the end of a sentence, makes the later box the answer.
    """
    if len(between) > 80:
        return None
    words = _GLUE_LABEL.sub(",", _GLUE_NOISE.sub("", between))
    match = _GLUE.fullmatch(words)
    if match is None:
        return None
    return r" \text{ or } " if match["either"] else ", "
