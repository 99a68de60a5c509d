"""pass@k curves of all arms on one problem set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import (
    DOUBLE,
    Drawn,
    canvas,
    end_labels,
    k_axis,
    mark_uninformative,
)
from rlbhpc.report.measured import Measured


def pass_at_k_figure(shown: Sequence[Measured], bases: set[str], colours: Colours) -> Drawn:
    """Draw the curve and interval of each arm: base dashed, trained solid.

    Parameters
    ----------
    shown
        Arms with samples, of one problem set.
    bases
        Names of arms that are a base.
    colours
        Of the report.
    """
    frame = curves_frame(shown)
    reach = max(int(one.curve.k[-1]) for one in shown if one.curve)
    with canvas(DOUBLE, 3.2) as (figure, (axes,)):
        k_axis(axes, reach)
        ends = []
        for one in shown:
            if one.curve is None:
                continue
            k, interval, colour = one.curve.k, one.curve.interval, colours[one.arm]
            values = 100 * interval.estimate
            dash = "--" if one.arm in bases else "-"
            axes.fill_between(
                k, 100 * interval.lower, 100 * interval.upper, color=colour, alpha=0.16, linewidth=0
            )
            axes.plot(k, values, dash, color=colour, label=one.label)
            ends.append((float(values[-1]), one.label, colour))
            if 4 < k[-1] < reach:
                # The hatching is that of the longest curve; a shorter one has a mark of its own.
                quarter = k[-1] / 4
                height = np.interp(quarter, k, values)
                axes.scatter(quarter, height, 80, color=colour, marker="|")
        axes.set_ylim(0, 100)
        axes.set_ylabel("pass@k, %")
        mark_uninformative(axes, reach)
        end_labels(axes, ends)
    return Drawn(figure, frame)


def curves_frame(shown: Sequence[Measured]) -> pd.DataFrame:
    """pass@k with its interval, one row per arm, step, set and k."""
    parts = [
        pd.DataFrame(
            {
                "problem_set": one.problem_set,
                "arm": one.arm,
                "step": one.step,
                "k": one.curve.k,
                "pass_at_k": one.curve.interval.estimate,
                "lower": one.curve.interval.lower,
                "upper": one.curve.interval.upper,
                "sound": one.curve.interval.sound,
                "problems": one.curve.support,
                "at_most_quarter_n": one.curve.informative,
            }
        )
        for one in shown
        if one.curve is not None
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"k": np.empty(0, int)})
