"""pass@k for a budget of response tokens or of device-hours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rlbhpc.report.budgets import Budget
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, end_labels


def budget_figure(shown: Sequence[Budget], bases: set[str], colours: Colours) -> Drawn:
    """Draw each arm over budgets of one unit, base dashed, with its interval."""
    with canvas(DOUBLE, 2.8) as (figure, (axes,)):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda spent, _: f"{spent:,.4g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        ends = []
        for one in shown:
            colour, at = colours[one.of.arm], one.interval
            known = np.flatnonzero(~np.isnan(at.estimate))
            axes.fill_between(
                one.spent, 100 * at.lower, 100 * at.upper, color=colour, alpha=0.16, linewidth=0
            )
            dash = "--" if one.of.arm in bases else "-"
            axes.plot(one.spent, 100 * at.estimate, dash, color=colour, label=one.of.label)
            if len(known):
                ends.append((100 * float(at.estimate[known[-1]]), one.of.label, colour))
        axes.set_xlim(min(one.spent[0] for one in shown), max(one.spent[-1] for one in shown))
        axes.set_ylim(0, 100)
        axes.set_xlabel(shown[0].unit)
        axes.set_ylabel("pass@budget, %")
        end_labels(axes, ends)
    return Drawn(figure, budget_frame(shown))


def budget_frame(shown: Sequence[Budget]) -> pd.DataFrame:
    """pass@budget with its interval, one row per arm and budget."""
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "problem_set": one.of.problem_set,
                    "arm": one.of.arm,
                    "step": one.of.step,
                    "unit": one.unit,
                    "budget": one.spent,
                    "pass_at_budget": one.interval.estimate,
                    "lower": one.interval.lower,
                    "upper": one.interval.upper,
                }
            )
            for one in shown
        ],
        ignore_index=True,
    )
