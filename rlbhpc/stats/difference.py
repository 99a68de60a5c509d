r"""The difference of two pass@k curves: bands, tests, and where the curves cross.

.. math:: D(k) = \frac1P \sum_i \big(\hat\pi^{\text{trained}}_i(k) - \hat\pi^{\text{base}}_i(k)\big)

is paired over P problems. Two intervals stand at each k: *pointwise*, for the question about one k
that was fixed beforehand, and the *band*, which holds the whole curve at once and is what any
statement like "ahead up to k = 31, behind from 60 on" must be read from.

The set of crossings inverts the pointwise interval, :math:`\{k : 0 \in D(k) \pm t\,s(k)\}`: each
true crossing lies in it with the stated probability, also where the curves may not cross up to n.
It is a union of intervals, and an end that reaches the last k is open: the crossing may lie beyond
n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import (
    LARGEST_UNSEEN,
    PROB,
    Interval,
    ProblemWeights,
    carriers,
    paired_error,
    paired_interval,
    symmetric_interval,
)
from rlbhpc.stats.pass_at_k import pass_curves

#: The K of the study.
LARGE_K: Final = 256
# Problems that a verifier with false rights must leave unsolved in K samples if none were solved.
_LEAST_UNSOLVED: Final = 30
# Units from which on the band holds what it says.
_LEAST_UNITS: Final = 20
# Below these a spread, and a difference of means, is rounding; the sign of rounding means nothing.
_TINY: Final = 1e-12
_ROUNDING: Final = 1e-13
# Permutations of labels that a p-value is taken from; .005 is its least value.
_PERMUTATIONS: Final = 199
# Two test statistics that differ by less than this share are level.
_LEVEL: Final = 1 - 1e-9


@dataclass(frozen=True)
class DifferenceCurve:
    """Trained minus base, at each k.

    ``pointwise``: interval at each single k. ``carriers``: how many problems carry the spread of
    the differences, see :mod:`rlbhpc.stats.interval`. ``informative``: as in
    :class:`~rlbhpc.stats.curve.PassCurve`, for both arms. ``base, trained``: the counts behind the
    curve. ``differences``: of every problem at every k (problems, sizes). ``weights``: bootstrap
    weights of the report. ``seeds``: trainings that stand under each other in the counts.
    """

    k: NDArray[np.int64]
    pointwise: Interval
    carriers: NDArray[np.float64]
    informative: NDArray[np.bool_]
    base: Counts = field(repr=False)
    trained: Counts = field(repr=False)
    differences: NDArray[np.float64] = field(repr=False)
    weights: ProblemWeights = field(repr=False)
    seeds: int = 1

    @property
    def has_clusters(self) -> bool:
        """Whether problems share sources."""
        return self.weights.units < len(self.differences) // self.seeds

    @cached_property
    def replicates(self) -> NDArray[np.float64]:
        """Bootstrap replicates of D (replicates, sizes)."""
        return self.weights.means(self.differences)

    @cached_property
    def band(self) -> Interval:
        """Simultaneous band: the probability that it holds the whole curve."""
        return _simultaneous_band(
            self.differences, self.replicates, self.weights, self.pointwise.prob
        )

    @cached_property
    def crossing(self) -> Crossing:
        """Where the two curves may cross."""
        return crossing(self)

    @cached_property
    def p_moved(self) -> float:
        """Sign-flip p-value of "the two models differ at some k", exact where nothing moved."""
        return _flip_p_of_curve(self.differences, self.weights)


def difference_curve(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> DifferenceCurve:
    """Trained minus base pass@k over problems, with pointwise and simultaneous intervals.

    ``base, trained``: counts of the two arms, the same problems in the same order. ``weights``:
    bootstrap weights of the report, shared by all its curves. ``k``: draw sizes; a log-spaced grid
    up to the least n of both where not given. ``prob``: nominal probability of both intervals.

    ``reach`` of counts is the largest k that every problem has samples for. Bounds are NaN at the k
    where the verifier's false rights hide the unsolved problems. ``carriers`` estimates how many
    problems the spread of the differences rests on; ``informative`` marks the k up to a quarter of
    the samples, where a problem's pass@k rests on four draws or more.

    >>> weights = ProblemWeights.draw(4, np.random.default_rng(0))
    >>> curve = difference_curve(
    ...     Counts.of(8, [0, 1, 4, 8]), Counts.of(8, [0, 0, 8, 8]), weights, [1, 8]
    ... )
    >>> curve.pointwise.estimate
    array([ 0.09375, -0.25   ])
    """
    check_paired(base, trained)
    reach = min(base.reach, trained.reach)
    sizes = as_sizes(reach if k is None else k)
    differences = trained.pass_at_k(sizes) - base.pass_at_k(sizes)
    pointwise = paired_interval(differences, weights, prob)
    # Where false rights would make the unsolved problems look solved, no bound holds.
    hidden = _hidden_by_errors(base, sizes) | _hidden_by_errors(trained, sizes)
    pointwise = replace(
        pointwise,
        lower=np.where(hidden, np.nan, pointwise.lower),
        upper=np.where(hidden, np.nan, pointwise.upper),
        sound=pointwise.sound & ~hidden,
    )
    return DifferenceCurve(
        k=sizes,
        pointwise=pointwise,
        carriers=carriers(differences, weights),
        informative=4 * sizes <= reach,
        base=base,
        trained=trained,
        differences=differences,
        weights=weights,
    )


def _hidden_by_errors(counts: Counts, k: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where so few unsolved problems would look unsolved that no interval around them holds."""
    looks_unsolved = len(counts) * np.exp(k * np.log1p(-counts.false_right))
    return np.asarray((k > 1) & (counts.false_right > 0) & (looks_unsolved < _LEAST_UNSOLVED))


