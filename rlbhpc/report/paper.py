"""A chart on paper: PDF and PNG by matplotlib, its numbers as CSV, and how it was made as JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from rlbhpc import __version__
from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Draw, Report
from rlbhpc.report.draw.chart import INK, Area, Axis, Chart, Dots, Label, Mark, Panel, Stroke, apart
from rlbhpc.report.gather import gather, read_pair

# Inches: both columns of a paper, and a pixel of the page.
_WIDTH: Final = 7.0
_PIXEL: Final = 1 / 88
_BLACK: Final = "#101112"
_RC: Final[Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "text.color": _BLACK,
    "axes.edgecolor": _BLACK,
    "axes.labelcolor": _BLACK,
    "xtick.color": _BLACK,
    "ytick.color": _BLACK,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "legend.frameon": False,
}


def save(chart: Chart, folder: Path, name: str, about: dict[str, Any]) -> list[Path]:
    """Write a figure as PDF and PNG, its numbers as CSV, and how it was made as JSON.

    ``about``: what the numbers stand on: run, seed, replicates, level of the intervals.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in ("pdf", "png", "csv", "json")]
    with mpl.rc_context(_RC):
        drawn = paper(chart)
        layout = drawn.get_layout_engine()
        assert layout is not None
        # Once for both files: every draw would do it again.
        layout.execute(drawn)
        drawn.set_layout_engine("none")
        FigureCanvasPdf(drawn).print_pdf(paths[0], metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        drawn.set_dpi(200)
        FigureCanvasAgg(drawn).print_png(paths[1])  # type: ignore[no-untyped-call]
    text = chart.frame.to_csv(index=False, lineterminator="\n")
    paths[2].write_text(text)
    record = {
        **about,
        "figure": name,
        "columns": list(chart.frame.columns),
        "rows": len(chart.frame),
        "csv_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "versions": {"rlbhpc": __version__, "matplotlib": mpl.__version__, "numpy": np.__version__},
    }
    paths[3].write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    return paths


def paper(chart: Chart) -> Figure:
    """Draw a chart; no window system and no global state is touched."""
    panels = chart.panels
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    heights = [
        max(panel.height for panel in panels[columns * row : columns * (row + 1)])
        for row in range(rows)
    ]
    with mpl.rc_context(_RC):
        inches = _PIXEL * sum(height + 50 for height in heights) + 0.4
        figure = Figure(figsize=(_WIDTH, inches))
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _draw(axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if chart.legend:
            handles = [
                Line2D([], [], color=_ink(key.colour), label=key.name, linestyle=_dash(key.dash))
                for key in chart.legend
            ]
            figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=7)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    if panel.x.log:
        axes.set_xscale("log")
    if panel.y.log:
        axes.set_yscale("log")
    for side, axis in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        side.set_major_locator(FixedLocator([value for value, _ in axis.ticks]))
        side.set_major_formatter(FixedFormatter([text for _, text in axis.ticks]))
        side.set_minor_locator(NullLocator())
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.set_xlabel(panel.x.label)
    axes.set_ylabel(panel.y.label)
    axes.set_title(panel.title)
    if not panel.y.ticks:
        axes.spines["left"].set_visible(False)
    for mark in panel.marks:
        _mark(axes, panel, mark)
    _ends(axes, panel)


def _mark(axes: Axes, panel: Panel, mark: Mark) -> None:
    if isinstance(mark, Stroke):
        axes.plot(
            mark.x, mark.y, color=_ink(mark.colour), linewidth=0.85 * mark.width,
            linestyle=_dash(mark.dash), alpha=mark.opacity,
        )  # fmt: skip
    elif isinstance(mark, Area):
        face = "none" if mark.outline else _ink(mark.colour)
        edge = _ink(mark.colour) if mark.outline else "none"
        opacity = None if mark.outline else mark.opacity
        axes.fill_between(
            mark.x, mark.low, mark.high, facecolor=face, edgecolor=edge, alpha=opacity,
            linewidth=0.8 if mark.outline else 0,
        )  # fmt: skip
    elif isinstance(mark, Dots):
        axes.plot(
            mark.x, mark.y, "o", color=_ink(mark.colour), markersize=0.75 * mark.size,
            markerfacecolor="white" if mark.hollow else None,
        )  # fmt: skip
    elif isinstance(mark, Label):
        axes.annotate(
            mark.text, (mark.x, mark.y), xytext=(0, -0.7 * mark.rise), textcoords="offset points",
            ha="left", fontsize=6.5, annotation_clip=False,
        )  # fmt: skip


def _ends(axes: Axes, panel: Panel) -> None:
    axis: Axis = panel.y
    ends = sorted(panel.ends, key=lambda end: (end.y, end.name))
    heights = [float(axis.place(end.y)) for end in ends]
    for place, end in zip(apart(heights, 11 / panel.height, 0, 1).tolist(), ends, strict=True):
        axes.annotate(
            end.name, (1.0, place), xycoords="axes fraction", xytext=(3, 0),
            textcoords="offset points", va="center", color=end.colour, fontsize=7,
            annotation_clip=False,
        )  # fmt: skip


def _ink(colour: str) -> str:
    return _BLACK if colour == INK else colour


def _dash(dash: str) -> Any:
    return (0, tuple(float(part) for part in dash.split())) if dash else "-"


def main(about: str, draw: Draw) -> None:
    """Run a script whose arguments are those of all scripts.

    ``draw``: draws the figures of one run.
    """
    draw_runs(arguments(about).parse_args(), draw)


def arguments(about: str) -> argparse.ArgumentParser:
    """Describe what every script takes; a script may add to it."""
    parser = argparse.ArgumentParser(description=about.strip().partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--compare", action="append", default=[], metavar="BASE:TRAINED", help="arms to compare"
    )
    return parser


def draw_runs(options: argparse.Namespace, draw: Draw) -> None:
    """Gather each run, draw, and write PDF, PNG, CSV and JSON."""
    try:
        pairs = [read_pair(text) for text in options.compare]
        for run in options.runs:
            report = gather(run, pairs)
            # Runs may draw figures of the same name, so several get a folder each.
            folder = options.out / report.name if len(options.runs) > 1 else options.out
            drawn = False
            for name, chart in draw(report):
                drawn = True
                print(save(chart, folder, name, _about(report))[0])
            if not drawn:
                raise UserError(f"{run}: has nothing for this figure; its first lines say what "
                                "it shows (--help)", NOTHING_TO_DO)  # fmt: skip
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def main_published(
    about: str,
    draw: Callable[[Sequence[Report]], Iterator[tuple[str, Chart]]],
    runs: bool = False,
) -> None:
    """Run a script that draws published numbers.

    ``draw``: draws the numbers, with these runs laid over them. ``runs``: whether it can lay runs
    over them.
    """
    parser = argparse.ArgumentParser(description=about.strip().partition("\n")[0])
    if runs:
        parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="runs to lay over")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args()
    try:
        reports = [gather(run) for run in options.runs] if runs else []
        for name, chart in draw(reports):
            print(save(chart, options.out, name, {"runs": [report.name for report in reports]})[0])
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def _about(report: Report) -> dict[str, object]:
    s = report.settings
    return {
        "run": report.folder.name,
        "study_hash": report.study_hash,
        "interval": s.prob,
        "bootstrap_replicates": s.replicates,
        "seed": s.seed,
        "notes": list(report.notes),
    }
