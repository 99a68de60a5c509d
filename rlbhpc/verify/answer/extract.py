"""The committed answer of a response, found in linear time.

The order of the rules is the order in which models commit: a box, an ``<answer>`` tag, the GSM8K
marker, a phrase such as "the answer is", a closing sentence, a response that is nothing but an
answer. Within a rule the last commitment counts. A number that merely stands last in a
response is never taken: in a response that ran into its length limit it is an accident.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Names of the rules, from the surest to the last resort.
RULES: Final = ("box", "tag", "marker", "phrase", "bare", "closing")


class Extracted(NamedTuple):
    """An answer as the response wrote it, and the rule that found it."""

    text: str
    rule: str


# What a model writes after its turn belongs to another turn.
_TURN_ENDS: Final = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>", "</s>")
_THINK: Final = re.compile(r"<(/?)(?:think|thinking)>")
_BRACES: Final = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{|\\.|[{}]", re.DOTALL)
_MAX_JOINED: Final = 16


def extract(response: str) -> Extracted | None:
    """Return the committed answer, or None if the response commits to none.

    An open ``<think>`` is a response that never came to its answer.
    """
    body = _after_thinking(_own_turn(response))
    if body is None:
        return None
    box = _box(body)
    late = _late_commitment(body, box.end if box else 0)
    if late is not None:
        return late
    if box is not None:
        return Extracted(box.text, "box")
    return _tag(body) or _marker(body) or _phrase(body) or _closing(body) or _bare(body)


def _own_turn(response: str) -> str:
    if "<" not in response:
        return response
    ends = [at for at in map(response.find, _TURN_ENDS) if at > 0]
    return response[: min(ends)] if ends else response


def _after_thinking(response: str) -> str | None:
    """Drop closed think blocks; None if the last one stays open.

    A closing tag without an opening one closes the block that the prompt opened.
    """
    if "think" not in response:
        return response
    kept: list[str] = []
    inside, start = False, 0
    for tag in _THINK.finditer(response):
        if tag[1]:
            if not inside:
                kept.clear()
            inside, start = False, tag.end()
        elif not inside:
            kept.append(response[start : tag.start()])
            inside = True
    if inside:
        return None
    kept.append(response[start:])
    return "\n".join(kept)


# --- boxes ---------------------------------------------------------------------------------------


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
        return None if boxes else _bare_box(body)
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
    return _Box(text, joined[0].start, filled[-1].end)


_NAME: Final = re.compile(r"(?<![A-Za-z\\\\])([A-Za-z](?:_\d+)?\s*=)\s*\$?\s*$")


def _name_before(body: str, start: int) -> str:
    """Return the ``x =`` that stands right before a box, if one does."""
    match = _NAME.search(body, max(0, start - 20), start)
    return match[1] if match is not None else ""


def _balanced_boxes(body: str) -> list[_Box]:
    """Find every box whose brace closes, in order, a box around a box left out: one pass."""
    first = _first_box(body)
    boxes: list[_Box] = []
    open_braces: list[int] = []  # where a box opened, or -1 for a plain brace
    content: list[int] = []
    for token in _BRACES.finditer(body, first):
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
    """Where to start the scan: responses are long, their boxes stand at the end."""
    places = [at for name in ("\\boxed", "\\fbox", "\\framebox") if (at := body.find(name)) >= 0]
    return min(places, default=len(body))


_BARE_BOX: Final = re.compile(r"\\boxed\s*([^\s{}$][^\n$]{0,200})")


def _bare_box(body: str) -> _Box | None:
    r"""``\boxed 7`` and ``\boxed\frac12``: a box without braces, up to the end of its formula."""
    at = body.rfind("\\boxed")
    match = _BARE_BOX.match(body, at) if at >= 0 else None
    if match is None:
        return None
    text = match[1]
    if not text.startswith("\\"):
        text = text.split()[0]
    text = text.split("\\)")[0].split("\\]")[0].rstrip(" .,;:!*")
    return _Box(text, at, match.end()) if text else None


_GLUE_NOISE: Final = re.compile(
    r"\\(?:quad|qquad|text|textrm|mathrm|mbox|left|right|[,;:!\s()\[\]])|[\s${}*~]+"
)
_GLUE_LABEL: Final = re.compile(r"\(?(?:[a-h]|i{1,3}|iv|v|\d)\)|[A-Za-z](?:_\d+)?=")
_GLUE: Final = re.compile(r"(?P<list>(?:[,;&]|and)*)|(?P<either>,?or)")


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


# --- answers without a box -----------------------------------------------------------------------

_STRONG: Final = re.compile(
    r"####|<answer>|final\s+answer(?:\s+is|\s*[:：=])|最终答案(?:是|为|：|:)", re.IGNORECASE
)
_WEAK: Final = re.compile(
    r"(?:answer|result)(?:\*\*)?(?:\s+is|\s*[:：=])|答案\s*(?:是|为|：|:)", re.IGNORECASE
)
_RETRACTION: Final = re.compile(
    r"\b(?:wait|actually|wrong|mistake|incorrect|correction|instead|sorry|misread|oops)\b",
    re.IGNORECASE,
)
_MAX_TRIES: Final = 8


def _late_commitment(body: str, after: int) -> Extracted | None:
    """Find a plain commitment after the last box: a marker, or a phrase that retracts the box."""
    if not after or len(body) - after < 8:
        return None
    rest = body[after:]
    if _STRONG.search(rest) is None and _RETRACTION.search(rest) is None:
        return None
    late = _tag(rest) or _marker(rest) or _phrase(rest, _STRONG)
    if late is None and _RETRACTION.search(rest) is not None:
        late = _phrase(rest)
    return late


def _tag(body: str) -> Extracted | None:
    """``<answer>…</answer>``; an unclosed tag is no commitment, since it may have been cut."""
    end = body.rfind("</answer>")
    start = body.rfind("<answer>", 0, end) if end >= 0 else -1
    if start < 0:
        return None
    inner = body[start + len("<answer>") : end].strip()
    for find in (_marker, _phrase):
        found = find(inner)
        if found is not None:
            return Extracted(found.text, "tag")
    return Extracted(_undelimited(inner), "tag") if inner else None


def _marker(body: str) -> Extracted | None:
    """``#### 18`` as GSM8K ends its solutions; a Markdown heading looks alike and is none."""
    at = body.rfind("####")
    if at < 0:
        return None
    line = body[at + 4 :].strip().split("\n", 1)[0].strip().rstrip(".")
    if not line or not re.match(r"[-+$£€\\(\[.]*\s*[\d\\]", line):
        return None
    return Extracted(_undelimited(line), "marker")


