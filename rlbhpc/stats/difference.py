r"""The difference of two pass@k curves, with bands, and the test that anything moved at all.

.. math:: D(k) = \frac1P \sum_i \big(\hat\pi^{\text{trained}}_i(k) - \hat\pi^{\text{base}}_i(k)\big)

is paired over problems. Two intervals stand at each k: *pointwise*, for the question about one k
that was fixed beforehand, and the *band*, which holds the whole curve at once and is what any
statement like "ahead up to k = 31, behind from 60 on" must be read from.

Where two pass@k curves cross: estimate, confidence set, and whether they cross at all.

The set inverts the pointwise interval, :math:`\{k : 0 \in D(k) \pm t\,s(k)\}`: each true crossing
lies in it with the stated probability, also where the curves may not cross up to n. It is a union
of intervals, and an end that reaches the last k is open: the crossing may lie beyond n.

The difference at k = 1: an interval where one holds what it says, and a test of its sign.
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
    PROB,
    Interval,
    ProblemWeights,
    around,
    carriers,
    paired_error,
    paired_interval,
)
from rlbhpc.stats.pass_at_k import pass_curves

#: The K of the study.
LARGE_K: Final = 256
# Problems that a verifier with false rights must leave unsolved in K samples if none were solved.
_LEAST_UNSOLVED: Final = 30
# Below this a difference of means is rounding.
_TINY: Final = 1e-12


@dataclass(frozen=True)
class DifferenceCurve:
    """Trained minus base, at each k.

    ``pointwise``: interval at each single k. ``carriers``: how many problems carry the spread of
    the differences, see :mod:`rlbhpc.stats.interval`. ``support, informative``: as in
    :class:`~rlbhpc.stats.curve.PassCurve`, for both arms. ``base, trained``: the counts behind the
    curve. ``differences, weights``: difference of every problem at every k, and the bootstrap
    weights of the report. ``seeds``: trainings that stand under each other in the counts.
    """

    k: NDArray[np.int64]
    pointwise: Interval
    carriers: NDArray[np.float64]
    support: NDArray[np.int64]
    informative: NDArray[np.bool_]
    base: Counts = field(repr=False)
    trained: Counts = field(repr=False)
    differences: NDArray[np.float64] = field(repr=False)
    weights: ProblemWeights = field(repr=False)
    seeds: int = 1

    @property
    def clustered(self) -> bool:
        """Whether problems share sources."""
        return self.weights.units < len(self.differences) // self.seeds

    @cached_property
    def replicates(self) -> NDArray[np.float64]:
        """Bootstrap replicates of D, ``[replicate, k]``."""
        return self.weights.means(self.differences)

    @cached_property
    def band(self) -> Interval:
        """Simultaneous band: the probability that it holds the whole curve."""
        return _band(self.differences, self.replicates, self.weights, self.pointwise.prob)

    @cached_property
    def crossing(self) -> Crossing:
        """Where the two curves may cross."""
        return crossing(self)

    @cached_property
    def p_moved(self) -> float:
        """Sign-flip p-value of "the two models differ at some k", exact where nothing moved."""
        return _sign_flip_p(self.differences, self.weights)


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
    hidden = _hidden_by_errors(base, sizes) | _hidden_by_errors(trained, sizes)
    if hidden.any():
        pointwise = replace(
            pointwise,
            lower=np.where(hidden, np.nan, pointwise.lower),
            upper=np.where(hidden, np.nan, pointwise.upper),
            sound=pointwise.sound & ~hidden,
        )
    return DifferenceCurve(
        sizes,
        pointwise,
        carriers(differences, weights),
        np.minimum(base.support(sizes), trained.support(sizes)),
        4 * sizes <= reach,
        base,
        trained,
        differences,
        weights,
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

    The two terms have different k, so nearly all noise of sampling is the base's. Where k is
    above n/4 a note says so.

    >>> from rlbhpc.stats.counts import pythia
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> gap = delta_se_interval(models["2.8B"], models["6.9B"], weights)
    >>> round(float(gap.estimate), 4)
    0.5258
    """
    check_paired(base, trained)
    gap = paired_interval(base.pass_at_k(k) - trained.pass_at_k(1), weights, prob)[0]
    if 4 * k > base.reach:
        far = f"pass@{k} of the base is taken from n = {base.reach}: fewer than four draws"
        gap = replace(gap, notes=(*gap.notes, far))
    return gap


