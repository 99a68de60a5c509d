"""pass@k beyond the samples: what was observed, the band of all models, and a held-out check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.beyond import Beyond
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, end_labels, k_axis


def extrapolation_figure(shown: Sequence[Beyond], bases: set[str], colours: Colours) -> Drawn:
    """Draw observed curves up to n and the model band from 1 to 10 n."""
    frame = extrapolation_frame(shown)
    with canvas(DOUBLE, 3.0) as (figure, (axes,)):
        k_axis(axes, int(frame["k"].max()))
        ends = []
        for number, one in enumerate(shown):
            assert one.of.curve is not None
            colour = colours[one.of.arm]
            dash = "--" if one.of.arm in bases else "-"
            band, n = one.prediction.band, int(one.of.curve.k[-1])
            k = one.prediction.k
            axes.fill_between(
                k, 100 * band.lower, 100 * band.upper, color=colour, alpha=0.16, linewidth=0
            )
            axes.plot(one.of.curve.k, 100 * one.of.curve.interval.estimate, dash, color=colour)
            out = k >= n
            axes.plot(k[out], 100 * band.estimate[out], ":", color=colour, linewidth=1.2)
            axes.axvline(n, color=INK, linewidth=0.5, linestyle=(0, (2, 3)))
            if one.check is not None:
                p = one.check.predicted
                middle = 100 * float(p.estimate)
                reach = [[middle - 100 * float(p.lower)], [100 * float(p.upper) - middle]]
                place = one.check.k * 2 ** (0.06 * (number + 1))
                axes.errorbar(
                    place, [middle], yerr=reach, fmt="x", color=colour, markersize=4,
                    elinewidth=0.7, capsize=1.5,
                )  # fmt: skip
            ends.append((100 * float(band.estimate[-1]), one.of.label, colour))
        axes.set_ylim(0, 100)
        axes.set_ylabel("pass@k, %")
        axes.text(
            min(int(one.of.curve.k[-1]) for one in shown if one.of.curve), 1.0,
            " beyond n: models only", transform=axes.get_xaxis_transform(), va="bottom",
            fontsize=6.5,
        )  # fmt: skip
        end_labels(axes, ends)
    return Drawn(figure, frame)


def extrapolation_frame(shown: Sequence[Beyond]) -> pd.DataFrame:
    """Band of the models, one row per arm and k, with what a tenth of the samples predicted."""
    parts = []
    for one in shown:
        band, check = one.prediction.band, one.check
        reach = int(one.of.curve.k[-1]) if one.of.curve else 0
        parts.append(
            pd.DataFrame(
                {
                    "problem_set": one.of.problem_set,
                    "arm": one.of.arm,
                    "step": one.of.step,
                    "k": one.prediction.k,
                    "beyond_n": one.prediction.k > reach,
                    "predicted": band.estimate,
                    "lower": band.lower,
                    "upper": band.upper,
                    "check_k": check.k if check else 0,
                    "check_predicted": float(check.predicted.estimate) if check else np.nan,
                    "check_observed": check.observed if check else np.nan,
                    "check_passed": check.passed if check else False,
                    "notes": "; ".join(band.notes),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
