r"""maj@k: the chance that the most frequent answer among k samples is right.

The k samples are drawn without replacement of the n that there are, and ties are broken at random,
which is what an expectation over tie-breaks means. The exact sum over counts of distinct answers
takes minutes for hundreds of problems with thousands of samples, so votes are held instead.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

#: Votes per problem that :func:`maj_at_k_by_votes` holds at the least.
VOTES: Final = 32


def maj_at_k_by_votes(
    answers: ArrayLike, right: ArrayLike, k: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Estimate maj@k of every problem (rows) and k (columns) from votes that were held.

    The samples of a problem are shuffled and cut into disjoint groups of k, again and again until
    there are ``VOTES`` groups; each group votes, and a tie counts by the share of right answers in
    it. The mean is unbiased; the noise that remains is in any interval over problems.

    Parameters
    ----------
    answers
        Id of the canonical answer of each sample, ``[problem, sample]``; negative where the
        sample gave none. Equal answers vote together only if their ids are equal.
    right
        Whether each sample was judged right.
    k
        Draw sizes; NaN where one is above the number of samples.
    rng
        Generator that shuffles.
    """
    ids, good = np.asarray(answers), np.asarray(right, bool)
    if ids.shape != good.shape or ids.ndim != 2:
        raise UserError("answers and verdicts are needed by problem and sample, in two dimensions")
    sizes = np.atleast_1d(np.asarray(k, np.int64)).tolist()
    found = np.full((len(ids), len(sizes)), np.nan)
    for row, (answer, verdict) in enumerate(zip(ids, good, strict=True)):
        # Codes from 0 in any order; right and wrong samples of one answer stay together, as the
        # verdict of an answer is that of its first sample.
        _, first, code = np.unique(answer, return_index=True, return_inverse=True)
        wins, blank = verdict[first], answer[first] < 0
        # The smallest type that holds the codes: sorting is what takes the time.
        small: NDArray[np.unsignedinteger] = code.astype(np.min_scalar_type(len(first)))
        for column, size in enumerate(sizes):
            if size <= len(answer):
                found[row, column] = _hold(small, wins & ~blank, blank, size, rng)
    return found


def _hold(
    code: NDArray[np.unsignedinteger],
    wins: NDArray[np.bool_],
    blank: NDArray[np.bool_],
    k: int,
    rng: np.random.Generator,
) -> float:
    """Share of votes of k samples that come out right."""
    if k == 1:  # each sample decides alone
        return float(wins[code].mean())
    groups = len(code) // k
    times = -(-VOTES // groups)
    shuffled = rng.permuted(np.broadcast_to(code, (times, len(code))), axis=1)
    votes = np.sort(shuffled[:, : groups * k].reshape(-1, k), axis=1)
    # Runs of equal codes within a group are its tally.
    starts = np.ones(votes.shape, bool)
    starts[:, 1:] = votes[:, 1:] != votes[:, :-1]
    at = np.flatnonzero(starts)
    length = np.diff(np.append(at, votes.size))
    group, answer = at // k, votes.ravel()[at]
    length = np.where(blank[answer], 0, length)
    most = np.maximum.reduceat(length, np.flatnonzero(np.diff(group, prepend=-1)))
    level = (length == most[group]) & (length > 0)
    tied = np.bincount(group[level], minlength=len(votes))
    good = np.bincount(group[level & wins[answer]], minlength=len(votes))
    return float((good / np.maximum(tied, 1)).mean())