def _phrase(body: str, pattern: re.Pattern[str] = _WEAK) -> Extracted | None:
    """Find the last "answer is …" whose clause holds a plain answer."""
    matches = list(pattern.finditer(body))
    for match in reversed(matches[-_MAX_TRIES:]):
        text = _clause(body[match.end() : match.end() + 300])
        if text is not None:
            return Extracted(text, "phrase")
    return None


# A run of text that ends at a full stop which is no decimal point, or at the line's end.
_SENTENCE: Final = re.compile(r"(?:[^.。\n]|\.(?=\d))*")
_MATH: Final = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_HEDGE: Final = re.compile(
    r"\b(?:maybe|perhaps|might|could|possibly|probably|not|unsure|unknown|either|i think|guess|"
    r"depends|cannot|can't|approximately one of)\b|\?",
    re.IGNORECASE,
)
_LEAD: Final = re.compile(r"^.*\b(?:is|are|equals|be)\b[\s:]*", re.IGNORECASE)


def _clause(text: str) -> str | None:
    """Read the answer that follows a phrase; None if what follows is prose or a hedge."""
    text = text.lstrip(" \t\n*:：=")
    math = _MATH.match(text)
    if math is not None:
        sentence = _SENTENCE.match(text, math.end())
        rest = sentence[0] if sentence else ""
        if _HEDGE.search(rest):
            return None
        if not re.search(r"\b(?:and|or)\b|,\s*[$\\\d]", rest):
            unit = rest.strip(" *")
            plain = _inner(math)
            return f"{plain} \\text{{ {unit}}}" if re.fullmatch(r"[A-Za-z%]{1,12}", unit) else plain
    sentence = _SENTENCE.match(text)
    line = sentence[0].strip(" \t*") if sentence else ""
    if not line or _HEDGE.search(line):
        return None
    line = _LEAD.sub("", line)
    found = _MATH.match(line)
    if found is not None and not line[found.end() :].strip(" *.,!"):
        return _inner(found)
    words = len(re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", line))
    return _undelimited(line) if line and words <= 4 and len(line) <= 120 else None


def _inner(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()


def _undelimited(text: str) -> str:
    """Strip the emphasis and the math delimiters around a whole answer."""
    if len(text) > 2000:
        return text
    text = text.strip().strip("*").strip().rstrip("!")
    match = _MATH.fullmatch(text.rstrip(" ."))
    return _inner(match) if match is not None else text


_BARE: Final = re.compile(r"[^\n]{1,120}")


def _bare(body: str) -> Extracted | None:
    """Take a response that is nothing but an answer, as the no-think prompt asks for."""
    text = body.strip()
    if not _BARE.fullmatch(text) or _HEDGE.search(text) or "box" in text or text[0] in "#<":
        return None
    text = _undelimited(text.rstrip("."))
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", text)
    plain = any(c.isalnum() for c in text) and len(words) <= 2
    return Extracted(text, "bare") if plain else None


_CLOSING: Final = re.compile(
    r"(?:therefore|thus|hence|so|consequently|in conclusion)\b[^.\n]*?(?:\bis\b|\bare\b|=)\s*"
    r"(?P<value>(?:[^.\n=]|\.(?=\d))+)\.$",
    re.IGNORECASE,
)


def _closing(body: str) -> Extracted | None:
    """Find a last sentence that concludes with a value and a full stop: "Therefore x = 7."."""
    text = body.rstrip(" \n*$")
    tail = text[-300:]
    sentence = re.split(r"(?<=[.!?])\s+|\n", tail)[-1]
    match = _CLOSING.match(sentence.strip("* "))
    if match is None or _HEDGE.search(sentence) or re.search(r"\b(?:or|if)\b", sentence):
        return None
    text = _undelimited(match["value"].strip(" $"))
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", text)
    return Extracted(text, "closing") if any(map(str.isdigit, text)) and len(words) <= 2 else None
