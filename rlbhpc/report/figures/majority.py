"""maj@k beside pass@k: what a vote finds of what is there to be found."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, end_labels, k_axis
from rlbhpc.report.responses import Votes


def majority_figure(shown: Sequence[Votes], bases: set[str], colours: Colours) -> Drawn:
    """Draw maj@k with its interval and pass@k thinly above it."""
    with canvas(DOUBLE, 2.8) as (figure, (axes,)):
        k_axis(axes, max(int(one.k[-1]) for one in shown))
        ends = []
        for one in shown:
            colour = colours[one.of.arm]
            dash = "--" if one.of.arm in bases else "-"
            m = one.majority
            axes.fill_between(
                one.k, 100 * m.lower, 100 * m.upper, color=colour, alpha=0.16, linewidth=0
            )
            axes.plot(one.k, 100 * m.estimate, dash, color=colour, marker="o", markersize=3)
            axes.plot(one.k, 100 * one.any_right.estimate, dash, color=colour, linewidth=0.7)
            ends.append((100 * float(m.estimate[-1]), f"{one.of.label}, vote", colour))
            ends.append((100 * float(one.any_right.estimate[-1]), one.of.label, colour))
        axes.set_ylim(0, 100)
        axes.set_ylabel("maj@k and pass@k (thin), %")
        end_labels(axes, ends)
    return Drawn(figure, majority_frame(shown))


def majority_frame(shown: Sequence[Votes]) -> pd.DataFrame:
    """maj@k with its interval and pass@k, one row per arm and k."""
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "problem_set": one.of.problem_set,
                    "arm": one.of.arm,
                    "step": one.of.step,
                    "k": one.k,
                    "maj_at_k": one.majority.estimate,
                    "lower": one.majority.lower,
                    "upper": one.majority.upper,
                    "pass_at_k": one.any_right.estimate,
                }
            )
            for one in shown
        ],
        ignore_index=True,
    )
