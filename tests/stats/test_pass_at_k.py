"""pass@k against exact rationals, published counts and its own algebra."""

from __future__ import annotations

import doctest
import importlib
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats import log_fail_at_k, pass_at_k, pass_curves

# A sum of nothing or a logarithm of 0 warns.
pytestmark = pytest.mark.filterwarnings("error")

COUNTS = yaml.safe_load(Path(__file__).with_name("pythia_counts.yaml").read_text())
PYTHIA_K = [1, 16, 256, 1024, 5000, 10000]
# Exact rationals, rounded to ten digits.
PYTHIA = {
    "70M": [0.0006468750, 0.0091017918, 0.0627898456, 0.1254278564, 0.2182471866, 0.2656250000],
    "2.8B": [0.0203117187, 0.1810664256, 0.5444018952, 0.6797506585, 0.7853270589, 0.8125000000],
    "6.9B": [0.0185601563, 0.1793716406, 0.5603881310, 0.6895314025, 0.7955766190, 0.8359375000],
}


def exact(n: int, k: int) -> Iterator[tuple[float, float]]:
    """pass@k and failure rate for c = 0 … n, each the float64 nearest to the exact rational."""
    all_draws = failing = math.comb(n, k)
    for c in range(n + 1):
        yield (all_draws - failing) / all_draws, failing / all_draws
        if n - c >= 1:
            failing = failing * max(n - c - k, 0) // (n - c)


