r"""Votes of the answers of one problem over its samples.

**maj@k** is the chance that the most frequent answer among k samples is right. The k samples are
drawn without replacement of the n that there are, and ties are broken at random, which is what an
expectation over tie-breaks means. The exact sum over counts of distinct answers takes minutes for
hundreds of problems with thousands of samples, so votes are held instead.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

#: Votes per problem that :func:`maj_at_k_by_votes` holds at the least.
VOTES: Final = 32
# Ballots that are shuffled at once; 32 MB at two bytes each.
_BALLOTS_AT_ONCE: Final = 1 << 24


def maj_at_k_by_votes(
    answers: ArrayLike, right: ArrayLike, k: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Estimate maj@k of every problem (rows) and k (columns) from votes that were held.

    The samples of a problem are shuffled and cut into disjoint groups of k, again and again until
    there are ``VOTES`` groups; each group votes, and a tie counts by the share of right answers in
    it. The mean is unbiased; the noise that remains is in any interval over problems.

    ``answers``: id of the canonical answer of each sample (problems, samples); negative where
    the sample gave none. Equal answers vote together only if their ids are equal. ``right``:
    whether each sample was judged right. ``k``: draw sizes; NaN where one is above the number of
    samples. ``rng``: generator that shuffles.

    A *ballot* is a sample's answer as a small code, odd if the answer is right, 0 if there is none.
    ``copies`` (problems, shuffles, samples) holds shuffled ballots; the shuffles of each size
    follow one another.
    """
    ids, judged_right = np.asarray(answers), np.asarray(right, bool)
    if ids.shape != judged_right.shape or ids.ndim != 2:
        raise UserError("answers and verdicts are needed by problem and sample, in two dimensions")
    problems, samples = ids.shape
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    ballots = _ballots(ids, judged_right)
    shares_won = np.full((problems, len(sizes)), np.nan)
    if samples:  # each decides alone where one votes
        shares_won[:, sizes == 1] = (ballots & 1).mean(axis=1)[:, None]
    voting_sizes = [size for size in sizes.tolist() if 1 < size <= samples]
    if not voting_sizes:
        return shares_won
    shuffles = [math.ceil(VOTES / (samples // size)) for size in voting_sizes]
    # Few problems at a time bound the memory; each problem's shuffles follow one another.
    batch_size = max(1, _BALLOTS_AT_ONCE // max(1, sum(shuffles) * samples))
    for first in range(0, problems, batch_size):
        batch = slice(first, first + batch_size)
        copies = np.repeat(ballots[batch, None], sum(shuffles), axis=1)
        rng.permuted(copies, axis=2, out=copies)
        copies_by_size = np.split(copies, np.cumsum(shuffles)[:-1], axis=1)
        for size, shuffled in zip(voting_sizes, copies_by_size, strict=True):
            whole_groups = samples // size * size
            groups = shuffled[:, :, :whole_groups].reshape(-1, size)
            won = _share_won(groups).reshape(len(shuffled), -1)
            shares_won[batch, sizes == size] = won.mean(axis=1)[:, None]
    return shares_won


def _ballots(ids: NDArray[np.int64], right: NDArray[np.bool_]) -> NDArray[np.unsignedinteger]:
    """Turn answers into small codes, odd for right answers and 0 for samples without an answer.

    ``ids``: number of each sample's answer, negative if it gave none; ``right``: whether it was
    judged right; both (problems, samples), as is the result.

    A row is sorted by id, so that equal answers form a run; the number of the run, doubled, is the
    code, plus 1 if the answer is right. Right and wrong samples of one answer stay together: its
    verdict is that of its first sample, as the sort is stable.
    """
    samples = ids.shape[1]
    order = np.argsort(ids, axis=1, kind="stable")
    sorted_ids = np.take_along_axis(ids, order, axis=1)
    starts = _run_starts(sorted_ids)
    # Column at which the run of each entry begins.
    start_of_run = np.maximum.accumulate(np.where(starts, np.arange(samples), 0), axis=1)
    first_sample = np.take_along_axis(order, start_of_run, axis=1)
    answer_is_right = np.take_along_axis(right, first_sample, axis=1)
    codes = 2 * np.cumsum(starts, axis=1) + answer_is_right
    codes = np.where(sorted_ids < 0, 0, codes)
    # The smallest type that holds the codes: moving them is what takes the time.
    ballots = np.empty(ids.shape, np.min_scalar_type(2 * samples + 1))
    np.put_along_axis(ballots, order, codes.astype(ballots.dtype), axis=1)
    return ballots


def _share_won(groups: NDArray[np.unsignedinteger]) -> NDArray[np.float64]:
    """Vote of each group: 1 where a right answer leads, 0 where a wrong one, a share in a tie.

    ``groups``: ballots (groups, voters), codes of answers: odd for right ones, 0 for no answer,
    which gets no votes. Sorted, equal ballots form a run, whose length is the number of votes.
    ``reduceat`` takes the largest number, and the count of leaders, over the runs of each group. In
    a tie, the share of right answers among the leaders counts.
    """
    sorted_ballots = np.sort(groups, axis=1)
    # Runs of equal ballots within a group are its tally.
    run_starts = np.flatnonzero(_run_starts(sorted_ballots))
    votes = np.diff(run_starts, append=sorted_ballots.size)
    ballot = sorted_ballots.ravel()[run_starts]
    votes[ballot == 0] = 0
    first_run_of_group = np.flatnonzero(run_starts % groups.shape[1] == 0)
    runs_in_group = np.diff(first_run_of_group, append=len(run_starts))
    most_votes = np.maximum.reduceat(votes, first_run_of_group)
    leads = votes == np.repeat(most_votes, runs_in_group)
    is_right = ballot % 2 == 1
    leaders = np.add.reduceat(leads, first_run_of_group, dtype=np.int64)
    right_leaders = np.add.reduceat(leads & is_right, first_run_of_group, dtype=np.int64)
    return np.asarray(right_leaders / leaders)


def _run_starts(sorted_rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Mark where a value differs from the one before it in its row."""
    starts = np.ones(sorted_rows.shape, bool)
    starts[:, 1:] = sorted_rows[:, 1:] != sorted_rows[:, :-1]
    return starts
