r"""Where two pass@k curves cross: estimate, confidence set, and whether they cross at all.

The set inverts the pointwise interval, :math:`\{k : 0 \in D(k) \pm t\,s(k)\}`: each true crossing
lies in it with the stated probability, also where the curves may not cross up to n. It is a union
of intervals, and an end that reaches the last k is open: the crossing may lie beyond n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.pass_at_k import pass_curves

if TYPE_CHECKING:
    from rlbhpc.stats.difference import DifferenceCurve

# Differences of means below this are rounding, and the sign of rounding means nothing.
_TINY: Final = 1e-13


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
    >>> from rlbhpc.stats.examples import pythia
    >>> from rlbhpc.stats.weights import ProblemWeights
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> found = crossing(difference_curve(models["2.8B"], models["6.9B"], weights))
    >>> found.first_k
    array([23])
    """
    reach = min(curve.base.reach, curve.trained.reach)
    difference = _mean_curve(curve.trained, reach) - _mean_curve(curve.base, reach)
    points = crossing_points(np.arange(1, reach + 1), difference)
    above = (curve.replicates > _TINY).any(axis=1)
    below = (curve.replicates < -_TINY).any(axis=1)
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
    sign = np.where(np.abs(value) <= _TINY, 0.0, np.sign(value))
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
