"""Text of a model as elements of a page: formulas, code, folded thoughts, the marked answer.

Whatever a model wrote ends as text of an element, or of MathML that holds nothing but the elements
and attributes named here. Nothing of it becomes markup, a style or an address.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from latex2mathml.converter import convert_to_element
from markupsafe import Markup
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES

from rlbhpc.report.markup import Node, el, note

#: Characters of a text that are shown, and formulas of it that are drawn.
CHARACTERS: Final = 200_000
FORMULAS: Final = 200
# A formula or a program that is longer stands as it was written.
_FORMULA_CHARACTERS: Final = 2000
_CODE_CHARACTERS: Final = 10_000
_DEPTH: Final = 50

_THINK: Final = re.compile(r"<(/?)think(?:ing)?>")
_CODE: Final = r"^```(?P<language>\w*)[^\n]{0,40}\n(?P<code>.*?)(?:^```|\Z)"
_BLOCK: Final = (
    rf"\\\[(?P<bracket>(?:(?!\\\[).){{1,{_FORMULA_CHARACTERS}}}?)\\\]"
    rf"|\$\$(?P<dollars>[^$]{{1,{_FORMULA_CHARACTERS}}})\$\$"
)
# "$5 and $6" are two prices: no space stands inside of the signs of a formula, no digit behind.
_INLINE: Final = (
    rf"\\\((?P<round>(?:(?!\\\().){{1,{_FORMULA_CHARACTERS}}}?)\\\)"
    rf"|\$(?P<dollar>(?![\s$])[^$\n]{{1,{_FORMULA_CHARACTERS}}}(?<!\s))\$(?!\d)"
)
_RICH: Final = re.compile(f"{_CODE}|{_BLOCK}|{_INLINE}", re.DOTALL | re.MULTILINE)
_STATED: Final = re.compile(r"<answer>[^<]*</answer>|#### [^\n]+")
_BRACES: Final = re.compile(r"\\.|[{}]", re.DOTALL)
_PYTHON: Final = {"python", "py", "python3"}

_MATHML: Final = set(
    "math mrow mi mn mo mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover "
    "mtable mtr mtd mstyle menclose mphantom mpadded".split()
)
_ATTRIBUTES: Final = {
    "display": {"block", "inline"},
    "linethickness": {"0"},
    "columnalign": {"left", "right", "center"},
    "stretchy": {"true", "false"},
    "fence": {"true", "false"},
    "displaystyle": {"true", "false"},
    "mathvariant": {"normal", "bold", "italic", "bold-italic", "double-struck", "script"},
}
# The converter leaves signs as entities, and knows matrices but no aligned equations.
_ENTITY: Final = re.compile(r"&#x([0-9A-Fa-f]{1,5});")
_ALIGNED: Final = re.compile(r"\\(begin|end)\{(?:align|aligned|split|gathered)\*?\}")


class Span(NamedTuple):
    """Where in a text something stands."""

    start: int
    stop: int


def answer_span(text: str, answer: str) -> Span | None:
    """Where a text states its answer: its last box, tag or marker, else where the answer is last.

    The store keeps the answer and the rule, not the place; so this is for the eye alone.
    """
    box = text.rfind("\\boxed{")
    if box >= 0:
        return Span(box, _closing_brace(text, text.index("{", box)))
    stated = [match.span() for match in _STATED.finditer(text)]
    if stated:
        return Span(*stated[-1])
    place = text.rfind(answer) if answer else -1
    return Span(place, place + len(answer)) if place >= 0 else None


def _closing_brace(text: str, opening: int) -> int:
    """The place behind the brace that closes an opening one; the end of the text if none does."""
    depth = 0
    for brace in _BRACES.finditer(text, opening):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.end()
    return len(text)


def rich(text: str, answer: str | None = None) -> Markup:
    """Show a question, or a response with what was thought folded and its answer marked.

    ``answer``: the answer as it was read from a response; None for a text that answers nothing.
    """
    stretches = list(_stretches(text[:CHARACTERS]))
    nodes: list[ET.Element] = []
    for i, (is_thought, stretch) in enumerate(stretches):
        if is_thought:
            head = f"Thoughts, {len(stretch):,} characters"
            nodes.append(el("details", el("summary", head), el("pre", stretch)))
        elif stretch.strip():
            states = answer is not None and i == len(stretches) - 1
            mark = answer_span(stretch, answer or "") if states else None
            nodes.append(el("div", *_pieces(stretch, mark or Span(0, 0)), class_="text"))
    if len(text) > CHARACTERS:
        nodes.append(note(f"{len(text) - CHARACTERS:,} characters more are not shown here."))
    return Markup("".join(ET.tostring(node, encoding="unicode", method="html") for node in nodes))


def _stretches(text: str) -> Iterator[tuple[bool, str]]:
    """What was thought and what was said, in turn; a prompt may have opened the first thought."""
    start = 0
    is_thought = False
    for tag in _THINK.finditer(text):
        closes = tag[1] == "/"
        if closes or not is_thought:
            yield closes, text[start : tag.start()]
            start = tag.end()
        is_thought = not closes
    yield is_thought, text[start:]


def _pieces(text: str, mark: Span) -> Iterator[Node]:
    """Plain text, formulas and programs in their order."""
    place = 0
    formulas = 0
    for match in _RICH.finditer(text):
        yield from _plain(text, Span(place, match.start()), mark)
        place = match.end()
        if match["code"] is not None:
            yield el("pre", *_code(match["code"], match["language"]), class_="code")
            continue
        block = match["bracket"] or match["dollars"]
        formulas += 1
        drawn = None
        if formulas <= FORMULAS:
            drawn = _formula(block or match["round"] or match["dollar"], block is not None)
        shown = match[0] if drawn is None else el("span", drawn, title=match[0])
        marked = mark.start < match.end() and match.start() < mark.stop
        yield el("mark", shown) if marked else shown
    yield from _plain(text, Span(place, len(text)), mark)


def _plain(text: str, span: Span, mark: Span) -> Iterator[Node]:
    """A stretch of plain text, cut where the mark begins and ends."""
    start = min(max(mark.start, span.start), span.stop)
    stop = min(max(mark.stop, start), span.stop)
    yield text[span.start : start]
    if stop > start:
        yield el("mark", text[start:stop])
    yield text[stop : span.stop]


def _code(code: str, language: str) -> Iterator[Node]:
    if language.lower() not in _PYTHON or len(code) > _CODE_CHARACTERS:
        yield code
        return
    for token, value in PythonLexer().get_tokens(code):
        # The first letter of the usual short names: keyword, name, string, comment, number.
        short = STANDARD_TYPES.get(token, "")[:1]
        yield el("span", value, class_=f"code-{short}") if short in set("ksmc") else value


@lru_cache(maxsize=4096)
def _formula(source: str, block: bool) -> ET.Element | None:
    """Draw a formula; None where the converter cannot read it."""
    if len(source) > _FORMULA_CHARACTERS:
        return None
    known = _ALIGNED.sub(r"\\\1{matrix}", source)
    try:
        drawn = convert_to_element(known, display="block" if block else "inline")
        return _mathml(drawn, _DEPTH)
    except Exception:
        # Models write formulas that no parser expects, and it raises whatever comes of them.
        return None


def _mathml(element: ET.Element, depth: int) -> ET.Element:
    """Copy what is on the list: a formula can name addresses, styles and sizes, which stay out."""
    if depth == 0:
        raise ValueError("nested too deep to be drawn")
    tag = element.tag if element.tag in _MATHML else "mrow"
    text = _ENTITY.sub(lambda entity: chr(int(entity[1], 16)), element.text or "")
    attributes = {
        name: value for name, value in element.attrib.items() if value in _ATTRIBUTES.get(name, ())
    }
    children = [_mathml(child, depth - 1) for child in element]
    return el(tag, text, *children, **attributes)
