"""Figures for a paper: PDF, PGF and PNG, with their numbers as CSV and their origin as JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_pgf import RendererPgf
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from rlbhpc import __version__
from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Draw, Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.draw.chart import (
    INK,
    Area,
    Axis,
    Chart,
    Dots,
    End,
    Key,
    Label,
    Mark,
    Panel,
    Stroke,
    spread_heights,
)  # fmt: skip
from rlbhpc.report.gather import gather, read_pair
from rlbhpc.report.phrases import escape_latex


@dataclass(frozen=True)
class Style:
    """A place for figures: its width in inches, panels beside each other, letters in points."""

    width: float
    panels: int
    letters: float


#: Widths of columns and pages as the style files of the conferences set them.
STYLES: Final = {
    "neurips": Style(5.5, 3, 8),  # neurips_2025.sty: one column of 5.5 in
    "icml": Style(3.25, 2, 7),  # icml2025.sty: two columns of 3.25 in
    "acl": Style(3.03, 2, 7),  # acl.sty: two columns of 7.7 cm
    "single": Style(3.35, 2, 7),
    "double": Style(7.0, 3, 8),
}
DEFAULT_STYLE: Final = "double"

_PIXELS_PER_INCH: Final = 88
_POINTS_PER_INCH: Final = 72
# A panel of curves is this high for its width, within these limits in inches.
_ASPECT: Final = 0.72
_LOWEST: Final = 1.2
_HIGHEST: Final = 2.4
_SMALLEST: Final = 5.5  # points of a text that would not fit otherwise
_BLACK: Final = "#101112"


def save(
    chart: Chart, folder: Path, name: str, about: dict[str, Any], style: str = DEFAULT_STYLE
) -> list[Path]:
    """Write a figure as PDF, PGF and PNG, its numbers as CSV, and how it was made as JSON.

    ``about``: what the numbers stand on: run, seed, replicates, level of the intervals.
    """
    folder.mkdir(parents=True, exist_ok=True)
    endings = ("pdf", "pgf", "png", "csv", "json")
    pdf, pgf, png, table, record = (folder / f"{name}.{ending}" for ending in endings)
    with mpl.rc_context(_settings(STYLES[style])):
        drawn = paper(chart, STYLES[style])
        FigureCanvasPdf(drawn).print_pdf(pdf, metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        _write_pgf(drawn, pgf)
        drawn.set_dpi(200)
        FigureCanvasAgg(drawn).print_png(png)  # type: ignore[no-untyped-call]
    text = chart.frame.to_csv(index=False, lineterminator="\n")
    table.write_text(text)
    origin = {
        **about,
        "figure": name,
        "style": style,
        "columns": list(chart.frame.columns),
        "rows": len(chart.frame),
        "csv_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "versions": {"rlbhpc": __version__, "matplotlib": mpl.__version__, "numpy": np.__version__},
    }
    record.write_text(json.dumps(origin, ensure_ascii=False, indent=1) + "\n")
    return [pdf, pgf, png, table, record]


def save_figures(report: Report, folder: Path, style: str) -> list[Path]:
    """Write one figure for each aspect that has any, all its charts as panels of it."""
    files: list[Path] = []
    for aspect in aspects_of(report):
        if aspect.charts is None:
            continue
        charts = dict(aspect.charts(report))
        if charts:
            name = next(iter(charts)).partition("-")[0]
            files += save(_joined(charts), folder, name, _about(report), style)
    return files


def _joined(charts: dict[str, Chart]) -> Chart:
    """All panels in one chart, those without a title under the name of their chart."""
    if len(charts) == 1:
        return next(iter(charts.values()))
    panels = []
    for name, chart in charts.items():
        for panel in chart.panels:
            panel.title = panel.title or name.partition("-")[2]
            panels.append(panel)
    keys = dict.fromkeys(key for chart in charts.values() for key in chart.legend)
    frames = [chart.frame.assign(panel=name) for name, chart in charts.items()]
    return Chart(panels, pd.concat(frames, ignore_index=True), tuple(keys))


def paper(chart: Chart, style: Style = STYLES[DEFAULT_STYLE]) -> Figure:
    """Draw a chart; no window system and no global state is touched."""
    panels = chart.panels
    has_row_heads = any(not panel.y.ticks for panel in panels)
    columns = 1 if has_row_heads and style.panels < 3 else min(len(panels), style.panels)
    rows = -(-len(panels) // columns)
    heights = [
        max(_height(panel, style.width / columns) for panel in panels[row * columns :][:columns])
        for row in range(rows)
    ]
    names = _legend(chart)
    with mpl.rc_context(_settings(style)):
        around = 6 * style.letters / _POINTS_PER_INCH
        figure = Figure(figsize=(style.width, sum(heights) + around * rows))
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            _draw(axes, panel)
            _name_ends(axes, panel)
            same_y = len({other.y.label for other in panels}) == 1
            if number % columns and same_y:
                axes.set_ylabel("")
            same_x = len({other.x.label for other in panels}) == 1
            if number + columns < len(panels) and same_x:
                axes.set_xlabel("")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if names:
            _add_legend(figure, names)
        layout = figure.get_layout_engine()
        assert layout is not None
        # Once for all files: every draw would do it again.
        layout.execute(figure)
        figure.set_layout_engine("none")
        _keep_inside(figure)
    return figure


def _settings(style: Style) -> Any:
    return {
        "font.family": "STIXGeneral",  # comes with matplotlib; the letters of Times, as in papers
        "mathtext.fontset": "stix",
        "font.size": style.letters,
        "axes.titlesize": style.letters,
        "axes.labelsize": style.letters,
        "legend.fontsize": style.letters,
        "xtick.labelsize": style.letters - 1,
        "ytick.labelsize": style.letters - 1,
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


def _height(panel: Panel, width: float) -> float:
    """Inches: rows take what they need, curves a share of their width."""
    if not panel.y.ticks:
        return panel.height / _PIXELS_PER_INCH
    return float(np.clip(_ASPECT * width, _LOWEST, _HIGHEST))


def _legend(chart: Chart) -> list[Key]:
    """Who is who by colour and dashes: curves that look alike share an entry."""
    keys = {key.name: key for key in chart.legend}
    for panel in chart.panels:
        for end in panel.ends:
            if end not in _twins(panel):
                keys.setdefault(end.name, Key(end.name, end.colour, _dash_of(panel, end)))
    names: dict[tuple[str, str], list[str]] = {}
    for key in keys.values():
        names.setdefault((key.colour, key.dash), []).append(key.name)
    return [Key(", ".join(alike), *look) for look, alike in names.items()]


def _twins(panel: Panel) -> list[End]:
    """Ends of solid curves that have one colour: their names stand beside them."""
    solid = [end for end in panel.ends if not _dash_of(panel, end)]
    colours = [end.colour for end in solid]
    return [end for end in solid if colours.count(end.colour) > 1]


def _dash_of(panel: Panel, end: End) -> str:
    strokes = (mark for mark in panel.marks if isinstance(mark, Stroke))
    return next((mark.dash for mark in strokes if mark.colour == end.colour and mark.dash), "")


def _add_legend(figure: Figure, names: Sequence[Key]) -> None:
    handles = [
        Line2D([], [], color=_ink(key.colour), label=key.name, linestyle=_dash(key.dash))
        for key in names
    ]
    for columns in range(min(len(names), 6), 0, -1):
        legend = figure.legend(
            handles=handles, loc="outside upper center", ncols=columns, handlelength=1.6,
            columnspacing=1.2,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _keep_inside(figure: Figure) -> None:
    """Shorten texts that would end outside of the figure, and break labels longer than an axis."""
    for axes in figure.axes:
        label = axes.yaxis.label
        if label.get_window_extent().height > 1.1 * axes.bbox.height:
            label.set_text(label.get_text().replace(", ", ",\n", 1).replace(" − ", " −\n", 1))
    right = figure.bbox.x1 - 1
    for text in figure.findobj(Text):
        words = str(text.get_text())
        if not words or text.get_rotation() or text.get_window_extent().x1 <= right:
            continue
        text.set_fontsize(_SMALLEST)
        box = text.get_window_extent()
        if box.x1 > right:
            kept = int(len(words) * (right - box.x0) / box.width) - 1
            text.set_text(f"{words[: max(kept, 1)]}…")


class _PgfRenderer(RendererPgf):
    """Measures letters by matplotlib's fonts, so that no LaTeX is needed to write a file for it."""

    get_text_width_height_descent = RendererBase.get_text_width_height_descent

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False,
        mtext: Any = None,
    ) -> None:  # fmt: skip
        super().draw_text(gc, x, y, escape_latex(s), prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]


