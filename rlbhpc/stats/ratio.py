r"""Ratio of two sums over problems, such as entropy per token or tokens per response.

.. math:: r = \frac{\sum_i S_i}{\sum_i T_i}, \qquad
          s^2 = \frac{G}{G-1} \sum_g \Big[\sum_{i \in g} \frac{S_i - r\,T_i}{\sum_j T_j}\Big]^2

over G resampled units (linearised, Student's t on G − 1): problems with long responses weigh more
in r, and the interval knows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.weights import ProblemWeights


def ratio_interval(
    sums: ArrayLike, totals: ArrayLike, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    """Population interval of a ratio of sums.

    ``sums, totals``: numerator and denominator of each problem; a problem with a total of 0 adds
    nothing.

    Cochran (1977), "Sampling techniques", section 6.

    >>> weights = ProblemWeights.draw(3, np.random.default_rng(0))
    >>> ratio_interval([10.0, 2.0, 6.0], [20, 2, 10], weights).estimate
    array(0.5625)
    """
    s, t = np.asarray(sums, np.float64), np.asarray(totals, np.float64)
    if s.shape != t.shape or s.ndim != 1 or (t < 0).any():
        raise UserError("a ratio needs one sum and one total, not below 0, per problem")
    if not t.sum() > 0:
        nothing = np.asarray(np.nan)
        return Interval(
            nothing, nothing, nothing, Target.POPULATION, "ratio of sums", prob, np.asarray(False)
        )
    ratio = s.sum() / t.sum()
    error = weights.standard_error((s - ratio * t) / t.mean())
    half = special.stdtrit(max(weights.units - 1, 1), (1 + check_prob(prob)) / 2) * error
    return Interval(
        np.asarray(ratio),
        np.asarray(ratio - half),
        np.asarray(ratio + half),
        Target.POPULATION,
        "ratio of sums over problems, linearised, Student t",
        prob,
        np.asarray(weights.units >= 20),
    )
