"""The sampling-efficiency gap: pass@K of the base minus pass@1 of the trained model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, single_chart
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.axes import points_axis, row_axis
from rlbhpc.report.draw.chart import Chart, Colours, Panel
from rlbhpc.report.markup import Node, el
from rlbhpc.report.phrases import bounded, bounds


def comparison(_: Report, pair: Comparison) -> Iterator[Node]:
    """The gap of one comparison in words."""
    yield el(
        "p",
        f"Sampling-efficiency gap, base pass@{pair.gap_k:,} − trained pass@1: "
        f"{bounds(pair.gap, sign=True)} points; smaller is better.",
    )


def delta_se_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw base pass@K − trained pass@1 with intervals, the smallest at the top."""
    order = sorted(pairs, key=lambda pair: float(pair.gap.estimate))
    x = points_axis([pair.gap for pair in order], "base pass@K − trained pass@1, points")
    panel = Panel(x, row_axis(max(len(order), 1)), height=34 * max(len(order), 1))
    for number, pair in enumerate(order):
        name = f"{pair.trained.label}, {pair.base.problem_set} (K = {pair.gap_k:,})"
        middle = panel.row(number, name)
        ends = 100 * pair.gap.lower, 100 * pair.gap.upper
        colour = colours[pair.trained.arm]
        panel.points(100 * pair.gap.estimate, middle, colour, *ends, name=name, sideways=True)
    return Chart([panel], lambda: delta_se_frame(pairs))


def delta_se_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """The gap with its interval, one row per comparison."""
    return pd.DataFrame(
        {
            **pair.key,
            "k": pair.gap_k,
            **bounded("delta_se", pair.gap, sound=True),
            "problems": len(pair.problems),
        }
        for pair in pairs
    )


charts = single_chart("delta_se", lambda report: report.final, delta_se_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"delta_se": delta_se_frame(report.every_comparison)},
    metrics=("Delta_SE",),
)