def _write_pgf(figure: Figure, path: Path) -> None:
    width, height = figure.get_size_inches()
    with path.open("w", encoding="utf-8") as file:
        file.write(
            f"% \\usepackage{{pgf}} in the preamble, then \\input{{{path.name}}}.\n"
            "\\begingroup\n\\makeatletter\n\\begin{pgfpicture}\n\\pgfpathrectangle"
            f"{{\\pgfpointorigin}}{{\\pgfqpoint{{{width}in}}{{{height}in}}}}\n"
            "\\pgfusepath{use as bounding box}\n"
        )
        figure.draw(_PgfRenderer(figure, file))  # type: ignore[no-untyped-call]
        file.write("\\end{pgfpicture}\n\\makeatother\n\\endgroup\n")


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
        _mark(axes, mark)


def _mark(axes: Axes, mark: Mark) -> None:
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
            markerfacecolor="white" if mark.hollow else None, clip_on=False,
        )  # fmt: skip
    elif isinstance(mark, Label):
        axes.annotate(
            mark.text, (mark.x, mark.y), xytext=(0, -0.7 * mark.rise), textcoords="offset points",
            ha="left", annotation_clip=False, in_layout=False,
        )  # fmt: skip


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Names at the ends of their curves, inside of the axes and moved apart."""
    axis: Axis = panel.y
    ends = sorted(_twins(panel), key=lambda end: (end.y, end.name))
    heights = [float(axis.place(end.y)) for end in ends]
    places = spread_heights(heights, 11 / panel.height, 0.04, 0.98)
    for place, end in zip(places.tolist(), ends, strict=True):
        axes.annotate(
            end.name, (1.0, place), xycoords="axes fraction", xytext=(-2, 4),
            textcoords="offset points", va="center", ha="right", color=end.colour,
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
    _add_output(parser)
    parser.add_argument(
        "--compare", action="append", default=[], metavar="BASE:TRAINED", help="arms to compare"
    )
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--style", choices=STYLES, default=DEFAULT_STYLE, help="width and letters")


def draw_runs(options: argparse.Namespace, draw: Draw) -> None:
    """Gather each run, draw, and write PDF, PGF, PNG, CSV and JSON."""
    try:
        pairs = [read_pair(text) for text in options.compare]
        for run in options.runs:
            report = gather(run, pairs)
            # Runs may draw figures of the same name, so several get a folder each.
            folder = options.out / report.name if len(options.runs) > 1 else options.out
            drawn = False
            for name, chart in draw(report):
                drawn = True
                print(save(chart, folder, name, _about(report), options.style)[0])
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
    _add_output(parser)
    options = parser.parse_args()
    try:
        reports = [gather(run) for run in options.runs] if runs else []
        for name, chart in draw(reports):
            origin: dict[str, Any] = {"runs": [report.name for report in reports]}
            print(save(chart, options.out, name, origin, options.style)[0])
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
