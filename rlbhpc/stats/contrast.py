r"""Trained minus base at K, at ten times K and in the limit: what a fit says, what is left open.

The fit is the joint distribution of the two rates (:mod:`rlbhpc.stats.joint`). K samples say
little of rates far below 1/K, and intervals around the fit hold the truth in 76 to 98 % of studies.
So bounds stand beside it that need no model. The share :math:`f(k)` of problems that an arm fails
is a mean of :math:`(1-p)^k`: it falls, and its logarithm is convex, so that for :math:`r \ge 1`

.. math:: f(K) \left(\frac{f(K)}{f(K/2)}\right)^{2(r-1)} \le f(rK) \le f(K) .

:math:`f(K/2) - f(K)` is the share of problems first solved in the second half of K samples. Where
no problem was, it may still be a few percent, so its exact upper bound stands for it. The interval
at K, widened by what each arm may still come to solve, holds the truth in at least as many studies
as it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlbhpc.stats.binomial import clopper_pearson
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import Interval
from rlbhpc.stats.joint import Fit, Joint

#: Multiples of K that a contrast is given at.
MULTIPLES: Final = (1.0, 10.0, math.inf)


@dataclass(frozen=True)
class Contrast:
    """Trained minus base at one k, which is infinite in the limit.

    ``fit``: of the joint distribution. ``low, high``: at K the interval of the net, beyond it what
    the samples leave open.
    """

    k: float
    fit: float
    low: float
    high: float


def contrasts(
    joint: Joint, best: Fit, base: Counts, trained: Counts, k: int, net: Interval
) -> tuple[Contrast, ...]:
    """Give the contrast at every multiple of K, whose net has an interval."""
    return tuple(
        Contrast(
            multiple * k,
            joint.contrast(best, multiple * k),
            max(-1.0, net.low - still_solved(base, k, multiple)),
            min(1.0, net.high + still_solved(trained, k, multiple)),
        )
        for multiple in MULTIPLES
    )


def still_solved(counts: Counts, k: int, multiple: float) -> float:
    """Largest share of problems that are not solved in k samples but may be in ``multiple`` k."""
    half = max(k // 2, 1)
    before, now = 1 - counts.pass_at_k(np.array([half, k])).mean(axis=0)
    if now <= 0 or multiple == 1:
        return 0.0
    if math.isinf(multiple) or half == k:
        return float(now)
    size = len(counts.n)
    solved_late = float(clopper_pearson(size * max(before - now, 0.0), size).high)
    before = min(1.0, now + solved_late)
    return float(now * (1 - (now / before) ** ((multiple - 1) * k / (k - half))))
