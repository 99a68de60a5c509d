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

from rlbhpc.problems.record import content_of_braces
from rlbhpc.report.markup import Node, el, note

#: So many characters of a text are shown, and so many formulas of it are drawn.
MAX_CHARACTERS: Final = 200_000
MAX_FORMULAS: Final = 200
# A formula or a program that is longer stands as it was written.
_FORMULA_CHARACTERS: Final = 2000
_CODE_CHARACTERS: Final = 10_000
_MAX_DEPTH: Final = 50

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
_CODE_OR_FORMULA: Final = re.compile(f"{_CODE}|{_BLOCK}|{_INLINE}", re.DOTALL | re.MULTILINE)
_STATED_ANSWER: Final = re.compile(r"<answer>[^<]*</answer>|#### [^\n]+")
_PYTHON_LANGUAGES: Final = {"python", "py", "python3"}

_MATHML_ELEMENTS: Final = set(
    "math mrow mi mn mo mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover "
    "mtable mtr mtd mstyle menclose mphantom mpadded".split()
)
_MATHML_ATTRIBUTES: Final = {
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
_ALIGNED_EQUATIONS: Final = re.compile(r"\\(begin|end)\{(?:align|aligned|split|gathered)\*?\}")


class Span(NamedTuple):
    """A stretch of a text, from one character up to another."""

    start: int
    stop: int


def answer_span(text: str, answer: str) -> Span | None:
    """Return where a text states its answer; None if it doesn't seem to.

    That is its last box, or else its last tag or marker, or else the last place where ``answer``,
    the extracted one, stands. The store keeps the answer and not the place, so this is a guess for
    the eye.
    """
    box = text.rfind("\\boxed{")
    if box >= 0:
        opening_brace = box + len("\\boxed")
        content = content_of_braces(text, opening_brace)
        if content is None:
            return Span(box, len(text))
        return Span(box, opening_brace + len(content) + len("{}"))
    stated_answers = list(_STATED_ANSWER.finditer(text))
    if stated_answers:
        return Span(*stated_answers[-1].span())
    start = text.rfind(answer) if answer else -1
    return Span(start, start + len(answer)) if start >= 0 else None


def rich(text: str, answer: str | None = None) -> Markup:
    """Return a question or a response as markup, with its thoughts folded and its answer marked.

    ``answer``: the answer as it was read from a response; None for a text that answers nothing.
    ``el`` makes an element from a tag and its content. A *passage* is a thought or the text between
    thoughts; the answer is sought in the last one. All of the text is escaped.
    """
    passages = list(_split_thoughts(text[:MAX_CHARACTERS]))
    elements: list[ET.Element] = []
    for passage in passages:
        if passage.is_thought:
            title = f"Thoughts, {len(passage.text):,} characters"
            elements.append(el("details", el("summary", title), el("pre", passage.text)))
        elif passage.text.strip():
            mark = None
            if answer is not None and passage is passages[-1]:
                mark = answer_span(passage.text, answer)
            elements.append(el("div", *_render(passage.text, mark or Span(0, 0)), class_="text"))
    if len(text) > MAX_CHARACTERS:
        hidden = len(text) - MAX_CHARACTERS
        elements.append(note(f"{hidden:,} characters more are not shown here."))
    return Markup(
        "".join(ET.tostring(element, encoding="unicode", method="html") for element in elements)
    )


class _Passage(NamedTuple):
    """A stretch of a response that is a thought, or one that isn't."""

    text: str
    is_thought: bool


def _split_thoughts(text: str) -> Iterator[_Passage]:
    """Split a response at its think tags into passages, each a thought or not.

    A closing tag without an opening one ends a thought that the prompt has opened. An opening tag
    within a thought is text.
    """
    start = 0
    is_thought = False
    for tag in _THINK.finditer(text):
        is_closing = tag[1] == "/"
        if is_closing or not is_thought:
            yield _Passage(text[start : tag.start()], is_thought=is_closing)
            start = tag.end()
        is_thought = not is_closing
    yield _Passage(text[start:], is_thought)


def _render(text: str, mark: Span) -> Iterator[Node]:
    """Yield plain text, formulas and programs in their order, with the stretch ``mark`` marked.

    ``el`` makes an element from a tag and its content. Each match is a program in a fence, a
    formula on its own (group ``bracket`` or ``dollars``) or one within a line (``round`` or
    ``dollar``). A formula that can't be drawn, or is one too many, stands as it was written.
    """
    end = 0
    formula_count = 0
    for match in _CODE_OR_FORMULA.finditer(text):
        yield from _render_plain(text, Span(end, match.start()), mark)
        end = match.end()
        if match["code"] is not None:
            yield el("pre", *_highlight(match["code"], match["language"]), class_="code")
            continue
        formula_count += 1
        shown: Node = match[0]
        if formula_count <= MAX_FORMULAS:
            block_source = match["bracket"] or match["dollars"]
            source = block_source or match["round"] or match["dollar"]
            drawn = _draw_formula(source, is_block=block_source is not None)
            if drawn is not None:
                shown = el("span", drawn, title=match[0])
        is_marked = mark.start < match.end() and match.start() < mark.stop
        yield el("mark", shown) if is_marked else shown
    yield from _render_plain(text, Span(end, len(text)), mark)


def _render_plain(text: str, span: Span, mark: Span) -> Iterator[Node]:
    """Yield the text of a span in up to three pieces: before the mark, marked, and behind it.

    A span is a start and a stop in the text. The mark is cut to this span and may be empty.
    """
    mark_start = min(max(mark.start, span.start), span.stop)
    mark_stop = min(max(mark.stop, mark_start), span.stop)
    yield text[span.start : mark_start]
    if mark_stop > mark_start:
        yield el("mark", text[mark_start:mark_stop])
    yield text[mark_stop : span.stop]


# Tokens that are coloured, by the first letter of pygments' short names: keywords, strings,
# numbers and comments.
_COLOURED_TOKENS: Final = set("ksmc")


def _highlight(code: str, language: str) -> Iterator[Node]:
    """Colour the tokens of a Python program; code of another language stays as it is.

    ``el`` makes an element from a tag and its content. A token's type has a short name, such as
    ``kn`` for a keyword, whose first letter decides the colour. Tokens of other types stay plain
    text.
    """
    if language.lower() not in _PYTHON_LANGUAGES or len(code) > _CODE_CHARACTERS:
        yield code
        return
    for token_type, token in PythonLexer().get_tokens(code):
        letter = STANDARD_TYPES.get(token_type, "")[:1]
        yield el("span", token, class_=f"code-{letter}") if letter in _COLOURED_TOKENS else token


@lru_cache(maxsize=4096)
def _draw_formula(source: str, is_block: bool) -> ET.Element | None:
    """Return a formula, written in LaTeX, as an element of MathML; None if it can't be read.

    ``is_block``: whether it stands on its own rather than within a line. The converter knows no
    aligned equations, so they are drawn as matrices.
    """
    if len(source) > _FORMULA_CHARACTERS:
        return None
    readable = _ALIGNED_EQUATIONS.sub(r"\\\1{matrix}", source)
    try:
        element = convert_to_element(readable, display="block" if is_block else "inline")
        return _copy_allowed(element, _MAX_DEPTH)
    except Exception:
        # Models write formulas that no parser expects, and it raises whatever comes of them.
        return None


def _copy_allowed(element: ET.Element, max_depth: int) -> ET.Element:
    """Copy a MathML element without what isn't on the lists: addresses, styles and sizes stay out.

    An element that isn't allowed becomes a plain row (``mrow``) with the same content.
    ``max_depth``: how many levels of elements may follow.
    """
    if max_depth == 0:
        raise ValueError("nested too deep to be drawn")
    tag = element.tag if element.tag in _MATHML_ELEMENTS else "mrow"
    text = _ENTITY.sub(lambda entity: chr(int(entity[1], 16)), element.text or "")
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if value in _MATHML_ATTRIBUTES.get(name, ())
    }
    children = [_copy_allowed(child, max_depth - 1) for child in element]
    return el(tag, text, *children, **attributes)
