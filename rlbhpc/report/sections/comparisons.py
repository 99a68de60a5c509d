"""A base against each trained arm: difference, crossings, accuracy, coverage, steps."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from typing import Final

from rlbhpc.report.compare import Comparison
from rlbhpc.report.evidence import Evidence
from rlbhpc.report.figures.coverage import CELLS, coverage_figure
from rlbhpc.report.figures.difference import difference_figure
from rlbhpc.report.figures.efficiency import delta_se_figure
from rlbhpc.report.figures.histogram import histogram_figure
from rlbhpc.report.figures.steps import steps_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import adjusted_p, bounds, percent, several, share, signed
from rlbhpc.report.sections.evidence import anchor
from rlbhpc.report.sections.parts import Pen

_IDS: Final = 200


def comparisons(report: Report, shown: list[Evidence], pen: Pen) -> list[Node]:
    """Each comparison in full, then all of them side by side."""
    nodes: list[Node] = []
    for line_up in report.line_ups:
        nodes += _comparison(report, line_up[-1], _places(shown, line_up[-1]), pen)
        if len(line_up) > 1:
            nodes.append(
                pen.figure(
                    f"steps-{line_up[-1].slug}",
                    "Difference to the base over training steps, at k = 1 and at the largest k.",
                    steps_figure,
                    line_up,
                    pen.colours,
                )
            )
            nodes.append(_steps_table(line_up))
    if report.final:
        nodes.append(el("h3", "All comparisons"))
        nodes.append(
            pen.figure(
                "coverage",
                "Problems solved at least once by both, by one and by neither.",
                coverage_figure,
                report.final,
                pen.colours,
            )
        )
        nodes.append(
            pen.figure(
                "delta-se",
                "Sampling-efficiency gap: what the base reaches with K samples and the trained "
                "model does not with one. Smaller is better.",
                delta_se_figure,
                report.final,
                pen.colours,
            )
        )
    return nodes


def _comparison(report: Report, one: Comparison, places: dict[str, str], pen: Pen) -> list[Node]:
    found = one.conclusion.crossing
    sets = " and ".join(str(part) for part in found.sets) or "none"
    return [
        el("h3", one.title),
        pen.figure(
            f"difference-{one.slug}",
            "Trained minus base, paired over problems. The wide band holds the whole curve at "
            "once; the narrow one is for a single k that was fixed beforehand.",
            difference_figure,
            one,
            pen.colours,
        ),
        _difference_table(report, one),
        el(
            "p",
            f"Crossings that the data allow: {sets}; P(crossing ≤ {one.reach:,}) "
            f"{share(found.probability)}. Moved at any k: p "
            f"{adjusted_p(one.curve.p_moved, one.p_moved_holm, len(report.final))}.",
        ),
        pen.figure(
            f"histogram-{one.slug}",
            "Problems by accuracy; exactly 0 and exactly 1 have bins of their own. Share of "
            "problems never solved, trained minus base: "
            f"{bounds(one.shift.never_solved, sign=True)} points.",
            histogram_figure,
            one,
            pen.colours,
        ),
        *_coverage(report, one, places),
    ]


def _difference_table(report: Report, one: Comparison) -> ET.Element:
    shown = {*report.k(one.reach), one.reach}
    rows: list[list[Cell]] = [
        [
            k,
            percent(float(one.rates[0][i])),
            percent(float(one.rates[1][i])),
            signed(float(one.curve.pointwise.estimate[i])),
            bounds(one.curve.pointwise, i, sign=True).partition(" ")[2],
            bounds(one.curve.band, i, sign=True).partition(" ")[2],
            bool(one.curve.informative[i]),
        ]
        for i, k in enumerate(one.curve.k.tolist())
        if k in shown
    ]
    level = f"{100 * report.settings.prob:g} %"
    heads = ["k", "base", "trained", "difference", f"{level} at this k", f"{level} for all k",
             "k ≤ n/4"]  # fmt: skip
    return table(f"Difference in pass@k, points, {several(len(one.problems), 'problem')}", heads,
                 rows)  # fmt: skip


def _coverage(report: Report, one: Comparison, places: dict[str, str]) -> list[Node]:
    if one.solved is None:
        return [el("p", "Coverage is not known: imported counts of unequal numbers of samples.")]
    rows: list[list[Cell]] = []
    for name, words in CELLS.items():
        which = getattr(one.solved, name).tolist()
        ids = _ids([one.problems[i] for i in which], places) if "only" in name else ""
        rows.append([words, len(which), percent(one.solved.shares[name]), ids])
    nodes: list[Node] = [
        table(
            f"Solved at least once in {one.solved_in:,} samples",
            ["by", "problems", "%", "ids"],
            rows,
            wide=(3,),
        ),
        el(
            "p",
            f"McNemar's exact test, two-sided: p "
            f"{adjusted_p(one.solved.p_value, one.p_solved_holm, len(report.final))}. {rerun(one)}",
        ),
    ]
    return [*nodes, *supported(one)]


def rerun(one: Comparison) -> str:
    """Say how many problems would be in another cell by chance."""
    return f"Sampled again, about {one.cell_changes:.1f} of these problems would change their cell."


def supported(one: Comparison) -> list[Node]:
    """Say what is kept of what the base solves, and what is new."""
    # Nothing is retained or discovered where neither of the two solves anything.
    if one.support is None or math.isnan(float(one.support["nscr"].estimate)):
        return []
    s = one.support
    return [
        el(
            "p",
            f"Of what the base solves, {bounds(s['srr'])} % is retained; of what the trained "
            f"model solves, {bounds(s['ndr'])} % is newly discovered; harmonic mean of the two "
            f"{bounds(s['sds'])} %, net change {bounds(s['nscr'], sign=True)} points.",
        )
    ]


def _ids(problems: list[str], places: dict[str, str]) -> ET.Element:
    """Ids one after the other, with links to those whose responses are shown."""
    cell = el("span")
    for i, problem in enumerate(problems[:_IDS]):
        place = places.get(problem)
        node = el("a", problem, href=f"#{place}") if place else el("span", problem)
        node.tail = ", " if i + 1 < min(len(problems), _IDS) else ""
        cell.append(node)
    if len(problems) > _IDS:
        cell.append(el("span", f" and {len(problems) - _IDS:,} more"))
    return cell


def _places(shown: list[Evidence], one: Comparison) -> dict[str, str]:
    return {case.problem: anchor(case) for part in shown if part.of is one for case in part.cases}


def _steps_table(line_up: list[Comparison]) -> ET.Element:
    rows: list[list[Cell]] = [
        [
            one.trained.step,
            str(one.conclusion.headline),
            bounds(one.curve.pointwise, 0, sign=True),
            bounds(one.conclusion.at_reach, sign=True),
            one.reach,
        ]
        for one in line_up
    ]
    heads = ["step", "answer", "pass@1 − base, points", "pass@K − base, points", "K"]
    return table("Over training steps", heads, rows)
