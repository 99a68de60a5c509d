"""Ratio of two sums: its value, its interval over new problems, and its edges."""

from __future__ import annotations

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import ProblemWeights
from rlbhpc.stats.interval import ratio_interval


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    # Entropy per token that falls with length: the mean of ratios would miss the ratio of means.
    length = rng.gamma(4, 50, (600, 60))
    total = length * (0.2 + 20 / length + rng.normal(0, 0.05, length.shape))
    truth = 0.2 + 20 / 200
    weights = ProblemWeights.draw(60, rng, 2)
    found = [ratio_interval(t, n, weights) for t, n in zip(total, length, strict=True)]
    assert 0.93 <= np.mean([one.covers(truth) for one in found]) <= 0.97
    assert abs(np.mean([one.estimate for one in found]) - truth) < 0.005


def test_nothing_has_no_ratio_and_sizes_must_agree() -> None:
    weights = ProblemWeights.draw(2, np.random.default_rng(0), 2)
    none = ratio_interval([0.0, 0.0], [0, 0], weights)
    assert np.isnan(none.estimate) and not none.sound
    with pytest.raises(UserError, match="one sum and one total"):
        ratio_interval([1.0], [1, 2], weights)
