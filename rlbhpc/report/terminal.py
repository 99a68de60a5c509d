"""The report for a terminal: the answer in words, curves in blocks, and the tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from rich.console import Console

from rlbhpc.report.blocks import BASE, BOTH, TRAINED, block_curves
from rlbhpc.report.compare import Comparison
from rlbhpc.report.console import Printer
from rlbhpc.report.details import Details
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import UNSOUND, adjusted_p, bounds, count, plain, share, signed
from rlbhpc.report.sections.beyond import beyond_samples
from rlbhpc.report.sections.comparisons import rerun, supported
from rlbhpc.report.sections.curves import exactly_these
from rlbhpc.report.sections.evidence import chains
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.sections.responses import behaviour
from rlbhpc.report.sections.samples import judging
from rlbhpc.report.sections.training import over_training

# Ids that a line lists before it says how many more there are.
_IDS: Final = 12


def print_report(report: Report, details: Details, console: Console) -> None:
    """Print all of a report. Width, colours and pipes are the console's affair.

    Answer, curves and counts have a shape of their own here; every other section is that of the
    page, in words and tables.
    """
    show = Printer(console)
    pen = Pen(report, draws=False)
    show.head(plain(report.name))
    if report.question:
        show.prose(plain(report.question))
    for comparison in report.final:
        _comparison(show, report, comparison)
    if not report.final:
        show.prose("No two arms can be compared; what was sampled stands below.")
    _pass_at_k(show, report)
    show.nodes(exactly_these(report, details))
    _steps(show, report)
    _part(show, "More samples", beyond_samples(details, pen))
    _part(show, "Over training", over_training(report, details, pen))
    _part(show, "Responses", behaviour(report, details, pen))
    _tallies(show, report.measured)
    show.nodes(judging(report, details, pen))
    _part(show, "Chains of thought", chains(details))
    _notes(show, report)


def _part(show: Printer, head: str, nodes: list[Node]) -> None:
    if nodes:
        show.blank()
        show.head(head)
        show.nodes(nodes)


def _comparison(show: Printer, report: Report, one: Comparison) -> None:
    show.blank()
    show.head(plain(one.title))
    show.prose(f"Answer: {one.conclusion.headline}.", style="bold")
    for sentence in one.words:
        show.prose(sentence)
    show.blank()
    show.lines(block_curves(one.curve.k, *one.rates, show.width))
    show.prose(f"pass@k over k.  {BASE} base   {TRAINED} trained   {BOTH} both", style="dim")
    show.blank()
    _difference(show, report, one)
    _facts(show, report, one)
    _coverage(show, report, one)


def _difference(show: Printer, report: Report, one: Comparison) -> None:
    level = f"{100 * report.settings.prob:g} %"
    shown = {*report.k(one.reach), one.reach}
    chosen = [i for i, k in enumerate(one.curve.k.tolist()) if k in shown]
    show.table(
        ["k", "trained − base, points", f"{level} at this k", f"{level} for all k", "k ≤ n/4"],
        [
            [
                f"{one.curve.k[i]:,}",
                signed(float(one.curve.pointwise.estimate[i])),
                _only_bounds(one, i, band=False),
                _only_bounds(one, i, band=True),
                "yes" if one.curve.informative[i] else "no",
            ]
            for i in chosen
        ],
        left=0,
    )


def _only_bounds(one: Comparison, i: int, *, band: bool) -> str:
    interval = one.curve.band if band else one.curve.pointwise
    return bounds(interval, i, sign=True).partition(" ")[2]


def _facts(show: Printer, report: Report, one: Comparison) -> None:
    found = one.conclusion.crossing
    sets = " and ".join(str(part) for part in found.sets) or "none"
    moved = adjusted_p(one.curve.p_moved, one.p_moved_holm, len(report.final))
    lines = [
        f"Crossings that the data allow: {sets}; P(crossing ≤ {one.reach:,}) "
        f"{share(found.probability)}.",
        f"Moved at any k: p {moved}.",
        f"Sampling-efficiency gap, base pass@{one.gap_k} − trained pass@1: "
        f"{bounds(one.gap, sign=True)} points.",
        f"Share of problems never solved, trained − base: "
        f"{bounds(one.shift.never_solved, sign=True)} points.",
    ]  # fmt: skip
    for line in lines:
        show.prose(line)
    show.blank()


def _coverage(show: Printer, report: Report, one: Comparison) -> None:
    if one.solved is None:
        show.prose("Coverage is not known: counts were imported of unequal numbers of samples.")
        return
    cells = one.solved.counts
    show.table(
        [f"solved in {one.solved_in:,} samples", "by trained", "not by trained"],
        [
            ["by base", count(cells["both"]), count(cells["base_only"])],
            ["not by base", count(cells["trained_only"]), count(cells["neither"])],
        ],
    )
    for name, which in (("base", one.solved.base_only), ("trained", one.solved.trained_only)):
        if len(which):
            show.prose(f"Solved by {name} only: {_ids([one.problems[i] for i in which])}")
    p = adjusted_p(one.solved.p_value, one.p_solved_holm, len(report.final))
    show.prose(f"McNemar's exact test, two-sided: p {p}. {rerun(one)}")
    show.nodes(supported(one))
    if one.solved.base_only.size or one.solved.trained_only.size:
        where = plain(report.folder.name)
        show.prose(f"The responses behind it: rlbhpc show {where} --problem ID", style="dim")


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - _IDS:,} more" if len(ids) > _IDS else ""
    return plain(", ".join(ids[:_IDS])) + more


def _pass_at_k(show: Printer, report: Report) -> None:
    show.blank()
    show.head(f"pass@k, percent, with {100 * report.settings.prob:g} % intervals")
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        shown = [one for one in report.measured if one.problem_set == set_name and one.curve]
        reach = max((int(one.curve.k[-1]) for one in shown if one.curve), default=0)
        rows = [[f"{k:,}", *(_at(one, k) for one in shown)] for k in report.k(reach)]
        # As many columns beside each other as fit; a column is about 20 characters.
        beside = max(1, (show.width - 8) // 22)
        show.prose(plain(set_name), style="bold")
        for first in range(0, len(shown), beside):
            part = slice(first + 1, first + 1 + beside)
            heads = [plain(one.label) for one in shown[first : first + beside]]
            show.table(["k", *heads], [[row[0], *row[part]] for row in rows], left=0)
    show.prose(UNSOUND, style="dim")


def _at(one: Measured, k: int) -> str:
    assert one.curve is not None
    at = np.flatnonzero(one.curve.k == k)
    return bounds(one.curve.interval, int(at[0])) if len(at) else "–"


def _steps(show: Printer, report: Report) -> None:
    for line_up in report.line_ups:
        if len(line_up) > 1:
            last = line_up[-1]
            show.blank()
            show.head(f"{plain(last.trained.arm)} over steps on {plain(last.base.problem_set)}")
            show.table(
                ["step", "conclusion", "pass@1 − base", "pass@K − base", "K"],
                [
                    [
                        f"{one.trained.step:,}",
                        str(one.conclusion.headline),
                        bounds(one.curve.pointwise, 0, sign=True),
                        bounds(one.conclusion.at_reach, sign=True),
                        f"{one.reach:,}",
                    ]
                    for one in line_up
                ],
                left=0,
            )


def _tallies(show: Printer, found: Sequence[Measured]) -> None:
    show.blank()
    show.head("What became of the samples")
    heads = ["arm", "set", "asked", "missing", "judged", "right", "no answer", "timeouts",
             "truncated", "failed", "verifier errors"]  # fmt: skip
    rows = []
    for one in found:
        t = one.tally
        numbers = (t.asked, t.missing, t.judged, t.right, t.no_answer, t.timeouts, t.truncated,
                   t.failed, t.verifier_errors)  # fmt: skip
        cells = ("?" if value is None else f"{value:,}" for value in numbers)
        rows.append([plain(one.label), plain(one.problem_set), *cells])
    if show.width >= 90:
        show.table(heads, rows, left=2)
    else:
        for row in rows:
            show.prose(f"{row[0]} on {row[1]}", style="bold")
            show.table(["", ""], list(zip(heads[2:], row[2:], strict=True)))


def _notes(show: Printer, report: Report) -> None:
    if report.notes:
        show.head("Notes")
        for note in report.notes:
            show.prose(f"· {plain(note)}")
    s = report.settings
    show.prose(
        f"Intervals: {100 * s.prob:g} %, problems like these; {s.replicates:,} bootstrap "
        f"replicates, seed {s.seed}.",
        style="dim",
    )