def delta_se(base_at_k: ArrayLike, trained_at_1: ArrayLike) -> NDArray[np.float64]:
    r"""Difference of two published or computed values, pass@K of the base minus trained pass@1.

    .. math:: \Delta_{SE} = \text{pass@}K^{\text{base}} - \text{pass@}1^{\text{trained}},
              \qquad K = 256 .

    Smaller is better: 0 would mean that training turned all that the base can reach into pass@1.
    ``base_at_k, trained_at_1``: values in the same unit (rates or percent); they broadcast.

    Yue et al. (2025), arXiv:2504.13837, section 4.

    >>> delta_se(67.2, [26.1, 27.2]).round(1)
    array([41.1, 40. ])
    """
    return np.subtract(base_at_k, trained_at_1, dtype=np.float64)


def delta_se_interval(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    k: int = LARGE_K,
    prob: float = PROB,
) -> Interval:
    """Sampling-efficiency gap with a paired population interval.

    The gap is base pass@k minus trained pass@1; the interval is about problems like these. Both
    arms list the same problems, so the difference is taken problem by problem and its spread is
    that of the differences. Nearly all noise of sampling is the base's, whose k is large.

    ``weights``: bootstrap weights of the problems. ``prob``: nominal probability of the interval.

    >>> from rlbhpc.stats.counts import pythia
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> gap = delta_se_interval(models["2.8B"], models["6.9B"], weights)
    >>> round(float(gap.estimate), 4)
    0.5258
    """
    check_paired(base, trained)
    return paired_interval(base.pass_at_k(k) - trained.pass_at_k(1), weights, prob)[0]


def _simultaneous_band(
    differences: NDArray[np.float64],
    replicates: NDArray[np.float64],
    weights: ProblemWeights,
    prob: float,
) -> Interval:
    """Sup-t band: one multiple of the standard error that holds at all k together.

    In every bootstrap replicate the largest deviation from the mean over all k is taken, in
    standard errors. The quantile of these maxima at ``prob`` is the multiple. Values of k without
    spread are left out, since nothing can be divided by their error.

    ``differences``: trained minus base pass@k (problems, sizes). ``replicates``: bootstrap means of
    them (replicates, sizes). ``weights``: the bootstrap; its ``units`` are the problems or clusters
    that are drawn independently, its ``inflation`` makes up for the bootstrap's small-sample bias.
    ``paired_error`` gives the standard error at each k, with two pseudo-problems that keep it above
    0 where no problem differs.
    """
    mean = differences.mean(axis=0)
    error = weights.standard_error(differences)
    varies = (error > _TINY) & np.isfinite(error)
    normal_multiple = float(special.ndtri((1 + prob) / 2))
    if varies.any():
        deviations = np.abs(replicates - mean)[:, varies] / error[varies]
        largest_deviation = deviations.max(axis=1)
        normal_multiple = float(np.quantile(largest_deviation, prob)) * weights.inflation
    # The bootstrap's maximum has normal tails; few units have Student's.
    level = special.ndtr(normal_multiple)
    multiple = float(special.stdtrit(max(weights.units - 1, 1), level))
    half_width = multiple * paired_error(differences, weights, pseudo_weight=1.0)
    method = "paired problem bootstrap, sup-t with two pseudo-problems"
    sound = np.asarray(weights.units >= _LEAST_UNITS)
    return symmetric_interval(mean, half_width, method, prob, sound)


