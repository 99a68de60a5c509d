"""The sampling-efficiency gap of all comparisons of a run, with intervals.

In the report of a study: `analysis: {aspects: [./analysis/delta_se.py]}`.
Example: python analysis/delta_se.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, single_chart, tables_of
from rlbhpc.report.chart import Chart, Colours, Panel, points_axis, row_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el
from rlbhpc.report.measured import powers_of_two
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import interval_columns, interval_text
from rlbhpc.stats import Interval, delta_se_interval
from rlbhpc.stats.difference import LARGE_K


@dataclass(frozen=True)
class Gap:
    """Base pass@``k`` minus trained pass@1 of one comparison."""

    pair: Comparison
    k: int
    difference: Interval


@once_each
def gaps(report: Report) -> Iterator[Gap]:
    """Work out the gap of each last comparison, at the study's K = 256 or what the base has."""
    for pair in report.last_comparisons:
        base, trained = pair.base_counts, pair.trained_counts
        k = min(LARGE_K, powers_of_two(base.reach)[-1])
        weights = report.settings.weights(pair.problems)
        difference = delta_se_interval(base, trained, weights, k, report.settings.prob)
        yield Gap(pair, k, difference)


def gap_sentence(report: Report, pair: Comparison) -> Iterator[Node]:
    """The sampling-efficiency gap of one comparison in words."""
    gap = next(gap for gap in gaps(report) if gap.pair is pair)
    yield el(
        "p",
        f"Sampling-efficiency gap, base pass@{gap.k:,} − trained pass@1: "
        f"{interval_text(gap.difference, sign=True)} points; smaller is better.",
    )


def delta_se_chart(gaps: Sequence[Gap], colours: Colours) -> Chart:
    """Draw base pass@K − trained pass@1 with intervals, a row each, the smallest at the top.

    It is the *sampling-efficiency gap*: what the base reaches in K samples and the trained arm does
    not in one.
    """
    rising = sorted(gaps, key=lambda gap: float(gap.difference.estimate))
    x = points_axis([gap.difference for gap in rising], "base pass@K − trained pass@1, points")
    panel = Panel(x, row_axis(len(rising)), height=34 * len(rising))
    for number, gap in enumerate(rising):
        trained = gap.pair.trained
        name = f"{trained.label}, {trained.problem_set} (K = {gap.k:,})"
        panel.interval_row(number, name, gap.difference, colours[trained.arm])
    return Chart([panel], lambda: delta_se_frame(gaps))


def delta_se_frame(gaps: Sequence[Gap]) -> pd.DataFrame:
    """The gap, base pass@K − trained pass@1, with its interval, one row per comparison.

    ``pair.key``: columns that name the comparison.
    """
    return pd.DataFrame(
        {
            **gap.pair.key,
            "k": gap.k,
            **interval_columns("delta_se", gap.difference, sound=True),
            "problems": len(gap.pair.problems),
        }
        for gap in gaps
    )


charts = single_chart("delta_se", gaps, delta_se_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=gap_sentence,
    tables=tables_of(gaps, delta_se=delta_se_frame),
    metrics=("Delta_SE",),
    charts=charts,
)

if __name__ == "__main__":
    main(__doc__, charts)
