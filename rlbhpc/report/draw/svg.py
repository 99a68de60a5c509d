"""A chart as SVG that keeps the size of its letters at any width.

The data stand in a nested drawing that is stretched, its lines as thick as ever; ticks and names
are texts at percentages of the width. So a figure is as good on a telephone as on a poster, needs
no script, and holds each number once.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.draw.chart import (
    Area,
    Chart,
    Dots,
    Key,
    Label,
    Mark,
    Panel,
    Stroke,
    spread_heights,
)
from rlbhpc.report.markup import Node, el
from rlbhpc.stats.interval import without_noise

# Units of the stretched drawing along both sides.
_SIDE: Final = 1000
# Width of a letter in pixels, a wide one of a wide face, and of a line of names.
_LETTER: Final = 6.7
_LINE: Final = 14
# Room for the names of curves, in steps of so many pixels; the style sheet has a class for each.
_ROOM: Final = 8
_LONGEST: Final = 20
_TENTHS: Final = re.compile(r"\.0(?!\d)")
# Letters of the head of a row: what a telephone shows.
_ROW: Final = 52


def figure(caption: str, chart: Chart) -> ET.Element:
    """Put a chart with its legend and caption into the page."""
    panels = [
        el("div", *([el("p", panel.title, class_="title")] if panel.title else []), _svg(panel))
        for panel in chart.panels
    ]
    legend = [_legend(chart.legend)] if chart.legend else []
    several = "panels many" if len(panels) > 1 else "panels"
    return el("figure", *legend, el("div", *panels, class_=several), el("figcaption", caption))


def _legend(keys: tuple[Key, ...]) -> ET.Element:
    entries = []
    for key in keys:
        line = el("path", d="M0 6h22", stroke=key.colour, stroke_width="2.5")
        if key.dash:
            line.set("stroke-dasharray", key.dash)
        swatch = el("svg", line, width="22", height="12", aria_hidden="true")
        entries.append(el("li", swatch, el("span", key.name)))
    return el("ul", *entries, class_="legend")


def _svg(panel: Panel) -> ET.Element:
    longest = max((len(_short(end.name)) for end in panel.ends), default=0)
    room = -(-int(20 + _LETTER * longest) // _ROOM) if longest else 3
    data = el(
        "svg",
        *(_mark(panel, mark) for mark in panel.marks if not isinstance(mark, Label)),
        *_spots(panel),
        class_="data", viewBox=f"0 0 {_SIDE} {_SIDE}", preserveAspectRatio="none",
        width="100%", height="100%", overflow="visible",
    )  # fmt: skip
    rows = " rows" if not panel.y.ticks else ""
    return el(
        "svg", *_grid(panel), data, *_texts(panel), *_ends(panel),
        class_=f"plot room{room}{rows}", height=str(panel.height + 60), role="img",
        aria_label=panel.title or panel.y.label or panel.x.label,
    )  # fmt: skip


def _grid(panel: Panel) -> Iterator[Node]:
    for value, _ in panel.y.ticks:
        height = _up(panel, value)
        yield el("line", x1="0", x2="100%", y1=height, y2=height, class_="grid")
    if not panel.y.ticks:
        for value, _ in panel.x.ticks:
            place = _across(panel, value)
            yield el("line", x1=place, x2=place, y1="0", y2="100%", class_="grid")
    yield el("line", x1="0", x2="100%", y1="100%", y2="100%", class_="axis")


def _texts(panel: Panel) -> Iterator[Node]:
    for value, text in panel.y.ticks:
        height = _up(panel, value)
        yield el("text", text, x="0", y=height, dx="-6", dy=".32em", text_anchor="end")
    for value, text in panel.x.ticks:
        place = _across(panel, value)
        yield el("text", text, x=place, y="100%", dy="1.3em", text_anchor="middle")
    if panel.y.label:
        yield el("text", panel.y.label, x="0", y="0", dx="-34", dy="-.8em")
    if panel.x.label:
        yield el("text", panel.x.label, x="50%", y="100%", dy="2.7em", text_anchor="middle")
    for mark in panel.marks:
        if isinstance(mark, Label):
            short = _short(mark.text, _ROW)
            place, height = _across(panel, mark.x), _up(panel, mark.y)
            dy = f"{mark.rise:g}"
            whole = [el("title", mark.text)] if short != mark.text else []
            yield el("text", short, *whole, x=place, y=height, dy=dy, text_anchor="start")


def _ends(panel: Panel) -> Iterator[Node]:
    """Names beside the ends of their curves, moved apart where they would overlap."""
    named = [(float(panel.y.place(end.y)), _short(end.name), end) for end in panel.ends]
    named.sort(key=lambda entry: entry[:2])
    places = spread_heights([height for height, _, _ in named], _LINE / panel.height, 0.0, 1.0)
    for (_, short, end), place in zip(named, places.tolist(), strict=True):
        whole = [el("title", end.name)] if short != end.name else []
        square = el("tspan", "■", fill=end.colour)
        yield el("text", square, f" {short}", *whole, x="100%", y=_percent(1 - place), dx="4",
                 dy=".32em", class_="end")  # fmt: skip


def _across(panel: Panel, x: float) -> str:
    return _percent(float(panel.x.place(x)))


def _up(panel: Panel, y: float) -> str:
    return _percent(1 - float(panel.y.place(y)))


def _mark(panel: Panel, mark: Mark) -> ET.Element:
    if isinstance(mark, Stroke):
        return _stroke(panel, mark)
    if isinstance(mark, Area):
        return _area(panel, mark)
    assert isinstance(mark, Dots)
    points = _points(panel, mark.x, mark.y)
    path = "".join(f"M{x} {y}h.01" for x, y in points[~np.isnan(points).any(axis=1)].tolist())
    dots = el("path", d=_whole(path) or "M0 0", stroke=mark.colour, stroke_width=f"{mark.size:g}",
              stroke_linecap="round")  # fmt: skip
    if not mark.hollow:
        return dots
    hole = el("path", d=dots.get("d", ""), class_="hole", stroke_width=f"{mark.size - 3:g}",
              stroke_linecap="round")  # fmt: skip
    return el("g", dots, hole)


def _stroke(panel: Panel, mark: Stroke) -> ET.Element:
    points = _points(panel, mark.x, mark.y)
    path = ""
    pen = "M"
    for x, y in points.tolist():
        if np.isnan(x) or np.isnan(y):
            pen = "M"
            continue
        path += f"{pen}{x} {y}"
        pen = "L"
    line = el("path", d=_whole(path) or "M0 0", stroke=mark.colour, stroke_width=f"{mark.width:g}")
    if mark.dash:
        line.set("stroke-dasharray", mark.dash)
    if mark.opacity < 1:
        line.set("stroke-opacity", f"{mark.opacity:g}")
    return line


def _area(panel: Panel, mark: Area) -> ET.Element:
    has_value = ~(np.isnan(mark.low) | np.isnan(mark.high))
    up = _points(panel, mark.x[has_value], mark.high[has_value])
    down = _points(panel, mark.x[has_value], mark.low[has_value])[::-1]
    corners = "L".join(f"{x} {y}" for x, y in np.concatenate([up, down]).tolist())
    path = _whole(f"M{corners}Z") if has_value.any() else "M0 0"
    if mark.outline:
        return el("path", d=path, stroke=mark.colour, stroke_width="1")
    return el("path", d=path, fill=mark.colour, fill_opacity=f"{mark.opacity:g}", stroke="none")


def _spots(panel: Panel) -> list[ET.Element]:
    across, up = (np.array([getattr(spot, axis) for spot in panel.spots]) for axis in "xy")
    return [
        el("path", el("title", spot.text), d=_whole(f"M{x} {y}h.01"), class_="spot")
        for spot, (x, y) in zip(panel.spots, _points(panel, across, up).tolist(), strict=True)
    ]


def _points(panel: Panel, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    across, up = panel.x.place(x), panel.y.place(y)
    places = np.stack([_SIDE * across, _SIDE * (1 - up)], axis=1)
    return np.asarray(np.round(without_noise(places), 1) + 0.0)


def _whole(path: str) -> str:
    """A path without ``.0``: half of all coordinates are whole."""
    return _TENTHS.sub("", path)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _short(name: str, longest: int = _LONGEST) -> str:
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