def k_grid(n: int) -> list[int]:
    """Powers of two, their neighbours, and the last few before n."""
    near = {2**i + d for i in range(13) for d in (-1, 0, 1)}
    return sorted(k for k in near | {n - 1, n, n // 2, n // 3} if 1 <= k <= n)


SIZES = [1, 2, 3, 4, 5, 8, 17, 64, 100, 256, 257, 1000, 1024, 2048, 3001, 4095, 4096]


@pytest.mark.parametrize("n", SIZES)
def test_within_1e12_of_the_exact_rational_for_all_c(n: int, soak: bool) -> None:
    grid = k_grid(n) if soak or n <= 1024 else k_grid(n)[:: 10 if n > 2048 else 4]
    curves = pass_curves(n, np.arange(n + 1))
    for k in grid:
        passing, failing = np.array(list(exact(n, k))).T
        got = pass_at_k(n, np.arange(n + 1), k)
        assert np.abs(got - passing).max() <= 1e-12
        # Also relative to a value however small, which is where log-gammas fail.
        assert np.all(np.abs(got - passing) <= 1e-12 * passing)
        assert np.all(np.abs(curves[:, k - 1] - passing) <= 1e-12 * passing)
        kept = failing > 1e-290
        log_fail = log_fail_at_k(n, np.arange(n + 1)[kept], k)
        assert np.allclose(log_fail, np.log(failing[kept]), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("model", PYTHIA)
def test_the_published_counts_to_every_printed_digit(model: str) -> None:
    counts = COUNTS[model]
    assert len(counts) == 128
    got = pass_at_k(10_000, np.array(counts)[:, None], PYTHIA_K).mean(axis=0)
    assert [f"{value:.10f}" for value in got] == [f"{value:.10f}" for value in PYTHIA[model]]


# The other four models of that table. Their counts are not published as text; these are the means
# over 128 problems at PYTHIA_K, and how many problems were never solved.
PYTHIA_MEANS = {
    "160M": (
        [0.0026734375, 0.0385893889, 0.2688262931, 0.4122690224, 0.5300080463, 0.5703125], 55,
    ),
    "410M": (
        [0.0062187500, 0.0747356961, 0.3330801354, 0.4841921549, 0.6100476278, 0.65625], 44,
    ),
    "1B": (
        [0.0083335937, 0.0945925494, 0.3945125969, 0.5484605808, 0.6818736355, 0.7421875], 33,
    ),
    "12B": (
        [0.0231914063, 0.2105818665, 0.6046720008, 0.7251066565, 0.8345523638, 0.875], 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", PYTHIA_MEANS)
def test_published_means_are_those_of_some_counts(model: str) -> None:
    """What the means alone allow to check: the table, more than the estimator.

    pass@1 and pass@n follow from the total and from the zeros, whatever the counts. In between the
    estimator is concave in c, so that counts as equal, and as unequal, as total and zeros allow
    give the largest and the smallest mean.
    """
    means, zeros = PYTHIA_MEANS[model]
    solved, total = 128 - zeros, round(means[0] * 128 * 10_000)
    equal = [total // solved + (i < total % solved) for i in range(solved)]
    spare, unequal = total - solved, []
    for _ in range(solved):
        more = min(spare, 9_999)
        unequal.append(1 + more)
        spare -= more
    largest, smallest = (
        pass_at_k(10_000, np.array(c + [0] * zeros)[:, None], PYTHIA_K).mean(axis=0)
        for c in (equal, unequal)
    )
    for end in (0, -1):
        assert largest[end] == pytest.approx(means[end], abs=6e-11)
        assert smallest[end] == pytest.approx(means[end], abs=6e-11)
    assert np.all(smallest[1:-1] < means[1:-1])
    assert np.all(means[1:-1] < largest[1:-1])


def test_the_published_pair_crosses_once_at_23() -> None:
    larger, smaller = pass_curves(10_000, COUNTS["6.9B"]), pass_curves(10_000, COUNTS["2.8B"])
    gain = np.nanmean(larger - smaller, axis=0)
    assert int(np.argmax(gain >= 0)) + 1 == 23
    assert gain[22] == pytest.approx(1.0028785909e-4, abs=5e-15)
    assert np.count_nonzero(np.diff(np.sign(gain))) == 1


def test_a_draw_larger_than_the_samples_is_nan_and_never_one() -> None:
    # The usual guard "if n − c < k: return 1" answers 1 here.
    assert np.isnan(pass_at_k(8, [0, 1, 8], 9)).all()
    assert np.isnan(log_fail_at_k(0, 0, 1))
    assert np.isnan(pass_curves([2, 0], [2, 0])[1]).all()


def test_the_failure_rate_survives_below_the_smallest_float() -> None:
    exact_log = math.log(Fraction(math.comb(5000, 4000), math.comb(10_000, 4000)).numerator) - (
        math.log(Fraction(math.comb(5000, 4000), math.comb(10_000, 4000)).denominator)
    )
    assert float(log_fail_at_k(10_000, 5000, 4000)) == pytest.approx(exact_log, rel=1e-11)
    assert float(pass_at_k(10_000, 5000, 4000)) == 1.0


def test_memory_stays_bounded_however_many_samples_there_are() -> None:
    """Several batches of partial sums give what one gives."""
    c = np.array([1, 10, 2_000_000, 1_999_999, 1_800_000, 3_000_000, 7])
    k = np.array([[1], [1000], [1_700_000], [3_700_000]])
    got = log_fail_at_k(3_700_000, c, k)
    alone = [[float(log_fail_at_k(3_700_000, x, y)) for x in c] for y in k[:, 0]]
    assert np.array_equal(got, np.array(alone))
    # C(n−c, k)/C(n, k) for c = 1 is 1 − k/n.
    assert got[1, 0] == pytest.approx(math.log1p(-1000 / 3_700_000), rel=1e-15)


def test_broadcasting_scalars_and_empty_arrays() -> None:
    assert pass_at_k(4, 2, 1).shape == ()
    assert pass_at_k(np.full((3, 1), 4), [[0, 1]], [[[1]], [[2]]]).shape == (2, 3, 2)
    assert pass_at_k(4, np.empty((0, 2), int), 1).shape == (0, 2)
    assert pass_curves([], []).shape == (0, 0)
    assert pass_curves(np.full((2, 1), 6), [[1, 2, 3]]).shape == (2, 3, 6)
    assert pass_at_k(np.int8(100), np.float32(50), np.uint64(3)).dtype == np.float64


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        ([5, 5], [1, 6], 1, r"problem 1 has n=5, c=6, stop_after=0; needed is 0 <= c <= n"),
        (5, -1, 1, "c=-1"),
        (5, 1, [2, 0], "draw size k is 0"),
        (5, 0.5, 1, "c holds 0.5"),
        ([5, np.nan], 0, 1, "n holds nan"),
    ],
)
def test_impossible_counts_are_refused_with_their_place(
    n: object, c: object, k: object, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        pass_at_k(n, c, k)  # type: ignore[arg-type]


counts = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1, max_size=8))
)


@given(counts)
def test_endpoints_monotone_and_concave(drawn: tuple[int, list[int]]) -> None:
    n, c = drawn
    curves = pass_curves(n, c)
    assert np.allclose(curves[:, 0], np.array(c) / n, rtol=1e-14)
    assert np.array_equal(curves[:, -1], np.array(c) > 0)
    assert (np.diff(curves) >= -1e-15).all()
    assert (np.diff(curves, 2) <= 1e-14).all()


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_it_is_the_share_of_subsets_that_hold_a_right_sample(
    rights: list[bool], data: st.DataObject
) -> None:
    from itertools import combinations

    k = data.draw(st.integers(1, len(rights)))
    draws = [any(draw) for draw in combinations(rights, k)]
    assert float(pass_at_k(len(rights), sum(rights), k)) == pytest.approx(sum(draws) / len(draws))


@given(st.integers(1, 40), st.data())
def test_a_random_subset_has_the_same_expectation(n: int, data: st.DataObject) -> None:
    """E[pass@k of m of the n samples], over hypergeometric draws, is pass@k of all, k ≤ m."""
    c, m = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    k = data.draw(st.integers(1, m))
    drawn = np.arange(max(0, m - (n - c)), min(m, c) + 1)
    weight: NDArray[np.float64] = np.array(
        [math.comb(c, int(x)) * math.comb(n - c, m - int(x)) / math.comb(n, m) for x in drawn]
    )
    assert float(weight @ pass_at_k(m, drawn, k)) == pytest.approx(float(pass_at_k(n, c, k)))


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1)), min_size=1, max_size=8))
def test_unequal_sizes_give_each_problem_its_own_curve(drawn: list[tuple[int, float]]) -> None:
    n = np.array([size for size, _ in drawn])
    c = np.array([round(size * share) for size, share in drawn])
    curves = pass_curves(n, c)
    grid = pass_at_k(n[:, None], c[:, None], np.arange(1, n.max() + 1))
    assert np.allclose(curves, grid, rtol=1e-13, atol=0, equal_nan=True)


def test_examples_in_the_docstrings() -> None:
    # The package exports the function under the module's own name.
    module = importlib.import_module("rlbhpc.stats.pass_at_k")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3
    assert result.failed == 0
