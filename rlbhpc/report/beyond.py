"""What lies beyond the samples: pass@k for k above n, and how many samples would decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.stats import Headline, extrapolate
from rlbhpc.stats.extrapolation import FACTOR, Extrapolation, HeldOut, held_out_check
from rlbhpc.stats.priors import LEAST
from rlbhpc.stats.sequential import Forecast, forecast, samples_until_decided, where_to_spend

#: Sizes of a forecast as multiples of what is there, and simulated studies of each size: as many
#: as a report has time for, since each costs a tenth of a second with 500 problems.
SIZES: Final = (2, 4)
STUDIES: Final = (5, 20)
_STUDIES_IN_ALL: Final = 60
# Fewer samples than this are no part to check a prediction with.
_LEAST: Final = 20


@dataclass(frozen=True)
class Beyond:
    """Prediction for one arm, and how a prediction from a tenth of its samples came out."""

    of: Measured
    prediction: Extrapolation
    check: HeldOut | None


@dataclass(frozen=True)
class More:
    """What more samples would do for a comparison that is undecided.

    Attributes
    ----------
    forecasts
        Chance of a decision at several sizes.
    until
        The least of these sizes that decides with a chance of 80 %; None where none does.
    studies
        Simulated studies of each size.
    spend
        Problems that the base is likeliest to solve for the first time, with that chance.
    """

    of: Comparison
    forecasts: tuple[Forecast, ...]
    until: int | None
    studies: int
    spend: tuple[tuple[str, float], ...]


def beyond(report: Report) -> list[Beyond]:
    """Extrapolate the arms of the last comparisons to ten times their samples."""
    found = []
    for one in compared(report):
        counts = one.counts[np.flatnonzero(one.sampled)]
        if counts.reach < 4 or len(counts) < LEAST:
            continue
        reach = FACTOR * counts.reach
        k = np.unique(np.geomspace(1, reach, 40).round().astype(np.int64))
        seed = np.random.default_rng(report.settings.seed)
        check = held_out_check(counts, seed) if counts.reach >= _LEAST else None
        found.append(Beyond(one, extrapolate(counts, k, report.settings.prob), check))
    return found


def more(report: Report) -> list[More]:
    """Forecast every undecided comparison at twice and four times its samples."""
    found = []
    open_ = [
        one
        for one in report.final
        if one.conclusion.headline is Headline.UNDECIDED and len(one.problems) >= LEAST
    ]
    least, most = STUDIES
    studies = min(most, max(least, _STUDIES_IN_ALL // (len(SIZES) * max(len(open_), 1))))
    for one in open_:
        base, trained = one.base.counts[one.rows[0]], one.trained.counts[one.rows[1]]
        have = int(max(base.n.max(), trained.n.max()))
        seed = np.random.default_rng(report.settings.seed)
        sizes = [times * have for times in SIZES]
        weights = report.draws.of(one.problems)
        forecasts = forecast(base, trained, weights, sizes, seed, studies)
        chance = where_to_spend(base, have)
        best = [i for i in np.argsort(-chance, kind="stable")[:10].tolist() if chance[i] > 0]
        spend = tuple((one.problems[i], float(chance[i])) for i in best)
        until = samples_until_decided(forecasts)
        found.append(More(one, tuple(forecasts), until, studies, spend))
    return found


def compared(report: Report) -> list[Measured]:
    """The arms of the last comparisons, each once; without comparisons the last of each line."""
    sides = [side for one in report.final for side in (one.base, one.trained)]
    shown = sides or [one for one in report.measured if one.sampled.any()]
    return list({id(one): one for one in shown}.values())
