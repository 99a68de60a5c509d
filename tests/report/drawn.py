"""Charts made up for tests, and what matplotlib was told to draw of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rlbhpc.report.chart import (
    DASHED,
    DOTTED,
    INK,
    Chart,
    Key,
    Panel,
    k_axis,
    linear_axis,
    log_axis,
    percent_axis,
    row_axis,
    step_axis,
)

BLUE, RED = "#0072B2", "#D55E00"
LONG = "a name that is far too long for its place"


def every_mark() -> Chart:
    """Four panels that hold every kind of mark, axis and text."""
    curves = Panel(k_axis(1024), linear_axis([[0, 10]], "points"), "made up")
    curves.line([1, 32, 1024], [0, 5, 10], BLUE, name="grpo <b>")
    curves.line([1, 2, 4, 8], [1, np.nan, 3, 4], BLUE, dash=DASHED, width=0.7, opacity=0.18)
    curves.band([1, 32, 64, 1024], [0, 4, np.nan, 9], [1, 6, 7, 10], BLUE)
    curves.points([4, 8], [2, np.nan], RED, [1, 2], [3, 4], hollow=True, name="rings")
    curves.shade_large_k(1024)
    curves.end(10, "grpo <b>", BLUE)
    curves.end(9.9, LONG, RED)
    curves.end(np.nan, "nowhere", RED)
    rows = Panel(linear_axis([[-3, 4]], "points", zero=True), row_axis(2), height=68)
    for number, text in enumerate((LONG, f"{LONG} {LONG}")):
        middle = rows.row(number, text)
        rows.points([number], middle, RED, [-1], [2], sideways=True, name=text)
        rows.bar((0, 3), (middle - 0.2, middle + 0.2), BLUE, filled=number == 1, hint="3")
    rows.upright(1, dash=DASHED)
    steps = Panel(step_axis([0, 50, 100]), log_axis([[1, 90]], "perplexity"), "steps", 140)
    steps.line(np.arange(1, 101), np.arange(1, 101) / 2, BLUE, name="long")
    steps.dots([50, 60], [2, 3], RED)
    steps.level(5, dash=DOTTED, colour=BLUE)
    empty = Panel(k_axis(4), percent_axis())
    empty.shade_large_k(4)
    empty.line([1, 4], [np.nan, np.nan], INK)
    empty.band([1, 4], [np.nan, np.nan], [1, 2], INK)
    for height in (50, 51, 99):
        empty.end(height, f"at {height}", BLUE)
    legend = (Key("grpo", BLUE), Key("base", RED, DASHED))
    return Chart([curves, rows, steps, empty], lambda: pd.DataFrame({"x": [1, 2]}), legend)


def paper_lines(figure: Figure) -> Iterator[str]:
    """Sizes, axes, lines, fills and texts of a figure."""
    yield f"{figure.get_size_inches().tolist()} {len(figure.axes)} axes"
    for legend in figure.legends:
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True):
            yield f"legend {text.get_text()} {line.get_color()} {line.get_linestyle()}"
    for axes in figure.axes:
        spines = [name for name, spine in axes.spines.items() if spine.get_visible()]
        place = axes.get_subplotspec().get_position(figure).bounds
        bounds = np.round(place, 4).tolist()
        yield f"{axes.get_title(loc='left')} axis {axes.axison} {bounds} {spines}"
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            ticks = [tick.get_text() for tick in axis.get_ticklabels()]
            ends = np.round(axis.get_view_interval(), 6).tolist()
            minor = axis.get_minorticklocs().tolist()
            size = (
                axis.label.get_fontsize(),
                axis.get_ticklabels()[0].get_fontsize() if ticks else 0,
            )
            yield f"  {name} {size} {axis.get_label_text()} {axis.get_scale()}"
            yield f"    {ends} {ticks} {minor}"
        for line in axes.lines:
            look = (line.get_color(), line.get_linewidth(), line.get_alpha(), line.get_marker(),
                    line.get_markersize(), line.get_markerfacecolor(),
                    line._unscaled_dash_pattern)  # fmt: skip
            points = np.round(np.asarray(line.get_xydata()), 4).tolist()
            yield f"  line {look} {points[:3]} {points[-1]}"
        for fill in axes.collections:
            colours = [[to_hex(c, keep_alpha=True) for c in colour]
                       for colour in (fill.get_facecolor(), fill.get_edgecolor())]  # fmt: skip
            corners = (
                np.round(fill.get_paths()[0].vertices, 4).tolist()[:5] if fill.get_paths() else []
            )
            yield f"  fill {colours} {fill.get_alpha()} {fill.get_linewidth()} {corners}"
        for text in axes.texts:
            look = (
                text.get_va(),
                text.get_color(),
                text.get_fontsize(),
                text.get_annotation_clip(),
            )
            yield f"  text {text.get_text()} {text.xy} {text.get_position()} {look}"
