"""Problems by accuracy before and after training, in the study's twelve bins.

Without a run it draws the published numbers, from figures 5 and 14 of the study.

In the report of a study: `analysis: {aspects: [./analysis/accuracy_histogram.py]}`.
Example: python analysis/accuracy_histogram.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.chart import Axis, Chart, Colours, Key, Panel, linear_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node
from rlbhpc.report.paper import main_published
from rlbhpc.report.phrases import interval_text, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval, accuracy_histogram
from rlbhpc.stats.coverage_table import BINS

PUBLISHED = Path(__file__).parent / "published" / "accuracy_histogram.csv"


def never_solved_shift(report: Report, pair: Comparison) -> Interval:
    """Change in the share of problems never solved, trained minus base, paired over problems."""
    change = (~pair.trained_counts.solved).astype(np.float64) - ~pair.base_counts.solved
    return report.difference_interval(change[:, None], pair.problems)[0]


def accuracy_figure(report: Report, pair: Comparison) -> Iterator[Node]:
    """The figure of how many problems have which accuracy, for both sides of a comparison.

    ``interval_text`` is like ``+2.3 [−1.7, +6.4]``.
    """
    caption = (
        "Problems by accuracy; exactly 0 and exactly 1 have bins of their own. Outlined: "
        f"{pair.base.arm}, filled: {pair.trained.arm}. Share of problems never solved, trained "
        f"minus base: {interval_text(never_solved_shift(report, pair), sign=True)} points."
    )
    yield figure(caption, histogram_chart(pair, report.colours))


def histogram_chart(pair: Comparison, colours: Colours, title: str = "") -> Chart:
    """Draw the bars of base (outlined) and trained arm side by side, in the study's bins."""
    frame = histogram_frame([pair])
    base_colour, trained_colour = colours[pair.base.arm], colours[pair.trained.arm]
    panel = bars_panel(frame, base_colour, trained_colour, title)
    legend = (Key(pair.base.arm, base_colour), Key(pair.trained.arm, trained_colour))
    return Chart([panel], frame, legend)


def bars_panel(
    frame: pd.DataFrame, base_colour: str, trained_colour: str, title: str = ""
) -> Panel:
    """Draw how many problems lie in each bin of accuracy, base and trained side by side.

    ``frame``: a row per side and bin, in the order of ``BINS``, with columns ``side``, ``bin`` and
    ``problems``. The base's bars are outlines left of the bin's middle, the trained arm's are
    filled.
    """
    last = len(BINS) - 1
    # Every third bin has its label: those of all would not fit on a telephone.
    ticks = tuple((float(i), name) for i, name in enumerate(BINS) if i % 3 == 0 or i == last)
    x = Axis(-0.6, last + 0.6, "accuracy c/n of a problem", ticks)
    panel = Panel(x, linear_axis([frame["problems"]], "problems", zero=True), title, 160)
    for side, colour, left in (("base", base_colour, -0.4), ("trained", trained_colour, 0.02)):
        counts = frame.loc[frame["side"] == side, "problems"].tolist()
        for i, count in enumerate(counts):
            if count:
                panel.bar(
                    (i + left, i + left + 0.38), (0, count), colour, filled=side == "trained",
                    hint=f"{side}, {BINS[i]}: {count} problems",
                )  # fmt: skip
    return panel


def histogram_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """One row per comparison, side and bin of accuracy: how many problems lie in the bin.

    ``counts.exchangeable``: samples and right ones of each problem, without a right sample that
    ended the sampling, which would make the rate too high.
    """
    return stack_rows(
        {
            "problem_set": arm.problem_set,
            "side": side,
            "arm": arm.arm,
            "step": arm.step,
            "bin": BINS,
            "problems": accuracy_histogram(*counts.exchangeable),
        }
        for pair in pairs
        for side, arm, counts in (
            ("base", pair.base, pair.base_counts),
            ("trained", pair.trained, pair.trained_counts),
        )
    )


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """Draw one chart for each comparison."""
    for pair in report.last_comparisons:
        title = f"{pair.trained.arm} − {pair.base.arm}, {pair.problem_set}"
        chart = histogram_chart(pair, report.colours, title)
        yield f"accuracy_histogram-{pair.file_stem}", chart


def published_chart() -> Chart:
    """Base outlined, trained filled, one panel per benchmark."""
    table = pd.read_csv(PUBLISHED)
    colour = Colours(["trained"], [])["trained"]
    panels = [
        bars_panel(part, colour, colour, str(benchmark))
        for benchmark, part in table.groupby("benchmark", sort=False)
    ]
    return Chart(panels, table)


def draw(reports: Sequence[Report]) -> Iterator[tuple[str, Chart]]:
    """Draw the comparisons of these runs, or the published ones where there is none."""
    for report in reports:
        yield from charts(report)
    if not reports:
        yield "accuracy_histogram-published", published_chart()


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=accuracy_figure,
    tables=lambda report: {"accuracy_histogram": histogram_frame(report.last_comparisons)},
    metrics=("accuracy histogram",),
    charts=charts,
)

if __name__ == "__main__":
    main_published(__doc__, draw, takes_runs=True)