def _flip_p_of_curve(differences: NDArray[np.float64], weights: ProblemWeights) -> float:
    """P-value of "the arms differ at some k": share of sign flips with a largest t as large.

    If nothing moved, a problem's two arms could be exchanged, which turns the sign of its whole
    difference curve: the p-value is then exact for any number of problems. The t at one k is the
    mean difference over its standard error; the statistic is the largest t over all k.

    ``differences``: trained minus base pass@k (problems, sizes). ``weights.signs``: random signs,
    +1 or −1 (flips, problems).

    Columns with NaN, and those in which no problem differs, are left out. ``pseudo_squares`` adds
    two pseudo-problems with the largest difference seen up to that k, so that a t with almost no
    spread is not infinite. The observed signs count as one more flip, which keeps the p-value above
    0. ``_LEVEL`` is just below 1, so that rounding does not break ties.
    """
    complete = differences[:, ~np.isnan(differences).any(axis=0)]
    varying = complete[:, (complete**2).sum(axis=0) > _TINY]
    if not varying.size:
        return 1.0
    problems = len(varying)
    sum_of_squares = (varying**2).sum(axis=0)
    # Two pseudo-problems, one in each direction, as large as the largest difference up to each k.
    pseudo_squares = 2 * np.maximum.accumulate(np.abs(varying).max(axis=0)) ** 2

    def largest_t(means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest t over all k, up to a factor, of means (..., sizes)."""
        residual_squares = np.maximum(sum_of_squares - problems * means**2, 0) + pseudo_squares
        return np.asarray((np.abs(means) / np.sqrt(residual_squares)).max(axis=-1))

    observed = largest_t(varying.mean(axis=0))
    flipped = largest_t(weights.signs.astype(np.float64) @ varying / problems)
    as_large = int((flipped >= observed * _LEVEL).sum())
    return float((1 + as_large) / (1 + len(flipped)))


@dataclass(frozen=True)
class CrossingSet:
    """One interval of k in which a crossing may lie.

    ``lower, upper``: ends on the scale of k, interpolated on log k. ``open_below, open_above``: the
    set reaches k = 1, or the last k: the end is not determined by the data.
    """

    lower: float
    upper: float
    open_below: bool
    open_above: bool

    def __contains__(self, k: float) -> bool:
        """Whether a crossing at k, possibly beyond n, agrees with this interval."""
        above = self.open_below or k >= self.lower
        return above and (self.open_above or k <= self.upper)

    def __str__(self) -> str:
        """``[18, 70]``, with ``≤`` and ``≥`` at open ends."""
        lower = f"≤ {self.lower:,.0f}" if self.open_below else f"{self.lower:,.0f}"
        upper = f"≥ {self.upper:,.0f}" if self.open_above else f"{self.upper:,.0f}"
        return f"[{lower}, {upper}]"


@dataclass(frozen=True)
class Crossing:
    """Crossings of two curves.

    ``points``: estimated crossings on the scale of k, interpolated on log k; empty if there is
    none. ``first_k``: at each crossing the first whole k at which the other model leads or draws
    level. ``sets``: intervals of k that may hold a crossing, in rising order. ``probability``:
    share of bootstrap replicates that cross at some k ≤ n. ``prob``: nominal probability that a
    true crossing lies in one of the sets. ``sound``: whether simulation supports the nominal
    probability. ``reach``: the last k of the curves.
    """

    points: NDArray[np.float64]
    first_k: NDArray[np.int64]
    sets: tuple[CrossingSet, ...]
    probability: float
    prob: float
    sound: bool
    reach: int

    def __contains__(self, k: float) -> bool:
        """Whether a crossing at k agrees with the data, which exclude nothing beyond n."""
        return k > self.reach or any(k in crossing_set for crossing_set in self.sets)


def crossing(curve: DifferenceCurve) -> Crossing:
    """Find where the difference of two curves changes sign.

    ``curve``: difference of the curves, which brings its intervals and replicates.

    Estimates come from the curves at every whole k, not from the grid of the bands. With 128
    problems and n = 1,024 the set is about four octaves wide, with 500 problems two: crossings are
    weakly identified, and two sets that overlap do not differ.

    Each of the ``sets`` is a range of k that may hold a crossing; ``probability`` is the share of
    bootstrap replicates (replicates, sizes) that are ahead at some k and behind at another.
    ``reach`` of counts is the largest k that every problem has samples for. A difference smaller
    than rounding error counts as neither.

    >>> from rlbhpc.stats.difference import difference_curve
    >>> from rlbhpc.stats.counts import pythia
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> crossing(difference_curve(models["2.8B"], models["6.9B"], weights)).first_k
    array([23])
    """
    reach = min(curve.base.reach, curve.trained.reach)
    difference = _mean_at_every_k(curve.trained, reach) - _mean_at_every_k(curve.base, reach)
    points = crossing_points(np.arange(1, reach + 1), difference)
    ahead_somewhere = (curve.replicates > _ROUNDING).any(axis=1)
    behind_somewhere = (curve.replicates < -_ROUNDING).any(axis=1)
    return Crossing(
        points=points,
        # A crossing at a whole k may come out a rounding error above it.
        first_k=np.ceil(points - 1e-9).astype(np.int64),
        sets=_sets_with_zero(curve),
        probability=float((ahead_somewhere & behind_somewhere).mean()),
        prob=curve.pointwise.prob,
        sound=bool(np.all(curve.pointwise.sound)),
        reach=int(curve.k[-1]),
    )


def crossing_points(k: ArrayLike, difference: ArrayLike) -> NDArray[np.float64]:
    """Values of k at which a difference changes sign, interpolated on log k.

    A run of exact zeros between opposite signs counts once, in its middle; zeros at the ends or
    between equal signs are no crossing.

    ``k``: rising draw sizes, at least 1. ``difference``: difference of two curves at each of them;
    NaN is left out.

    ``nonzero`` holds the positions with a sign; where two neighbours among them differ, the curve
    turns, between ``left`` and ``right``. Where these are neighbours in k too, the crossing is
    where the straight line between them, over log k, meets 0.

    >>> crossing_points([1, 4, 16], [0.2, 0.1, -0.1]).round(3)
    array([8.])
    """
    sizes, values = np.asarray(k, np.float64), np.asarray(difference, np.float64)
    if sizes.shape != values.shape or sizes.ndim != 1:
        raise UserError(f"a curve has {sizes.shape} draw sizes and {values.shape} values")
    has_value = ~np.isnan(values)
    log_k, values = np.log2(sizes[has_value]), values[has_value]
    sign = np.where(np.abs(values) <= _ROUNDING, 0.0, np.sign(values))
    nonzero = np.flatnonzero(sign)
    turns = sign[nonzero[:-1]] != sign[nonzero[1:]]
    left, right = nonzero[:-1][turns], nonzero[1:][turns]
    # Between neighbours the straight line; across zeros the middle of the run.
    left_share = np.abs(values[left]) / (np.abs(values[left]) + np.abs(values[right]))
    on_line = log_k[left] + left_share * (log_k[right] - log_k[left])
    middle_of_zeros = (log_k[left + 1] + log_k[right - 1]) / 2
    return np.asarray(2.0 ** np.where(right == left + 1, on_line, middle_of_zeros))


def _mean_at_every_k(counts: Counts, reach: int) -> NDArray[np.float64]:
    """Mean pass@k over problems at k = 1, 2, … ``reach``.

    Problems with equal counts have equal curves, so each distinct row of counts is computed once
    and weighed by ``problems_in_row``, the number of problems that have it. ``exchangeable`` gives
    n and c of a row, less the right sample at which sampling stopped, if it did. ``without_errors``
    takes the verifier's error rates out of the curves (rows, k).
    """
    distinct, _, problems_in_row = counts.distinct_rows()
    total = np.zeros(reach)
    # A few rows at a time: memory stays small for any n.
    batches = max(1, len(distinct) * reach >> 22)
    for batch in np.array_split(np.arange(len(distinct)), batches):
        rows = distinct[batch]
        curves = pass_curves(*rows.exchangeable)[:, :reach]
        missing = reach - curves.shape[1]
        curves = np.pad(curves, ((0, 0), (0, missing)), constant_values=np.nan)
        curves = counts.without_errors(curves, np.arange(1, reach + 1))
        # One that stopped holds a right sample in any draw of more than the samples before it.
        curves = np.where(rows.stopped[:, None] & np.isnan(curves), 1.0, curves)
        total += problems_in_row[batch] @ curves
    return total / len(counts)


def _sets_with_zero(curve: DifferenceCurve) -> tuple[CrossingSet, ...]:
    """Ranges of k in which a crossing may lie: where the pointwise interval holds 0.

    ``pointwise.sign`` is +1 where the interval lies above 0, −1 where below and 0 where it holds 0.
    The grid of k is cut into runs of equal sign. Each run of 0 is a range; its ends are
    interpolated on log k and are open where they reach an end of the grid.
    """
    has_value = ~np.isnan(curve.pointwise.estimate)
    k = curve.k[has_value].astype(np.float64)
    pointwise = curve.pointwise[has_value]
    sign = pointwise.sign
    run_starts = np.flatnonzero(np.diff(sign)) + 1
    sets = []
    for run in np.split(np.arange(len(k)), run_starts):
        first, last = int(run[0]), int(run[-1])
        if sign[first] == 0:
            lower = _where_bound_is_zero(k, pointwise, inside=first, outside=first - 1)
            upper = _where_bound_is_zero(k, pointwise, inside=last, outside=last + 1)
            open_below, open_above = first == 0, last == len(k) - 1
            sets.append(CrossingSet(lower, upper, open_below, open_above))
        elif first and sign[first - 1]:
            # The interval leaps over 0 between two points of the grid.
            sets.append(CrossingSet(float(k[first - 1]), float(k[first]), False, False))
    return tuple(sets)


def _where_bound_is_zero(
    k: NDArray[np.float64], pointwise: Interval, inside: int, outside: int
) -> float:
    """Value of k at which a bound passes through 0, between two neighbours on the grid.

    ``inside``: position whose interval holds 0. ``outside``: its neighbour, which does not, or a
    position beyond either end of the grid.

    ``pointwise``: interval of the difference at each k. The bound that changes sign is the lower
    one if the outer interval lies above 0, else the upper one; between the two k it is taken as a
    straight line over log k.
    """
    if not 0 <= outside < len(k):
        return float(k[inside])
    bound = pointwise.lower if pointwise.lower[outside] > 0 else pointwise.upper
    share = abs(bound[inside]) / (abs(bound[inside]) + abs(bound[outside]))
    return float(k[inside] * (k[outside] / k[inside]) ** share)


# Sign flips of the test at one k in a block, how many there are at least over its level, and the
# most blocks.
_FLIPS_PER_BLOCK: Final = 9_999
_FLIPS_PER_LEVEL: Final = 5
_MOST_BLOCKS: Final = 10
# Standard errors from which on a problem moved for certain at k = 1, and from which on it counts as
# one that did where there are such. So many of these must carry the difference; or, where none
# moved, so many problems must carry the noise.
_CERTAIN_MOVE: Final = 4.0
_LIKELY_MOVE: Final = 2.5
_LEAST_MOVERS: Final = 5.0
_LEAST_NOISE_CARRIERS: Final = 6.0


def interval_at_one(curve: DifferenceCurve) -> Interval:
    """Difference at k = 1, without bounds where a handful of problems may carry it.

    The *rate* of a problem is its pass@1, averaged over trainings (``seeds``), whose problems stand
    one after another in the counts. A problem *moved* if its two rates differ by more than sampling
    noise. ``_movers`` gives how many problems moved, and the effective number of them behind the
    difference. If none moved for certain, the bounds hold only if the noise is spread over many
    problems.

    ``curve.carriers[0]``: how many problems carry the spread at k = 1. ``curve.has_clusters``:
    whether problems share sources, and are drawn in clusters. Bounds that would not hold are NaN.
    """
    at_one = curve.pointwise[0]
    # One question is whether each of the problems moved: trainings stand under each other.
    base, trained = (
        np.clip(arm.pass_at_k(1)[:, 0], 0, 1).reshape(curve.seeds, -1).mean(axis=0)
        for arm in (curve.base, curve.trained)
    )
    moved, carrying_movers = _movers(base, trained, curve)
    if moved:
        # Where clusters move as a whole, studies in which many did would be the ones with bounds.
        holds = not curve.has_clusters and carrying_movers >= _LEAST_MOVERS
    else:
        holds = _noise_is_even(base, trained, curve)
    if curve.has_clusters:
        holds &= bool(at_one.sound) and curve.carriers[0] >= _LEAST_NOISE_CARRIERS
    if holds:
        return at_one
    nothing = np.asarray(np.nan)
    return replace(at_one, lower=nothing, upper=nothing, sound=np.asarray(False))


def _noise_is_even(
    base: NDArray[np.float64], trained: NDArray[np.float64], curve: DifferenceCurve
) -> bool:
    """Whether the interval at k = 1 holds although no problem moved for certain.

    Two things are asked. First, that the noise is spread over enough problems:
    ``curve.carriers[0]`` is the effective number of problems behind the spread of the differences
    at k = 1. Second, that the interval is wide enough for a problem that moved, but was not among
    those drawn. Such a problem may shift the mean by its whole rate over the number of problems;
    its rate is taken as the mean over the problems that are ever solved. This shift may be at most
    ``LARGEST_UNSEEN`` times half the width of the interval: where a few move, two of five studies
    draw none of them.

    ``base, trained``: rate of right samples of every problem.
    """
    at_one = curve.pointwise[0]
    rates = np.maximum(base, trained)
    mean_solved_rate = rates.sum() / max((rates > 0).sum(), 1)
    shift_by_unseen = mean_solved_rate / len(rates)
    half_width = (at_one.high - at_one.low) / 2
    covers_unseen = shift_by_unseen <= LARGEST_UNSEEN * half_width
    return bool(curve.carriers[0] >= _LEAST_NOISE_CARRIERS and covers_unseen)


def _movers(
    base: NDArray[np.float64], trained: NDArray[np.float64], curve: DifferenceCurve
) -> tuple[int, float]:
    r"""How many problems moved at k = 1, and the effective number that would carry the difference.

    A problem *moved* if its two rates are further apart than noise explains; ``error`` is the
    standard error of their difference if the true rates were equal. Only if one problem moved for
    certain are the likely ones counted; else the result is (0, 0).

    Whether a few problems carry a difference cannot be seen from the differences: studies that
    happen to miss the large ones look the most even. So it is asked of all problems that are ever
    solved: if any of them could have moved, each with weight :math:`w_i`, the larger of its two
    rates, then of M movers among S problems as many carry it as

    .. math:: \frac{M}{S} \, \frac{(\sum_i w_i^2)^2}{\sum_i w_i^4} .

    ``base, trained``: rate of right samples of every problem. Trainings (``curve.seeds``) stand one
    after another in the counts and share the samples of the base, so n of the base is taken once
    and n of the trained arm is summed.
    """
    n_base = curve.base.n.reshape(curve.seeds, -1)[0]
    n_trained = curve.trained.n.reshape(curve.seeds, -1).sum(axis=0)
    pooled_rate = (n_base * base + n_trained * trained) / (n_base + n_trained)
    error = np.sqrt(pooled_rate * (1 - pooled_rate) * (1 / n_base + 1 / n_trained))
    distance = np.abs(trained - base)
    if not (distance > _CERTAIN_MOVE * error).any():
        return 0, 0.0
    moved = int((distance > _LIKELY_MOVE * error).sum())
    weight = np.maximum(base, trained)
    carrying = float((weight**2).sum()) ** 2 / float((weight**4).sum())
    return moved, moved / int((weight > 0).sum()) * carrying


def sign_by_flips(curve: DifferenceCurve, column: int, error: float) -> int:
    """Sign that is claimed at one k: exact where nothing moved, however few problems differ."""
    estimate = float(curve.pointwise.estimate[column])
    return int(np.sign(estimate)) if flip_p(curve, column, error) < error else 0


def flip_p(curve: DifferenceCurve, column: int, error: float) -> float:
    """P-value of a difference at one k: share of random sign flips with a sum as large.

    If nothing moved, the sign of each unit's difference is as random as a coin's, where a *unit* is
    a problem or a cluster of problems. Blocks of flips are drawn until there are enough to tell the
    p-value from ``error``.

    ``column``: position of k in the curve. ``error``: level that the p-value is compared with.

    A flip takes one random bit per unit: 8 units share a byte. Turning the sign of a size changes
    the sum by twice that size. The observed signs count as one more flip, which keeps the p-value
    above 0. ``_LEVEL`` is just below 1, so that rounding does not break ties.
    """
    differences = curve.weights.unit_sums(curve.differences[:, column])
    observed = abs(differences.sum())
    # In an order of their own: neither that of the problems nor that of the arms may matter.
    sizes = np.sort(np.abs(differences[differences != 0]))
    if not len(sizes):
        return 1.0
    rng = np.random.default_rng(0)
    blocks = min(math.ceil(_FLIPS_PER_LEVEL / error / _FLIPS_PER_BLOCK), _MOST_BLOCKS)
    as_large = 0
    for _ in range(blocks):
        random_bytes = rng.bytes(_FLIPS_PER_BLOCK * (len(sizes) // 8 + 1))
        # Eight signs from each byte.
        byte_rows = np.frombuffer(random_bytes, np.uint8).reshape(_FLIPS_PER_BLOCK, -1)
        is_negative = np.unpackbits(byte_rows, axis=1)[:, : len(sizes)]
        # A negative sign takes a size off twice: once from the sum and once below 0.
        sums = sizes.sum() - 2 * is_negative @ sizes
        as_large += int((np.abs(sums) >= observed * _LEVEL).sum())
    return (1 + as_large) / (1 + blocks * _FLIPS_PER_BLOCK)


def cluster_effect(differences: NDArray[np.float64], labels: ArrayLike) -> tuple[float, float]:
    r"""Design effect of labels on the mean difference, and its permutation p-value.

    .. math:: \frac{\sum_g \big[\sum_{i \in g} (d_i - D)\big]^2}{\sum_i (d_i - D)^2}

    over labels g, for differences :math:`d_i` with mean D: how many problems of one label tell as
    much as one. It is about 1 where labels say nothing, as after a random permutation. With no
    difference at all it is NaN.

    ``differences``: trained minus base pass@k of each problem. ``labels``: one per problem.
    """
    deviations = differences - differences.mean()
    _, group = np.unique(np.asarray(labels), return_inverse=True)

    def squared_sums(values: NDArray[np.float64]) -> float:
        return float((np.bincount(group, values) ** 2).sum())

    observed = squared_sums(deviations)
    rng = np.random.default_rng(0)
    permuted = [squared_sums(rng.permutation(deviations)) for _ in range(_PERMUTATIONS)]
    as_large = sum(value >= observed * _LEVEL for value in permuted)
    p_value = (1 + as_large) / (1 + _PERMUTATIONS)
    total = float((deviations**2).sum())
    return observed / total if total > _TINY else math.nan, p_value


def claimed_sign(interval: Interval, error: float, seeds: int) -> int:
    """Sign of an estimate whose interval, widened to this error, leaves 0 out; else 0.

    ``interval``: a single number with bounds at probability ``interval.prob``. ``error``: two-sided
    error that the claim may have. ``seeds``: trainings behind the spread; with S > 1 of them the
    quantiles are Student's with S − 1 degrees of freedom, since a few values estimate their spread
    poorly; with one training they are normal.
    """
    levels = np.array([1 - error / 2, (1 + interval.prob) / 2])
    quantiles = special.stdtrit(seeds - 1, levels) if seeds > 1 else special.ndtri(levels)
    half_width = (interval.high - interval.low) / 2 * float(quantiles[0] / quantiles[1])
    estimate = float(interval.estimate)
    return int(np.sign(estimate)) if abs(estimate) > half_width else 0
