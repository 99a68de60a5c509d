"""Algorithms side by side: pass@1, pass@K and the sampling-efficiency gap on every problem set."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.compare import Comparison
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, marker_of
from rlbhpc.report.measured import Measured
from rlbhpc.stats import Interval


def algorithms_figure(comparisons: Sequence[Comparison], colours: Colours) -> Drawn:
    """Draw one panel per problem set and metric, one dot per arm, the base as a dashed line."""
    frame = algorithms_frame(comparisons)
    sets = list(dict.fromkeys(frame["problem_set"]))
    panels = ("pass@1", "pass@K", "gap")
    arms = list(dict.fromkeys(frame.loc[frame["label"] != frame["base"], "label"]))
    place_of = {arm: i for i, arm in enumerate(arms)}
    height = 0.5 + (0.5 + 0.19 * len(arms)) * len(sets)
    with canvas(DOUBLE, height, 3, len(sets)) as (figure, axes):
        for place, panel in enumerate(axes):
            set_name, metric = sets[place // 3], panels[place % 3]
            part = frame[(frame["problem_set"] == set_name) & (frame["metric"] == metric)]
            for row in part.itertuples():
                if row.label == row.base:
                    panel.axvline(100 * row.value, color=colours[row.arm], linestyle="--", lw=1)
                    continue
                middle = 100 * row.value
                ends = [[middle - 100 * row.lower], [100 * row.upper - middle]]
                panel.errorbar(
                    [middle], -place_of[row.label], xerr=ends, markersize=4,
                    fmt=marker_of(place_of[row.label]),
                    capsize=2, elinewidth=0.9, color=colours[row.arm],
                )  # fmt: skip
            names = arms if place % 3 == 0 else [""] * len(arms)
            panel.set_yticks([-i for i in range(len(arms))], names)
            panel.set_ylim(-len(arms) + 0.4, 0.6)
            k = int(part["k"].iloc[0]) if len(part) else 0
            title = {"pass@1": "pass@1", "pass@K": f"pass@{k:,}"}.get(metric, f"gap, K = {k:,}")
            panel.set_title(f"{set_name}: {title}", loc="left")
            if place >= len(axes) - 3:
                panel.set_xlabel("points" if metric == "gap" else "%")
    return Drawn(figure, frame)


def algorithms_frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """pass@1, pass@K and gap with intervals, one row per problem set, arm and metric.

    Rows of the base stand beside those of the arms; K is that of the gap.
    """
    rows = []
    for one in comparisons:
        for side in (one.base, one.trained):
            curve = side.curve
            if curve is None:
                continue
            at = {k: i for i, k in enumerate(curve.k.tolist())}
            last = at.get(one.gap_k, len(at) - 1)
            for metric, place in (("pass@1", 0), ("pass@K", last)):
                cell = curve.interval[place]
                rows.append(_row(one, side, metric, int(curve.k[place]), cell))
        rows.append(_row(one, one.trained, "gap", one.gap_k, one.gap))
    return pd.DataFrame(rows).drop_duplicates(ignore_index=True)


def _row(
    one: Comparison, side: Measured, metric: str, k: int, value: Interval
) -> dict[str, object]:
    return {
        "problem_set": one.base.problem_set,
        "base": one.base.label,
        "arm": side.arm,
        "step": side.step,
        "label": side.label,
        "metric": metric,
        "k": k,
        "value": float(value.estimate),
        "lower": float(value.lower),
        "upper": float(value.upper),
        "sound": bool(value.sound),
    }
