r"""pass@k curves with population intervals, over k, over budgets and within turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import (
    LARGEST_UNSEEN,
    PROB,
    Interval,
    ProblemWeights,
    mean_interval,
)
from rlbhpc.stats.pass_at_k import pass_at_k

# A mean this near to 0 or 1 needs so many problems that are not 0, or not 1.
_NEAR_THE_EDGE: Final = 0.1
_LEAST_OFF_THE_EDGE: Final = 20
# A budget is taken this share larger, so that one of exactly k samples buys k of them.
_BUDGET_ROUNDING: Final = 1e-12
# Codes of a verdict: 0 to 3 are judged, and 1 of them is right.
_RIGHT: Final = 1
_LAST_JUDGED: Final = 3


@dataclass(frozen=True)
class PassCurve:
    """pass@k over k, and what stands behind each value.

    ``interval``: mean pass@k over problems with its population interval. ``support``: problems with
    at least k samples. Where it is less than all, pass@k is NaN. ``informative``: whether k ≤ n/4
    for every problem. Beyond, a problem's pass@k rests on fewer than four independent draws of k,
    and at k = n it is 0 or 1.
    """

    k: NDArray[np.int64]
    interval: Interval
    support: NDArray[np.int64]
    informative: NDArray[np.bool_]

    def at(self, k: int) -> Interval:
        """pass@k with its interval, at the largest size of the curve that is not above ``k``."""
        return self.interval[int(np.searchsorted(self.k, k, "right")) - 1]


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


def whole_sizes(k: ArrayLike) -> NDArray[np.int64]:
    """Draw sizes as they are given, none of them rounded."""
    sizes = np.asarray(k)
    if sizes.dtype.kind not in "iuf" or (sizes % 1 != 0).any():
        raise UserError(f"k: found {k!r}; allowed: whole numbers from 1")
    return sizes.astype(np.int64)


def as_sizes(k: ArrayLike) -> NDArray[np.int64]:
    """Draw sizes as a rising 1-d array; a single number stands for the grid up to it.

    A draw size is the k of pass@k. ``k_grid`` gives a log-spaced grid of whole numbers from 1.
    """
    sizes = whole_sizes(k)
    if sizes.ndim == 0:
        return k_grid(int(sizes))
    if sizes.ndim != 1 or not len(sizes) or (np.diff(sizes) <= 0).any() or sizes[0] < 1:
        raise UserError(f"draw sizes {sizes.tolist()} must be whole numbers, rising from 1 on")
    return sizes


def pass_curve(
    counts: Counts, weights: ProblemWeights, k: ArrayLike | None = None, prob: float = PROB
) -> PassCurve:
    r"""Mean pass@k over problems with a population interval at each k.

    .. math:: \widehat{\text{pass@}k} = \frac1P \sum_i
              \Big[1 - \binom{n_i-c_i}{k} \Big/ \binom{n_i}{k}\Big]

    over P problems with :math:`c_i` right of :math:`n_i` samples. The interval answers "what would
    other problems of this kind give", so it holds both the choice of problems and the noise of
    sampling: resampling problems carries the second along.

    ``weights``: bootstrap weights of the problems. ``k``: draw sizes; a log-spaced grid up to the
    least n where not given.

    Chen et al. (2021), arXiv:2107.03374; Miller (2024), arXiv:2411.00640.

    ``counts.reach``: largest k that every problem has samples for. ``support`` of the result:
    number of problems with k samples. ``informative``: where k is at most a quarter of the samples,
    so that pass@k rests on four draws or more.

    >>> weights = ProblemWeights.draw(4, np.random.default_rng(0))
    >>> pass_curve(Counts.of(8, [0, 1, 4, 8]), weights, [1, 8]).interval.estimate
    array([0.40625, 0.75   ])
    """
    sizes = as_sizes(counts.reach if k is None else k)
    values = counts.pass_at_k(sizes)
    interval = mean_interval(values, weights, prob, "problem bootstrap")
    return PassCurve(
        k=sizes,
        interval=_without_unsound_bounds(interval, values, weights.units),
        support=counts.support(sizes),
        informative=4 * sizes <= counts.reach,
    )


def _without_unsound_bounds(
    interval: Interval, values: NDArray[np.float64], units: int
) -> Interval:
    """Leave bounds out where they would not hold, and let none fall with k, as pass@k does not.

    Near 0 and 1 the mean may hang on problems of which no like was drawn, and how skewed the values
    are cannot be seen from those that were. So there it takes enough problems that are not 0 (or
    not 1). Near 1 a problem that is never solved may not have been drawn: it would shift the mean
    by one over the number of units, which must be well within the interval. A bound that is left
    out is NaN.

    ``interval``: of the mean at each k. ``values``: pass@k (problems, sizes), columns in rising
    order of k. ``units``: problems or clusters that were drawn independently. Since pass@k rises
    with k, a lower bound holds for all larger k, and an upper one for all smaller k: both are
    accumulated.
    """
    mean = interval.estimate
    off_the_edge = np.where(mean < 0.5, (values > 0).sum(axis=0), (values < 1).sum(axis=0))
    near_the_edge = np.minimum(mean, 1 - mean) < _NEAR_THE_EDGE
    half_width = (interval.upper - interval.lower) / 2
    hides_unsolved = (mean > 1 - _NEAR_THE_EDGE) & (1 / units > LARGEST_UNSEEN * half_width)
    sound = interval.sound & ~(near_the_edge & (off_the_edge < _LEAST_OFF_THE_EDGE))
    sound &= ~hides_unsolved
    lower = np.where(sound, interval.lower, np.nan)
    upper = np.where(sound, interval.upper, np.nan)
    largest_lower_so_far = np.fmax.accumulate(lower)
    smallest_upper_from_here = np.fmin.accumulate(upper[::-1])[::-1]
    return replace(
        interval,
        lower=np.where(sound, largest_lower_so_far, np.nan),
        upper=np.where(sound, smallest_upper_from_here, np.nan),
        sound=sound,
    )


def pass_at_budget(counts: Counts, cost: ArrayLike, budget: ArrayLike) -> NDArray[np.float64]:
    r"""pass@k of every problem (rows) at the k that each budget (columns) buys.

    Fair where a longer chain costs more than a second try: a sample of problem i costs :math:`t_i`
    (tokens, or GPU-hours at a measured rate), so a budget B per problem buys :math:`k_i = \lfloor B
    / t_i \rfloor` samples.

    ``cost``: mean cost of one sample of each problem. ``budget``: budgets per problem, in the unit
    of the cost. Gives 0 where the budget does not buy one sample, NaN where it buys more than
    exist.

    ``counts.broadcast`` calls a function of n, c and k for problems in rows and sizes in columns.
    The factor just above 1 keeps rounding from turning a budget of exactly k samples into k − 1.

    >>> pass_at_budget(Counts.of(8, [2, 2]), [100, 400], [800, 3200])
    array([[1.        ,        nan],
           [0.46428571, 1.        ]])
    """
    sample_cost = np.broadcast_to(np.asarray(cost, np.float64), counts.n.shape)
    if not (sample_cost > 0).all():
        i = int(np.flatnonzero(~(sample_cost > 0))[0])
        raise UserError(
            f"problem {i} has a mean cost of {sample_cost[i]} per sample; it must be above 0"
        )
    affordable = np.atleast_1d(budget) / sample_cost[:, None] * (1 + _BUDGET_ROUNDING)
    k = np.floor(affordable).astype(np.int64)
    return np.where(k < 1, 0.0, counts.broadcast(pass_at_k, np.maximum(k, 1)))


def budget_curve(
    counts: Counts,
    cost: ArrayLike,
    budget: ArrayLike,
    weights: ProblemWeights,
    prob: float = PROB,
) -> Interval:
    """Mean pass@k over problems at the k that each budget buys, with an interval.

    ``cost``: mean cost of one sample of each problem. ``budget``: budgets per problem, in the same
    unit. The interval is about problems like these.
    """
    values = pass_at_budget(counts, cost, budget)
    return mean_interval(values, weights, prob, "problem bootstrap")


def even_odd(verdict: ArrayLike) -> tuple[Counts, Counts]:
    """Counts of the samples with even, and of those with odd index, of one arm.

    One half can choose (a checkpoint, or a group of problems) and the other report, so that luck in
    the choice does not flatter the report.

    ``verdict``: integer codes (problems, samples): 0 to 3 judged, 1 of them right; any other says
    nothing of the model: missing, failed generation, failed verifier. ``n`` counts the judged
    samples of each problem, ``c`` the right ones.

    >>> even, odd = even_odd([[1, 0, 1, -1]])
    >>> even.n, even.c, odd.n, odd.c
    (array([2]), array([2]), array([1]), array([0]))
    """
    codes = np.asarray(verdict)
    if codes.ndim != 2:
        raise UserError("an even/odd split needs verdicts by problem and sample")
    judged = (codes >= 0) & (codes <= _LAST_JUDGED)
    right = codes == _RIGHT
    even = Counts.of(judged[:, 0::2].sum(axis=1), right[:, 0::2].sum(axis=1))
    odd = Counts.of(judged[:, 1::2].sum(axis=1), right[:, 1::2].sum(axis=1))
    return even, odd


def counts_within_turns(
    judged: ArrayLike, right: ArrayLike, n_turns: ArrayLike, limit: int
) -> Counts:
    r"""Counts of episodes that must end right within so many turns, of one arm.

    An episode of a model that is not told its limit begins as it would under any smaller limit. So
    under a limit of t turns it is right if it ended right in at most t turns, and else a failure:
    :math:`c_t = \#\{\text{right}, \text{turns} \le t\}`. From n and :math:`c_t`, pass@(k, t) and
    all else is as for plain samples. A model that is told its limit behaves otherwise: then each
    limit has to be sampled.

    ``judged, right, n_turns``: whether each episode was judged, whether it is right, and its number
    of turns (problems, episodes). ``limit``: t.

    >>> counts_within_turns([[True, True, True]], [[True, False, True]], [[1, 1, 4]], limit=2).c
    array([1])
    """
    in_time = np.asarray(right, bool) & (np.asarray(n_turns) <= limit)
    return Counts.of(np.sum(judged, axis=1), in_time.sum(axis=1))
