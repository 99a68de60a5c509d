"""A chart as SVG whose letters keep their size at any width.

The data stand in a nested drawing that is stretched, its lines as thick as ever. Ticks and names
are texts at percentages of the width. So a figure is as good on a telephone as on a poster, needs
no script, and holds each number once.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

import numpy as np

from rlbhpc.report.chart import Area, Chart, Dots, Key, Label, Mark, Panel, Stroke, spread_heights
from rlbhpc.report.markup import Node, el
from rlbhpc.report.phrases import FloatArray
from rlbhpc.stats.interval import without_noise

# Units of the stretched drawing along both sides.
_SIDE: Final = 1000
# Pixels: width of a wide letter of a wide face, and height of a line of names.
_LETTER_WIDTH: Final = 6.7
_LINE_HEIGHT: Final = 14
# Room for the names of curves comes in steps of so many pixels, a class of the style sheet each.
_ROOM_STEP: Final = 8
_EMPTY_ROOM: Final = 3
# Letters that fit: of the name of a curve, and of the head of a row on a telephone.
_NAME_LETTERS: Final = 20
_ROW_LETTERS: Final = 52
_NO_PATH: Final = "M0 0"
_ZERO_DECIMAL: Final = re.compile(r"\.0(?!\d)")


def figure(caption: str, chart: Chart) -> ET.Element:
    """Put a chart with its legend and caption into the page, as an HTML element.

    ``el`` makes an element.
    """
    panels = el("div", class_="panels many" if len(chart.panels) > 1 else "panels")
    for panel in chart.panels:
        title = [el("p", panel.title, class_="title")] if panel.title else []
        panels.append(el("div", *title, _panel(panel)))
    legend = [_legend(chart.legend)] if chart.legend else []
    return el("figure", *legend, panels, el("figcaption", caption))


def _legend(keys: tuple[Key, ...]) -> ET.Element:
    """The legend of a chart as an HTML list: a short line in each colour, and its name.

    ``key``: name, colour and dashes of one curve. ``el`` makes an HTML element.
    """
    entries = []
    for key in keys:
        line = el("path", d="M0 6h22", stroke=key.colour, stroke_width="2.5")
        if key.dash:
            line.set("stroke-dasharray", key.dash)
        swatch = el("svg", line, width="22", height="12", aria_hidden="true")
        entries.append(el("li", swatch, el("span", key.name)))
    return el("ul", *entries, class_="legend")


def _panel(panel: Panel) -> ET.Element:
    """Draw a panel as SVG: grid, data, texts, and the names of curves at their ends.

    The data stand in a drawing of its own that is stretched to the panel; texts stand outside of it
    and keep their size. A panel without ticks at y is a chart of rows. ``el`` makes an element.
    """
    marks = [_mark(panel, mark) for mark in panel.marks if not isinstance(mark, Label)]
    data = el(
        "svg", *marks, *_hints(panel), class_="data", viewBox=f"0 0 {_SIDE} {_SIDE}",
        preserveAspectRatio="none", width="100%", height="100%", overflow="visible",
    )  # fmt: skip
    # The style sheet leaves no room on the left of a chart of rows.
    rows = " rows" if not panel.y.ticks else ""
    return el(
        "svg", *_grid(panel), data, *_texts(panel), *_end_names(panel),
        class_=f"plot room{_room_for_names(panel)}{rows}", height=str(panel.height + 60),
        role="img", aria_label=panel.title or panel.y.label or panel.x.label,
    )  # fmt: skip


def _room_for_names(panel: Panel) -> int:
    """Steps of room on the right of a panel for the names of its curves."""
    if not panel.ends:
        return _EMPTY_ROOM
    longest = max(len(_shorten(end.name, _NAME_LETTERS)) for end in panel.ends)
    return math.ceil(int(20 + _LETTER_WIDTH * longest) / _ROOM_STEP)


def _grid(panel: Panel) -> Iterator[Node]:
    """Yield the lines of the grid: at the ticks of y, or of x where y has none; and the x axis.

    ``_from_top, _from_left``: where a value lies, in percent of the panel. ``el`` makes an element.
    """
    for value, _ in panel.y.ticks:
        height = _from_top(panel, value)
        yield el("line", x1="0", x2="100%", y1=height, y2=height, class_="grid")
    if not panel.y.ticks:
        for value, _ in panel.x.ticks:
            x = _from_left(panel, value)
            yield el("line", x1=x, x2=x, y1="0", y2="100%", class_="grid")
    yield el("line", x1="0", x2="100%", y1="100%", y2="100%", class_="axis")


def _texts(panel: Panel) -> Iterator[Node]:
    """Yield ticks, axis labels, and the labels among the marks, as SVG texts.

    ``_from_top, _from_left``: where a value lies, in percent of the panel. ``dx, dy``: offsets in
    pixels or in letter heights (em). ``el`` makes an element.
    """
    for value, text in panel.y.ticks:
        height = _from_top(panel, value)
        yield el("text", text, x="0", y=height, dx="-6", dy=".32em", text_anchor="end")
    for value, text in panel.x.ticks:
        x = _from_left(panel, value)
        yield el("text", text, x=x, y="100%", dy="1.3em", text_anchor="middle")
    if panel.y.label:
        yield el("text", panel.y.label, x="0", y="0", dx="-34", dy="-.8em")
    if panel.x.label:
        yield el("text", panel.x.label, x="50%", y="100%", dy="2.7em", text_anchor="middle")
    for mark in panel.marks:
        if isinstance(mark, Label):
            yield el(
                "text", *_short_text(mark.text, _ROW_LETTERS), x=_from_left(panel, mark.x),
                y=_from_top(panel, mark.y), dy=f"{mark.rise:g}", text_anchor="start",
            )  # fmt: skip


def _end_names(panel: Panel) -> Iterator[Node]:
    """Yield the names of curves, each where its curve ends, moved apart where they would overlap.

    Heights and places are shares of the panel's height, 0 at the bottom. A square before the name
    has the curve's colour. A name too long is cut, and the full one shows to a pointer.
    """
    heights = {end: float(panel.y.place(end.y)) for end in panel.ends}
    ends = sorted(panel.ends, key=lambda end: (heights[end], _shorten(end.name, _NAME_LETTERS)))
    distance = _LINE_HEIGHT / panel.height
    places = spread_heights([heights[end] for end in ends], distance, 0.0, 1.0)
    for end, place in zip(ends, places.tolist(), strict=True):
        square = el("tspan", "■", fill=end.colour)
        name, *full_name = _short_text(end.name, _NAME_LETTERS)
        yield el("text", square, f" {name}", *full_name, x="100%", y=_percent(1 - place), dx="4",
                 dy=".32em", class_="end")  # fmt: skip


def _mark(panel: Panel, mark: Mark) -> ET.Element:
    """Draw a line, an area or dots as SVG; labels are drawn elsewhere."""
    if isinstance(mark, Stroke):
        return _stroke(panel, mark)
    if isinstance(mark, Area):
        return _area(panel, mark)
    assert isinstance(mark, Dots)
    return _dots(panel, mark)


def _stroke(panel: Panel, mark: Stroke) -> ET.Element:
    """Draw a line as an SVG path, interrupted where a value is NaN.

    ``M`` moves to a point and ``L`` draws a line to one. ``_coordinates``: places in the drawing.
    """
    path = ""
    command = "M"  # move to the first point, and to the next one after a gap
    for x, y in _coordinates(panel, mark.x, mark.y).tolist():
        if np.isnan(x) or np.isnan(y):
            command = "M"
            continue
        path += f"{command}{x} {y}"
        command = "L"
    line = el("path", d=_path(path), stroke=mark.colour, stroke_width=f"{mark.width:g}")
    if mark.dash:
        line.set("stroke-dasharray", mark.dash)
    if mark.opacity < 1:
        line.set("stroke-opacity", f"{mark.opacity:g}")
    return line


def _area(panel: Panel, mark: Area) -> ET.Element:
    """Draw the area between two lines, filled or as an outline.

    The SVG path goes along the upper line, and back along the lower one. ``M`` begins it, ``L``
    draws a line to a point, ``Z`` closes it. ``_coordinates``: places in the drawing.
    """
    has_value = ~(np.isnan(mark.low) | np.isnan(mark.high))
    upper = _coordinates(panel, mark.x[has_value], mark.high[has_value])
    lower = _coordinates(panel, mark.x[has_value], mark.low[has_value])
    corners = [f"{x} {y}" for x, y in np.concatenate([upper, lower[::-1]]).tolist()]
    path = _path(f"M{'L'.join(corners)}Z" if corners else "")
    if mark.outline:
        return el("path", d=path, stroke=mark.colour, stroke_width="1")
    return el("path", d=path, fill=mark.colour, fill_opacity=f"{mark.opacity:g}", stroke="none")


def _dots(panel: Panel, mark: Dots) -> ET.Element:
    """Draw dots, or rings where the mark is hollow, as one SVG path.

    Each dot is a line of hardly any length (``h.01``) with round ends, as wide as the dot: so it
    stays round when the drawing is stretched. A ring has a smaller dot in the colour of the page on
    it.
    """
    points = _coordinates(panel, mark.x, mark.y)
    finite = points[~np.isnan(points).any(axis=1)].tolist()
    path = _path("".join(f"M{x} {y}h.01" for x, y in finite))
    dots = el("path", d=path, stroke=mark.colour, stroke_width=f"{mark.size:g}",
              stroke_linecap="round")  # fmt: skip
    if not mark.hollow:
        return dots
    hole = el("path", d=path, class_="hole", stroke_width=f"{mark.size - 3:g}",
              stroke_linecap="round")  # fmt: skip
    return el("g", dots, hole)


def _hints(panel: Panel) -> list[ET.Element]:
    """The points of a panel that show a text when a pointer rests on them, as SVG paths.

    Each is a line of hardly any length (``h.01``), which the style sheet makes a wide spot that
    cannot be seen; its title is the text. ``_coordinates``: places in the drawing.
    """
    x = np.array([hint.x for hint in panel.hints])
    y = np.array([hint.y for hint in panel.hints])
    points = _coordinates(panel, x, y).tolist()
    return [
        el("path", el("title", hint.text), d=_path(f"M{left} {top}h.01"), class_="spot")
        for hint, (left, top) in zip(panel.hints, points, strict=True)
    ]


def _coordinates(panel: Panel, x: FloatArray, y: FloatArray) -> FloatArray:
    """Places in the stretched drawing, from its left and from its top."""
    places = np.stack([panel.x.place(x), 1 - panel.y.place(y)], axis=1)
    # Plus 0 makes 0 of −0.
    return np.asarray(np.round(without_noise(_SIDE * places), 1) + 0.0)


def _path(path: str) -> str:
    """A path without ``.0``: half of all coordinates are whole."""
    return _ZERO_DECIMAL.sub("", path) or _NO_PATH


def _from_left(panel: Panel, x: float) -> str:
    return _percent(float(panel.x.place(x)))


def _from_top(panel: Panel, y: float) -> str:
    return _percent(1 - float(panel.y.place(y)))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _short_text(text: str, letters: int) -> list[Node]:
    """A text that fits, and behind it the full text as a hint where it was shortened."""
    short = _shorten(text, letters)
    return [short] if short == text else [short, el("title", text)]


def _shorten(text: str, letters: int) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
