"""The sampling-efficiency gap of all comparisons, as dots with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.compare import Comparison
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas


def delta_se_figure(comparisons: Sequence[Comparison], colours: Colours) -> Drawn:
    """Draw base pass@K − trained pass@1, smallest at the top; smaller is better."""
    order = sorted(comparisons, key=lambda one: -float(one.gap.estimate))
    with canvas(DOUBLE, 0.7 + 0.34 * max(len(order), 1)) as (figure, (axes,)):
        for row, one in enumerate(order):
            middle = 100 * float(one.gap.estimate)
            reach = [[middle - 100 * float(one.gap.lower)], [100 * float(one.gap.upper) - middle]]
            axes.errorbar(
                [middle], row, xerr=reach, fmt="o", markersize=4, capsize=2, elinewidth=1,
                color=colours[one.trained.arm],
            )  # fmt: skip
        names = [f"{o.trained.label}, {o.base.problem_set} (K = {o.gap_k:,})" for o in order]
        axes.set_yticks(np.arange(len(order)), names)
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.set_xlabel("base pass@K − trained pass@1, points")
    return Drawn(figure, delta_se_frame(comparisons))


def delta_se_frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """The gap with its interval, one row per comparison."""
    return pd.DataFrame(
        {
            "problem_set": one.base.problem_set,
            "base": one.base.arm,
            "trained": one.trained.arm,
            "step": one.trained.step,
            "k": one.gap_k,
            "delta_se": float(one.gap.estimate),
            "lower": float(one.gap.lower),
            "upper": float(one.gap.upper),
            "sound": bool(one.gap.sound),
            "problems": len(one.problems),
        }
        for one in comparisons
    )
