"""What all figures share: sizes, ink, axes over k, and how they are written."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from rlbhpc import __version__
from rlbhpc.report.figures.values import values_of

#: Widths in inches: one column of a paper, and both.
SINGLE: Final = 3.4
DOUBLE: Final = 7.0

#: Text and axes. In the page it becomes the colour of the text around the figure.
INK: Final = "#101112"
BASE_COLOUR: Final = "#767676"

_RC: Final[Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.4,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it."""

    figure: Figure
    frame: pd.DataFrame


@contextmanager
def canvas(
    width: float,
    height: float,
    columns: int = 1,
    rows: int = 1,
    heights: Sequence[float] | None = None,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Make a figure under the common style; no window system and no global state is touched.

    ``heights`` are those of the rows, relative to each other; axes come row by row.
    """
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
        yield figure, list(axes.ravel())


def marker_of(number: int) -> str:
    """Marker of the n-th line, so that lines stay apart without their colours."""
    return "osD^vPX*"[number % 8]


def k_axis(axes: Axes, reach: int) -> None:
    """Make x a log2 axis of k with whole powers of two as ticks."""
    axes.set_xscale("log", base=2)
    octaves = int(np.log2(reach)) if reach > 1 else 0
    step = -(-(octaves + 1) // 9)  # at most nine labels
    axes.xaxis.set_major_locator(FixedLocator([2.0**i for i in range(0, octaves + 1, step)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:,.0f}"))
    axes.set_xlim(1, max(reach, 2))
    axes.set_xlabel("k (samples per problem)")


def mark_uninformative(axes: Axes, reach: int) -> None:
    """Hatch k > n/4, where a value is little more than one draw."""
    if reach >= 4:
        axes.axvspan(
            reach / 4, reach, facecolor="none", edgecolor=BASE_COLOUR, hatch="///", alpha=0.6,
            linewidth=0, zorder=0,
        )  # fmt: skip
        axes.text(
            reach / 4, 1.0, " k > n/4", transform=axes.get_xaxis_transform(), va="bottom",
            ha="left", fontsize=6.5, color=INK,
        )  # fmt: skip


def end_labels(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Write the names of curves at their right ends, moved apart where they would overlap.

    ``ends`` holds height, name and colour of each, in data coordinates.
    """
    low, high = axes.get_ylim()
    ends = sorted(ends)
    places = _apart([height for height, _, _ in ends], (high - low) * 0.065, low, high)
    for place, (_, name, colour) in zip(places, ends, strict=True):
        axes.annotate(
            name, (axes.get_xlim()[1], place), xytext=(3, 0), textcoords="offset points",
            va="center", ha="left", color=colour, fontsize=7, annotation_clip=False,
        )  # fmt: skip


def _apart(heights: Sequence[float], least: float, low: float, high: float) -> NDArray[np.float64]:
    """Move rising heights as little as it takes to stand ``least`` apart, within low and high."""
    # Less its rank each, heights only have to rise: runs that fall take their mean.
    groups: list[tuple[float, int]] = []
    for i, height in enumerate(heights):
        groups.append((height - i * least, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    level = np.repeat([value for value, _ in groups], [times for _, times in groups])
    room = high - low - least * max(len(heights) - 1, 0)
    inside = np.clip(level, low, low + max(room, 0.0))
    return np.asarray(inside + least * np.arange(len(heights)))


def save(drawn: Drawn, folder: Path, name: str, about: dict[str, Any]) -> list[Path]:
    """Write a figure as PDF and PNG, its numbers as CSV, and how it was made as JSON.

    Parameters
    ----------
    about
        What the numbers stand on: run, seed, replicates, level of the intervals.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in ("pdf", "png", "csv", "json")]
    with mpl.rc_context(_RC):
        _lay_out(drawn.figure)
        # The canvas itself and not `savefig`, which would draw everything twice.
        FigureCanvasPdf(drawn.figure).print_pdf(paths[0], metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        drawn.figure.set_dpi(200)
        drawn.figure.set_facecolor("white")
        FigureCanvasAgg(drawn.figure).print_png(paths[1])  # type: ignore[no-untyped-call]
    text = drawn.frame.to_csv(index=False, lineterminator="\n")
    paths[2].write_text(text)
    record = {
        **about,
        "figure": name,
        "columns": list(drawn.frame.columns),
        "rows": len(drawn.frame),
        "csv_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "versions": {"rlbhpc": __version__, "matplotlib": mpl.__version__, "numpy": np.__version__},
    }
    paths[3].write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    return paths


def _rounded(path: re.Match[str]) -> str:
    """A path with its numbers to a hundredth and one blank between its words."""
    words = " ".join(path[0].split())
    return " " + re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", words)


def svg(drawn: Drawn, name: str) -> str:
    """Draw a figure as an SVG element for the inside of a page.

    Text is drawn as paths, so no font is needed. Style attributes become plain attributes, which
    leaves the page's content policy free to forbid inline styles; ink becomes ``currentColor``;
    names of glyphs and clips get ``name`` in front, so that figures of one page cannot mix them up.
    """
    out = io.StringIO()
    with mpl.rc_context(_RC | {"svg.hashsalt": name}):
        _lay_out(drawn.figure)
        FigureCanvasSVG(drawn.figure).print_svg(out, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r' style="([^"]*)"', _attributes, text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r' id="([^"]*)"', rf' id="{name}-\1"', text)
    text = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    text = text.replace(INK, "currentColor")
    # Keep the size out: the page scales a figure to its column by the viewBox.
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    head = f'<svg viewBox="{box[1]}" aria-hidden="true" class="figure">'
    text = re.sub(r"<svg[^>]*>", lambda _: head, text, count=1).strip()
    height = float(box[1].split()[3])
    spots = "".join(
        f'<circle cx="{x:.1f}" cy="{height - y:.1f}" r="5"><title>{escape(value)}</title></circle>'
        for x, y, value in values_of(drawn.figure)
    )
    # A hundredth of a point cannot be seen, and indentation is a tenth of a large page.
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r' d="[^"]*"', _rounded, text)
    return text.removesuffix("</svg>") + f'<g class="values">{spots}</g></svg>'


def _lay_out(figure: Figure) -> None:
    """Place axes, labels and legends once; every draw would do it again, and draw twice for it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def _attributes(match: re.Match[str]) -> str:
    pairs = (part.partition(":") for part in match[1].split(";") if ":" in part)
    return "".join(f' {key.strip()}="{value.strip()}"' for key, _, value in pairs)
