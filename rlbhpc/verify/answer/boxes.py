r"""Boxes: where they close, which of them are one answer, and what around a box belongs to it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Box(NamedTuple):
    """What a box holds, and where it begins and ends in its text."""

    text: str
    start: int
    end: int


_MOST_JOINED: Final = 16
# A box whose braces nest four deep at most; its alternatives begin differently, so it is linear.
_PLAIN: Final = r"[^{}\\]++|\\."
_NESTED: Final = rf"\{{(?:{_PLAIN}|\{{(?:{_PLAIN}|\{{(?:{_PLAIN})*+\}})*+\}})*+\}}"
FLAT_BOX: Final = re.compile(rf"\\boxed\{{((?:{_PLAIN}|{_NESTED})*+)\}}", re.DOTALL)


def last_box(text: str) -> Box | None:
    """Return the last balanced box, joined with its neighbours where they form one answer."""
    if "box" not in text:
        return None
    boxes = _balanced_boxes(text)
    filled = [box for box in boxes if box.text.strip()]
    if not filled:
        return None if boxes else _box_without_braces(text)
    joined, separators = [filled[-1]], [""]
    for box in reversed(filled[-_MOST_JOINED:-1]):
        separator = joins(text[box.end : joined[0].start])
        if separator is None:
            break
        if box.text.strip() == joined[0].text.strip():
            joined[0] = joined[0]._replace(start=box.start)
        else:
            joined.insert(0, box)
            separators.insert(0, separator)
    start, end = joined[0].start, filled[-1].end
    if len(joined) == 1:
        return Box(joined[0].text.strip(), start, end)
    names = [_name_before(text, box.start) for box in joined]
    if not all(names):
        names = [""] * len(joined)
    answer = ""
    for name, box, separator in zip(names, joined, separators, strict=True):
        answer += name + box.text.strip() + separator
    is_open, following = text[:start].rstrip("$ ").endswith("("), text[end:].lstrip("$ ")
    is_point = is_open and following.startswith((")", "\\right)"))
    return Box(f"({answer})" if is_point else answer, start, end)


_NAME: Final = re.compile(r"(?<![A-Za-z\\])([A-Za-z](?:_\d+)?\s*=)\s*\$?\s*$")


def _name_before(text: str, start: int) -> str:
    """Return the ``x =`` that stands right before a box, if one does."""
    match = _NAME.search(text, max(0, start - 20), start)
    return "" if match is None else match[1]


_BRACES: Final = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{|\\.|[{}]", re.DOTALL)


def _balanced_boxes(text: str) -> list[Box]:
    """Find every box whose brace closes, in order, a box around a box left out: one pass."""
    boxes: list[Box] = []
    # Where each open brace and its content begin; a plain brace begins nowhere.
    open_braces: list[tuple[int, int] | None] = []
    first = min((at for name in ("\\boxed", "\\fbox") if (at := text.find(name)) >= 0), default=-1)
    for token in _BRACES.finditer(text, first if first >= 0 else len(text)):
        if token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}":
            opening = open_braces.pop() if open_braces else None
            if opening is None:
                continue
            start, content = opening
            if boxes and boxes[-1].start > start:
                # An inner box is the answer; the outer one only says where it ends.
                boxes[-1] = boxes[-1]._replace(end=token.end())
            else:
                boxes.append(Box(text[content : token.start()], start, token.end()))
        elif len(token[0]) > 2:
            open_braces.append((token.start(), token.end()))
    return boxes


_BRACELESS: Final = re.compile(r"\\boxed\s*([^\s{}$][^\n$]{0,200})")


def _box_without_braces(text: str) -> Box | None:
    r"""``\boxed 7`` and ``\boxed\frac12``: a box up to the end of its formula."""
    position = text.rfind("\\boxed")
    match = _BRACELESS.match(text, position) if position >= 0 else None
    if match is None:
        return None
    answer = match[1] if match[1].startswith("\\") else match[1].split()[0]
    answer = answer.split("\\)")[0].split("\\]")[0].rstrip(" .,;:!*")
    return Box(answer, position, match.end()) if answer else None


_NO_WORDS: Final = re.compile(
    r"\\(?:quad|qquad|text|textrm|mathrm|mbox|left|right|[,;:!\s()\[\]])|[\s${}*~]+"
)
_LABEL: Final = re.compile(
    r"\(?(?:[a-h]|i{1,3}|iv|v|\d)\)|[A-Za-z](?:_\d+)?="
    r"|(?:second|third|fourth)(?:root|solution|value|number|part)(?:is|:)"
)
_AND: Final = re.compile(r"(?:[,;&]|and)*")
_OR: Final = re.compile(r",?or,?")


def joins(between: str) -> str | None:
    """Say how two boxes join, or None if the later one stands alone.

    They join when nothing but ``and``, ``or``, a comma or a label stands between them: any other
    word, and the end of a sentence, makes the later box the answer.
    """
    if len(between) > 80:
        return None
    words = _LABEL.sub(",", _NO_WORDS.sub("", between))
    if _AND.fullmatch(words):
        return ", "
    return r" \text{ or } " if _OR.fullmatch(words) else None


# --- what stands around a box --------------------------------------------------------------------

_UNIT: Final = re.compile(
    r"[$\s]*(?:\\text\{\s*|\\[,;: ]\s*)*"
    r"(\\?%|(?:percent|dozen|hundred|thousand|million|billion|seconds|minutes|hours|days|weeks|months|"
    r"years|dollars|cents|degrees|radians|[km]?grams|"
    r"(?:(?:square|cubic)\s+)?(?:inches|feet|miles|yards|(?:centi|milli|kilo)?met(?:er|re)s)|"
    r"[ckm]m|kg|[ck]?m/(?:s|h|min)|mph)\b(?!\s*[\^/]|\s+(?:and|of|per|more|less|point|squared|cubed)))"
)
# A factor, a power or a constant that the formula goes on with: "$\\boxed{5}\\times 10^3$".
_FACTOR: Final = re.compile(
    r"\s*((?:\+(?=\s*[CKck]\s*[$\\])|\\times|\\cdot|\\(?:pi|sqrt)(?![A-Za-z])|"
    r"\^(?!\{?(?:\*|\\dagger)))[^$\n=]{0,40}?)(?:\$|\\[)\]])"
)
# One with a space at the start of a line is a bullet.
_MINUS: Final = re.compile(r"[=$(\[]\s*-\s*$|^\s*-$", re.MULTILINE)
_IN_TEN: Final = re.compile(r"\b(?:in|to)\s+(?:base[\s-]*(?:10|ten)|decimal)\b[^.\n]*$")


def suffix_of_box(following: str) -> str:
    """Return the unit, the percent sign or the factor right behind a box, as text to add to it."""
    unit = _UNIT.match(following)
    if unit is not None:
        return r"\%" if unit[1].endswith("%") else rf" \text{{ {unit[1]}}}"
    factor = _FACTOR.match(following)
    return "" if factor is None else f" {factor[1]}"


def with_surroundings(text: str, start: int, answer: str, suffix: str) -> str:
    """Join what a box holds with the minus sign before it, its base, and what follows it."""
    before = text[max(0, start - 60) : start]
    if before.endswith(("-", "- ")) and not answer.startswith("-") and _MINUS.search(before):
        is_sum = "+" in answer or "-" in answer
        answer = f"-({answer})" if is_sum else f"-{answer}"
    elif answer.isdecimal() and ("base" in before or "decimal" in before):
        answer = f"{answer}_{{10}}" if _IN_TEN.search(before) else answer
    return answer + suffix
