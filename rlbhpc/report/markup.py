"""HTML as a tree of elements, so that no text can ever become markup.

Whatever is put in as text or as a value of an attribute is escaped when the tree is written.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from rlbhpc.report.phrases import file_number, printable
from rlbhpc.stats.interval import without_noise

Node = ET.Element | str
#: What a cell of a table may hold.
Cell = Node | int | float | None

_SIGNIFICANT_DIGITS: Final = 4
_DASH: Final = "–"


def el(tag: str, *children: Node, **attributes: str) -> ET.Element:
    """Make an HTML element. ``class_`` stands for ``class``, and ``_`` in names for ``-``.

    ``children``: elements and texts, in their order. ``printable`` replaces characters that move a
    cursor, hide or reorder text.
    """
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    element = ET.Element(tag, names)
    for child in children:
        if not isinstance(child, str):
            element.append(child)
            continue
        text = printable(child, lines=True)
        # ElementTree keeps a text with the element that stands before it.
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text
    return element


def note(*children: Node) -> ET.Element:
    """A paragraph in a soft colour: how to read what stands above it."""
    return el("p", *children, class_="soft")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    wide: Sequence[int] = (),
    last: bool = False,
) -> ET.Element:
    """Make a sortable table of :data:`Cell`, which scrolls where it is wider than the page.

    Numbers sort by value and stand to the right; columns numbered in ``wide`` may break their
    lines. The first column stays in sight while the others scroll, and with ``last`` the last one
    too. ``el`` makes an HTML element.
    """
    head, body = el("tr"), [el("tr") for _ in rows]
    for i, name in enumerate(heads):
        column = [row[i] for row in rows]
        alignment = "text" if any(map(_is_text, column)) else "number"
        head.append(el("th", name, scope="col", class_=alignment))
        css_class = "text wide" if i in wide else alignment
        for line, value in zip(body, column, strict=True):
            line.append(_cell(value, css_class))
    inner = el(
        "table",
        el("caption", caption),
        el("thead", head),
        el("tbody", *body),
        class_="sortable last" if last else "sortable",
    )
    return el("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


#: A number as it is printed: with its sign, interval and mark of doubt, or a dash.
_NUMBER: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)(?: \[.*\])?(?: \?)?\*?$")


def _is_text(value: Cell) -> bool:
    if isinstance(value, str):
        return value not in {"", _DASH} and _NUMBER.match(value) is None
    return isinstance(value, ET.Element)


def _cell(value: Cell, css_class: str) -> ET.Element:
    """A cell of a table as HTML; ``data-value`` is what the column is sorted by.

    A number within a text, such as ``31.2 [18.0, 45.0]``, sorts by itself. ``file_number`` rounds
    to six digits.
    """
    if isinstance(value, ET.Element):
        return el("td", value, class_=css_class)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return el("td", _DASH, class_=css_class, data_value="")
    if isinstance(value, bool):
        return el("td", "yes" if value else "no", class_=css_class)
    if isinstance(value, str):
        number = _NUMBER.match(value)
        sort_value = {"data_value": number[1]} if number else {}
        return el("td", value, class_=css_class, **sort_value)
    if isinstance(value, float):
        text = f"{float(without_noise(value)):.{_SIGNIFICANT_DIGITS}g}"
        return el("td", text, class_=css_class, data_value=repr(file_number(value)))
    return el("td", f"{value:,}", class_=css_class, data_value=str(value))


def document(title: str, body: Sequence[Node]) -> str:
    """Write a whole HTML page. Nothing is loaded and nothing runs but the script that came with it.

    The content security policy tells the browser so: it allows one style and one script, by the
    hash of their text. ``el`` makes an HTML element.
    """
    folder = files("rlbhpc.report")
    css = folder.joinpath("page.css").read_text()
    js = folder.joinpath("page.js").read_text()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash_source(css)}'; script-src '{_hash_source(js)}'"
    )
    style, script = ET.Element("style"), ET.Element("script")
    style.text, script.text = css, js
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        style,
    )
    # The script is at the end, since it works on the elements before it.
    html = el("html", head, el("body", *body, script), lang="en")
    return "<!doctype html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"


def _hash_source(text: str) -> str:
    """The hash of a style or script by which the page's policy allows it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
