"""Whether problems were lost, or gained: the verdict, the share, and an interval around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.stats.interval import PROB
from rlbhpc.stats.joint import Fit, Joint
from rlbhpc.stats.seeds import seed_variance

# Fewer trainings than these, if more than one, give a share no interval.
_SEEDS: Final = 5
# Of the root of a deviance, at a bound.
_CLOSE: Final = 0.03


class Verdict(StrEnum):
    """Whether something happened."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """Whether problems were lost, or gained, and how many.

    ``verdict``: ``yes`` where the interval lies above 0, ``no`` where it lies below the margin.
    ``estimate, low, high``: share of problems, about problems like these; NaN where no sound
    interval exists. ``count``: problems that only this side solved within k samples: exact where
    both arms have k samples of every problem, else the nearest whole number to its unbiased
    estimate. ``problems``: out of how many.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    count: int
    problems: int


def finding(
    joint: Joint,
    best: Fit,
    group: NDArray[np.bool_],
    seeds: int,
    count: float,
    margin: float,
    error: float,
    prob: float = PROB,
) -> Finding:
    """Decide by the likelihood ratio of "none", and put an interval around the share.

    "None" is refuted at ``error``; the interval, which must end below the margin for a "no", holds
    with ``prob``.

    With several trainings of one recipe the rows of the joint model are seeds × problems. None is
    lost on average only if none is lost in any of them, so that the test needs no spread between
    seeds; but the rows of one problem are alike, and count as fewer.
    """
    problems = len(joint.row) // seeds
    count_of_seed = round(count / seeds)
    chances = joint.chances(best, group)[joint.row].reshape(seeds, problems)
    estimate = min(1.0, float(chances.mean()))
    cut = float(special.ndtri((1 + prob) / 2))
    none = joint.fit(best.mass, group, 0.0)
    alike = _alike((joint.logs(best) - joint.logs(none))[joint.row].reshape(seeds, problems))

    def root_deviance(share: float) -> float:
        held = joint.fit(best.mass, group, share)
        return math.sqrt(2 * max(best.log_likelihood - held.log_likelihood, 0.0) / alike)

    evidence = math.sqrt(2 * max(best.log_likelihood - none.log_likelihood, 0.0) / alike)
    threshold = float(special.ndtri(1 - error / 4))
    if evidence > threshold:
        low, high = _shares(chances, estimate, prob)
        return Finding(Verdict.YES, estimate, low, high, count_of_seed, problems)
    high = 1.0 if estimate > 1 - 1e-6 else _bound(root_deviance, cut, estimate, 1.0)
    verdict = Verdict.NO if high < margin else Verdict.UNDECIDED
    return Finding(verdict, estimate, 0.0, high, count_of_seed, problems)


def _alike(values: NDArray[np.float64]) -> float:
    """How many rows of one problem (columns) are worth one: 1 for a single seed, at most all."""
    if len(values) == 1:
        return 1.0
    apart = float((values**2).sum())
    together = float((values.sum(axis=0) ** 2).sum())
    return max(1.0, together / apart) if apart > 0 else float(len(values))


def _shares(chances: NDArray[np.float64], share: float, prob: float) -> tuple[float, float]:
    r"""Jeffreys interval of a share of problems of which one cannot be sure.

    With chances :math:`r_i` of belonging to the group, the information about its share s is that of
    :math:`\nu = \sum_i (r_i - s)^2 / s(1-s)` problems that one could be sure of (Louis, 1982),
    which takes the rest of the distribution as known. Since it was fitted too, the interval is that
    of :math:`\nu (\nu/P)^3` of them: simulated, that holds 93 to 97 %. Rows of one problem count
    as fewer, and the variance between seeds is added, see :mod:`rlbhpc.stats.seeds`. That of two
    to four seeds is known too badly: with three the interval held 92 to 98 %, so there is none.
    """
    seeds, rows = len(chances), chances.size
    if 1 < seeds < _SEEDS:
        return math.nan, math.nan
    spread = share * (1 - share)
    effective = float(((chances - share) ** 2).sum()) / spread if spread > 1e-12 else rows
    trials = effective * (effective / rows) ** 3 / _alike(chances - share)
    if seeds > 1 and spread > 1e-12:
        trials = spread / (spread / trials + seed_variance(chances[:, :, None]).item())
    a, b = share * trials + 0.5, (1 - share) * trials + 0.5
    low, high = special.betaincinv(a, b, [(1 - prob) / 2, (1 + prob) / 2]).tolist()
    return float(low), float(high)


def _bound(
    root_deviance: Callable[[float], float], cut: float, estimate: float, edge: float
) -> float:
    """Where the root of the deviance, 0 at the estimate, passes the cut on the way to the edge."""
    inside, outside = estimate, edge
    depth, beyond = 0.0, math.inf
    # One problem more or fewer moves the bound by about this much.
    share = estimate + (edge - estimate) / 16
    for _ in range(12):
        value = root_deviance(share)
        if abs(value - cut) < _CLOSE:
            return share
        if value < cut:
            inside, depth = share, value
        else:
            outside, beyond = share, value
        if math.isinf(beyond):
            # Nearly a straight line: a little beyond where it would pass, to have it enclosed.
            slope = depth / abs(inside - estimate) if depth > 0 else 0.0
            step = 1.2 * (cut - depth) / slope if slope > 0 else abs(edge - inside) / 2
            share = inside + math.copysign(min(step, abs(edge - inside) * 0.9), edge - estimate)
        else:
            share = inside + (outside - inside) * (cut - depth) / (beyond - depth)
    return share
