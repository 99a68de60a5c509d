r"""Coverage for a budget: fair where a longer chain costs more than a second try.

A sample of problem i costs :math:`t_i` (tokens, or GPU-hours at a measured rate), so a budget B
per problem buys :math:`k_i = \lfloor B / t_i \rfloor` samples. pass@B is the mean over problems
of pass@:math:`k_i`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.stats.weights import ProblemWeights


def pass_at_budget(counts: Counts, cost: ArrayLike, budget: ArrayLike) -> NDArray[np.float64]:
    """pass@k of every problem (rows) at the k that each budget (columns) buys.

    ``cost``: mean cost of one sample of each problem. ``budget``: budgets per problem, in the unit
    of the cost. Gives 0 where the budget does not buy one sample, NaN where it buys more than
    exist.

    >>> pass_at_budget(Counts.of(8, [2, 2]), [100, 400], [800, 3200])
    array([[1.        ,        nan],
           [0.46428571, 1.        ]])
    """
    price = np.broadcast_to(np.asarray(cost, np.float64), counts.n.shape)
    if not (price > 0).all():
        i = int(np.flatnonzero(~(price > 0))[0])
        raise UserError(f"problem {i} has a mean cost of {price[i]} per sample; it must be above 0")
    # A hair above, so that a budget of exactly k samples buys k of them.
    bought = np.floor(np.atleast_1d(budget) / price[:, None] * (1 + 1e-12)).astype(np.int64)
    value = counts.broadcast(pass_at_k, np.maximum(bought, 1))
    return np.where(bought < 1, 0.0, value)


def budget_curve(
    counts: Counts,
    cost: ArrayLike,
    budget: ArrayLike,
    weights: ProblemWeights,
    prob: float = PROB,
) -> Interval:
    """Mean pass@budget over problems with a population interval at each budget."""
    values = pass_at_budget(counts, cost, budget)
    return mean_interval(values, weights, prob, "problem bootstrap")
