"""What lies beyond the samples: pass@k for k above n, and how many samples would decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.apart import (
    forecasts_of,
    may_be_forecast,
    prediction,
    studies_of_each,
)
from rlbhpc.report.aspect import Aspect, Errand, Part, Report, charts_by_set, once
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.axes import k_axis, percent_axis
from rlbhpc.report.draw.chart import DOTTED, Chart, Colours, Panel
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded, bounds, percent, several, stacked
from rlbhpc.stats.extrapolation import Extrapolation, HeldOut
from rlbhpc.stats.sequential import Forecast, samples_until_decided


@dataclass(frozen=True)
class Beyond:
    """Prediction for one arm, and how a prediction from a tenth of its samples came out."""

    of: Measured
    prediction: Extrapolation
    check: HeldOut | None


@dataclass(frozen=True)
class More:
    """What more samples would do for a comparison that is undecided.

    ``forecasts``: chance of a decision at several sizes. ``until``: the least of these sizes that
    decides with a chance of 80 %; None where none does. ``studies``: simulated studies of each
    size.
    """

    of: Comparison
    forecasts: tuple[Forecast, ...]
    until: int | None
    studies: int


_PREDICTIONS: Final = Errand(
    prediction,
    lambda report: [(arm.counts[arm.rows], report.settings) for arm in report.compared],
)


@once
def _undecided(report: Report) -> list[Comparison]:
    return [pair for pair in report.final if may_be_forecast(pair.sides, pair.answer)]


def _studies(report: Report) -> int:
    return studies_of_each(len(_undecided(report)))


#: Sent to the other process when the answers are there.
FORECASTS: Final = Errand(
    forecasts_of,
    lambda report: [(pair.sides, report.settings, _studies(report)) for pair in _undecided(report)],
)


@once
def beyond(report: Report) -> list[Beyond]:
    """Extrapolate the arms of the last comparisons to ten times their samples."""
    predicted = _PREDICTIONS.results(report)
    return [
        Beyond(arm, *both) for arm, both in zip(report.compared, predicted, strict=True) if both
    ]


@once
def more(report: Report) -> list[More]:
    """Forecast every undecided comparison at twice and four times its samples."""
    return [
        More(pair, tuple(chances), samples_until_decided(chances), _studies(report))
        for pair, chances in zip(_undecided(report), FORECASTS.results(report), strict=True)
    ]


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """Say what would decide a comparison that is undecided."""
    plan = next((plan for plan in more(report) if plan.of is pair), None)
    if plan is None:
        return
    chances = ", ".join(f"{percent(f.decided)} % with {f.n:,}" for f in plan.forecasts)
    enough = (
        f"{plan.until:,} samples of each problem would decide it with a chance of 80 % or more."
        if plan.until
        else "None of these sizes decides it with a chance of 80 %: more problems would."
    )
    yield el("h4", "What would decide")
    yield el(
        "p",
        f"Chance of a decision with more samples of each problem: {chances}, in "
        f"{several(plan.studies, 'simulation')} of each size from fitted rates. {enough} "
        "`rlbhpc plan --until` draws them where they can decide, for far fewer in all.",
    )


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
                check = [bounds(held.predicted), percent(held.observed), held.passed]
            prediction = arm.prediction
            rows.append([arm.of.label, int(prediction.k[-1]), bounds(prediction.band[-1]), *check])
        heads = ["arm", "K", "predicted pass@K, %", "check: predicted", "observed", "held"]
        yield table(f"Predictions on {set_name}; 10 n at the most", heads, rows)


def extrapolation_chart(arms: Sequence[Beyond], colours: Colours) -> Chart:
    """Draw observed curves up to n and the model band from 1 to 10 n."""
    frame = extrapolation_frame(arms)
    panel = Panel(k_axis(int(frame["k"].max())), percent_axis(), height=240)
    for number, arm in enumerate(arms):
        assert arm.of.curve is not None
        colour = colours[arm.of.arm]
        band, k, n = arm.prediction.band, arm.prediction.k, int(arm.of.curve.k[-1])
        panel.band(k, 100 * band.lower, 100 * band.upper, colour)
        observed = 100 * arm.of.curve.interval.estimate
        dash = colours.dash(arm.of.arm)
        panel.line(arm.of.curve.k, observed, colour, name=arm.of.arm, dash=dash)
        after = k >= n
        panel.line(k[after], 100 * band.estimate[after], colour, dash=DOTTED)
        panel.upright(n)
        if arm.check is not None:
            predicted = arm.check.predicted
            place = arm.check.k * 2 ** (0.06 * (number + 1))
            ends = 100 * predicted.lower, 100 * predicted.upper
            name = f"{arm.of.arm}, predicted for n"
            panel.points(place, 100 * predicted.estimate, colour, *ends, name=name, hollow=True)
        panel.end(100 * band.estimate, arm.of.arm, colour)
    first = min(int(arm.of.curve.k[-1]) for arm in arms if arm.of.curve)
    panel.label(first, 100, "beyond n: models only", rise=-3)
    return Chart([panel], frame)


def extrapolation_frame(arms: Sequence[Beyond]) -> pd.DataFrame:
    """Band of the models, one row per arm and k, with what a tenth of the samples predicted."""
    parts = []
    for arm in arms:
        band, check = arm.prediction.band, arm.check
        reach = int(arm.of.curve.k[-1]) if arm.of.curve else 0
        columns = {
            **arm.of.key,
            "k": arm.prediction.k,
            "beyond_n": arm.prediction.k > reach,
            **bounded("predicted", band),
            "check_k": check.k if check else 0,
            "check_predicted": float(check.predicted.estimate) if check else np.nan,
            "check_observed": check.observed if check else np.nan,
            "check_passed": check.passed if check else False,
            "notes": "; ".join(band.notes),
        }
        parts.append(columns)
    return stacked(parts)


def forecasts_frame(plans: Sequence[More]) -> pd.DataFrame:
    """Chance of a decision by samples per problem, one row per undecided comparison and size."""
    return pd.DataFrame(
        {
            **plan.of.key,
            "n": size.n,
            "decided": size.decided,
            "simulations": plan.studies,
            **{f"says_{headline}": share for headline, share in size.words.items()},
        }
        for plan in plans
        for size in plan.forecasts
    )


charts = charts_by_set("extrapolation", beyond, extrapolation_chart)

ASPECT = Aspect(
    Part.MORE,
    section,
    comparison,
    lambda report: {
        "extrapolation": extrapolation_frame(beyond(report)),
        "forecasts": forecasts_frame(more(report)),
    },
    metrics=("power-law exponent",),
    waits=True,
    errand=_PREDICTIONS,
)
