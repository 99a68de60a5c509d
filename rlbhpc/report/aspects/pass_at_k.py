"""pass@k of every arm: one grid of small multiples with shared axes, and the numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set
from rlbhpc.report.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.markup import Node, note, table
from rlbhpc.report.measured import MeasuredArm, short_names
from rlbhpc.report.phrases import UNSOUND, interval_columns, interval_texts, stack_rows
from rlbhpc.report.svg import figure

# Columns of k in a table, the largest among them.
_K_COLUMNS: Final = 6


def curve_grid(report: Report) -> ET.Element:
    """Draw pass@k of the last checkpoints of all arms, a panel per problem set, on the same axes.

    ``arm.counterpart``: the same samples by the other verdict, strict or lenient; None where only
    one was stored.
    """
    arms_of_set = dict(report.by_set(_compared_arms(report)))
    level = f"{100 * report.settings.prob:g} %"
    caption = (
        f"pass@k with {level} intervals for problems like these, of a line of checkpoints the "
        "last one. Shaded: k above a quarter of the samples, where one problem holds fewer than "
        "four draws of k; means over problems go on to K. An arm with fewer samples has a dot at "
        "its own quarter."
    )
    if any(arm.counterpart for arms in arms_of_set.values() for arm in arms):
        caption += " Darkest: between the verdict that decides and the other of strict and lenient."
    return figure(caption, pass_at_k_chart(arms_of_set, report.colours))


def _compared_arms(report: Report) -> list[MeasuredArm]:
    """Arms of the last comparisons; on a problem set without any, all that have curves."""
    compared = {id(side) for pair in report.last_comparisons for side in (pair.base, pair.trained)}
    arms = []
    for _, arms_of_set in report.by_set(_arms_with_curves(report)):
        arms += [arm for arm in arms_of_set if id(arm) in compared] or arms_of_set
    return arms


def _arms_with_curves(report: Report) -> list[MeasuredArm]:
    return [arm for arm in report.measured_arms if arm.curve]


def _reach(arms: Sequence[MeasuredArm]) -> int:
    """The largest k of their curves."""
    return max(int(arm.curve.k[-1]) for arm in arms if arm.curve)


def pass_at_k_chart(arms_of_set: Mapping[str, Sequence[MeasuredArm]], colours: Colours) -> Chart:
    """Draw the curve and interval of each arm, a panel per problem set: base dashed."""
    arms = [arm for arms in arms_of_set.values() for arm in arms]
    largest_k = _reach(arms)
    panels = [_panel(name, arms, largest_k, colours) for name, arms in arms_of_set.items()]
    return Chart(panels, lambda: curves_frame(arms), colours.legend(arm.arm for arm in arms))


def set_chart(arms: Sequence[MeasuredArm], colours: Colours) -> Chart:
    """Draw the curves of one problem set."""
    return pass_at_k_chart({arms[0].problem_set: arms}, colours)


def _panel(set_name: str, arms: Sequence[MeasuredArm], largest_k: int, colours: Colours) -> Panel:
    """Draw pass@k of some arms on one problem set, with intervals.

    ``largest_k``: of all panels, so that they share an axis. ``arm.counterpart``: the same samples
    by the verdict that does not decide; the darker band lies between the two curves. ``k[-1]``: the
    largest k of an arm's own samples; a dot marks its quarter, since up to there each problem holds
    four draws of k.
    """
    panel = Panel(k_axis(largest_k), percent_axis(), set_name)
    panel.shade_large_k(_reach(arms))
    for arm, name in zip(arms, short_names(arms), strict=True):
        assert arm.curve is not None
        colour, k, rates = colours[arm.arm], arm.curve.k, arm.curve.interval
        panel.named_curve(k, rates, colour, name, dash=colours.dash(arm.arm), opacity=0.12)
        estimate = 100 * rates.estimate
        if arm.counterpart is not None and arm.counterpart.curve is not None:
            other = arm.counterpart.curve
            other_estimate = 100 * np.interp(k, other.k, other.interval.estimate)
            lower, upper = (
                np.minimum(estimate, other_estimate),
                np.maximum(estimate, other_estimate),
            )
            panel.band(k, lower, upper, colour, 0.4)
        if 4 < k[-1] < largest_k:
            quarter = k[-1] / 4
            panel.points(quarter, np.interp(quarter, k, estimate), colour, name=f"{name}, n/4")
    return panel


def curves_frame(arms: Sequence[MeasuredArm]) -> pd.DataFrame:
    """pass@k with its interval, one row per arm, step, set and k.

    ``curve.support``: problems behind each k. ``curve.informative``: whether k is at most a quarter
    of the samples.
    """
    return stack_rows(
        {
            **arm.key,
            "k": arm.curve.k,
            **interval_columns("pass_at_k", arm.curve.interval, sound=True),
            "problems": arm.curve.support,
            "at_most_quarter_n": arm.curve.informative,
        }
        for arm in arms
        if arm.curve is not None
    )


def section(report: Report) -> Iterator[Node]:
    """The curves in numbers, problem set by problem set."""
    for set_name, arms in report.by_set(_arms_with_curves(report)):
        yield pass_at_k_table(report, f"pass@k on {set_name}, percent", arms)
    if _arms_with_curves(report):
        yield note(UNSOUND)


def pass_at_k_table(report: Report, caption: str, arms: Sequence[MeasuredArm]) -> ET.Element:
    """Show pass@k of some arms with intervals, a column per k, the largest k always in sight.

    ``_reach``: the largest k of any arm. ``report.k``: the k that tables show, up to one.
    ``curve_rows``: positions of the problems in the curve.
    """
    sizes = spread_evenly(report.k(_reach(arms)))
    heads = ["arm", "problems", *(f"k = {k:,}" for k in sizes)]
    rows = [
        [arm.label, len(arm.curve_rows), *interval_texts(sizes, arm.curve.k, arm.curve.interval)]
        for arm in arms
        if arm.curve
    ]
    return table(caption, heads, rows, last=True)


def spread_evenly(values: Sequence[int], most: int = _K_COLUMNS) -> list[int]:
    """At most ``most`` of rising values, spread evenly, the first and the last among them."""
    positions = np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int)
    return [values[position] for position in np.unique(positions).tolist()]


charts = charts_by_set("pass_at_k", _compared_arms, set_chart)
every_checkpoint = charts_by_set("pass_at_k", _arms_with_curves, set_chart)

ASPECT = Aspect(
    Part.CURVES,
    section,
    tables=lambda report: {"pass_at_k": curves_frame(report.measured_arms)},
    metrics=("pass@k",),
    charts=charts,
)
