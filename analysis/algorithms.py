"""Algorithms side by side: pass@1, pass@K and the sampling-efficiency gap on every problem set.

In the report of a study: `analysis: {aspects: [./analysis/algorithms.py]}`.
Example: python analysis/algorithms.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, single_chart
from rlbhpc.report.chart import DASHED, Chart, Colours, Panel, linear_axis, row_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import MeasuredArm, powers_of_two
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import interval_columns, percent_text
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval, delta_se_interval
from rlbhpc.stats.difference import LARGE_K

_METRICS = ("pass@1", "pass@K", "gap")


def section(report: Report) -> Iterator[Node]:
    """Figure and table of a run with several trained arms."""
    if len({pair.trained.arm for pair in report.last_comparisons}) < 2:
        return
    caption = (
        "Algorithms side by side: pass@1, pass@K and the gap between pass@K of the base and "
        "pass@1 (smaller is better), each with its interval. Dashed: the base."
    )
    yield el("h3", "Algorithms")
    yield figure(caption, algorithms_chart(report.last_comparisons, report.colours))
    frame = algorithms_frame(report.last_comparisons)
    rows: list[list[Cell]] = []
    for (set_name, label), part in frame.groupby(["problem_set", "label"], sort=False):
        cells: dict[str, Cell] = {}
        for row in part.itertuples():
            mark = "" if row.sound else " ?"
            low, high = map(percent_text, (row.lower, row.upper))
            cells[str(row.metric)] = f"{percent_text(row.value)} [{low}, {high}]{mark}"
        rows.append([str(set_name), str(label), *(cells.get(m) for m in _METRICS)])
    k = ", ".join(dict.fromkeys(f"{int(v):,}" for v in frame.loc[frame["metric"] == "gap", "k"]))
    heads = ["set", "arm", "pass@1, %", "pass@K, %", "gap, points"]
    yield table(f"Algorithms on every problem set, K = {k}", heads, rows)


def algorithms_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw a panel per problem set and metric, one dot per arm, the base as a dashed line."""
    frame = algorithms_frame(pairs)
    panels = [
        _panel(frame, set_name, metric, colours)
        for set_name in dict.fromkeys(frame["problem_set"])
        for metric in _METRICS
    ]
    return Chart(panels, frame)


def _panel(frame: pd.DataFrame, set_name: str, metric: str, colours: Colours) -> Panel:
    part = frame[(frame["problem_set"] == set_name) & (frame["metric"] == metric)]
    trained = part[part["label"] != part["base"]]
    k = int(part["k"].iloc[0])
    title = {"pass@1": "pass@1", "pass@K": f"pass@{k:,}"}.get(metric, f"gap, K = {k:,}")
    unit = "points" if metric == "gap" else "%"
    x = linear_axis([100 * part["lower"], 100 * part["upper"]], unit, zero=True)
    panel = Panel(x, row_axis(max(len(trained), 1)), f"{set_name}: {title}", 30 * len(trained))
    for base in part[part["label"] == part["base"]].itertuples():
        panel.upright(100 * base.value, dash=DASHED, colour=colours[base.arm])
    for number, row in enumerate(trained.itertuples()):
        # An arm that is compared with two bases has a row for each.
        again = (trained["arm"] == row.arm).sum() > 1
        middle = panel.row(number, f"{row.arm} against {row.base}" if again else str(row.arm))
        ends = 100 * row.lower, 100 * row.upper
        name = f"{row.label}, {metric}"
        panel.points(100 * row.value, middle, colours[row.arm], *ends, name=name, sideways=True)
    return panel


def algorithms_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """pass@1, pass@K and gap with intervals, one row per problem set, arm and metric.

    Rows of the base stand beside those of the arms; K is that of the gap.
    """
    rows = []
    for pair in pairs:
        gap_k = min(LARGE_K, powers_of_two(pair.base_counts.reach)[-1])
        gap = delta_se_interval(
            pair.base_counts,
            pair.trained_counts,
            pair.curve.weights,
            gap_k,
            pair.curve.pointwise.prob,
        )
        for side in (pair.base, pair.trained):
            curve = side.curve
            assert curve is not None
            place_of = {k: i for i, k in enumerate(curve.k.tolist())}
            last = place_of.get(gap_k, len(place_of) - 1)
            for metric, place in (("pass@1", 0), ("pass@K", last)):
                k = int(curve.k[place])
                rows.append(_row(pair, side, metric, k, curve.interval[place]))
        rows.append(_row(pair, pair.trained, "gap", gap_k, gap))
    return pd.DataFrame(rows).drop_duplicates(ignore_index=True)


def _row(
    pair: Comparison, side: MeasuredArm, metric: str, k: int, value: Interval
) -> dict[str, object]:
    return {
        "problem_set": pair.base.problem_set,
        "base": pair.base.label,
        "arm": side.arm,
        "step": side.step,
        "label": side.label,
        "metric": metric,
        "k": k,
        **interval_columns("value", value, sound=True),
    }


charts = single_chart("algorithms", lambda report: report.last_comparisons, algorithms_chart)
ASPECT = Aspect(Part.TRAINING, section)

if __name__ == "__main__":
    main(__doc__, charts)
