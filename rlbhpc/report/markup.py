"""HTML as a tree of elements, so that no text can ever become markup.

Whatever is put in as text or as a value of an attribute is escaped when the tree is written.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from rlbhpc.report.phrases import file_number, printable
from rlbhpc.stats.interval import without_noise

Node = ET.Element | str
#: What a cell of a table may hold.
Cell = Node | int | float | None

_DIGITS: Final = 4


def el(tag: str, *children: Node, **attributes: str) -> ET.Element:
    """Make an element. ``class_`` stands for ``class``, and ``_`` in names for ``-``."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    element = ET.Element(tag, names)
    for child in children:
        if isinstance(child, str):
            text = printable(child, lines=True)
            if len(element):
                element[-1].tail = (element[-1].tail or "") + text
            else:
                element.text = (element.text or "") + text
        else:
            element.append(child)
    return element


def note(*children: Node) -> ET.Element:
    """A paragraph in a soft colour: how to read what stands above it."""
    return el("p", *children, class_="soft")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    wide: Sequence[int] = (),
    last: bool = False,
) -> ET.Element:
    """Make a sortable table that scrolls by itself where it is wider than the page.

    Numbers sort by value and stand to the right; ``wide`` columns may break their lines. The first
    column stays in sight while the others scroll, and with ``last`` the last one too.
    """
    body = [list(row) for row in rows]
    text = [any(_is_text(row[i]) for row in body) for i in range(len(heads))]
    head = (
        el("th", name, scope="col", class_="text" if is_text else "number")
        for name, is_text in zip(heads, text, strict=True)
    )
    lines = (
        el("tr", *(_cell(value, text[i], i in wide) for i, value in enumerate(row))) for row in body
    )
    inner = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *head)),
        el("tbody", *lines),
        class_="sortable last" if last else "sortable",
    )
    return el("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


#: A number as it is printed: with its sign, interval and mark of doubt, or a dash.
_NUMBER: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)(?: \[.*\])?(?: \?)?\*?$")


def _is_text(value: Cell) -> bool:
    if isinstance(value, str):
        return value not in {"", "–"} and _NUMBER.match(value) is None
    return isinstance(value, ET.Element)


def _cell(value: Cell, text: bool, wide: bool) -> ET.Element:
    kind = "text wide" if wide else "text" if text else "number"
    if isinstance(value, ET.Element):
        return el("td", value, class_=kind)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return el("td", "–", class_=kind, data_value="")
    if isinstance(value, bool):
        return el("td", "yes" if value else "no", class_=kind)
    if isinstance(value, str):
        number = _NUMBER.match(value)
        return el("td", value, class_=kind, **({"data_value": number[1]} if number else {}))
    if isinstance(value, float):
        shown = f"{float(without_noise(value)):.{_DIGITS}g}"
        return el("td", shown, class_=kind, data_value=repr(file_number(value)))
    return el("td", f"{value:,}", class_=kind, data_value=str(value))


def document(title: str, body: Sequence[Node]) -> str:
    """Write a whole page. Nothing is loaded and nothing runs but the script that came with it."""
    folder = files("rlbhpc.report")
    css, js = (folder.joinpath(name).read_text() for name in ("page.css", "page.js"))
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(css)}'; script-src '{_hash(js)}'"
    )
    head = el("head")
    head.append(el("meta", charset="utf-8"))
    head.append(el("meta", http_equiv="Content-Security-Policy", content=policy))
    head.append(el("meta", name="viewport", content="width=device-width, initial-scale=1"))
    head.append(el("meta", name="referrer", content="no-referrer"))
    head.append(el("title", title))
    style = ET.SubElement(head, "style")
    style.text = css
    script = ET.Element("script")
    script.text = js  # at the end: it works on what stands before it
    html = el("html", head, el("body", *body, script), lang="en")
    return "<!doctype html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
