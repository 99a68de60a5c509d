"""The interval of a quotient, in which the part of a lead is given that sharpening reaches."""

from __future__ import annotations

import math

import numpy as np

from rlbhpc.stats import ProblemWeights
from rlbhpc.stats.interval import quotient_interval

PROBLEMS = 60


def test_the_interval_of_a_quotient_holds_it() -> None:
    rng = np.random.default_rng(0)
    weights = ProblemWeights.draw(PROBLEMS, rng)
    held = []
    for _ in range(600):
        leads = rng.normal(0.12, 0.25, PROBLEMS)
        reached = 0.6 * leads + rng.normal(0, 0.1, PROBLEMS)
        interval = quotient_interval(reached, leads, weights)
        if not math.isnan(interval.low):
            held.append(interval.low <= 0.6 <= interval.high)
    assert len(held) > 500
    assert 0.92 < np.mean(held) < 0.98


def test_without_a_lead_no_share_is_given() -> None:
    rng = np.random.default_rng(0)
    weights = ProblemWeights.draw(PROBLEMS, rng)
    leads = rng.normal(0, 0.25, PROBLEMS)
    assert math.isnan(quotient_interval(leads / 2, leads, weights).low)
    assert math.isnan(float(quotient_interval(0 * leads, 0 * leads, weights).estimate))
