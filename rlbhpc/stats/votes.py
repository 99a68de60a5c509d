r"""Answers of one problem over its samples: votes and entropy.

maj@k: the chance that the most frequent answer among k samples is right.

The k samples are drawn without replacement of the n that there are, and ties are broken at random,
which is what an expectation over tie-breaks means. The exact sum over counts of distinct answers
takes minutes for hundreds of problems with thousands of samples, so votes are held instead.

Entropy of tokens and of answers, in nats.

Token entropy is the entropy of the next-token distribution, summed over a response when it was
sampled and stored as a sum and a number of tokens. Answer entropy is the entropy of the answers of
one problem over its samples. Training can raise the first and lower the second.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

#: Votes per problem that :func:`maj_at_k_by_votes` holds at the least.
VOTES: Final = 32
# Ballots that are shuffled at once; 32 MB at two bytes each.
_BATCH: Final = 1 << 24


def maj_at_k_by_votes(
    answers: ArrayLike, right: ArrayLike, k: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Estimate maj@k of every problem (rows) and k (columns) from votes that were held.

    The samples of a problem are shuffled and cut into disjoint groups of k, again and again until
    there are ``VOTES`` groups; each group votes, and a tie counts by the share of right answers in
    it. The mean is unbiased; the noise that remains is in any interval over problems.

    ``answers``: id of the canonical answer of each sample, ``[problem, sample]``; negative where
    the sample gave none. Equal answers vote together only if their ids are equal. ``right``:
    whether each sample was judged right. ``k``: draw sizes; NaN where one is above the number of
    samples. ``rng``: generator that shuffles.
    """
    ids = np.asarray(answers)
    judged_right = np.asarray(right, bool)
    if ids.shape != judged_right.shape or ids.ndim != 2:
        raise UserError("answers and verdicts are needed by problem and sample, in two dimensions")
    problems, samples = ids.shape
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    ballots = _ballots(ids, judged_right)
    shares = np.full((problems, len(sizes)), np.nan)
    if samples:  # each decides alone where one votes
        shares[:, sizes == 1] = (ballots & 1).mean(axis=1)[:, None]
    voting = [size for size in sizes.tolist() if 1 < size <= samples]
    shuffles = [-(-VOTES // (samples // size)) for size in voting]
    # Few problems at a time bound the memory; each problem's shuffles follow one another.
    batch = max(1, _BATCH // max(1, sum(shuffles) * samples))
    for first in range(0, problems if voting else 0, batch):
        rows = slice(first, first + batch)
        copies = np.repeat(ballots[rows, None], sum(shuffles), axis=1)
        rng.permuted(copies, axis=2, out=copies)
        by_size = np.split(copies, np.cumsum(shuffles)[:-1], axis=1)
        for size, shuffled in zip(voting, by_size, strict=True):
            groups = shuffled[:, :, : samples // size * size].reshape(-1, size)
            won = _share_won(groups).reshape(len(shuffled), -1)
            shares[rows, sizes == size] = won.mean(axis=1)[:, None]
    return shares


def _ballots(ids: NDArray[np.int64], right: NDArray[np.bool_]) -> NDArray[np.unsignedinteger]:
    """Turn answers into small codes, odd for right answers and 0 for samples without an answer.

    Right and wrong samples of one answer stay together: its verdict is that of its first sample.
    """
    samples = ids.shape[1]
    order = np.argsort(ids, axis=1, kind="stable")
    ranked = np.take_along_axis(ids, order, axis=1)
    starts = _run_starts(ranked)
    first = np.maximum.accumulate(np.where(starts, np.arange(samples), 0), axis=1)
    first_sample = np.take_along_axis(order, first, axis=1)
    wins = np.take_along_axis(right, first_sample, axis=1)
    codes = np.where(ranked < 0, 0, 2 * np.cumsum(starts, axis=1) + wins)
    # The smallest type that holds the codes: moving them is what takes the time.
    ballots = np.empty(ids.shape, np.min_scalar_type(2 * samples + 1))
    np.put_along_axis(ballots, order, codes.astype(ballots.dtype), axis=1)
    return ballots


def _share_won(groups: NDArray[np.unsignedinteger]) -> NDArray[np.float64]:
    """Count a vote of each row: 1 where a right answer leads, a share where several are level."""
    ranked = np.sort(groups, axis=1)
    # Runs of equal ballots within a group are its tally.
    starts = np.flatnonzero(_run_starts(ranked))
    length = np.diff(starts, append=ranked.size)
    answer = ranked.ravel()[starts]
    length[answer == 0] = 0
    first_run = np.flatnonzero(starts % groups.shape[1] == 0)
    runs = np.diff(first_run, append=len(starts))
    most = np.maximum.reduceat(length, first_run)
    leads = length == np.repeat(most, runs)
    leaders = np.add.reduceat(leads, first_run, dtype=np.int64)
    right_leaders = np.add.reduceat(leads & (answer % 2 == 1), first_run, dtype=np.int64)
    return np.asarray(right_leaders / leaders)


def _run_starts(ranked: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Mark where a value differs from the one before it in its row."""
    starts = np.ones(ranked.shape, bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    return starts


def token_entropy(entropy_sum: ArrayLike, n_tokens: ArrayLike) -> float:
    r"""Token-weighted mean entropy, :math:`\sum_i S_i / \sum_i T_i` over responses.

    Long responses weigh more. Responses without an entropy (NaN) or without tokens are left out.

    >>> token_entropy([10.0, 2.0], [20, 2])
    0.545...
    """
    sums, tokens = np.broadcast_arrays(
        np.asarray(entropy_sum, np.float64), np.asarray(n_tokens, np.float64)
    )
    has_value = ~np.isnan(sums) & (tokens > 0)
    if not has_value.any():
        return float("nan")
    return float(sums[has_value].sum() / tokens[has_value].sum())


def entropy_by_problem(answers: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    r"""Miller–Madow entropy of the answers to each problem, and how many differ.

    ``answers``: ids of the answers, ``[problem, sample]``; negative where a sample gave none. The
    entropy is 0 where none gave one.

    >>> entropy_by_problem([[5, 5, 7, 7], [3, 3, 3, -1]])
    (array([0.818147..., 0.        ]), array([2, 1]))
    """
    ranked = np.sort(np.asarray(answers), axis=1)
    problems, samples = ranked.shape
    changes = np.ones(ranked.shape, bool)
    changes[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    starts = np.flatnonzero(changes)
    votes = np.diff(starts, append=ranked.size)
    given = ranked.ravel()[starts] >= 0
    problem, votes = (starts // max(samples, 1))[given], votes[given]
    distinct = np.bincount(problem, minlength=problems)
    total = np.maximum(np.bincount(problem, votes, minlength=problems), 1)
    share = votes / total[problem]
    plug_in = np.bincount(problem, -share * np.log(share), minlength=problems)
    return plug_in + np.maximum(distinct - 1, 0) / (2 * total), distinct
