"""How many problems are never, sometimes and always solved, before and after training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.axes import Axis, linear_axis
from rlbhpc.report.draw.chart import Chart, Colours, Key, Panel
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Node
from rlbhpc.report.phrases import bounds, stacked
from rlbhpc.stats import accuracy_histogram
from rlbhpc.stats.coverage_table import BINS


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """The figure of one comparison."""
    caption = (
        "Problems by accuracy; exactly 0 and exactly 1 have bins of their own. Outlined: "
        f"{pair.base.arm}, filled: {pair.trained.arm}. Share of problems never solved, trained "
        f"minus base: {bounds(pair.never_solved, sign=True)} points."
    )
    yield figure(caption, histogram_chart(pair, report.colours))


def histogram_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw the bars of base (outlined) and trained arm side by side, in the study's bins."""
    frame = histogram_frame([pair])
    panel = bars_panel(frame, colours[pair.base.arm], colours[pair.trained.arm])
    legend = tuple(Key(side.arm, colours[side.arm]) for side in (pair.base, pair.trained))
    return Chart([panel], frame, legend)


def bars_panel(frame: pd.DataFrame, base: str, trained: str, title: str = "") -> Panel:
    """Draw the problems per bin of both sides of a frame with side, bin and problems."""
    # Every third bin has its label: those of all would not fit on a telephone.
    ticks = tuple((float(i), name) for i, name in enumerate(BINS) if i % 3 == 0 or i == 11)
    x = Axis(-0.6, len(BINS) - 0.4, "accuracy c/n of a problem", ticks)
    panel = Panel(x, linear_axis([frame["problems"]], "problems", zero=True), title, 160)
    for side, colour, shift in (("base", base, -0.4), ("trained", trained, 0.02)):
        counts = frame.loc[frame["side"] == side, "problems"].tolist()
        for i, count in enumerate(counts):
            if count:
                text = f"{side}, {BINS[i]}: {count} problems"
                panel.bar((i + shift, i + shift + 0.38), (0, count), colour,
                          filled=side == "trained", text=text)  # fmt: skip
    return panel


def histogram_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Problems per bin of accuracy, of both sides."""
    return stacked(
        {
            "problem_set": side.problem_set,
            "side": name,
            "arm": side.arm,
            "step": side.step,
            "bin": BINS,
            "problems": accuracy_histogram(*side.counts[rows].places),
        }
        for pair in pairs
        for name, side, rows in (
            ("base", pair.base, pair.rows[0]),
            ("trained", pair.trained, pair.rows[1]),
        )
    )


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a comparison."""
    for pair in report.final:
        yield f"accuracy_histogram-{pair.slug}", histogram_chart(pair, report.colours)


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"accuracy_histogram": histogram_frame(report.final)},
    metrics=("accuracy histogram",),
)
