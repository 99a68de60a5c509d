"""pass@k of every arm."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from rlbhpc.report.details import Details
from rlbhpc.report.figures.curves import pass_at_k_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import UNSOUND, bounds, percent
from rlbhpc.report.sections.parts import Pen


def curves(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Curves and their table, problem set by problem set."""
    nodes: list[Node] = []
    level = f"{100 * report.settings.prob:g} %"
    last = {id(one.trained) for one in report.final} | {id(one.base) for one in report.final}
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        here = [one for one in report.measured if one.problem_set == set_name and one.curve]
        if not here:
            continue
        drawn = [one for one in here if id(one) in last] or here
        nodes.append(el("h3", set_name))
        nodes.append(
            pen.figure(
                f"curves-{set_name}",
                f"pass@k with {level} intervals for problems like these. Base dashed, trained "
                "solid; of a line of checkpoints the last one. Hatched: k above a quarter of the "
                "samples, where a value is little more than one draw; an arm with fewer samples "
                "has a tick at its own quarter.",
                pass_at_k_figure,
                drawn,
                pen.bases,
                pen.colours,
            )
        )
        nodes.append(pass_at_k_table(report, f"pass@k on {set_name}, percent", here))
        nodes += _fixed(report, details, set_name)
    nodes.append(el("p", UNSOUND, class_="soft"))
    return nodes


def exactly_these(report: Report, details: Details) -> list[Node]:
    """pass@k of exactly the problems that were sampled, problem set by problem set."""
    sets = dict.fromkeys(one.of.problem_set for one in details.reliability)
    return [node for set_name in sets for node in _fixed(report, details, set_name)]


def _fixed(report: Report, details: Details, set_name: str) -> list[Node]:
    """Show the same curves for exactly these problems, and what n samples cannot see."""
    here = [one for one in details.reliability if one.of.problem_set == set_name]
    if not here:
        return []
    sizes = report.k(max(int(one.fixed.k[-1]) for one in here))
    rows: list[list[str]] = []
    for one in here:
        at = {k: i for i, k in enumerate(one.fixed.k.tolist())}
        cells = [
            bounds(one.fixed.interval, at[k]) + ("*" if one.fixed.model_based[at[k]] else "")
            if k in at
            else "–"
            for k in sizes
        ]
        rows.append([one.of.label, percent(one.threshold), *cells])
    heads = ["arm", "hidden below", *(f"k = {k:,}" for k in sizes)]
    return [
        table(f"pass@k of exactly these problems of {set_name}, percent", heads, rows),
        el(
            "p",
            "Intervals hold the noise of sampling alone, not the choice of problems. *: from "
            "fitted distributions, since no unbiased variance exists for k above n/2. Problems "
            "with a success rate below the one under “hidden below” may look unsolvable.",
            class_="soft",
        ),
    ]


def pass_at_k_table(report: Report, caption: str, here: Sequence[Measured]) -> ET.Element:
    """Show pass@k of some arms with intervals, at the k of the report."""
    reach = max(int(one.curve.k[-1]) for one in here if one.curve)
    sizes = report.k(reach)
    rows: list[list[str]] = []
    for one in here:
        assert one.curve is not None
        at = {k: i for i, k in enumerate(one.curve.k.tolist())}
        cells = [bounds(one.curve.interval, at[k]) if k in at else "–" for k in sizes]
        rows.append([one.label, f"{int(one.sampled.sum()):,}", *cells])
    heads = ["arm", "problems", *(f"k = {k:,}" for k in sizes)]
    return table(caption, heads, rows)
