"""Sampling that stops at a problem's r-th right sample: every path is enumerated, none is drawn."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from analysis.cot_pass_at_k import refuse_stopped
from rlbhpc.errors import UserError
from rlbhpc.stats import (
    Counts,
    ProblemWeights,
    accuracy_histogram,
    answer,
    crossing,
    difference_curve,
    extrapolation,
    fixed_curve,
    log_fail_at_k,
    pass_at_k,
)
from rlbhpc.stats.coverage_table import coverage
from rlbhpc.stats.decision import problems_with_samples
from rlbhpc.stats.priors import fit_prior

RATES = np.array([0.001, 0.02, 0.1, 0.25, 0.5, 0.77, 0.95, 0.999])


def paths(n_max: int, r: int) -> Counter[tuple[int, int]]:
    """How many sequences of right and wrong end at each (n, c)."""
    ends: Counter[tuple[int, int]] = Counter()
    for verdicts in itertools.product((0, 1), repeat=n_max):
        right = list(itertools.accumulate(verdicts))
        n = right.index(r) + 1 if r in right else n_max
        # Each path once: what is behind the stop is not drawn.
        if not any(verdicts[n:]):
            ends[n, right[n - 1]] += 1
    return ends


def chances(ends: Counter[tuple[int, int]]) -> np.ndarray:
    """Probability of each end (columns) at each rate (rows)."""
    n, c = np.array(list(ends)).T
    p = RATES[:, None]
    return np.array(list(ends.values())) * p**c * (1 - p) ** (n - c)


@pytest.mark.parametrize("r", [1, 2, 3, 4])
@pytest.mark.parametrize("n_max", range(1, 13))
def test_the_mean_over_all_paths_is_pass_at_k_and_its_variance_is_estimated(
    n_max: int, r: int
) -> None:
    ends = paths(n_max, r)
    chance = chances(ends)
    assert chance.sum(axis=1) == pytest.approx(np.ones(len(RATES)), abs=1e-12)
    n, c = np.array(list(ends)).T
    k = np.arange(1, n_max + 1)
    value = pass_at_k(n[:, None], c[:, None], k, stop_after=r, n_max=n_max)
    mean = chance @ value
    assert np.abs(mean - (1 - (1 - RATES[:, None]) ** k)).max() < 1e-12
    assert np.abs(np.exp(log_fail_at_k(n[:, None], c[:, None], k, r, n_max)) - 1 + value).max() < (
        1e-14
    )
    variance = chance @ value**2 - mean**2
    half = k[2 * k <= n_max] - 1
    estimated = (1 - value[:, half]) ** 2 - (1 - value[:, 2 * half + 1])
    assert np.abs(chance @ estimated - variance[:, half]).max(initial=0) < 1e-12
    # What the intervals stand on is this, for all k at once.
    counts = Counts.of(n, c, r, n_max)
    assert np.array_equal(counts.pass_at_k(k), value)
    assert np.abs(variances_of(counts, k[half]) - estimated).max(initial=0) < 1e-14


def variances_of(counts: Counts, k: np.ndarray) -> np.ndarray:
    """Estimated variance of every problem's pass@k, as ``fixed_curve`` takes it."""
    distinct, _ = extrapolation._sampling_variances(counts, k)
    return distinct[counts.distinct_rows()[1]]


