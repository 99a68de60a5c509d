"""The report for a terminal: the matrix and a line a comparison; every section on request."""

from __future__ import annotations

import shlex
from typing import Final

from rich.console import Console

from rlbhpc.report.aspect import Part, Report
from rlbhpc.report.aspects import aspects_of, pooled
from rlbhpc.report.aspects.conclusions import conditions
from rlbhpc.report.blocks import BASE, BOTH, TRAINED, block_curves
from rlbhpc.report.compare import Comparison
from rlbhpc.report.console import Printer
from rlbhpc.report.matrix import line, net, several_bases, verdict
from rlbhpc.report.phrases import plain, several, signed

# Notes that are printed before it is said how many more there are.
_NOTES: Final = 6


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print the answer, and with ``verbose`` every section of the page in words and tables.

    Width, colours and pipes are the console's affair.
    """
    printer = Printer(console)
    printer.head(plain(report.name))
    if report.question:
        printer.prose(plain(report.question))
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
    heads = ["", "arm", "set", "lost", "gained", "of", "net at K, points", "K", "at k = 1"]
    rows = [_row(report, pair) for pair in report.final]
    if printer.fits(heads, rows):
        printer.table(heads, rows, left_columns=3)
    else:
        for pair in report.final:
            printer.prose(plain(line(pair)))
    for text in pooled.lines(report):
        printer.prose(plain(text))


def print_notes(report: Report, console: Console, most: int | None = _NOTES) -> None:
    """Print what a reader must know, and how much more of it there is than ``most``."""
    printer = Printer(console)
    for note in report.notes[:most]:
        printer.prose(f"· {plain(note)}")
    more = len(report.notes) - len(report.notes[:most])
    if more:
        printer.prose(
            f"· and {several(more, 'more note')}: rlbhpc report {_folder(report)} --terminal -v"
        )


def print_sentences(report: Report, console: Console) -> None:
    """Print what follows from each comparison, in sentences, and under which conditions."""
    printer = Printer(console)
    for pair in report.final:
        printer.prose(plain(pair.title), style="bold")
        for sentence in (*pair.words, conditions(report, pair)):
            printer.prose(plain(sentence))
        printer.blank()


def _folder(report: Report) -> str:
    """The run's folder as a word of a command."""
    return plain(shlex.quote(str(report.folder)))


def _name(report: Report, pair: Comparison) -> str:
    """The trained arm, with its base where there are several."""
    base = f" against {pair.base.arm}" if several_bases(report) else ""
    return plain(pair.trained.arm + base)


def _row(report: Report, pair: Comparison) -> list[str]:
    looks = verdict(pair)
    counts = [str(side.count) for side in (pair.answer.lost, pair.answer.gained)]
    quick = signed(float(pair.curve.pointwise.estimate[0]))
    return [
        f"{looks.sign} {looks.word}", _name(report, pair), plain(pair.base.problem_set),
        *counts, f"{len(pair.problems):,}", net(pair).removeprefix("net "), f"{pair.reach:,}",
        quick,
    ]  # fmt: skip


def _matrix(printer: Printer, report: Report) -> None:
    """Arms × problem sets, a sign and the net in each cell."""
    cells = {(_name(report, pair), pair.base.problem_set): pair for pair in report.final}
    arms = list(dict.fromkeys(arm for arm, _ in cells))
    sets = [name for name in report.problem_sets if any(s == name for _, s in cells)]
    heads = ["", *map(plain, sets)]
    rows = [[arm, *(_cell(cells.get((arm, set_name))) for set_name in sets)] for arm in arms]
    if len(rows) * len(sets) > 1 and printer.fits(heads, rows):
        printer.table(heads, rows)


def _cell(pair: Comparison | None) -> str:
    if pair is None:
        return "–"
    return f"{verdict(pair).sign} {signed(float(pair.net.estimate))}"


def _comparison(printer: Printer, report: Report, pair: Comparison) -> None:
    printer.blank()
    printer.head(plain(pair.title))
    printer.prose(f"Answer: {verdict(pair).word}.", style="bold")
    printer.lines(block_curves(pair.curve.k, *pair.rates, printer.width))
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
        printer.head(part.value)
        printer.nodes(nodes)
