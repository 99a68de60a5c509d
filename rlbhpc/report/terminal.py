"""The report for a terminal: the matrix and a line a comparison; every section on request."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Final

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

#: Prose wider than this are hard to read, however wide the terminal is.
WIDEST: Final = 100
# Space between two columns, as the table draws it.
_GAP: Final = 2
_HEADING: Final = "bold underline"
# Notes that are printed before it is said how many more there are.
_PRINTED_NOTES: Final = 6


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

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[str]], left_columns: int = 1
    ) -> None:
        """Print a table whose first ``left_columns`` columns stand to the left."""
        table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
        for i, head in enumerate(heads):
            side = "left" if i < left_columns else "right"
            table.add_column(Text(head), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)
        self._console.print()

    def fits(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table is no wider than the console with every cell on one line."""
        columns = zip(heads, *rows, strict=True)
        widths = [max(map(cell_len, column)) for column in columns]
        return sum(widths) + _GAP * (len(widths) - 1) <= self._console.width

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Print prose, headings and tables of the page; figures, lists and folds are left out.

        ``nodes``: HTML elements and texts of the page. Explanations in a soft colour are dimmed.
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
        """Print a table of the page; one that is too wide as a list: each row by its first cell.

        ``table``: its HTML element. ``_text``: all text within an element.
        """
        self.blank()
        self.prose(table.findtext("caption", ""), style="dim")
        heads = [_text(head) for head in table.iter("th")]
        rows = [[_text(cell) for cell in row.iter("td")] for row in table.iterfind("tbody/tr")]
        if self.fits(heads, rows):
            self.table(heads, rows)
            return
        for name, *values in rows:
            self.prose(name, style="bold")
            self.table(["", ""], list(zip(heads[1:], values, strict=True)))


def _text(node: ET.Element) -> str:
    return "".join(node.itertext())


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print the answer, and with ``verbose`` every section of the page in words and tables.

    Width, colours and pipes are the console's affair. ``printable`` replaces characters that move a
    cursor, hide or reorder text.
    """
    printer = Printer(console)
    printer.prose(printable(report.name), style=_HEADING)
    if report.question:
        printer.prose(printable(report.question))
    print_answer(report, console)
    if verbose:
        for pair in report.last_comparisons:
            _print_comparison(printer, report, pair)
        for part in Part:
            _print_part(printer, report, part)
    print_notes(report, console, None if verbose else _PRINTED_NOTES)
    settings = report.settings
    printer.prose(
        f"Intervals: {100 * settings.prob:g} %, problems like these; {settings.replicates:,} "
        f"bootstrap replicates, seed {settings.seed}. Responses behind it: rlbhpc show "
        f"{_quoted_folder(report)} --problem ID.",
        style="dim",
    )


def print_answer(report: Report, console: Console) -> None:
    """Print the matrix of answers where it fits, and one line a comparison.

    The lines are a table if it fits into the console, and else sentences. ``pooled_lines``: answers
    over seeds of one training, and over problem sets.
    """
    printer = Printer(console)
    if not report.last_comparisons:
        advice = "" if report.study_arms else "; name a pair with --compare BASE:TRAINED"
        printer.prose(f"No two arms can be compared{advice}; --terminal -v shows what was sampled.")
        return
    _print_matrix(printer, report)
    heads = ["", "arm", "set", "only base/trained", "net at K, points", "K", "at k = 1"]
    rows = [_comparison_row(report, pair) for pair in report.last_comparisons]
    if printer.fits(heads, rows):
        printer.table(heads, rows, left_columns=3)
    else:
        for pair in report.last_comparisons:
            printer.prose(printable(comparison_line(pair)))
    for text in pooled_lines(report):
        printer.prose(printable(text))


def print_notes(report: Report, console: Console, most: int | None = _PRINTED_NOTES) -> None:
    """Print what a reader must know, and how many notes there are beyond ``most``.

    ``printable`` replaces characters that move a cursor, hide or reorder text.
    """
    printer = Printer(console)
    for note in report.notes[:most]:
        printer.prose(f"· {printable(note)}")
    more = len(report.notes) - len(report.notes[:most])
    if more:
        command = f"rlbhpc report {_quoted_folder(report)} --terminal -v"
        printer.prose(f"· and {count_text(more, 'more note')}: {command}")


def print_sentences(report: Report, console: Console) -> None:
    """Print what follows from each comparison, in sentences, and under which conditions.

    ``pair.words``: the answer in sentences. ``printable`` replaces characters that move a cursor,
    hide or reorder text.
    """
    printer = Printer(console)
    for pair in report.last_comparisons:
        printer.prose(printable(pair.title), style="bold")
        for sentence in (*pair.words, conditions(report, pair)):
            printer.prose(printable(sentence))
        printer.blank()


def _quoted_folder(report: Report) -> str:
    """The run's folder as a word of a command."""
    return printable(shlex.quote(str(report.folder)))


