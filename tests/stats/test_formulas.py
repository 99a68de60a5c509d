"""Formulas against textbooks: other packages, closed forms, and sums over all there is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.cover_at_tau import log_area
from analysis.majority import entropy_by_problem
from analysis.temperature import percentile_interval
from rlbhpc.stats import (
    Counts,
    Interval,
    ProblemWeights,
    Target,
    accuracy_histogram,
    crossing,
    difference_curve,
    fixed_curve,
)
from rlbhpc.stats.decision import interval_in_points, p_value
from rlbhpc.stats.difference import claimed_sign, interval_at_one, sign_by_flips
from rlbhpc.stats.exact import chances_of_right, clopper_pearson
from rlbhpc.stats.extrapolation import posterior_bounds
from rlbhpc.stats.interval import (
    carriers,
    effective_beta,
    paired_interval,
    ratio_interval,
)
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.seeds import seeds_curve, spread

Floats = NDArray[np.float64]


def weights(problems: int, clusters: object = None) -> ProblemWeights:
    labels = None if clusters is None else np.asarray(clusters)
    return ProblemWeights.draw(problems, np.random.default_rng(0), 2, labels)


@pytest.mark.parametrize(("c", "n"), [(0, 9), (3, 9), (9, 9), (10, 10), (1, 400)])
@pytest.mark.parametrize("prob", [0.5, 0.95])
def test_intervals_of_a_proportion(c: int, n: int, prob: float) -> None:
    exact = stats.binomtest(c, n).proportion_ci(prob, "exact")
    assert clopper_pearson(c, n, prob).bounds == pytest.approx([exact.low, exact.high])
    assert clopper_pearson(c, n, prob).sound


def test_chances_of_counts() -> None:
    for n, c, k in itertools.product((5, 8), (0, 2, 5), (1, 3, 5)):
        exact = stats.hypergeom.pmf(np.arange(k + 1), n, c, k)
        assert chances_of_right(n, c, k) == pytest.approx(exact, abs=1e-12)


def test_differences_of_proportions_have_the_interval_of_bonett_and_price() -> None:
    """At k = n, with few problems that differ: p̃ = counts plus one each, of P + 2."""
    b, c, problems = 2, 3, 40
    differences = np.r_[np.full(c, 1.0), np.full(b, -1.0), np.zeros(problems - b - c)][:, None]
    mean = (c - b) / problems
    carried = (b + c + 0.0) if mean == 0 else float(carriers(differences)[0])
    squares = (differences**2).sum() - problems * mean**2
    fade = 1 - carried / 10
    half = stats.t.ppf(0.975, problems - 1) * np.sqrt(
        (squares + 2 * fade) / (problems * (problems - 1))
    )
    found = paired_interval(differences, weights(problems), 0.95)[0]
    assert found.bounds == pytest.approx([mean - half, mean + half])
    assert found.sound
    deviations = differences[:, 0] - mean
    assert carried == pytest.approx((deviations**2).sum() ** 2 / (deviations**4).sum())


@pytest.mark.parametrize(
    ("carrying", "problems", "sound"), [(4, 20, True), (4, 19, False), (3, 20, False)]
)
def test_four_problems_must_carry_a_difference(carrying: int, problems: int, sound: bool) -> None:
    signs = np.resize([1.0, -1.0], carrying)
    values = np.r_[signs, np.zeros(problems - carrying)][:, None]
    if carrying % 2:
        values[0] = 0.0
        values[1:3] = [[1.0], [-1.0]]
    assert bool(paired_interval(values, weights(problems), 0.95).sound.item()) is sound


def test_standard_errors_of_problems_and_of_their_sources() -> None:
    values = np.random.default_rng(1).random((12, 2))
    assert weights(12).standard_error(values) == pytest.approx(stats.sem(values))
    sources = np.repeat([3, 1, 7], [2, 4, 6])
    sums = [(values - values.mean(axis=0))[sources == s].sum(axis=0) / 12 for s in (1, 3, 7)]
    exact = np.sqrt(3 / 2 * (np.array(sums) ** 2).sum(axis=0))
    assert weights(12, sources).standard_error(values) == pytest.approx(exact)
    single = weights(12, np.zeros(12))
    assert single.standard_error(values).tolist() == [np.inf, np.inf] and single.inflation == np.inf
    assert (weights(12).units, weights(12).problems, weights(12).replicates) == (12, 12, 2)


def test_the_interval_of_a_ratio_is_linearised() -> None:
    sums, totals = np.array([10.0, 2.0, 6.0, 1.0]), np.array([20.0, 2.0, 10.0, 4.0])
    ratio = sums.sum() / totals.sum()
    error = np.sqrt(4 / 3 * (((sums - ratio * totals) / totals.sum()) ** 2).sum())
    half = stats.t.ppf(0.95, 3) * error
    found = ratio_interval(sums, totals, weights(4), 0.9)
    assert found.bounds == pytest.approx([ratio - half, ratio + half])
    assert not found.sound


def test_a_mean_is_a_proportion_of_effective_trials() -> None:
    mean, error = np.array([0.3]), np.array([0.05])
    trials = 0.21 / 0.05**2 * (stats.norm.ppf(0.95) / stats.t.ppf(0.95, 19)) ** 2
    low, high, used = effective_beta(mean, error, 20, 0.9)
    assert used == pytest.approx(trials)
    tails = stats.beta.ppf([0.05, 0.95], 0.3 * trials + 0.5, 0.7 * trials + 0.5)
    assert np.r_[low, high] == pytest.approx(tails)


def test_draws_give_equal_tails_that_hold_the_estimate() -> None:
    draws = np.arange(101.0)
    found = percentile_interval(50, draws, 0.9, "draws", True)
    assert found.bounds == pytest.approx([5, 95])
    assert percentile_interval(-1, draws, 0.5, "draws", True).bounds.tolist() == [-1, 75]
    assert str(found) == "50.000 [5.000, 95.000]"
    assert str(replace(found, sound=np.asarray(False))).endswith("] (unsound)")
    shown = percentile_interval([1, 2], np.zeros((3, 2)), 0.5, "draws", True)
    assert str(shown) == "<Interval of shape (2,), draws, problems like these>"


@pytest.mark.parametrize(
    ("low", "high", "sign"), [(0.0, 1, 0), (0.1, 1, 1), (-1, 0.0, 0), (-1, -0.1, -1), (-1, 1, 0)]
)
def test_the_sign_of_an_interval(low: float, high: float, sign: int) -> None:
    found = Interval(np.asarray(low), np.asarray(low), np.asarray(high), Target.FIXED, "none")
    assert found.sign == sign
    assert found.covers([low, high, high + 0.01, low - 0.01]).tolist() == [True, True, False, False]


def test_components_of_variance_are_those_of_the_two_way_table() -> None:
    table = np.random.default_rng(2).normal(size=(3, 7)) + np.array([[0], [2], [5]])
    seeds, problems = table.shape
    by_seed, by_problem = table.mean(axis=1), table.mean(axis=0)
    rest = sum(
        (table[j, i] - by_seed[j] - by_problem[i] + table.mean()) ** 2
        for j in range(seeds)
        for i in range(problems)
    ) / ((seeds - 1) * (problems - 1))
    of_seeds, of_problems = problems * by_seed.var(ddof=1), seeds * by_problem.var(ddof=1)
    found = spread(table)
    assert found.rest == pytest.approx(np.sqrt(rest))
    assert found.seeds == pytest.approx(np.sqrt((of_seeds - rest) / problems))
    assert found.problems == pytest.approx(np.sqrt(max(of_problems - rest, 0) / seeds))


def test_the_interval_over_seeds_adds_the_spread_between_them() -> None:
    rng = np.random.default_rng(3)
    base = Counts.of(64, rng.integers(4, 20, 40))
    runs = [Counts.of(64, base.c + rng.integers(0, 12, 40) + shift) for shift in (0, 8, 20)]
    found = seeds_curve(base, runs, rng, 2, [1], 0.9).pointwise[0]
    table = np.array([(run.c - base.c) / 64 for run in runs])
    parts = spread(table)
    by_problem = stats.sem(table.mean(axis=0)) * stats.t.ppf(0.95, 39)
    by_seed = parts.seeds / np.sqrt(3) * stats.t.ppf(0.95, 2)
    half = np.hypot(by_problem, by_seed)
    assert found.bounds == pytest.approx([table.mean() - half, table.mean() + half])


def sign_flips(problems: int) -> NDArray[np.int8]:
    return np.array(list(itertools.product([1, -1], repeat=problems)), np.int8)


def test_the_p_value_of_a_move_is_the_share_of_all_sign_flips() -> None:
    base, trained = Counts.of(8, [1, 2, 3, 4, 5, 6]), Counts.of(8, [2, 4, 6, 8, 5, 8])
    drawn = weights(6)
    every = ProblemWeights(np.ones((64, 6)), sign_flips(6), drawn.unit, drawn.seed)
    found = difference_curve(base, trained, every, [1, 2])
    d = found.differences
    pseudo = 2 * np.maximum.accumulate(np.abs(d).max(axis=0)) ** 2

    def largest(flips: Floats) -> float:
        mean = (flips[:, None] * d).mean(axis=0)
        return float(np.max(np.abs(mean) / np.sqrt((d**2).sum(0) - 6 * mean**2 + pseudo)))

    observed = largest(np.ones(6))
    hits = sum(largest(f) >= observed - 1e-12 for f in every.signs.astype(float))
    assert found.p_moved == pytest.approx((1 + hits) / 65)


@pytest.mark.parametrize(("moved", "sign"), [(4, 0), (7, 1), (-7, -1)])
def test_the_sign_at_one_is_claimed_by_flips(moved: int, sign: int) -> None:
    """Of m problems that move alike two of 2^m flips are as extreme."""
    base, other = Counts.of(8, [2] * 9), Counts.of(8, [3] * abs(moved) + [2] * (9 - abs(moved)))
    arms = (base, other) if moved > 0 else (other, base)
    curve = difference_curve(*arms, weights(9), [1, 8])
    p = 2 / 2 ** abs(moved)
    assert sign_by_flips(curve, 0, 0.05) == sign
    assert sign_by_flips(curve, 0, 1.5 * p) == np.sign(moved)
    assert sign_by_flips(curve, 0, 0.7 * p) == 0
    assert sign_by_flips(difference_curve(base, base, weights(9), [1, 8]), 0, 1.0) == 0


def test_rare_flips_are_drawn_in_several_blocks() -> None:
    """2 of 2^14 are as extreme, and an error of .0003 takes two blocks."""
    curve = difference_curve(Counts.of(8, [2] * 14), Counts.of(8, [3] * 14), weights(14), [1, 8])
    assert [sign_by_flips(curve, 0, error) for error in (3e-4, 5e-5)] == [1, 0]


@pytest.mark.parametrize(("seeds", "edge"), [(1, 1.959964), (2, 12.706205), (3, 4.302653)])
def test_a_sign_is_claimed_at_its_own_error(seeds: int, edge: float) -> None:
    """An interval of 95 % that ends at 0 is claimed at an error above 5 %, not below."""
    for estimate in (0.1, -0.1):
        found = Interval(np.asarray(estimate), np.asarray(estimate - 0.1),
                         np.asarray(estimate + 0.1), Target.POPULATION, "none")  # fmt: skip
        assert claimed_sign(found, 0.051, seeds) == np.sign(estimate)
        assert claimed_sign(found, 0.049, seeds) == 0
    wide = replace(found, lower=np.asarray(-0.1 * edge), upper=np.asarray(0.1 * edge))
    quantile = stats.norm if seeds == 1 else stats.t(seeds - 1)
    assert claimed_sign(wide, 2 * quantile.sf(1.0) + 0.001, seeds) == -1
    assert claimed_sign(wide, 2 * quantile.sf(1.0) - 0.001, seeds) == 0


@pytest.mark.parametrize(
    ("base", "trained", "bounded"),
    [
        # Apart by 4.1, 2.8 and 2.1 standard errors: the second count as moved beside the first.
        ([40] * 40, [17] * 4 + [40] * 36, False),
        ([40] * 40, [17] * 5 + [40] * 35, True),
        ([40] * 40, [17] * 4 + [24] + [40] * 35, True),
        ([40] * 40, [17] * 4 + [28] + [40] * 35, False),
        ([40] * 20 + [4] * 20 + [0] * 9, [17] * 10 + [40] * 10 + [4] * 20 + [0] * 9, True),
        ([40] * 20 + [4] * 20 + [0] * 9, [17] * 9 + [40] * 11 + [4] * 20 + [0] * 9, False),
        ([40] * 10 + [4] * 30, [17] * 6 + [40] * 4 + [4] * 30, False),
        ([8] * 40, [14] * 4 + [8] * 36, False),  # none moved; 4.9 carry the noise
        ([8] * 40, [14] * 5 + [8] * 35, True),
        # None moved; one more that did would bring more than half of an interval's half.
        ([8] * 40, [9] * 5 + [8] * 35, False),
        ([8] * 40, [9] * 20 + [8] * 20, False),
        ([8] * 40, [11] * 20 + [8] * 20, True),
    ],
)
def test_at_one_a_handful_of_problems_gives_no_bounds(
    base: list[int], trained: list[int], bounded: bool
) -> None:
    curve = difference_curve(
        Counts.of(64, base), Counts.of(64, trained), weights(len(base)), [1, 64]
    )
    found = interval_at_one(curve)
    assert np.isnan(found.bounds).tolist() == [not bounded] * 2
    assert bool(found.sound) is bounded
    assert found.estimate == curve.pointwise[0].estimate


@pytest.mark.filterwarnings("error")
def test_entropies_are_those_of_scipy_with_their_correction() -> None:
    answers = np.repeat([7, 2, 9, 4], [5, 3, 1, 1])
    entropies, distinct = entropy_by_problem([answers, np.full(10, 3)])
    assert entropies == pytest.approx([stats.entropy([5, 3, 1, 1]) + 3 / 20, 0])
    assert distinct.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00049, "< .001"),
        (0.0005, "= .001"),
        (0.0499, "= .050"),
        (0.9994, "= .999"),
        (0.9995, "= 1"),
        (0.9996, "= 1"),
    ],
)
def test_p_values_have_three_digits(value: float, text: str) -> None:
    assert p_value(value) == text


def test_points_have_bounds_where_there_are_any() -> None:
    found = Interval(np.asarray(0.0234), np.asarray(-0.0166), np.asarray(0.0642), Target.FIXED, "")
    assert interval_in_points(found) == "+2.3 [-1.7, +6.4]"
    assert interval_in_points(replace(found, lower=np.asarray(np.nan))) == "+2.3"


@pytest.mark.parametrize(
    ("right", "sound"),
    [
        ([32] * 5 + [0] * 25, True),  # five problems carry the noise
        ([32] * 4 + [0] * 25, False),
        ([2] * 5 + [1] + [0] * 20, True),  # 10.9 draws of two hold a right one
        ([2] * 5 + [0] * 20, False),  # 9.9 of them
    ],
)
def test_five_problems_and_ten_draws_carry_an_interval(right: list[int], sound: bool) -> None:
    assert bool(fixed_curve(Counts.of(64, right), [2]).interval.sound[0]) is sound


def test_beyond_half_the_samples_the_bounds_span_both_priors() -> None:
    """Problems that nobody solves part the priors: with rates of 0 allowed the bounds are lower."""
    counts = Counts.of(64, [0] * 15 + [1, 3, 9, 20, 33, 40, 50, 60, 7, 12] * 2)
    sizes = np.array([48, 64])
    plain, inflated = (
        posterior_bounds(counts, fit_prior(counts, zeros), sizes, 0.95)[1:]
        for zeros in (False, True)
    )
    interval = fixed_curve(counts, sizes).interval
    assert (inflated[0] < plain[0]).all() and (inflated[1] < plain[1]).all()
    np.testing.assert_allclose(interval.lower, inflated[0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(interval.upper, plain[1], rtol=0, atol=1e-11)


def test_single_samples_are_always_or_never_right() -> None:
    assert accuracy_histogram([0, 1, 1, 1], [0, 0, 1, 1]).tolist() == [2, *[0] * 10, 2]


def test_curves_that_meet_at_a_whole_k_cross_there() -> None:
    base, trained = Counts.of(4, [1, 1]), Counts.of(4, [4, 0])
    found = crossing(difference_curve(base, trained, weights(2), [1, 2, 4]))
    assert (found.points.tolist(), found.first_k.tolist()) == ([2], [2])


def test_problems_still_on_their_way_hold_stopped_ones_back() -> None:
    """One that was never sampled holds none back, and one sampled once all."""
    assert [Counts.of([3, n], [2, 0], 2, 16).limit[0] for n in (0, 1)] == [16, 1]
    fixed, stopped = Counts.of([3, 5], [2, 1], [2, 0], 16), Counts.of([3, 5], [1, 0], 1, 16)
    assert (fixed.limit.tolist(), stopped.limit.tolist()) == ([16, 5], [5, 5])
    assert Counts.of(4, []).reach == 0
    assert Counts.of([4.0], np.array([True])).c.tolist() == [1]


def test_an_area_up_to_two_is_the_mean_of_both_ends() -> None:
    assert log_area(Counts.of(4, [1]), 2).tolist() == [(1 / 4 + 1 / 2) / 2]