def _band(
    differences: NDArray[np.float64],
    replicates: NDArray[np.float64],
    weights: ProblemWeights,
    prob: float,
) -> Interval:
    """Sup-t band: one multiple of the standard error that holds at all k together."""
    mean = differences.mean(axis=0)
    raw = weights.standard_error(differences)
    varies = (raw > _TINY) & np.isfinite(raw)
    if varies.any():
        excess = np.abs(replicates - mean)[:, varies] / raw[varies]
        critical = float(np.quantile(excess.max(axis=1), prob)) * weights.inflation
    else:
        critical = float(special.ndtri((1 + prob) / 2))
    # The bootstrap's maximum has normal tails; few units have Student's.
    level = special.ndtr(critical)
    critical = float(special.stdtrit(max(weights.units - 1, 1), level))
    half = critical * paired_error(differences, weights, 1.0)
    method = "paired problem bootstrap, sup-t with two pseudo-problems"
    return around(mean, half, method, prob, np.asarray(weights.units >= 20))


def _sign_flip_p(differences: NDArray[np.float64], weights: ProblemWeights) -> float:
    """Share of sign flips whose largest t, over all k, is at least the observed one.

    If nothing moved, a problem's two arms could be exchanged, which turns the sign of its whole
    difference curve: the p-value is then exact for any number of problems.
    """
    has_value = ~np.isnan(differences).any(axis=0)
    d = differences[:, has_value]
    squares = (d**2).sum(axis=0)
    varies = squares > _TINY
    if not varies.any():
        return 1.0
    d = d[:, varies]
    squares, problems = squares[varies], len(d)
    pseudo = 2 * np.maximum.accumulate(np.abs(d).max(axis=0)) ** 2

    def largest_t(means: NDArray[np.float64]) -> NDArray[np.float64]:
        rest = np.maximum(squares - problems * means**2, 0) + pseudo
        return np.asarray((np.abs(means) / np.sqrt(rest)).max(axis=-1))

    observed = largest_t(d.mean(axis=0))
    flipped = largest_t(weights.signs.astype(np.float64) @ d / problems)
    return float((1 + (flipped >= observed * (1 - 1e-9)).sum()) / (1 + len(flipped)))


# Differences of means below this are rounding, and the sign of rounding means nothing.
_ROUNDING: Final = 1e-13


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
        return k > self.reach or any(k in part for part in self.sets)


def crossing(curve: DifferenceCurve) -> Crossing:
    """Find where the difference of two curves changes sign.

    ``curve``: difference of the curves, which brings its intervals and replicates.

    Estimates come from the curves at every whole k, not from the grid of the bands. With 128
    problems and n = 1,024 the set is about four octaves wide, with 500 problems two: crossings
    are weakly identified, and two sets that overlap do not differ.

    >>> from rlbhpc.stats.difference import difference_curve
    >>> from rlbhpc.stats.counts import pythia
    >>> from rlbhpc.stats.interval import ProblemWeights
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> found = crossing(difference_curve(models["2.8B"], models["6.9B"], weights))
    >>> found.first_k
    array([23])
    """
    reach = min(curve.base.reach, curve.trained.reach)
    difference = _mean_curve(curve.trained, reach) - _mean_curve(curve.base, reach)
    points = crossing_points(np.arange(1, reach + 1), difference)
    above = (curve.replicates > _ROUNDING).any(axis=1)
    below = (curve.replicates < -_ROUNDING).any(axis=1)
    return Crossing(
        points,
        np.ceil(points - 1e-9).astype(np.int64),
        _invert(curve),
        float((above & below).mean()),
        curve.pointwise.prob,
        bool(np.all(curve.pointwise.sound)),
        int(curve.k[-1]),
    )


