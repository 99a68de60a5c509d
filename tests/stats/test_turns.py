"""pass@(k, T): whether one set of episodes serves every limit of turns, by enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from rlbhpc.stats import pass_at_k
from rlbhpc.stats.curve import counts_within_turns

# From the turn and the turns left: chances to answer right, to answer wrong, to go on.
Policy = Callable[[int, int], tuple[Fraction, Fraction, Fraction]]
LIMIT = 4


def untold(turn: int, left: int) -> tuple[Fraction, Fraction, Fraction]:
    """A model that does not know its limit: the longer it works, the likelier it is right."""
    right = Fraction(turn, 8)
    return right, Fraction(1, 8), 1 - right - Fraction(1, 8)


def told(turn: int, left: int) -> tuple[Fraction, Fraction, Fraction]:
    """The same model, which answers anyhow in the last turn that it is told it has."""
    right, wrong, more = untold(turn, left)
    return (right + more / 2, wrong + more / 2, Fraction(0)) if left == 1 else (right, wrong, more)


def episodes(policy: Policy, limit: int) -> Iterator[tuple[Fraction, bool, int]]:
    """Chance, verdict and turns of every episode; one that is cut at the limit is wrong."""
    reached = Fraction(1)
    for turn in range(1, limit + 1):
        right, wrong, more = policy(turn, limit - turn + 1)
        yield reached * right, True, turn
        yield reached * wrong, False, turn
        reached *= more
    yield reached, False, limit


def chance(policy: Policy, limit: int, within: int) -> Fraction:
    """Chance that an episode sampled under ``limit`` is right within so many turns."""
    return sum(
        (weight for weight, right, turns in episodes(policy, limit) if right and turns <= within),
        Fraction(0),
    )


@pytest.mark.parametrize("within", range(1, LIMIT + 1))
def test_an_episode_cut_at_t_is_one_sampled_under_t_unless_the_model_knows_its_limit(
    within: int,
) -> None:
    assert chance(untold, LIMIT, within) == chance(untold, within, within)
    same = chance(told, LIMIT, within) == chance(told, within, within)
    assert same is (within == LIMIT)


@pytest.mark.parametrize("within", range(1, LIMIT + 1))
def test_pass_at_k_within_t_is_unbiased_over_all_sets_of_episodes(within: int) -> None:
    """The mean over every set of three episodes, weighed by its chance, is 1 − (1 − p)^k."""
    p = float(chance(untold, within, within))
    possible = [episode for episode in episodes(untold, LIMIT) if episode[0]]
    for k in (1, 2, 3):
        mean = 0.0
        for drawn in product(possible, repeat=3):
            weight = float(np.prod([float(one[0]) for one in drawn]))
            right, turns = [[one[1] for one in drawn]], [[one[2] for one in drawn]]
            counts = counts_within_turns([[True] * 3], right, turns, within)
            mean += weight * float(pass_at_k(counts.n, counts.c, k)[0])
        assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_more_turns_solve_no_less() -> None:
    rng = np.random.default_rng(0)
    right, turns = rng.random((50, 16)) < 0.4, rng.integers(1, 9, (50, 16))
    judged = rng.random((50, 16)) < 0.9
    found = [counts_within_turns(judged, right & judged, turns, limit) for limit in range(1, 9)]
    assert np.all(np.diff([counts.c for counts in found], axis=0) >= 0)
    assert found[-1].c.tolist() == (right & judged).sum(axis=1).tolist()
    assert all(counts.n.tolist() == judged.sum(axis=1).tolist() for counts in found)
