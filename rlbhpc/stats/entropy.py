r"""Entropy of tokens and of answers, in nats.

Token entropy is the entropy of the next-token distribution, summed over a response when it was
sampled and stored as a sum and a number of tokens. Answer entropy is the entropy of the answers of
one problem over its samples. Training can raise the first and lower the second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError


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


def answer_entropy(votes: ArrayLike, estimator: str = "miller-madow") -> float:
    r"""Entropy of the answers to one problem from the samples per distinct answer.

    ``votes``: samples per distinct answer; zeros are ignored. ``estimator``: ``"plug-in"``:
    :math:`-\sum \hat p \log \hat p`, biased down. ``"miller-madow"``: plus :math:`(K-1)/2n` for K
    distinct answers, for few rare ones. ``"chao-shen"``: weights each answer by the chance that it
    was seen at all, for many that were seen once.

    Miller (1955); Chao and Shen (2003), "Nonparametric estimation of Shannon's index of diversity
    when there are unseen species in sample".

    >>> answer_entropy([2, 2], "plug-in")
    0.693147...
    """
    m = np.asarray(votes, np.float64)
    m = m[m > 0]
    n = m.sum()
    if not len(m):
        return float("nan")
    p = m / n
    if estimator == "plug-in":
        return float(-(p * np.log(p)).sum() + 0.0)
    if estimator == "miller-madow":
        return float(-(p * np.log(p)).sum() + (len(m) - 1) / (2 * n))
    if estimator == "chao-shen":
        singles = (m == 1).sum()
        # All singletons would give coverage 0 and an infinite entropy.
        seen = 1 - min(singles, n - 1) / n
        q = seen * p
        return float(-(q * np.log(q) / (1 - (1 - q) ** n)).sum() + 0.0)
    raise UserError(
        f"answer entropy by {estimator!r} is unknown; allowed are 'plug-in', 'miller-madow' and "
        "'chao-shen'"
    )


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
