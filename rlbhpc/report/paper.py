"""Figures for a paper: PDF, PGF and PNG, with their numbers as CSV and their origin as JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from rlbhpc.report.chart import (
    INK,
    Area,
    Chart,
    Dots,
    End,
    Key,
    Label,
    Mark,
    Panel,
    Stroke,
    spread_heights,
)
from rlbhpc.report.gather import gather, read_pair
from rlbhpc.report.phrases import escape_latex


@dataclass(frozen=True)
class Style:
    """A place for figures: its width in inches, panels beside each other, font size in points."""

    width: float
    panels: int
    font_size: float


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
_HEIGHT_PER_WIDTH: Final = 0.72
_LOWEST_PANEL: Final = 1.2
_HIGHEST_PANEL: Final = 2.4
# Title, ticks and label of a row of panels take so many lines.
_LINES_AROUND_PANEL: Final = 6
_SMALLEST_FONT: Final = 5.5  # points, for a text that would not fit otherwise
_MOST_LEGEND_COLUMNS: Final = 6
# Marks are a little smaller in print than on a screen: widths of lines, sizes of dots, offsets.
_LINE_SCALE: Final = 0.85
_DOT_SCALE: Final = 0.75
_OFFSET_SCALE: Final = 0.7
_BLACK: Final = "#101112"


def save(
    chart: Chart, folder: Path, name: str, origin: dict[str, Any], style: str = DEFAULT_STYLE
) -> list[Path]:
    """Write a figure as PDF, PGF and PNG, its numbers as CSV, and how it was made as JSON.

    ``origin``: what the numbers stand on: run, seed, replicates, level of the intervals. ``paper``
    draws the chart at the size of a place in a paper, which ``style`` names. ``chart.frame``: its
    numbers. No date is written into the PDF, so that the same chart gives the same file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    endings = ("pdf", "pgf", "png", "csv", "json")
    pdf, pgf, png, table, record = (folder / f"{name}.{ending}" for ending in endings)
    with mpl.rc_context(_settings(STYLES[style])):
        figure = paper(chart, STYLES[style])
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        _write_pgf(figure, pgf)
        figure.set_dpi(200)
        FigureCanvasAgg(figure).print_png(png)  # type: ignore[no-untyped-call]
    # The table is written as text first, so that its digest can be kept.
    text = chart.frame.to_csv(index=False, lineterminator="\n")
    table.write_text(text)
    recipe = {
        **origin,
        "figure": name,
        "style": style,
        "columns": list(chart.frame.columns),
        "rows": len(chart.frame),
        "csv_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "versions": {"rlbhpc": __version__, "matplotlib": mpl.__version__, "numpy": np.__version__},
    }
    record.write_text(json.dumps(recipe, ensure_ascii=False, indent=1) + "\n")
    return [pdf, pgf, png, table, record]


def save_figures(report: Report, folder: Path, style: str) -> list[Path]:
    """Write one figure for each aspect that has any, all its charts as panels of it.

    An *aspect* is one thing that a report shows. The name of a chart is ``<figure>-<rest>``.
    """
    files: list[Path] = []
    for aspect in aspects_of(report):
        charts = dict(aspect.charts(report))
        if charts:
            name, _, _ = next(iter(charts)).partition("-")
            files += save(_join(charts), folder, name, _origin(report), style)
    return files


def _join(charts: dict[str, Chart]) -> Chart:
    """Put all panels into one chart; one without a title gets the end of its chart's name.

    ``charts``: by name, ``<figure>-<rest>``. The numbers say in ``panel`` whose they are.
    """
    if len(charts) == 1:
        return next(iter(charts.values()))
    panels: list[Panel] = []
    keys: list[Key] = []
    frames: list[pd.DataFrame] = []
    for name, chart in charts.items():
        _, _, title = name.partition("-")
        for panel in chart.panels:
            panel.title = panel.title or title
            panels.append(panel)
        keys += chart.legend
        frames.append(chart.frame.assign(panel=name))
    return Chart(panels, pd.concat(frames, ignore_index=True), tuple(dict.fromkeys(keys)))