def crossing_points(k: ArrayLike, difference: ArrayLike) -> NDArray[np.float64]:
    """Values of k at which a difference changes sign, interpolated on log k.

    A run of exact zeros between opposite signs counts once, in its middle; zeros at the ends or
    between equal signs are no crossing.

    ``k``: rising draw sizes, at least 1. ``difference``: difference of two curves at each of them;
    NaN is left out.

    >>> crossing_points([1, 4, 16], [0.2, 0.1, -0.1]).round(3)
    array([8.])
    """
    size, value = np.asarray(k, np.float64), np.asarray(difference, np.float64)
    if size.shape != value.shape or size.ndim != 1:
        raise UserError(f"a curve has {size.shape} draw sizes and {value.shape} values")
    has_value = ~np.isnan(value)
    octave, value = np.log2(size[has_value]), value[has_value]
    sign = np.where(np.abs(value) <= _ROUNDING, 0.0, np.sign(value))
    apart = np.flatnonzero(sign)
    left, right = apart[:-1], apart[1:]
    turned = sign[left] != sign[right]
    left, right = left[turned], right[turned]
    # Between neighbours the straight line; across zeros the middle of the run.
    straight = right == left + 1
    share = np.abs(value[left]) / (np.abs(value[left]) + np.abs(value[right]))
    line = octave[left] + share * (octave[right] - octave[left])
    middle = (octave[left + 1] + octave[right - 1]) / 2
    return np.asarray(2.0 ** np.where(straight, line, middle))


def _mean_curve(counts: Counts, reach: int) -> NDArray[np.float64]:
    alike, _, times = counts.alike()
    total = np.zeros(reach)
    # A few rows at a time: memory stays small for any n.
    for part in np.array_split(np.arange(len(alike)), max(1, len(alike) * reach >> 22)):
        rows = alike[part]
        curves = pass_curves(*rows.places)[:, :reach]
        curves = np.pad(curves, ((0, 0), (0, reach - curves.shape[1])), constant_values=np.nan)
        curves = counts.without_errors(curves, np.arange(1, reach + 1))
        # One that stopped holds a right sample in any draw of more than the places before it.
        curves = np.where(rows.stopped[:, None] & np.isnan(curves), 1.0, curves)
        total += times[part] @ curves
    return total / len(counts)


def _invert(curve: DifferenceCurve) -> tuple[CrossingSet, ...]:
    """Find the runs of k at which the pointwise interval holds 0; ends interpolated on log k."""
    has_value = ~np.isnan(curve.pointwise.estimate)
    k = curve.k[has_value].astype(np.float64)
    lower, upper = curve.pointwise.lower[has_value], curve.pointwise.upper[has_value]
    side = curve.pointwise.sign[has_value]
    edges = np.flatnonzero(np.diff(side)) + 1
    sets = []
    for run in np.split(np.arange(len(k)), edges):
        first, last = int(run[0]), int(run[-1])
        if side[first] == 0:
            ends = (
                _end(k, lower, upper, first, first - 1),
                _end(k, lower, upper, last, last + 1),
            )
            sets.append(CrossingSet(*ends, first == 0, last == len(k) - 1))
        elif first and side[first - 1]:
            # The interval leaps over 0 between two points of the grid.
            sets.append(CrossingSet(float(k[first - 1]), float(k[first]), False, False))
    return tuple(sets)


def _end(
    k: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    edge: int,
    outside: int,
) -> float:
    """Where a bound passes through 0 between the edge of a run and the point outside it."""
    if not 0 <= outside < len(k):
        return float(k[edge])
    bound = lower if lower[outside] > 0 else upper
    share = abs(bound[edge]) / (abs(bound[edge]) + abs(bound[outside]))
    return float(k[edge] * (k[outside] / k[edge]) ** share)


# Sign flips of the test at k = 1 in a block, how many there are at least over its level, and the
# most blocks.
_FLIPS: Final = 9_999
_FLIPS_PER_LEVEL: Final = 5
_BLOCKS: Final = 10
# Standard errors from which on a problem moved for certain at k = 1, and from which on it counts as
# one that did where there are such. So many of these must carry the difference; or, where none
# moved, so many problems must carry the noise.
_CERTAIN: Final = 4.0
_LIKELY: Final = 2.5
_MOVERS: Final = 5.0
_NOISE_CARRIERS: Final = 6.0
# Largest part of half an interval that one more problem may bring that moved and was not drawn:
# where a few move, two of five studies draw none of them.
_UNSEEN: Final = 0.5


def interval_at_one(curve: DifferenceCurve) -> Interval:
    """Difference at k = 1, without bounds where a handful of problems may carry it."""
    first = curve.pointwise[0]
    # One question is whether each of the problems moved: trainings stand under each other.
    base, trained = (np.clip(side.pass_at_k(1)[:, 0], 0, 1) for side in (curve.base, curve.trained))
    means = (rates.reshape(curve.seeds, -1).mean(axis=0) for rates in (base, trained))
    mean_base, mean_trained = means
    moved, movers = _movers(mean_base, mean_trained, curve)
    per_unit = len(mean_base) / curve.weights.units
    enough = movers >= _MOVERS * per_unit if moved else _even_noise(mean_base, mean_trained, curve)
    if curve.clustered:
        enough &= bool(first.sound) and curve.carriers[0] >= _NOISE_CARRIERS
    if enough:
        return first
    nothing = np.asarray(np.nan)
    return replace(first, lower=nothing, upper=nothing, sound=np.asarray(False))


