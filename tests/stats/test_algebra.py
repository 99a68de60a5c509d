"""What must hold for any counts: limits, symmetries, invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from analysis.solvable_sets import solvable_sets
from rlbhpc.stats import (
    Counts,
    ProblemWeights,
    answer,
    coverage,
    crossing,
    crossing_points,
    difference_curve,
    g_pass_at_k,
    k_grid,
    pass_at_k,
    pass_curve,
    pass_hat_k,
)
from rlbhpc.stats.curve import pass_at_budget
from rlbhpc.stats.difference import flip_p
from rlbhpc.stats.exact import clopper_pearson, holm
from rlbhpc.stats.priors import fit_prior

SETTINGS = settings(max_examples=40)
PAIRS = st.integers(2, 12).flatmap(
    lambda problems: st.tuples(
        st.integers(2, 40),
        st.lists(st.integers(0, 40), min_size=problems, max_size=problems),
        st.lists(st.integers(0, 40), min_size=problems, max_size=problems),
    )
)
Drawn = tuple[int, list[int], list[int]]


def arms(drawn: Drawn) -> tuple[Counts, Counts]:
    n, a, b = drawn
    return Counts.of(n, np.minimum(a, n)), Counts.of(n, np.minimum(b, n))


@SETTINGS
@given(PAIRS)
def test_ends_of_a_curve(drawn: Drawn) -> None:
    base, _ = arms(drawn)
    curve = base.pass_at_k(np.arange(1, base.reach + 1))
    assert curve[:, 0] == pytest.approx(base.c / base.n)
    assert curve[:, -1].tolist() == base.solved.astype(float).tolist()
    assert (np.diff(curve, axis=1) >= -1e-12).all()
    assert (np.diff(curve, 2, axis=1) <= 1e-12).all()


@SETTINGS
@given(st.integers(1, 30), st.data())
def test_a_part_of_the_samples_is_unbiased_for_the_whole(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    part = data.draw(st.integers(1, n))
    k = data.draw(st.integers(1, part))
    seen = np.arange(part + 1)
    chance = stats.hypergeom.pmf(seen, n, c, part)
    inside = (seen <= c) & (part - seen <= n - c)
    expected = float(chance[inside] @ pass_at_k(part, seen[inside], k))
    assert expected == pytest.approx(float(pass_at_k(n, c, k)), abs=1e-9)


@SETTINGS
@given(st.integers(1, 40), st.data())
def test_g_pass_spans_pass_at_k_to_pass_hat_k(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    assert g_pass_at_k(n, c, k, 0.0) == pytest.approx(float(pass_at_k(n, c, k)), abs=1e-9)
    assert g_pass_at_k(n, c, k, 1.0) == pytest.approx(float(pass_hat_k(n, c, k)), abs=1e-9)


@SETTINGS
@given(PAIRS)
def test_difference_is_antisymmetric(drawn: Drawn) -> None:
    base, trained = arms(drawn)
    weights = ProblemWeights.draw(len(base), np.random.default_rng(1), replicates=50)
    there = difference_curve(base, trained, weights)
    back = difference_curve(trained, base, weights)
    assert there.pointwise.estimate == pytest.approx(-back.pointwise.estimate)
    assert there.pointwise.lower == pytest.approx(-back.pointwise.upper)
    assert there.band.lower == pytest.approx(-back.band.upper)
    assert there.p_moved == back.p_moved


@SETTINGS
@given(PAIRS)
def test_words_turn_around_with_the_models(drawn: Drawn) -> None:
    base, trained = arms(drawn)
    there, back = answer(base, trained), answer(trained, base)
    mirror = {
        "shrinks": "expands", "expands": "shrinks",
        "lost, gains open": "gained, losses open", "gained, losses open": "lost, gains open",
        "lost, yet ahead at large k": "gained, yet behind at large k",
        "gained, yet behind at large k": "lost, yet ahead at large k",
        "no loss, gains open": "no gain, losses open",
        "no gain, losses open": "no loss, gains open",
        "only sharpens": "only blunts", "only blunts": "only sharpens",
        "ahead at large k": "behind at large k", "behind at large k": "ahead at large k",
        "ahead at k = 1": "behind at k = 1", "behind at k = 1": "ahead at k = 1",
    }  # fmt: skip
    assert str(back.word) == mirror.get(str(there.word), str(there.word))
    assert back.lost.count == there.gained.count


@SETTINGS
@given(PAIRS, st.randoms(use_true_random=False))
def test_order_of_problems_does_not_matter(drawn: Drawn, random: object) -> None:
    base, trained = arms(drawn)
    order = np.random.default_rng(5).permutation(len(base))
    weights = ProblemWeights.draw(len(base), np.random.default_rng(1), replicates=10)
    one = difference_curve(base, trained, weights).pointwise
    other = difference_curve(base[order], trained[order], weights).pointwise
    assert one.bounds == pytest.approx(other.bounds)


def test_neither_order_of_problems_nor_of_arms_moves_the_test_at_k_1() -> None:
    moved = np.r_[1:13, -4:0, 0, 0]
    base, trained = Counts.of(64, [20] * 18), Counts.of(64, 20 + moved)
    p_values = set()
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(18)
        ours, theirs = base[order], trained[order]
        weights = ProblemWeights.draw(18, np.random.default_rng(0), 2)
        p_values.add(flip_p(difference_curve(ours, theirs, weights), 0, 0.05))
        p_values.add(flip_p(difference_curve(theirs, ours, weights), 0, 0.05))
    assert len(p_values) == 1


def test_a_curve_does_not_cross_itself() -> None:
    counts = Counts.of(64, [0, 3, 60, 64])
    weights = ProblemWeights.draw(4, np.random.default_rng(0))
    curve = difference_curve(counts, counts, weights)
    found = crossing(curve)
    assert not len(found.points)
    assert found.probability == 0
    # Nothing is excluded either: no problem told the two apart.
    assert 5 in found
    assert curve.p_moved == 1
    assert (curve.band.upper > 0).all()


def test_crossing_points_at_zeros_and_gaps() -> None:
    k = [1, 2, 4, 8, 16]
    assert crossing_points(k, [1, 0, 0, -1, -1]).tolist() == [pytest.approx(8**0.5)]
    assert crossing_points(k, [1, 0, 1, 1, 0]).tolist() == []
    assert crossing_points(k, [0, 0, 0, 0, 0]).tolist() == []
    assert len(crossing_points(k, [1, -1, np.nan, 1, -1])) == 3
    assert crossing_points(k, [1, 1, np.nan, -1, -1])[0] == pytest.approx(4)


@SETTINGS
@given(PAIRS)
def test_coverage_cells_are_disjoint_and_complete(drawn: Drawn) -> None:
    base, trained = arms(drawn)
    table = coverage(base.c, trained.c)
    cells = np.concatenate([table.both, table.base_only, table.trained_only, table.neither])
    assert sorted(cells.tolist()) == list(range(len(base)))
    groups = solvable_sets({"base": base.c, "trained": trained.c})
    assert groups.get(frozenset({"base"}), np.empty(0)).tolist() == table.base_only.tolist()
    assert sum(len(g) for g in groups.values()) == len(base)


def test_all_weight_on_one_problem_gives_that_problem() -> None:
    counts = Counts.of(8, [0, 2, 8])
    weights = ProblemWeights.draw(3, np.random.default_rng(0))
    one_hot = ProblemWeights(np.eye(3) * 3, weights.signs[:3], weights.unit, "none")
    assert one_hot.means(counts.pass_at_k([1, 4])).tolist() == counts.pass_at_k([1, 4]).tolist()


def test_closed_standard_error_is_what_the_bootstrap_converges_to() -> None:
    rng = np.random.default_rng(2)
    values = rng.random((40, 3))
    for clusters in (None, np.repeat(np.arange(8), [1, 2, 3, 4, 5, 6, 9, 10])):
        weights = ProblemWeights.draw(40, np.random.default_rng(3), 20_000, clusters)
        drawn = weights.means(values).std(axis=0) * weights.inflation
        # Unequal clusters make the mean a ratio, which the closed form linearises.
        tolerance = 0.02 if clusters is None else 0.1
        assert weights.standard_error(values) == pytest.approx(drawn, rel=tolerance)


def test_weights_are_the_same_for_the_same_seed_and_paired_over_arms() -> None:
    one, other = (ProblemWeights.draw(9, np.random.default_rng(4), 20) for _ in range(2))
    assert (one.weights == other.weights).all()
    assert one.seed == "4"
    assert ProblemWeights.draw(2, np.random.default_rng(0)).replicates == 2000
    counts = Counts.of(16, np.arange(9))
    replicates = difference_curve(counts, counts, one).replicates
    assert not replicates.any()


def test_unequal_n_is_missing_where_a_problem_has_too_few() -> None:
    counts = Counts.of([4, 8] * 20, [1, 1, 0, 0] * 10)
    weights = ProblemWeights.draw(40, np.random.default_rng(0))
    curve = pass_curve(counts, weights, [4, 5, 8])
    assert np.isnan(curve.interval.estimate).tolist() == [False, True, True]
    assert np.isnan(curve.interval.bounds).all(axis=1).tolist() == [False, True, True]
    assert curve.support.tolist() == [40, 20, 20]


def test_informative_region_ends_at_a_quarter_of_n() -> None:
    counts = Counts.of(64, [1, 2, 3])
    curve = pass_curve(counts, ProblemWeights.draw(3, np.random.default_rng(0)))
    assert curve.k[curve.informative].max() == 16


def test_grid_rises_from_one_to_n() -> None:
    for n in (1, 2, 7, 100, 2048, 10_000):
        grid = k_grid(n)
        assert grid[0] == 1
        assert grid[-1] == n
        assert (np.diff(grid) > 0).all()


def test_budget_with_equal_costs_is_pass_at_k() -> None:
    counts = Counts.of(32, [0, 1, 9])
    k = np.asarray([1, 5, 32])
    assert pass_at_budget(counts, 0.1, k * 0.1).tolist() == counts.pass_at_k(k).tolist()


def test_exact_bounds_hold_their_level() -> None:
    n = 30
    bounds = clopper_pearson(np.arange(n + 1), n)
    for rate in (0.001, 0.1, 0.5):
        chance = stats.binom.pmf(np.arange(n + 1), n, rate)
        assert chance[bounds.covers(rate)].sum() >= 0.95


@SETTINGS
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_adjusted_p_values_keep_order_and_only_grow(p: list[float]) -> None:
    values: NDArray[np.float64] = np.asarray(p)
    adjusted = holm(values)
    assert (adjusted >= values - 1e-15).all()
    assert (adjusted <= 1).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(adjusted[order]) >= -1e-15).all()


def test_prior_is_recovered_from_simulated_counts() -> None:
    rng = np.random.default_rng(6)
    rates = np.where(rng.random(4000) < 0.3, 0, rng.beta(0.8, 3, 4000))
    counts = Counts.of(256, rng.binomial(256, rates))
    prior = fit_prior(counts, zero_inflated=True)
    deviations = np.sqrt(np.diag(prior.covariance))
    truth = np.log([0.8, 3, 0.3 / 0.7])
    assert (np.abs(prior.parameters - truth) < 3 * deviations).all()
    assert prior.never(256, [0, 1])[1] == 0
    assert prior.fail(0, 0, 10) == pytest.approx(float(np.mean((1 - rates) ** 10)), abs=0.02)
