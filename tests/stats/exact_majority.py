r"""maj@k: the chance that the most frequent answer among k samples is right.

Exact over the counts of distinct answers, for k samples drawn without replacement of n, with ties
broken at random (which is what an expectation over tie-breaks means).

Let answer :math:`a` have :math:`m_a` of the n samples. Independent binomials
:math:`X_a \sim \text{Bin}(m_a, k/n)`, given their sum k, are the draw without replacement. Right
answer :math:`r` wins with t votes if no other has more; with j others level it wins with
probability :math:`1/(j+1)`. So

.. math:: \text{maj@}k = \sum_r \sum_t \sum_j \frac1{j+1}
          \frac{\Pr[X_r = t,\ j \text{ others} = t,\ \text{the rest} < t,\ \sum X = k]}
               {\Pr[\sum X = k]} .

Answers with :math:`m_a < t` cannot reach t and merge into one binomial, which keeps the sum short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rlbhpc.errors import UserError


def maj_at_k(votes: ArrayLike, right: ArrayLike, k: int, blank: int = 0) -> float:
    """Chance that a majority vote of k samples of one problem is right.

    Parameters
    ----------
    votes
        Samples per distinct answer.
    right
        Whether each of these answers is right.
    k
        Samples that vote.
    blank
        Samples without an answer: they may be drawn but do not vote. A draw of blanks only is
        wrong.

    Returns
    -------
    float
        NaN where k is above the number of samples.

    Examples
    --------
    >>> maj_at_k([3, 2], [True, False], 3)
    0.7
    >>> maj_at_k([1, 1], [True, False], 2)
    0.5
    """
    m, good = np.asarray(votes, np.int64), np.asarray(right, bool)
    if m.shape != good.shape or m.ndim != 1 or (m < 0).any() or blank < 0 or k < 1:
        raise UserError("a vote needs one count and one right-or-wrong per answer, and k >= 1")
    n = int(m.sum()) + blank
    if k > n:
        return float("nan")
    share = k / n
    total = 0.0
    # Equal counts give equal chances: each distinct count of a right answer is worked out once.
    for count in np.unique(m[good & (m > 0)]).tolist():
        winner = int(np.flatnonzero(good & (m == count))[0])
        others = np.delete(m, winner)
        times = int((good & (m == count)).sum())
        total += times * _wins(count, others[others > 0], blank, k, share)
    return round(total / float(stats.binom.pmf(k, n, share)), 14)


def maj_at_k_of(answers: ArrayLike, right: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """maj@k of every problem (rows) and k (columns) from answer ids and verdicts of samples.

    Parameters
    ----------
    answers
        Id of the canonical answer of each sample, ``[problem, sample]``; negative where the
        sample gave none.
    right
        Whether each sample was judged right.
    k
        Draw sizes.

    Notes
    -----
    Equal answers vote together only if their ids are equal: strings that a verifier holds equal
    but that are not canonically the same split their vote, as they do in training on votes.
    """
    ids, good = np.asarray(answers), np.asarray(right, bool)
    if ids.shape != good.shape or ids.ndim != 2:
        raise UserError("answers and verdicts are needed by problem and sample, in two dimensions")
    sizes = np.atleast_1d(np.asarray(k, np.int64)).tolist()
    rows = []
    for row, verdict in zip(ids, good, strict=True):
        voting = row >= 0
        _, first, votes = np.unique(row[voting], return_index=True, return_counts=True)
        wins = verdict[voting][first]
        rows.append([maj_at_k(votes, wins, size, int((~voting).sum())) for size in sizes])
    return np.asarray(rows, np.float64)


def _wins(count: int, others: NDArray[np.int64], blank: int, k: int, share: float) -> float:
    """Unconditional chance that one right answer wins and the votes sum to k."""
    total = 0.0
    for t in range(1, min(count, k) + 1):
        rest = k - t
        small = others < t
        merged = int(others[small].sum()) + blank
        level = rest // t
        # tied[j, s]: chance that j of the large answers have t votes, none more, sum s.
        tied = np.zeros((level + 1, rest + 1))
        tied[0] = stats.binom.pmf(np.arange(rest + 1), merged, share)
        for m in others[~small].tolist():
            chance = stats.binom.pmf(np.arange(t + 1), m, share)
            fewer = _convolve(tied, chance[:t], rest)
            if level:
                fewer[1:, t:] += tied[:-1, : rest + 1 - t] * chance[t]
            tied = fewer
        own = float(stats.binom.pmf(t, count, share))
        total += own * float((tied[:, rest] / np.arange(1, level + 2)).sum())
    return total


def _convolve(
    tied: NDArray[np.float64], chance: NDArray[np.float64], rest: int
) -> NDArray[np.float64]:
    """Add one answer with few votes to the sum, keeping sums up to ``rest``."""
    result = np.zeros_like(tied)
    for votes, weight in enumerate(chance[: rest + 1].tolist()):
        result[:, votes:] += weight * tied[:, : rest + 1 - votes]
    return result