def paper(chart: Chart, style: Style = STYLES[DEFAULT_STYLE]) -> Figure:
    """Draw a chart for a paper; no window system and no global state is touched.

    Panels fill rows of at most ``style.panels``. A panel without ticks at y is a chart of rows,
    whose heads need the width of a narrow paper. Heights are in inches.
    """
    panels = chart.panels
    has_row_heads = any(not panel.y.ticks for panel in panels)
    columns = min(len(panels), style.panels)
    if has_row_heads and style.panels < 3:
        columns = 1
    rows = math.ceil(len(panels) / columns)
    heights = []
    for row in range(rows):
        panels_of_row = panels[row * columns :][:columns]
        heights.append(max(_height(panel, style.width / columns) for panel in panels_of_row))
    with mpl.rc_context(_settings(style)):
        # Inches for what stands around the panels.
        around = rows * _LINES_AROUND_PANEL * style.font_size / _POINTS_PER_INCH
        figure = Figure(figsize=(style.width, sum(heights) + around))
        # A figure needs a canvas to measure its texts.
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _draw(axes, panel)
            _name_ends(axes, panel)
        _drop_repeated_labels(grid.tolist(), panels, columns)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _add_legend(figure, _legend(chart))
        layout = figure.get_layout_engine()
        assert layout is not None
        # Once for all files: every draw would do it again.
        layout.execute(figure)
        figure.set_layout_engine("none")
        _keep_inside(figure)
    return figure


def _settings(style: Style) -> Any:
    """Matplotlib's settings for a figure: serif letters as in papers, thin axes, no frames."""
    small = style.font_size - 1
    settings: dict[str, Any] = {
        "font.family": "STIXGeneral",  # comes with matplotlib; the letters of Times, as in papers
        "mathtext.fontset": "stix",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "figure.constrained_layout.use": True,
        "pdf.fonttype": 42,
        "legend.frameon": False,
    }
    settings |= dict.fromkeys(
        ("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), style.font_size
    )
    settings |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), small)
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return settings | dict.fromkeys(inks, _BLACK)


def _height(panel: Panel, width: float) -> float:
    """Height of a panel in inches: rows take what they need, curves a share of their width."""
    if not panel.y.ticks:
        return panel.height / _PIXELS_PER_INCH
    return float(np.clip(_HEIGHT_PER_WIDTH * width, _LOWEST_PANEL, _HIGHEST_PANEL))


def _drop_repeated_labels(grid: Sequence[Axes], panels: Sequence[Panel], columns: int) -> None:
    """Label the axes of the first column and of the last row alone, where all are alike.

    ``grid``: axes row by row, of which the first ones have panels.
    """
    same_x = len({panel.x.label for panel in panels}) == 1
    same_y = len({panel.y.label for panel in panels}) == 1
    for number, axes in enumerate(grid[: len(panels)]):
        if same_y and number % columns:
            axes.set_ylabel("")
        if same_x and number + columns < len(panels):
            axes.set_xlabel("")


def _legend(chart: Chart) -> list[Key]:
    """The keys of a chart's legend: curves that look alike, in colour and dashes, share one.

    An *end* is the name of a curve where it ends. Where several curves of a panel share a colour,
    their names are written there and not in the legend.
    """
    keys = {key.name: key for key in chart.legend}
    for panel in chart.panels:
        for end in panel.ends:
            if end not in _ends_of_one_look(panel):
                keys.setdefault(end.name, Key(end.name, end.colour, _dash_of(panel, end)))
    names_of_look: dict[tuple[str, str], list[str]] = {}
    for key in keys.values():
        names_of_look.setdefault((key.colour, key.dash), []).append(key.name)
    return [Key(", ".join(names), colour, dash) for (colour, dash), names in names_of_look.items()]


def _ends_of_one_look(panel: Panel) -> list[End]:
    """Ends of solid curves that share a colour: their names stand beside them."""
    solid = [end for end in panel.ends if not _dash_of(panel, end)]
    colours = [end.colour for end in solid]
    return [end for end in solid if colours.count(end.colour) > 1]


def _dash_of(panel: Panel, end: End) -> str:
    for mark in panel.marks:
        if isinstance(mark, Stroke) and mark.colour == end.colour and mark.dash:
            return mark.dash
    return ""


