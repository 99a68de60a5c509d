"""The values in a figure, for a pointer to rest on."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

#: Lines of more points than this have no values to rest on: training curves, strips.
_POINTS: Final = 200


def values_of(figure: Figure) -> list[tuple[float, float, str]]:
    """Places, in points from the lower left, and values of everything that is drawn as data.

    A browser shows a value when a pointer rests on its place, without a script.
    """
    scale = 72 / figure.dpi
    found = []
    for axes in figure.axes:
        names = {
            id(part): str(group.get_label())
            for group in axes.containers
            for part in (group if isinstance(group, BarContainer) else group[:1])
        }
        for line in axes.lines:
            points = np.asarray(line.get_xydata(), np.float64)
            if line.get_transform() != axes.transData or not 0 < len(points) <= _POINTS:
                continue
            own = str(line.get_label())
            name = own if not own.startswith("_") else names.get(id(line), "")
            for x, y in points.tolist():
                found.append((*_place(axes, x, y, scale), _value(axes, name, x, y)))
        for bar in axes.patches:
            if isinstance(bar, Rectangle) and bar.get_transform() != axes.transAxes:
                x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height()
                if id(bar) in names and bar.get_height() and axes.get_ylabel():
                    text = f"{names[id(bar)]}: {bar.get_height():g} {axes.get_ylabel()}"
                    found.append((*_place(axes, x, y, scale), text))
    return [point for point in found if np.isfinite(point[:2]).all()]


def _place(axes: Axes, x: float, y: float, scale: float) -> tuple[float, float]:
    across, up = axes.transData.transform((x, y))
    return float(across) * scale, float(up) * scale


def _value(axes: Axes, name: str, x: float, y: float) -> str:
    """``name: y label 45.2, x label 8``; categories by their name."""
    across, up = axes.get_xlabel().partition(" (")[0], axes.get_ylabel()
    known = [f"{up} {y:.4g}" if up else "", f"{across} {x:,.5g}" if across else ""]
    values = ", ".join(text for text in known if text)
    return f"{name}: {values}" if name and not name.startswith("_") else values
