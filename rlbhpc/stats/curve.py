r"""The pass@k curve of one arm, with an interval for new problems like these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.stats.weights import ProblemWeights


@dataclass(frozen=True)
class PassCurve:
    """pass@k over k, and what stands behind each value.

    ``interval``: mean pass@k over problems with its population interval. ``support``: problems with
    at least k samples. Where it is less than all, pass@k is NaN. ``informative``: whether k ≤ n/4
    for every problem. Beyond, a problem's pass@k rests on fewer than four independent draws of k,
    and the last octave is little more than one draw of coverage.
    """

    k: NDArray[np.int64]
    interval: Interval
    support: NDArray[np.int64]
    informative: NDArray[np.bool_]


def k_grid(n: int, per_octave: int = 2) -> NDArray[np.int64]:
    """Whole numbers from 1 to n, evenly spaced on a log scale, ends included.

    >>> k_grid(16)
    array([ 1,  2,  3,  4,  6,  8, 11, 16])
    """
    if n < 1:
        raise UserError(f"a curve up to k = {n} has no point; sample each problem at least once")
    steps = int(np.floor(np.log2(n) * per_octave))
    grid = np.round(2.0 ** (np.arange(steps + 1) / per_octave)).astype(np.int64)
    return np.unique(np.append(grid[grid <= n], n))


def pass_curve(
    counts: Counts, weights: ProblemWeights, k: ArrayLike | None = None, prob: float = PROB
) -> PassCurve:
    r"""Mean pass@k over problems with a population interval at each k.

    .. math:: \widehat{\text{pass@}k} = \frac1P \sum_i
              \Big[1 - \binom{n_i-c_i}{k} \Big/ \binom{n_i}{k}\Big]

    The interval answers "what would other problems of this kind give", so it holds both the
    choice of problems and the noise of sampling: resampling problems carries the second along.

    ``k``: draw sizes; a log-spaced grid up to the least n where not given.

    Chen et al. (2021), arXiv:2107.03374; Miller (2024), arXiv:2411.00640.

    >>> weights = ProblemWeights.draw(4, np.random.default_rng(0))
    >>> pass_curve(Counts.of(8, [0, 1, 4, 8]), weights, [1, 8]).interval.estimate
    array([0.40625, 0.75   ])
    """
    sizes = as_sizes(counts.reach if k is None else k)
    values = counts.pass_at_k(sizes)
    interval = mean_interval(values, weights, prob, "problem bootstrap")
    return PassCurve(sizes, interval, counts.support(sizes), 4 * sizes <= counts.reach)


def whole_numbers(k: ArrayLike) -> NDArray[np.int64]:
    """Draw sizes as they are given, none of them rounded."""
    sizes = np.asarray(k)
    if sizes.dtype.kind not in "iuf" or (sizes % 1 != 0).any():
        raise UserError(f"k: found {k!r}; allowed: whole numbers from 1")
    return sizes.astype(np.int64)


def as_sizes(k: ArrayLike) -> NDArray[np.int64]:
    """Draw sizes as a rising 1-d array; a single number stands for the grid up to it."""
    sizes = whole_numbers(k)
    if sizes.ndim == 0:
        return k_grid(int(sizes))
    if sizes.ndim != 1 or not len(sizes) or (np.diff(sizes) <= 0).any() or sizes[0] < 1:
        raise UserError(f"draw sizes {sizes.tolist()} must be whole numbers, rising from 1 on")
    return sizes
