"""What lies beyond the samples: pass@k for k above n.

In the report of a study: `analysis: {aspects: [./analysis/extrapolation.py]}`.
Example: python analysis/extrapolation.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once, tables_of
from rlbhpc.report.chart import DOTTED, Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.compare import Settings
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, extrapolate
from rlbhpc.stats.extrapolation import FACTOR, Extrapolation
from rlbhpc.stats.priors import LEAST, LEAST_SAMPLES

# Samples of which a tenth can tell a distribution of rates.
_LEAST_SAMPLES: Final = FACTOR * LEAST_SAMPLES


@dataclass(frozen=True)
class HeldOut:
    """Prediction from a part of the samples, beside what all of them show.

    ``n``: samples per problem that the prediction was made from. ``k``: draw size predicted, at
    most the full n. ``predicted``: envelope of the models. ``observed``: unbiased pass@k from all
    samples.
    """

    n: int
    k: int
    predicted: Interval
    observed: float

    @property
    def passed(self) -> bool:
        """Whether the envelope holds what was observed."""
        return bool(self.predicted.covers(self.observed))


def held_out_check(counts: Counts, rng: np.random.Generator, fraction: float = 0.1) -> HeldOut:
    """Predict pass@n from a part of the samples and compare with all of them.

    Samples of a problem are exchangeable, so a part of them has a hypergeometric count; the same
    tenfold step that :func:`extrapolate` takes beyond n is taken here up to n.

    ``rng``: generator that chooses the part. ``fraction``: share of the samples to predict from.

    ``counts.reach``: n, the least number of samples of a problem. ``thinned`` holds, for every
    problem, how many of ``part`` samples drawn from its n are right.
    """
    part = int(fraction * counts.reach)
    if not 0 < fraction < 1 or part < LEAST_SAMPLES:
        raise UserError(
            f"a share {fraction} of {counts.reach} samples is no part to predict from; "
            f"take a share between 0 and 1 that leaves at least {LEAST_SAMPLES} samples"
        )
    k = min(counts.reach, FACTOR * part)
    # Right ones in a random part of each problem's samples.
    thinned = Counts.of(part, rng.hypergeometric(counts.c, counts.n - counts.c, part))
    predicted = extrapolate(thinned, k).band[0]
    return HeldOut(part, k, predicted, observed=float(counts.pass_at_k(k).mean()))


@dataclass(frozen=True)
class Beyond:
    """Prediction for one arm, and how a prediction from a tenth of its samples came out."""

    measured: MeasuredArm
    prediction: Extrapolation
    check: HeldOut | None


@once
def beyond(report: Report) -> list[Beyond]:
    """Extrapolate the arms of the last comparisons to ten times their samples."""
    predicted = []
    for arm in report.compared_arms:
        both = prediction(arm.counts[arm.curve_rows], report.settings)
        if both is not None:
            predicted.append(Beyond(arm, *both))
    return predicted


def prediction(counts: Counts, settings: Settings) -> tuple[Extrapolation, HeldOut | None] | None:
    """Extrapolate an arm to ten times its samples; None where it has too few for that."""
    if counts.reach < 4 or len(counts) < LEAST:
        return None
    k = np.unique(np.geomspace(1, FACTOR * counts.reach, 40).round().astype(np.int64))
    rng = np.random.default_rng(settings.seed)
    fixed = counts.reach >= _LEAST_SAMPLES and not counts.stop_after.any()
    check = held_out_check(counts, rng) if fixed else None
    return extrapolate(counts, k, settings.prob), check


def section(report: Report) -> Iterator[Node]:
    """Extrapolated curves and their checks, problem set by problem set."""
    for set_name, arms in report.by_set(beyond(report)):
        yield el("h3", f"{set_name}: pass@k beyond the samples")
        yield figure(
            "Observed up to n; beyond (dotted), the middle and the envelope of three "
            "models (Beta, Beta with unsolvable problems, power law), for these problems. "
            "Rings: what a tenth of the samples predicted for n.",
            extrapolation_chart(arms, report.colours),
        )
        rows: list[list[Cell]] = []
        for arm in arms:
            check: list[Cell] = ["–", "–", None]
            if arm.check is not None:
                held = arm.check
                check = [interval_text(held.predicted), percent_text(held.observed), held.passed]
            prediction = arm.prediction
            rows.append(
                [
                    arm.measured.label,
                    int(prediction.k[-1]),
                    interval_text(prediction.band[-1]),
                    *check,
                ]
            )
        heads = ["arm", "K", "predicted pass@K, %", "check: predicted", "observed", "held"]
        yield table(f"Predictions on {set_name}; 10 n at the most", heads, rows)


def extrapolation_chart(arms: Sequence[Beyond], colours: Colours) -> Chart:
    """Draw observed curves up to n and the model band from 1 to 10 n."""
    frame = extrapolation_frame(arms)
    panel = Panel(k_axis(int(frame["k"].max())), percent_axis(), height=240)
    for number, arm in enumerate(arms):
        assert arm.measured.curve is not None
        colour = colours[arm.measured.arm]
        band, k, n = arm.prediction.band, arm.prediction.k, int(arm.measured.curve.k[-1])
        panel.band(k, 100 * band.lower, 100 * band.upper, colour)
        observed = 100 * arm.measured.curve.interval.estimate
        dash = colours.dash(arm.measured.arm)
        panel.line(arm.measured.curve.k, observed, colour, name=arm.measured.arm, dash=dash)
        after = k >= n
        panel.line(k[after], 100 * band.estimate[after], colour, dash=DOTTED)
        panel.upright(n)
        if arm.check is not None:
            predicted = arm.check.predicted
            place = arm.check.k * 2 ** (0.06 * (number + 1))
            ends = 100 * predicted.lower, 100 * predicted.upper
            name = f"{arm.measured.arm}, predicted for n"
            panel.points(place, 100 * predicted.estimate, colour, *ends, name=name, hollow=True)
        panel.end(100 * band.estimate, arm.measured.arm, colour)
    first = min(int(arm.measured.curve.k[-1]) for arm in arms if arm.measured.curve)
    panel.label(first, 100, "beyond n: models only", rise=-3)
    return Chart([panel], frame)


def extrapolation_frame(arms: Sequence[Beyond]) -> pd.DataFrame:
    """Band of the models, one row per arm and k, with what a tenth of the samples predicted."""
    parts = []
    for arm in arms:
        band, check = arm.prediction.band, arm.check
        reach = int(arm.measured.curve.k[-1]) if arm.measured.curve else 0
        columns = {
            **arm.measured.key,
            "k": arm.prediction.k,
            "beyond_n": arm.prediction.k > reach,
            **interval_columns("predicted", band),
            "check_k": check.k if check else 0,
            "check_predicted": float(check.predicted.estimate) if check else np.nan,
            "check_observed": check.observed if check else np.nan,
            "check_passed": check.passed if check else False,
            "sound": band.sound,
        }
        parts.append(columns)
    return stack_rows(parts)


charts = charts_by_set("extrapolation", beyond, extrapolation_chart)

ASPECT = Aspect(
    Part.MORE,
    section,
    tables=tables_of(beyond, extrapolation=extrapolation_frame),
    metrics=("power-law exponent",),
)

if __name__ == "__main__":
    main(__doc__, charts)
