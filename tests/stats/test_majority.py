"""maj@k against brute force over all draws."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.stats.votes import maj_at_k_by_votes
from tests.stats.exact_majority import maj_at_k, maj_at_k_of


def brute_force(votes: list[int], right: list[bool], k: int, blank: int) -> float:
    """Look at every draw of k samples and split ties evenly."""
    samples = [a for a, m in enumerate(votes) for _ in range(m)] + [-1] * blank
    total, draws = 0.0, 0
    for draw in combinations(samples, k):
        draws += 1
        tally = np.bincount([a for a in draw if a >= 0], minlength=len(votes))
        if tally.max(initial=0) > 0:
            winners = np.flatnonzero(tally == tally.max())
            total += np.mean([right[w] for w in winners])
    return total / draws


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 2),
    st.integers(1, 6),
)
def test_agrees_with_every_draw(answers: list[tuple[int, bool]], blank: int, k: int) -> None:
    votes, right = [m for m, _ in answers], [good for _, good in answers]
    n = sum(votes) + blank
    got = maj_at_k(votes, right, k, blank)
    if k > n:
        assert math.isnan(got)
    else:
        assert got == pytest.approx(brute_force(votes, right, k, blank), abs=1e-12)


def test_one_vote_is_accuracy_and_all_votes_is_the_majority() -> None:
    votes, right = [30, 25, 9], [False, True, False]
    assert maj_at_k(votes, right, 1) == pytest.approx(25 / 64)
    assert maj_at_k(votes, right, 64) == 0.0
    assert maj_at_k([20, 20], [False, True], 40) == pytest.approx(0.5)


def test_large_draws_stay_exact() -> None:
    # With two answers the majority of an odd draw is a hypergeometric tail.
    n, c, k = 1024, 500, 255
    tail = sum(math.comb(c, j) * math.comb(n - c, k - j) for j in range(k // 2 + 1, k + 1))
    expected = tail / math.comb(n, k)
    assert maj_at_k([c, n - c], [True, False], k) == pytest.approx(expected, rel=1e-10)


def test_from_samples_counts_ids_and_blanks() -> None:
    answers = [[7, 7, 9, -1], [3, 4, 4, 4]]
    right = [[True, True, False, False], [True, False, False, False]]
    got = maj_at_k_of(answers, right, [1, 4])
    assert got.tolist() == [[0.5, 1.0], [0.25, 0.0]]


def test_refuses_what_is_no_vote() -> None:
    with pytest.raises(UserError, match="k >= 1"):
        maj_at_k([1], [True], 0)
    with pytest.raises(UserError, match="by problem and sample"):
        maj_at_k_of([1, 2], [True, False], 1)


def test_held_votes_agree_with_the_exact_chance() -> None:
    rng = np.random.default_rng(3)
    right = rng.random((300, 24)) < 0.45
    answers = np.where(right, 0, rng.integers(-1, 4, right.shape))
    answers[:40] = np.where(right[:40], 0, 1)  # ties
    answers[right] = 0
    answers[(answers == 0) & ~right] = 9
    sizes = [1, 2, 5, 24, 25]
    held = maj_at_k_by_votes(answers, right, sizes, rng)
    exact = maj_at_k_of(answers, right, sizes)
    assert np.isnan(held[:, -1]).all()
    # 300 problems with 32 votes each: the mean is known to about half a point.
    np.testing.assert_allclose(held[:, :4].mean(axis=0), exact[:, :4].mean(axis=0), atol=0.015)
    np.testing.assert_allclose(held[:, 3], exact[:, 3])
    np.testing.assert_allclose(held[:, 0], exact[:, 0])


def test_samples_without_an_answer_do_not_win() -> None:
    blank = np.full((1, 6), -1)
    none = np.zeros((1, 6), bool)
    assert maj_at_k_by_votes(blank, none, [3], np.random.default_rng(0)).item() == 0