def _add_legend(figure: Figure, keys: Sequence[Key]) -> None:
    """Add a legend above the panels, in as many columns as fit.

    The number of columns is tried from the largest down, since a legend's width is only known once
    it is made.
    """
    handles = [
        Line2D([], [], color=_ink(key.colour), label=key.name, linestyle=_line_style(key.dash))
        for key in keys
    ]
    for columns in range(min(len(keys), _MOST_LEGEND_COLUMNS), 0, -1):
        legend = figure.legend(
            handles=handles, loc="outside upper center", ncols=columns, handlelength=1.6,
            columnspacing=1.2,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _keep_inside(figure: Figure) -> None:
    """Shorten texts that would end outside of the figure, and break labels longer than an axis.

    Lengths are in pixels. A text that is too long is made smaller first, and cut if that is not
    enough.
    """
    for axes in figure.axes:
        label = axes.yaxis.label
        if label.get_window_extent().height > 1.1 * axes.bbox.height:
            label.set_text(label.get_text().replace(", ", ",\n", 1).replace(" − ", " −\n", 1))
    right_edge = figure.bbox.x1 - 1
    for text in figure.findobj(Text):
        words = str(text.get_text())
        if not words or text.get_rotation() or text.get_window_extent().x1 <= right_edge:
            continue
        text.set_fontsize(_SMALLEST_FONT)
        box = text.get_window_extent()
        if box.x1 > right_edge:
            fitting = int(len(words) * (right_edge - box.x0) / box.width) - 1
            text.set_text(f"{words[: max(fitting, 1)]}…")


class _PgfRenderer(RendererPgf):
    """Measures letters by matplotlib's fonts, so that no LaTeX is needed to write a file for it."""

    get_text_width_height_descent = RendererBase.get_text_width_height_descent

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False,
        mtext: Any = None,
    ) -> None:  # fmt: skip
        super().draw_text(gc, x, y, escape_latex(s), prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]


def _write_pgf(figure: Figure, path: Path) -> None:
    """Write a figure as PGF, drawing commands that LaTeX reads, without running LaTeX."""
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
    """Draw a panel into matplotlib's axes: scales, ticks, limits, title and marks.

    Ticks are the panel's own; minor ones are taken away. A panel without ticks at y is a chart of
    rows and has no left edge.
    """
    if panel.x.log:
        axes.set_xscale("log")
    if panel.y.log:
        axes.set_yscale("log")
    for side, axis in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        side.set_major_locator(FixedLocator([value for value, _ in axis.ticks]))
        side.set_major_formatter(FixedFormatter([text for _, text in axis.ticks]))
        side.set_minor_locator(NullLocator())
        side.set_label_text(axis.label)
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.set_title(panel.title)
    if not panel.y.ticks:
        axes.spines["left"].set_visible(False)
    for mark in panel.marks:
        _draw_mark(axes, mark)


