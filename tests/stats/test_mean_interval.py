"""The interval of a mean over problems: inside [0, 1], and called sound only where it is."""

from __future__ import annotations

import numpy as np
import pytest

from rlbhpc.report.phrases import interval_text, number_text
from rlbhpc.stats import Counts, Interval, ProblemWeights, pass_curve
from rlbhpc.stats.interval import mean_interval


def mean_of(values: list[float]) -> Interval:
    weights = ProblemWeights.draw(len(values), np.random.default_rng(0))
    return mean_interval(np.array(values), weights, 0.95, "test")


@pytest.mark.parametrize(
    ("values", "sound"),
    [
        pytest.param([0.2, 0.8] * 10, True, id="twenty problems"),
        pytest.param([0.2, 0.8] * 9 + [0.5], False, id="nineteen problems"),
        pytest.param([0.0] * 99 + [1.0], False, id="one problem carries the value"),
        pytest.param([0.05] * 59 + [1.0], False, id="one problem skews the mean"),
        pytest.param([0.3] * 26 + [0.7] * 4, True, id="skewness 4.7 of 30"),
        pytest.param([0.3] * 27 + [0.7] * 3, False, id="skewness 7.1 of 30"),
        pytest.param([0.5] * 30, True, id="all alike"),
        pytest.param([0.0] * 96 + [1.0] * 4, False, id="four events"),
        pytest.param([0.0] * 80 + [1.0] * 20, True, id="twenty events"),
        pytest.param([1.0] * 500, False, id="all solved"),
    ],
)
def test_what_simulation_does_not_support_is_marked(values: list[float], sound: bool) -> None:
    found = mean_of(values)
    assert bool(found.sound) is sound
    for printed in (interval_text(found), number_text(found)):
        assert printed.endswith(" ?") is not sound


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_an_end_the_rule_of_three_holds(share: float) -> None:
    """Jeffreys of 0 of n: its upper end is near 2.5 / n, its lower one is 0."""
    found = mean_of([share] * 100)
    near, far = sorted([abs(found.low - share), abs(found.high - share)])
    assert near == 0 and 0.02 < far < 0.03


def test_an_unknown_value_leaves_no_interval() -> None:
    found = mean_of([0.5] * 30 + [float("nan")])
    assert np.isnan([found.estimate, found.lower, found.upper]).all()
    assert interval_text(found).startswith("– [–, –]")


def test_near_one_an_unsolved_problem_that_was_not_drawn_leaves_no_interval() -> None:
    """Of 1,000 problems one or two are never solved: a third of studies draw none of them."""
    rng = np.random.default_rng(6)
    rates = rng.beta(8, 1, 1000)
    weights = ProblemWeights.draw(1000, rng, 1)
    lucky = pass_curve(Counts.of(128, rng.binomial(128, rates)), weights, [1, 4, 8])
    assert lucky.interval.estimate[1] > 0.99
    assert np.isnan(lucky.interval.lower).tolist() == [False, True, True]
    rates[:15] = 0
    others = pass_curve(Counts.of(128, rng.binomial(128, rates)), weights, [1, 4])
    assert not np.isnan(others.interval.lower).any(), "where some were drawn, the spread tells"
