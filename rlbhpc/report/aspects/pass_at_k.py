"""pass@k of every arm: one grid of small multiples with shared axes, and the numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set
from rlbhpc.report.draw.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import UNSOUND, interval_columns, interval_texts, stack_rows

# Columns of k in a table, the largest among them.
_COLUMNS = 6


def curve_grid(report: Report) -> ET.Element:
    """Draw the last checkpoints of all arms, a panel per problem set, on the same axes."""
    sets = {name: compared_arms(report, name) for name in report.problem_sets}
    drawn = {name: arms for name, arms in sets.items() if arms}
    chart = pass_at_k_chart(drawn, report.colours)
    level = f"{100 * report.settings.prob:g} %"
    caption = (
        f"pass@k with {level} intervals for problems like these, of a line of checkpoints the "
        "last one. Shaded: k above a quarter of the samples, where one problem holds fewer than "
        "four draws of k; means over problems go on to K. An arm with fewer samples has a dot at "
        "its own quarter."
    )
    if any(arm.counterpart is not None for arms in drawn.values() for arm in arms):
        caption += " Darkest: between the verdict that decides and the other of strict and lenient."
    return figure(caption, chart)


def compared_arms(report: Report, set_name: str) -> list[Measured]:
    """Arms of the last comparisons on a problem set; all that have curves where there are none."""
    curves = [m for m in report.measured if m.problem_set == set_name and m.curve]
    last = {id(side) for pair in report.final for side in (pair.base, pair.trained)}
    return [m for m in curves if id(m) in last] or curves


def pass_at_k_chart(sets: Mapping[str, Sequence[Measured]], colours: Colours) -> Chart:
    """Draw the curve and interval of each arm, a panel per problem set: base dashed."""
    every = [arm for arms in sets.values() for arm in arms]
    reach = max(int(arm.curve.k[-1]) for arm in every if arm.curve)
    panels = [_panel(name, arms, reach, colours) for name, arms in sets.items()]
    return Chart(panels, lambda: curves_frame(every), colours.legend(arm.arm for arm in every))


def set_chart(arms: Sequence[Measured], colours: Colours) -> Chart:
    """Draw the curves of one problem set."""
    return pass_at_k_chart({arms[0].problem_set: arms}, colours)


def _panel(set_name: str, arms: Sequence[Measured], reach: int, colours: Colours) -> Panel:
    panel = Panel(k_axis(reach), percent_axis(), set_name)
    several_steps = len({arm.arm for arm in arms}) < len(arms)
    panel.doubt(max(int(arm.curve.k[-1]) for arm in arms if arm.curve))
    for arm in arms:
        assert arm.curve is not None
        colour = colours[arm.arm]
        name = arm.label if several_steps else arm.arm
        k, values = arm.curve.k, 100 * arm.curve.interval.estimate
        panel.curve(k, arm.curve.interval, colour, name, dash=colours.dash(arm.arm), opacity=0.12)
        panel.end(values, name, colour)
        if arm.counterpart is not None and arm.counterpart.curve is not None:
            again = arm.counterpart.curve
            nearest = 100 * np.interp(k, again.k, again.interval.estimate)
            panel.band(k, np.minimum(values, nearest), np.maximum(values, nearest), colour, 0.4)
        if 4 < k[-1] < reach:
            quarter = k[-1] / 4
            panel.points(quarter, np.interp(quarter, k, values), colour, name=f"{name}, n/4")
    return panel


def curves_frame(measured: Sequence[Measured]) -> pd.DataFrame:
    """pass@k with its interval, one row per arm, step, set and k."""
    return stack_rows(
        {
            **arm.key,
            "k": arm.curve.k,
            **interval_columns("pass_at_k", arm.curve.interval, sound=True),
            "problems": arm.curve.support,
            "at_most_quarter_n": arm.curve.informative,
        }
        for arm in measured
        if arm.curve is not None
    )


def section(report: Report) -> Iterator[Node]:
    """The curves in numbers, problem set by problem set."""
    for set_name, arms in report.by_set(_with_curves(report)):
        yield pass_at_k_table(report, f"pass@k on {set_name}, percent", arms)
    if _with_curves(report):
        yield note(UNSOUND)


def _with_curves(report: Report) -> list[Measured]:
    return [arm for arm in report.measured if arm.curve]


def pass_at_k_table(report: Report, caption: str, arms: Sequence[Measured]) -> ET.Element:
    """Show pass@k of some arms with intervals, the largest k always in sight."""
    reach = max(int(arm.curve.k[-1]) for arm in arms if arm.curve)
    sizes = spread_evenly(report.k(reach))
    rows: list[list[Cell]] = [
        [arm.label, len(arm.curve_rows), *interval_texts(sizes, arm.curve.k, arm.curve.interval)]
        for arm in arms
        if arm.curve
    ]
    return table(caption, ["arm", "problems", *(f"k = {k:,}" for k in sizes)], rows, last=True)


def spread_evenly(sizes: Sequence[int], most: int = _COLUMNS) -> list[int]:
    """Some of rising sizes, spread evenly, the first and the last among them."""
    chosen = np.linspace(0, len(sizes) - 1, min(most, len(sizes))).round().astype(int)
    return [sizes[i] for i in np.unique(chosen).tolist()]


def _select_compared(report: Report) -> list[Measured]:
    return [arm for name in report.problem_sets for arm in compared_arms(report, name)]


charts = charts_by_set("pass_at_k", _select_compared, set_chart)
every_checkpoint = charts_by_set("pass_at_k", _with_curves, set_chart)

ASPECT = Aspect(
    Part.CURVES,
    section,
    tables=lambda report: {"pass_at_k": curves_frame(report.measured)},
    metrics=("pass@k",),
    charts=charts,
)
