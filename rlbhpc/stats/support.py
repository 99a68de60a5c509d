"""Support metrics: how much of what the base solves is kept, and how much is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.binomial import jeffreys
from rlbhpc.stats.interval import PROB, Interval, percentile_interval

# Draws of the Dirichlet posterior; the bounds are then stable to two digits.
_DRAWS: Final = 20_000


@dataclass(frozen=True)
class SupportMetrics:
    """The four support metrics of P problems preserved, E expanded and S shrunk.

    ``srr``: support retention rate P/(P + S): share of what the base solves that the trained model
    keeps. ``ndr``: net discovery rate E/(P + E): share of what the trained model solves that is
    new. ``sds``: support dynamics score: harmonic mean of the two. ``nscr``: net support change
    rate (E − S)/(P + E + S), from −1 (all lost) to +1 (all new). NaN where a denominator is 0.
    """

    srr: float
    ndr: float
    sds: float
    nscr: float


def support_metrics(preserved: int, expanded: int, shrunk: int) -> SupportMetrics:
    """Support metrics from the counts of a coverage table.

    ``preserved, expanded, shrunk``: problems that both models, only the trained one, and only the
    base solve.

    Wu et al. (2025), "The invisible leash", arXiv:2507.14843.

    >>> metrics = support_metrics(preserved=19, expanded=0, shrunk=4)
    >>> round(metrics.srr, 3), metrics.ndr, round(metrics.nscr, 3)
    (0.826, 0.0, -0.174)
    """
    cells = np.asarray([preserved, expanded, shrunk], np.float64)
    if (cells < 0).any() or (cells != np.floor(cells)).any():
        raise UserError(f"support counts are {cells.tolist()}; each is a number of problems")
    return SupportMetrics(*map(float, _metrics(cells)))


def support_intervals(
    preserved: int, expanded: int, shrunk: int, rng: np.random.Generator, prob: float = PROB
) -> dict[str, Interval]:
    """Intervals of the four metrics over problems like these, at the same number of samples.

    The three cells have a Dirichlet posterior with half a problem added to each (Jeffreys), of
    which SRR and NDR are the Beta margins.
    """
    points = support_metrics(preserved, expanded, shrunk)
    cells = np.asarray([preserved, expanded, shrunk])
    draws = _metrics(rng.dirichlet(cells + 0.5, _DRAWS).T)
    intervals = {
        "srr": jeffreys(preserved, preserved + shrunk, prob),
        "ndr": jeffreys(expanded, preserved + expanded, prob),
    }
    for name, drawn in (("sds", draws[2]), ("nscr", draws[3])):
        few = min(expanded, preserved) if name == "sds" else expanded + shrunk
        notes = () if few >= 5 else ("fewer than five problems decide this value",)
        intervals[name] = percentile_interval(
            getattr(points, name), drawn, prob, "Dirichlet posterior", few >= 5, notes
        )
    return intervals


def _metrics(cells: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    kept, new, lost = cells
    with np.errstate(divide="ignore", invalid="ignore"):
        srr, ndr = kept / (kept + lost), new / (kept + new)
        sds = np.where(srr + ndr > 0, 2 * srr * ndr / (srr + ndr), 0.0)
        sds = np.where(np.isnan(srr) | np.isnan(ndr), np.nan, sds)
        return srr, ndr, sds, (new - lost) / (kept + new + lost)