def _draw_mark(axes: Axes, mark: Mark) -> None:
    """Draw a line, an area, dots or a label into matplotlib's axes.

    ``_ink``: the colour in print. The scales make marks a little smaller than on a screen.
    """
    if isinstance(mark, Stroke):
        axes.plot(
            mark.x, mark.y, color=_ink(mark.colour), linewidth=_LINE_SCALE * mark.width,
            linestyle=_line_style(mark.dash), alpha=mark.opacity,
        )  # fmt: skip
    elif isinstance(mark, Area):
        look: dict[str, Any] = {
            "facecolor": _ink(mark.colour), "edgecolor": "none", "alpha": mark.opacity,
            "linewidth": 0,
        }  # fmt: skip
        if mark.outline:
            look = {"facecolor": "none", "edgecolor": _ink(mark.colour), "linewidth": 0.8}
        axes.fill_between(mark.x, mark.low, mark.high, **look)
    elif isinstance(mark, Dots):
        axes.plot(
            mark.x, mark.y, "o", color=_ink(mark.colour), markersize=_DOT_SCALE * mark.size,
            markerfacecolor="white" if mark.hollow else None, clip_on=False,
        )  # fmt: skip
    elif isinstance(mark, Label):
        axes.annotate(
            mark.text, (mark.x, mark.y), xytext=(0, -_OFFSET_SCALE * mark.rise),
            textcoords="offset points", ha="left", annotation_clip=False, in_layout=False,
        )  # fmt: skip


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Write names at the ends of curves that share a colour, inside of the axes and moved apart.

    Heights and places are shares of the panel's height. ``spread_heights`` keeps them a line apart.
    """
    ends = sorted(_ends_of_one_look(panel), key=lambda end: (end.y, end.name))
    heights = [float(panel.y.place(end.y)) for end in ends]
    places = spread_heights(heights, 11 / panel.height, 0.04, 0.98)
    for place, end in zip(places.tolist(), ends, strict=True):
        axes.annotate(
            end.name, (1.0, place), xycoords="axes fraction", xytext=(-2, 4),
            textcoords="offset points", va="center", ha="right", color=end.colour,
        )  # fmt: skip


def _ink(colour: str) -> str:
    return _BLACK if colour == INK else colour


def _line_style(dash: str) -> Any:
    return (0, tuple(map(float, dash.split()))) if dash else "-"


def _origin(report: Report) -> dict[str, object]:
    """What the numbers of a report's figures stand on, to be written beside each figure.

    ``study_hash``: of what the study asks for. ``settings``: how the intervals were made.
    """
    settings = report.settings
    return {
        "run": report.folder.name,
        "study_hash": report.study_hash,
        "interval": settings.prob,
        "bootstrap_replicates": settings.replicates,
        "seed": settings.seed,
        "notes": list(report.notes),
    }


def main(about: str, draw: Draw) -> None:
    """Run a script of ``analysis/`` whose arguments are those of all scripts.

    ``about``: the docstring of the script. ``draw``: draws the figures of one run.
    """
    draw_runs(arguments(about).parse_args(), draw)


def arguments(about: str) -> argparse.ArgumentParser:
    """Make the command line that every script takes: runs, arms to compare, where to write.

    ``about``: the docstring of the script, whose first line is the help. A script may add options.
    """
    parser = _parser(about)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--compare", action="append", default=[], metavar="BASE:TRAINED", help="arms to compare"
    )
    return parser


def _parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about.strip().partition("\n")[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--style", choices=STYLES, default=DEFAULT_STYLE, help="width and letters")
    return parser


def draw_runs(options: argparse.Namespace, draw: Draw) -> None:
    """Gather each run, draw, and write PDF, PGF, PNG, CSV and JSON; print where the PDF is.

    ``options``: of the command line. ``draw``: yields the figures of a run's report by name.
    """
    with _exit_on_user_error():
        pairs = [read_pair(text) for text in options.compare]
        for run in options.runs:
            report = gather(run, pairs)
            # Runs may draw figures of the same name, so several get a folder each.
            folder = options.out / report.name if len(options.runs) > 1 else options.out
            charts = dict(draw(report))
            if not charts:
                raise UserError(f"{run}: has nothing for this figure; its first lines say what "
                                "it shows (--help)", NOTHING_TO_DO)  # fmt: skip
            for name, chart in charts.items():
                print(save(chart, folder, name, _origin(report), options.style)[0])


def main_published(
    about: str,
    draw: Callable[[Sequence[Report]], Iterator[tuple[str, Chart]]],
    takes_runs: bool = False,
) -> None:
    """Run a script that draws published numbers.

    ``about``: the docstring of the script. ``draw``: draws the numbers, with these runs laid over
    them. ``takes_runs``: whether it can lay runs over them.
    """
    parser = _parser(about)
    if takes_runs:
        parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="runs to lay over")
    options = parser.parse_args()
    with _exit_on_user_error():
        reports = [gather(run) for run in options.runs] if takes_runs else []
        origin = {"runs": [report.name for report in reports]}
        for name, chart in draw(reports):
            print(save(chart, options.out, name, origin, options.style)[0])


@contextmanager
def _exit_on_user_error() -> Iterator[None]:
    """Print an error of the user that is raised within, and end the program without a traceback.

    ``error.code``: the exit code of the program.
    """
    try:
        yield
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)
