r"""Interval for the mean of a paired difference over problems.

The interval is Student's t on the bootstrap's standard error. Two things can make it too short:
few problems carrying the difference, and none at all, where the standard error is 0 although
unseen problems may well differ. Both are met by *two pseudo-problems*, one in each direction:
they add twice a squared scale to the sum of squares,

.. math:: s^2 = \frac{\sum_i (d_i - D)^2 + 2\,w\,r^2}{P(P-1)} ,

with the scale :math:`r` the largest difference of a single problem seen at any smaller k. At
k = n, where differences are −1, 0 and 1, this is the adjusted Wald interval of Bonett and Price.
The weight :math:`w` is 1 for statements about a whole curve. For a single k it fades out as more
problems carry the spread, :math:`w = \max(0, 1 - e/10)` with the participation number
:math:`e = (\sum e_i^2)^2 / \sum e_i^4` of the deviations :math:`e_i = d_i - D`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.stats.interval import Interval, Target, check_prob
from rlbhpc.stats.weights import ProblemWeights

#: Problems that must carry the spread for the pseudo-problems to fade out.
FEW: Final = 10.0
_MIN_UNITS: Final = 20
# Fourth powers below this are rounding.
_TINY: Final = 1e-48
_FEW_NOTE: Final = (
    "where fewer than ten problems carry the spread, two pseudo-problems widen the interval"
)


def paired_interval(
    differences: NDArray[np.float64], weights: ProblemWeights, prob: float
) -> Interval:
    """Pointwise population interval of the mean difference.

    ``differences``: ``[problem, k]``, trained minus base, columns in rising order of k.

    Bonett and Price (2012), "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data".
    """
    tail = (1 - check_prob(prob)) / 2
    carried = carriers(differences)
    error = paired_error(differences, weights, fade(carried))
    half = special.stdtrit(max(weights.units - 1, 1), 1 - tail) * error
    mean = differences.mean(axis=0)
    sound = np.broadcast_to(weights.units >= _MIN_UNITS, mean.shape) & (carried >= 4)
    notes = () if (carried >= FEW).all() else (_FEW_NOTE,)
    return around(mean, half, "paired problem bootstrap, Student t", prob, sound, notes)


def around(
    mean: NDArray[np.float64],
    half: NDArray[np.float64],
    method: str,
    prob: float,
    sound: NDArray[np.bool_],
    notes: tuple[str, ...] = (),
) -> Interval:
    """Put a half width on both sides of a difference of rates, which lies within [−1, 1]."""
    ends = np.maximum(mean - half, -1.0), np.minimum(mean + half, 1.0)
    return Interval(mean, *ends, Target.POPULATION, method, prob, sound, notes)


def fade(carried: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight of the pseudo-problems of a single k where so many problems carry the spread."""
    return np.maximum(1 - carried / FEW, 0)


def paired_error(
    differences: NDArray[np.float64], weights: ProblemWeights, weight: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Give the standard error of the mean with ``weight`` times the two pseudo-problems."""
    problems, units = len(differences), weights.units
    variance = weights.standard_error(differences) ** 2
    scale = _scale(differences)
    # A pseudo-problem weighs as much as an average unit of the bootstrap.
    per_unit = problems / units
    pseudo = 2 * weight * scale**2 * per_unit / (problems * max(problems - per_unit, 1))
    return np.asarray(np.sqrt(variance + pseudo))


def carriers(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Participation number: how many problems carry the spread of the differences at each k."""
    squares = (differences - differences.mean(axis=0)) ** 2
    fourth = (squares**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fourth > _TINY, squares.sum(axis=0) ** 2 / fourth, 0.0)


def _scale(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest single difference seen up to each k; 1 where the arms never differ at all."""
    largest = np.maximum.accumulate(np.abs(differences).max(axis=0, initial=0.0), axis=-1)
    return np.where(np.nanmax(largest, initial=0.0) > 0, largest, 1.0)
