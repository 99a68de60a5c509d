"""pass@k of every arm: one grid of small multiples with shared axes, and the numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.columns import stacked
from rlbhpc.report.draw.axes import k_axis, percent_axis
from rlbhpc.report.draw.chart import Chart, Key, Panel
from rlbhpc.report.draw.palette import Colours
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import UNSOUND, bounds

# Columns of k in a table, the largest among them.
_COLUMNS = 6


def curve_grid(report: Report) -> ET.Element | None:
    """Draw the last checkpoints of all arms, a panel per problem set, on the same axes."""
    sets = {name: compared_arms(report, name) for name in report.problem_sets}
    drawn = {name: arms for name, arms in sets.items() if arms}
    if not drawn:
        return None
    chart = pass_at_k_chart(drawn, report.colours)
    level = f"{100 * report.settings.prob:g} %"
    caption = (
        f"pass@k with {level} intervals for problems like these, of a line of checkpoints the "
        "last one. Shaded: k above a quarter of the samples, where a value is little more than "
        "one draw; an arm with fewer samples has a dot at its own quarter."
    )
    return figure(caption, chart)


def compared_arms(report: Report, set_name: str) -> list[Measured]:
    """Arms of the last comparisons on a problem set; all that have curves where there are none."""
    curves = [m for m in report.measured if m.problem_set == set_name and m.curve]
    last = {id(side) for pair in report.final for side in (pair.base, pair.trained)}
    return [m for m in curves if id(m) in last] or curves


def pass_at_k_chart(sets: dict[str, list[Measured]], colours: Colours) -> Chart:
    """Draw the curve and interval of each arm, a panel per problem set: base dashed."""
    every = [arm for arms in sets.values() for arm in arms]
    reach = max(int(arm.curve.k[-1]) for arm in every if arm.curve)
    panels = [_panel(name, arms, reach, colours) for name, arms in sets.items()]
    names = dict.fromkeys(arm.arm for arm in every)
    legend = tuple(Key(name, colours[name], colours.dash(name)) for name in names)
    return Chart(panels, lambda: curves_frame(every), legend)


def _panel(set_name: str, arms: list[Measured], reach: int, colours: Colours) -> Panel:
    panel = Panel(k_axis(reach), percent_axis(), set_name)
    panel.doubt(max(int(arm.curve.k[-1]) for arm in arms if arm.curve))
    for arm in arms:
        if arm.curve is None:
            continue
        k, interval, colour = arm.curve.k, arm.curve.interval, colours[arm.arm]
        values = 100 * interval.estimate
        panel.band(k, 100 * interval.lower, 100 * interval.upper, colour, 0.12)
        panel.line(k, values, colour, name=arm.arm, dash=colours.dash(arm.arm))
        panel.end(float(values[-1]), arm.arm, colour)
        if 4 < k[-1] < reach:
            quarter = k[-1] / 4
            panel.points(quarter, np.interp(quarter, k, values), colour, name=f"{arm.arm}, n/4")
    return panel


def curves_frame(measured: Sequence[Measured]) -> pd.DataFrame:
    """pass@k with its interval, one row per arm, step, set and k."""
    return stacked(
        {
            **arm.key,
            "k": arm.curve.k,
            "pass_at_k": arm.curve.interval.estimate,
            "lower": arm.curve.interval.lower,
            "upper": arm.curve.interval.upper,
            "sound": arm.curve.interval.sound,
            "problems": arm.curve.support,
            "at_most_quarter_n": arm.curve.informative,
        }
        for arm in measured
        if arm.curve is not None
    )


def section(report: Report) -> list[Node]:
    """The curves in numbers, problem set by problem set."""
    nodes: list[Node] = [
        pass_at_k_table(report, f"pass@k on {set_name}, percent", arms)
        for set_name, arms in report.by_set([m for m in report.measured if m.curve])
    ]
    return [*nodes, el("p", UNSOUND, class_="soft")] if nodes else []


def pass_at_k_table(report: Report, caption: str, arms: Sequence[Measured]) -> ET.Element:
    """Show pass@k of some arms with intervals, the largest k always in sight."""
    reach = max(int(arm.curve.k[-1]) for arm in arms if arm.curve)
    sizes = thinned(report.k(reach))
    rows: list[list[Cell]] = []
    for arm in arms:
        assert arm.curve is not None
        place = {k: i for i, k in enumerate(arm.curve.k.tolist())}
        cells = [bounds(arm.curve.interval, place[k]) if k in place else "–" for k in sizes]
        rows.append([arm.label, int(arm.sampled.sum()), *cells])
    return table(caption, ["arm", "problems", *(f"k = {k:,}" for k in sizes)], rows, last=True)


def thinned(sizes: Sequence[int], most: int = _COLUMNS) -> list[int]:
    """Some of rising sizes, spread evenly, the first and the last among them."""
    chosen = np.linspace(0, len(sizes) - 1, min(most, len(sizes))).round().astype(int)
    return [sizes[i] for i in np.unique(chosen).tolist()]


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a problem set."""
    for set_name, arms in report.by_set([m for m in report.measured if m.curve]):
        yield f"pass_at_k-{set_name}", pass_at_k_chart({set_name: arms}, report.colours)


ASPECT = Aspect(
    Part.CURVES,
    section,
    tables=lambda report: {"pass_at_k": curves_frame(report.measured)},
    metrics=("pass@k",),
)