@pytest.mark.parametrize("r", [1, 2, 3, 4])
@pytest.mark.parametrize("n_max", [4, 8, 12])
def test_a_difference_of_a_stopped_arm_and_a_full_one_is_exact_and_so_is_its_variance(
    n_max: int, r: int
) -> None:
    arms = []
    for rule in (r, n_max + 1):
        ends = paths(n_max, rule)
        n, c = np.array(list(ends)).T
        arms.append((chances(ends), Counts.of(n, c, rule, n_max)))
    (stopped_chance, stopped), (full_chance, full) = arms
    assert (full.n == n_max).all()
    k = np.arange(1, n_max // 2 + 1)
    difference = full.pass_at_k(k)[None, :] - stopped.pass_at_k(k)[:, None]
    estimated = variances_of(full, k)[None, :] + variances_of(stopped, k)[:, None]
    # Every end of one arm with every end of the other, at every pair of rates.
    for p, chance in zip(RATES, stopped_chance, strict=True):
        both = chance[None, :, None] * full_chance[:, None, :]
        mean = np.einsum("qij,ijk->qk", both, difference)
        exact = (1 - p) ** k - (1 - RATES[:, None]) ** k
        assert np.abs(mean - exact).max() < 1e-12
        variance = np.einsum("qij,ijk->qk", both, difference**2) - mean**2
        assert np.abs(np.einsum("qij,ijk->qk", both, estimated) - variance).max() < 1e-12


def test_nothing_is_said_beyond_the_limit_and_certain_is_certain_up_to_it() -> None:
    assert np.isnan(pass_at_k([7, 12], [2, 1], [13], stop_after=2, n_max=12)).all()
    assert pass_at_k(7, 2, [7, 12], stop_after=2, n_max=12).tolist() == [1, 1]
    assert pass_at_k(7, 1, [1, 3], stop_after=1, n_max=12).tolist() == [0, 0]
    with pytest.raises(UserError, match="counted up to where sampling stops"):
        pass_at_k(7, 3, 1, stop_after=2)
    with pytest.raises(UserError, match="counted up to where sampling stops"):
        Counts.of(7, 3, stop_after=2)


def stopped_counts(
    rates: np.ndarray, r: int, n_max: int, rng: np.random.Generator
) -> tuple[Counts, Counts]:
    """The same samples, stopped and in full."""
    right = rng.random((len(rates), n_max)) < rates[:, None]
    total = np.cumsum(right, axis=1)
    done = total[:, -1] >= r
    n = np.where(done, np.argmax(total >= r, axis=1) + 1, n_max)
    c = np.where(done, r, total[:, -1])
    return Counts.of(n, c, r, n_max), Counts.of(n_max, total[:, -1])


def mathlike(problems: int, rng: np.random.Generator, shift: float = 0.0) -> np.ndarray:
    return 1 / (1 + np.exp(-rng.normal(1.0 + shift, 3.0, problems)))


def test_every_statistic_of_a_stopped_arm_agrees_with_that_of_all_its_samples() -> None:
    rng = np.random.default_rng(0)
    truth = mathlike(500, rng)
    stopped, full = stopped_counts(truth, 16, 256, rng)
    assert stopped.n.sum() < full.n.sum() / 3
    assert stopped.reach == full.reach == 256
    k = np.array([1, 16, 128, 256])
    error = np.abs(stopped.pass_at_k(k).mean(axis=0) - full.pass_at_k(k).mean(axis=0))
    assert (error < [0.015, 0.01, 0.005, 1e-9]).all()
    # At n_max both know the same: which problems were ever solved.
    assert (stopped.solved == full.solved).all()
    assert coverage(stopped.c, full.c).p_value == 1
    n, c = stopped.exchangeable
    assert (c / n).mean() == pytest.approx(truth.mean(), abs=0.01)
    moved = accuracy_histogram(n, c) - accuracy_histogram(full.n, full.c)
    assert moved[0] == 0
    # Sixteen right of sixteen cannot tell "always" from "nearly always".
    assert np.abs(moved[:-2]).max() < 30
    priors = [fit_prior(counts, zero_inflated=False) for counts in (stopped, full)]
    assert priors[0].a == pytest.approx(priors[1].a, rel=0.1)
    fixed = [fixed_curve(counts, k) for counts in (stopped, full)]
    assert fixed[0].model_based.tolist() == fixed[1].model_based.tolist()
    assert (fixed[0].interval.upper > fixed[0].interval.estimate)[:3].all()


def test_the_interval_of_these_problems_holds_their_truth() -> None:
    rng = np.random.default_rng(1)
    truth = mathlike(300, rng)
    k = np.array([1, 8, 32])
    wanted = (1 - (1 - truth[:, None]) ** k).mean(axis=0)
    inside = []
    for _ in range(200):
        stopped, _ = stopped_counts(truth, 8, 64, rng)
        interval = fixed_curve(stopped, k).interval
        inside.append((interval.lower <= wanted) & (wanted <= interval.upper))
    assert (np.mean(inside, axis=0) > 0.9).all()


def test_a_stopped_arm_and_a_full_one_compare_as_two_full_ones() -> None:
    rng = np.random.default_rng(2)
    base, trained = mathlike(400, np.random.default_rng(3)), mathlike(400, rng, 0.0)
    trained = np.where(base < 0.02, 0, np.sqrt(base))
    stopped, full = stopped_counts(base, 16, 256, rng)
    _, other = stopped_counts(trained, 16, 256, rng)
    weights = ProblemWeights.draw(400, np.random.default_rng(4), 400)
    curves = [difference_curve(ours, other, weights) for ours in (stopped, full)]
    assert curves[0].k.tolist() == curves[1].k.tolist()
    points = [crossing(curve).points[0] for curve in curves]
    assert points[0] == pytest.approx(points[1], rel=0.3)
    said = [answer(ours, other) for ours in (stopped, full)]
    assert said[0].word is said[1].word
    # The counted cells at n_max, and with them McNemar's exact test, are the same.
    assert said[0].lost.count == said[1].lost.count
    assert said[0].p_mcnemar == said[1].p_mcnemar


def test_problems_on_their_way_hold_those_that_stopped_back() -> None:
    counts = Counts.of([20, 300, 64, 90], [16, 16, 3, 5], 16, 1024)
    assert counts.limit.tolist() == [64, 64, 64, 64]
    assert counts.reach == 64
    assert np.isnan(counts.pass_at_k(65)[:3]).all()
    assert math.isclose(counts.pass_at_k(64)[0, 0], 1)


def test_neither_slow_nor_easy_problems_are_stragglers_on_the_way() -> None:
    # Three of sixty have stopped, and the others are on their way: the three are the easy ones.
    n = np.r_[[20] * 3, np.arange(40, 97)]
    counts = Counts.of(n, np.r_[[16] * 3, [5] * 57], 16, 1024)
    assert problems_with_samples(counts, [counts]).all()
    assert counts.reach == 40


def test_what_needs_a_fixed_number_names_itself() -> None:
    with pytest.raises(UserError, match="CoT-Pass@k needs a fixed number of samples"):
        refuse_stopped(Counts.of([20], [16], 16))


def test_replays_agree_with_the_full_study_within_their_intervals(soak: bool) -> None:
    """Of one full study, the samples of each problem in another order, stopped: pass@256."""
    rng = np.random.default_rng(7)
    base = mathlike(200, rng)
    trained = np.where(base < 0.02, base / 6, np.sqrt(base))
    rates = (base, trained)
    n_max, k = 512, np.array([1, 16, 64, 256])
    weights = ProblemWeights.draw(200, np.random.default_rng(4), 300)
    replays = 200 if soak else 20
    samples, at_k, crossed = 0, [], []
    for _ in range(replays):
        arms = [stopped_counts(rate, 16, n_max, rng) for rate in rates]
        samples += sum(int(stopped.n.sum()) for stopped, _ in arms)
        stopped, full = (difference_curve(*sides, weights) for sides in zip(*arms, strict=True))
        whole = arms[0][1].pass_at_k(k).mean(axis=0)
        interval = fixed_curve(arms[0][0], k).interval
        at_k.append((interval.lower <= whole) & (whole <= interval.upper))
        found = crossing(stopped)
        crossed.append(float(crossing(full).points[0]) in found)
    assert samples < 0.35 * 2 * replays * 200 * n_max
    assert np.mean(at_k, axis=0)[-1] >= 0.95
    assert np.mean(crossed) >= 0.95
