r"""The reliability side: how often all, most or the average of k samples are right.

:math:`X` right ones in a draw of k samples without replacement are hypergeometric in (n, c).

Bayes@N: posterior mean and deviation of a graded score, one Dirichlet per problem.

With outcomes in categories 0 … C worth :math:`w_j`, counts :math:`\nu_{ij}` of problem i that
start from one each (and from earlier outcomes, if there are any), :math:`T = \sum_j \nu_{ij}`,

.. math:: \mu = \frac1P \sum_i \sum_j \frac{\nu_{ij}}{T} w_j, \qquad
          \sigma^2 = \frac1{P^2 (T+1)} \sum_i \Big[\sum_j \frac{\nu_{ij}}{T} w_j^2
          - \Big(\sum_j \frac{\nu_{ij}}{T} w_j\Big)^2\Big] .

It is a score at k = 1. Its flat prior says that rates near 0 are rare, so pushing it through
:math:`1-(1-p)^k` gives intervals that never hold the truth at large k; use
:mod:`rlbhpc.stats.extrapolation` there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.exact import chances_of_right
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.pass_at_k import log_fail_at_k


def avg_at_k(counts: Counts) -> NDArray[np.float64]:
    """Mean accuracy c/n per problem: avg@k of any k, and pass@1."""
    return counts.pass_at_k(1)[:, 0]


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    r"""Chance that all of k samples are right, :math:`\binom ck / \binom nk`; NaN where k > n.

    >>> pass_hat_k(5, [3, 4], 2)
    array([0.3, 0.6])
    """
    # All k right is "no wrong one among k".
    return np.exp(log_fail_at_k(n, np.asarray(n) - np.asarray(c), k))


def g_pass_at_k(n: ArrayLike, c: ArrayLike, k: int, tau: float) -> NDArray[np.float64]:
    r"""Chance that at least a share τ of k samples is right; NaN where k > n.

    :math:`\Pr[X \ge \lceil \tau k \rceil]`. At τ = 1 it is pass^k; at τ → 0 it is
    pass@k, as at least one must be right.

    Liu et al. (2024), "Are your LLMs capable of stable reasoning?", arXiv:2412.13147. The authors
    advise n ≥ 3 k.

    >>> g_pass_at_k(5, [3, 4], 2, 0.5)
    array([0.9, 1. ])
    """
    if not 0 <= tau <= 1:
        raise UserError(f"G-Pass threshold is {tau}; allowed is a share from 0 to 1")
    _check_size(k)
    return np.asarray(_chances(n, c, k)[..., threshold(tau, k) :].sum(axis=-1))


def mg_pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    r"""Mean of G-Pass@k over thresholds from ½ to 1.

    :math:`\frac2k \sum_{j > \lceil k/2 \rceil} (j - \lceil k/2 \rceil) \Pr[X=j]`.

    >>> mg_pass_at_k(5, [3, 4], 3).mean().round(6)
    np.float64(0.166667)
    """
    _check_size(k)
    above = np.maximum(np.arange(k + 1) - math.ceil(k / 2), 0)
    return np.asarray(2 / k * (_chances(n, c, k) @ above))


def threshold(tau: float, k: int) -> int:
    """Least number of right samples that is a share τ of k, at least 1.

    ``tau = j / k`` asks for exactly j, whatever rounding makes of ``tau * k``.
    """
    least = math.floor(tau * k)
    return max(1, least + (tau > least / k))


def _chances(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    """Chance of every number of right ones; NaN where k > n."""
    n_ = np.asarray(n)[..., None]
    return np.where(n_ >= k, chances_of_right(np.maximum(n, k), c, k), np.nan)


def _check_size(k: int) -> None:
    if k < 1:
        raise UserError(f"draw size is {k}; allowed are whole numbers from 1 on")


# A bias of half a standard deviation takes a nominal 95 % to 92 %.
_MOST_PULL: Final = 0.4


@dataclass(frozen=True)
class BayesScore:
    """Posterior mean and standard deviation of the score over these problems.

    ``mean, deviation``: of the posterior. ``pull``: how far the flat prior pulled the mean away
    from the observed mean.
    """

    mean: float
    deviation: float
    pull: float

    def interval(self, low: float = 0.0, high: float = 1.0, prob: float = PROB) -> Interval:
        """Give the normal credible interval, cut to the range of the score."""
        half = special.ndtri((1 + check_prob(prob)) / 2) * self.deviation
        sound = abs(self.pull) <= _MOST_PULL * self.deviation
        return Interval(
            np.asarray(self.mean),
            np.asarray(max(low, self.mean - half)),
            np.asarray(min(high, self.mean + half)),
            Target.FIXED,
            "Bayes@N, Dirichlet posterior with a flat prior",
            prob,
            np.asarray(sound),
            () if sound else ("the flat prior pulls the score: more samples, or avg@k",),
        )


def bayes_at_n(
    outcomes: ArrayLike, worth: ArrayLike = (0.0, 1.0), prior_outcomes: ArrayLike | None = None
) -> BayesScore:
    """Score of graded outcomes.

    ``outcomes``: category 0 … C of each sample, ``[problem, sample]``. ``worth``: worth of each
    category. ``prior_outcomes``: earlier outcomes of the same problems, ``[problem, sample]``.

    Hariri et al. (2026), "Don't pass@k", arXiv:2510.04265.

    >>> score = bayes_at_n([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], [0, 0.5, 1])
    >>> round(score.mean, 4), round(score.deviation, 6)
    (0.5625, 0.091998)
    """
    value = np.asarray(worth, np.float64)
    tables = [_tally(outcomes, len(value))]
    if prior_outcomes is not None:
        tables.append(_tally(prior_outcomes, len(value)))
        if len(tables[0]) != len(tables[1]):
            raise UserError("earlier outcomes are of other problems; give a row for each problem")
    share = np.sum(tables, axis=0) + 1.0
    total = share.sum(axis=1, keepdims=True)
    share = share / total
    first = share @ value
    variance = (share @ value**2 - first**2) / (total[:, 0] + 1)
    totals = np.sum(tables, axis=0)
    observed = (totals @ value / totals.sum(axis=1)).mean()
    return BayesScore(
        float(first.mean()),
        float(np.sqrt(variance.sum()) / len(first)),
        float(first.mean() - observed),
    )


def _tally(outcomes: ArrayLike, categories: int) -> NDArray[np.float64]:
    table = np.asarray(outcomes)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise UserError("outcomes are whole numbers by problem and sample, in two dimensions")
    if table.size and (table.min() < 0 or table.max() >= categories):
        raise UserError(
            f"outcomes go from {table.min()} to {table.max()}, but {categories} categories have "
            f"a worth; allowed are 0 to {categories - 1}"
        )
    return np.stack([(table == j).sum(axis=1) for j in range(categories)], axis=1).astype(float)
