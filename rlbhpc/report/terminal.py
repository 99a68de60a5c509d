"""The report for a terminal: the matrix and a line a comparison; every section on request."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlbhpc.report.aspect import Part, Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.answer import (
    comparison_line,
    conditions,
    net_at_one_text,
    net_text,
    pooled_lines,
    several_bases,
    sign,
    verdict,
)
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node
from rlbhpc.report.phrases import count_text, points_text, printable

#: Who is drawn with what: base, trained, and both in one cell.
BASE: Final = "░"
TRAINED: Final = "█"
BOTH: Final = "▓"

_LABELS: Final = 7  # columns before the plot: "100 % ┤"


#: Prose and plots wider than this are hard to read, however wide the terminal is.
WIDEST: Final = 100
# Space between two columns, as the table draws it.
_GAP: Final = 2
_HEAD: Final = "bold underline"
# Notes that are printed before it is said how many more there are.
_NOTES: Final = 6


def block_curves(
    k: ArrayLike, base: ArrayLike, trained: ArrayLike, width: int, height: int = 11
) -> list[str]:
    """Draw two curves over log2 k.

    ``k``: draw sizes, rising. ``base, trained``: rates at each of them. ``width, height``: columns
    in all, labels included, and rows of the plot without its axis. Gives lines, none wider than
    ``width``.
    """
    sizes, base_rates, trained_rates = (np.asarray(v, np.float64) for v in (k, base, trained))
    columns = max(width - _LABELS, 2)
    octaves = np.log2(sizes)
    grid = np.linspace(0, max(octaves[-1], 1e-9), columns)
    top = _round_up(float(np.nanmax([base_rates, trained_rates])))
    rows = [
        _rows(np.interp(grid, octaves, curve), top, height) for curve in (base_rates, trained_rates)
    ]
    lines = []
    for row in range(height):
        cells = (_cell(a == row, b == row) for a, b in zip(*rows, strict=True))
        edge = top * (height - 1 - row) / (height - 1)
        label = f"{100 * edge:3.3g} % " if row % ((height - 1) // 2) == 0 else " " * 6
        lines.append(f"{label}{'┤' if label.strip() else '│'}{''.join(cells)}".rstrip())
    ruler, labels = _axis(float(octaves[-1]), columns)
    return [*lines, " " * 6 + "└" + ruler, " " * _LABELS + labels]


def _rows(curve: NDArray[np.float64], top: float, height: int) -> list[int]:
    """Row of a curve in each column, 0 at the top."""
    return [height - 1 - round(float(v) / top * (height - 1)) for v in curve]


def _cell(base: bool, trained: bool) -> str:
    if base and trained:
        return BOTH
    return BASE if base else TRAINED if trained else " "


def _round_up(value: float) -> float:
    """The next of 1, 5, 10, 20, … 100 percent."""
    return next((s for s in (0.01, 0.05, *np.arange(1, 11) / 10) if value <= s + 1e-12), 1.0)


def _axis(octaves: float, columns: int) -> tuple[str, str]:
    """Ticks at powers of two, and as many of their labels as fit."""
    ruler, labels = ["─"] * columns, [" "] * columns
    free = 0
    for octave in range(int(octaves) + 1):
        place = round(octave / octaves * (columns - 1)) if octaves else 0
        ruler[place] = "┴"
        text = str(1 << octave)
        start = min(max(place - len(text) // 2, 0), columns - len(text))
        if start >= free and start >= 0:
            labels[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(ruler), "".join(labels).rstrip()


class Printer:
    """Prints headings, prose, lines and tables no wider than the console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = min(console.width, WIDEST)

    def prose(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._console.print(Text(text, style=style), width=self.width)

    def blank(self) -> None:
        """Leave a line free."""
        self._console.print()

    def line(self, text: str) -> None:
        """Print a line as it is, cut at the edge."""
        self._console.print(Text(text), no_wrap=True, crop=True)

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[str]], left_columns: int = 1
    ) -> None:
        """Print a table whose first ``left`` columns are text."""
        table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
        for i, head in enumerate(heads):
            side = "left" if i < left_columns else "right"
            table.add_column(Text(head), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
        self._console.print()

    def fits(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table is no wider than the console with every cell on one line."""
        columns = zip(heads, *rows, strict=True)
        widths = [max(map(cell_len, column)) for column in columns]
        return sum(widths) + _GAP * (len(widths) - 1) <= self._console.width

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Print what a section of the page says, but for figures, lists and what is folded there.

        A table that is too wide becomes a list: each row by its first cell, then head by head.
        """
        for node in nodes:
            if isinstance(node, str):
                self.prose(node)
            elif node.tag in {"h3", "h4"}:
                self.blank()
                self.prose(_text(node), style="bold")
            elif node.tag == "p":
                self.prose(_text(node), style="dim" if node.get("class") == "soft" else "")
            elif (table := node.find("table")) is not None:
                self._page_table(table)

    def _page_table(self, table: ET.Element) -> None:
        caption = table.find("caption")
        heads = [_text(head) for head in table.iter("th")]
        rows = [[_text(cell) for cell in row.iter("td")] for row in table.iterfind("tbody/tr")]
        if caption is not None:
            self.blank()
            self.prose(_text(caption), style="dim")
        if self.fits(heads, rows):
            self.table(heads, rows)
            return
        for row in rows:
            self.prose(row[0], style="bold")
            self.table(["", ""], list(zip(heads[1:], row[1:], strict=True)))


def _text(node: ET.Element) -> str:
    return "".join(node.itertext())


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print the answer, and with ``verbose`` every section of the page in words and tables.

    Width, colours and pipes are the console's affair.
    """
    printer = Printer(console)
    printer.prose(printable(report.name), style=_HEAD)
    if report.question:
        printer.prose(printable(report.question))
    print_answer(report, console)
    if verbose:
        for pair in report.final:
            _comparison(printer, report, pair)
        for part in Part:
            _part(printer, report, part)
    print_notes(report, console, None if verbose else _NOTES)
    s = report.settings
    printer.prose(
        f"Intervals: {100 * s.prob:g} %, problems like these; {s.replicates:,} bootstrap "
        f"replicates, seed {s.seed}. Responses behind it: rlbhpc show {_folder(report)} "
        "--problem ID.",
        style="dim",
    )


def print_answer(report: Report, console: Console) -> None:
    """Print the matrix where it fits, and one line a comparison."""
    printer = Printer(console)
    if not report.final:
        advice = "" if report.arms else "; name a pair with --compare BASE:TRAINED"
        printer.prose(f"No two arms can be compared{advice}; --terminal -v shows what was sampled.")
        return
    _matrix(printer, report)
    heads = ["", "arm", "set", "only base/trained", "net at K, points", "K", "at k = 1"]
    rows = [_row(report, pair) for pair in report.final]
    if printer.fits(heads, rows):
        printer.table(heads, rows, left_columns=3)
    else:
        for pair in report.final:
            printer.prose(printable(comparison_line(pair)))
    for text in pooled_lines(report):
        printer.prose(printable(text))


def print_notes(report: Report, console: Console, most: int | None = _NOTES) -> None:
    """Print what a reader must know, and how much more of it there is than ``most``."""
    printer = Printer(console)
    for note in report.notes[:most]:
        printer.prose(f"· {printable(note)}")
    more = len(report.notes) - len(report.notes[:most])
    if more:
        printer.prose(
            f"· and {count_text(more, 'more note')}: rlbhpc report {_folder(report)} --terminal -v"
        )


def print_sentences(report: Report, console: Console) -> None:
    """Print what follows from each comparison, in sentences, and under which conditions."""
    printer = Printer(console)
    for pair in report.final:
        printer.prose(printable(pair.title), style="bold")
        for sentence in (*pair.words, conditions(report, pair)):
            printer.prose(printable(sentence))
        printer.blank()


def _folder(report: Report) -> str:
    """The run's folder as a word of a command."""
    return printable(shlex.quote(str(report.folder)))


def _name(report: Report, pair: Comparison) -> str:
    """The trained arm, with its base where there are several."""
    base = f" against {pair.base.arm}" if several_bases(report) else ""
    return printable(pair.trained.arm + base)


def _row(report: Report, pair: Comparison) -> list[str]:
    lost, gained = pair.answer.lost.count, pair.answer.gained.count
    return [
        verdict(pair), _name(report, pair), printable(pair.problem_set),
        f"{lost}/{gained} of {len(pair.problems):,}", net_text(pair).removeprefix("net "),
        f"{pair.reach:,}", net_at_one_text(pair),
    ]  # fmt: skip


def _matrix(printer: Printer, report: Report) -> None:
    """Arms × problem sets, a sign and the net in each cell."""
    cells = {
        (
            _name(report, pair),
            pair.problem_set,
        ): f"{sign(pair)} {points_text(float(pair.net.estimate))}"
        for pair in report.final
    }
    arms = list(dict.fromkeys(arm for arm, _ in cells))
    sets = [name for name in report.problem_sets if any(s == name for _, s in cells)]
    heads = ["", *map(printable, sets)]
    rows = [[arm, *(cells.get((arm, set_name), "–") for set_name in sets)] for arm in arms]
    if len(rows) * len(sets) > 1 and printer.fits(heads, rows):
        printer.table(heads, rows)


def _comparison(printer: Printer, report: Report, pair: Comparison) -> None:
    printer.blank()
    printer.prose(printable(pair.title), style=_HEAD)
    printer.prose(f"Answer: {pair.answer.headline}.", style="bold")
    for text in block_curves(pair.curve.k, *pair.rates, printer.width):
        printer.line(text)
    printer.prose(f"pass@k over k.  {BASE} base   {TRAINED} trained   {BOTH} both", style="dim")
    for aspect in aspects_of(report):
        if aspect.comparison is not None:
            printer.nodes(aspect.comparison(report, pair))


def _part(printer: Printer, report: Report, part: Part) -> None:
    if part is Part.EVIDENCE:  # responses are long; `rlbhpc show` prints them problem by problem
        return
    nodes = [
        node
        for aspect in aspects_of(report)
        if aspect.part is part and aspect.section is not None
        for node in aspect.section(report)
    ]
    if nodes:
        printer.blank()
        printer.prose(part.value, style=_HEAD)
        printer.nodes(nodes)