def _arm_name(report: Report, pair: Comparison) -> str:
    """The trained arm, with its base where there are several."""
    base = f" against {pair.base.arm}" if several_bases(report) else ""
    return printable(pair.trained.arm + base)


def _comparison_row(report: Report, pair: Comparison) -> list[str]:
    """Cells of one comparison: its word, who it is about, the counts and the differences.

    ``lost.count, gained.count``: problems that only the base, or only the trained arm, solves.
    ``pair.reach``: the largest k, at which ``net_text`` gives the difference.
    """
    lost, gained = pair.answer.lost, pair.answer.gained
    return [
        verdict(pair),
        _arm_name(report, pair),
        printable(pair.problem_set),
        f"{lost.count}/{gained.count} of {len(pair.problems):,}",
        net_text(pair).removeprefix("net "),
        f"{pair.reach:,}",
        net_at_one_text(pair),
    ]


def _print_matrix(printer: Printer, report: Report) -> None:
    """Print arms × problem sets, a sign and the net in each cell; nothing for a single cell.

    The *net* is the difference of pass@k, trained minus base, at the largest k. Too wide a matrix
    is left out: the lines below it say the same.
    """
    rows: dict[str, dict[str, str]] = {}
    for pair in report.last_comparisons:
        cell = f"{sign(pair)} {points_text(float(pair.net.estimate))}"
        rows.setdefault(_arm_name(report, pair), {})[pair.problem_set] = cell
    sets = [set_name for set_name, _ in report.by_set(report.last_comparisons)]
    heads = ["", *map(printable, sets)]
    lines = [[arm, *(cells.get(set_name, "–") for set_name in sets)] for arm, cells in rows.items()]
    if len(rows) * len(sets) > 1 and printer.fits(heads, lines):
        printer.table(heads, lines)


def _print_comparison(printer: Printer, report: Report, pair: Comparison) -> None:
    """Print one comparison: its answer, and its sections of the page.

    ``aspects_of``: what a report shows; some aspects have elements for every comparison.
    """
    printer.blank()
    printer.prose(printable(pair.title), style=_HEADING)
    printer.prose(f"Answer: {pair.answer.headline}.", style="bold")
    for aspect in aspects_of(report):
        if aspect.comparison is not None:
            printer.nodes(aspect.comparison(report, pair))


def _print_part(printer: Printer, report: Report, part: Part) -> None:
    """Print one part of the page, if it has anything.

    ``aspects_of``: what a report shows; each aspect gives the elements of one part. Responses are
    too long for a terminal; ``rlbhpc show`` prints them problem by problem.
    """
    if part is Part.EVIDENCE:
        return
    nodes: list[Node] = []
    for aspect in aspects_of(report):
        if aspect.part is part and aspect.section is not None:
            nodes += aspect.section(report)
    if nodes:
        printer.blank()
        printer.prose(part.value, style=_HEADING)
        printer.nodes(nodes)