def _even_noise(
    base: NDArray[np.float64], trained: NDArray[np.float64], curve: DifferenceCurve
) -> bool:
    """Whether many problems carry the noise, and it covers one that moved and was not drawn.

    None that was drawn moved for certain. One in S of the problems that are ever solved may have
    moved all the same, by as much as its rate.
    """
    first, weight = curve.pointwise[0], np.maximum(base, trained)
    unseen = weight.sum() / max((weight > 0).sum(), 1) / len(weight)
    covered = unseen <= _UNSEEN * (first.high - first.low) / 2
    return bool(curve.carriers[0] >= _NOISE_CARRIERS and covered)


def _movers(
    base: NDArray[np.float64], trained: NDArray[np.float64], curve: DifferenceCurve
) -> tuple[int, float]:
    r"""Count problems that moved, and how many of them would carry the difference.

    Whether a few problems carry a difference cannot be seen from the differences: studies that
    happen to miss the large ones look the most even. So it is asked of all problems that are ever
    solved: if any of them could have moved, each with weight :math:`w_i`, the larger of its two
    rates, then of M movers among S problems as many carry it as

    .. math:: \frac{M}{S} \, \frac{(\sum_i w_i^2)^2}{\sum_i w_i^4} .
    """
    n_base = curve.base.n.reshape(curve.seeds, -1)[0]
    n_trained = curve.trained.n.reshape(curve.seeds, -1).sum(axis=0)
    rate = (n_base * base + n_trained * trained) / (n_base + n_trained)
    error = np.sqrt(rate * (1 - rate) * (1 / n_base + 1 / n_trained))
    apart = np.abs(trained - base)
    moved = int((apart > _LIKELY * error).sum()) if (apart > _CERTAIN * error).any() else 0
    if not moved:
        return 0, 0.0
    weight = np.maximum(base, trained)
    carriers = float((weight**2).sum()) ** 2 / float((weight**4).sum())
    return moved, moved / int((weight > 0).sum()) * carriers


def sign_by_flips(curve: DifferenceCurve, column: int, error: float) -> int:
    """Sign that is claimed at one k: exact where nothing moved, however few problems differ."""
    estimate = float(curve.pointwise.estimate[column])
    return int(np.sign(estimate)) if flip_p(curve, column, error) < error else 0


def flip_p(curve: DifferenceCurve, column: int, error: float) -> float:
    """Sign-flip p-value of a difference at one k, with flips enough to tell it from ``error``."""
    differences = curve.weights.unit_sums(curve.differences[:, column])
    observed = abs(differences.sum())
    # In an order of their own: neither that of the problems nor that of the arms may matter.
    sizes = np.sort(np.abs(differences[differences != 0]))
    if not len(sizes):
        return 1.0
    rng, hits = np.random.default_rng(0), 0
    blocks = min(math.ceil(_FLIPS_PER_LEVEL / error / _FLIPS), _BLOCKS)
    for _ in range(blocks):
        bits = rng.bytes(_FLIPS * (len(sizes) // 8 + 1))
        flips = np.unpackbits(np.frombuffer(bits, np.uint8).reshape(_FLIPS, -1), axis=1)
        sums = sizes.sum() - 2 * flips[:, : len(sizes)] @ sizes
        hits += int((np.abs(sums) >= observed * (1 - 1e-9)).sum())
    return (1 + hits) / (1 + blocks * _FLIPS)


def claimed_sign(interval: Interval, error: float, seeds: int) -> int:
    """Sign of an estimate whose interval, widened to this error, leaves 0 out.

    A spread between few seeds is known by its few degrees of freedom, and so it is widened.
    """
    tails = np.array([1 - error / 2, (1 + interval.prob) / 2])
    ends = special.stdtrit(seeds - 1, tails) if seeds > 1 else special.ndtri(tails)
    half = (interval.high - interval.low) / 2 * float(ends[0] / ends[1])
    estimate = float(interval.estimate)
    return int(np.sign(estimate)) if abs(estimate) > half else 0
