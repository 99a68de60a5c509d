r"""Bayes@N: posterior mean and deviation of a graded score, one Dirichlet per problem.

With outcomes in categories 0 … C worth :math:`w_j`, counts :math:`\nu_{ij}` of problem i that
start from one each (and from earlier outcomes, if there are any), :math:`T = \sum_j \nu_{ij}`,

.. math:: \mu = \frac1P \sum_i \sum_j \frac{\nu_{ij}}{T} w_j, \qquad
          \sigma^2 = \frac1{P^2 (T+1)} \sum_i \Big[\sum_j \frac{\nu_{ij}}{T} w_j^2
          - \Big(\sum_j \frac{\nu_{ij}}{T} w_j\Big)^2\Big] .

It is a score at k = 1. Its flat prior says that rates near 0 are rare, so pushing it through
:math:`1-(1-p)^k` gives intervals that never hold the truth at large k; use
:mod:`rlbhpc.stats.fixed` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob

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
