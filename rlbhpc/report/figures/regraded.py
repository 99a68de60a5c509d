"""pass@k of the same samples under two graders."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, end_labels, k_axis
from rlbhpc.report.regraded import Regraded


def regraded_figure(shown: Sequence[Regraded], colours: Colours) -> Drawn:
    """Draw both curves of each arm on the left, and other minus own grader on the right."""
    with canvas(DOUBLE, 2.7, 2) as (figure, (curves, difference)):
        reach = max(int(one.k[-1]) for one in shown)
        ends = []
        for panel in (curves, difference):
            k_axis(panel, reach)
        for one in shown:
            colour, (own, other) = colours[one.of.arm], one.rates
            curves.plot(one.k, 100 * own, color=colour)
            curves.plot(one.k, 100 * other, ":", color=colour)
            d = one.difference
            difference.fill_between(
                one.k, 100 * d.lower, 100 * d.upper, color=colour, alpha=0.16, linewidth=0
            )
            difference.plot(one.k, 100 * d.estimate, color=colour)
            ends.append((100 * float(d.estimate[-1]), one.of.label, colour))
        curves.set_ylim(0, 100)
        curves.set_ylabel("pass@k, % (dotted: other grader)")
        difference.axhline(0, color=INK, linewidth=0.6)
        difference.set_ylabel("other − own grader, points")
        end_labels(difference, ends)
    return Drawn(figure, regraded_frame(shown))


def regraded_frame(shown: Sequence[Regraded]) -> pd.DataFrame:
    """pass@k under both graders and their difference, one row per arm and k."""
    parts = [
        pd.DataFrame(
            {
                "problem_set": one.of.problem_set,
                "arm": one.of.arm,
                "step": one.of.step,
                "k": one.k,
                "own": one.rates[0],
                "other": one.rates[1],
                "difference": one.difference.estimate,
                "lower": one.difference.lower,
                "upper": one.difference.upper,
                "own_grader": one.graders[0],
                "other_grader": one.graders[1],
            }
        )
        for one in shown
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
