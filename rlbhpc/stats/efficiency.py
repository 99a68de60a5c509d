r"""The difference at k = 1: an interval where one holds what it says, and a test of its sign."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.stats.difference import DifferenceCurve
from rlbhpc.stats.interval import Interval

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
    base, trained = (side.pass_at_k(1)[:, 0] for side in (curve.base, curve.trained))
    means = (rates.reshape(curve.seeds, -1).mean(axis=0) for rates in (base, trained))
    mean_base, mean_trained = means
    moved, movers = _movers(mean_base, mean_trained, curve)
    enough = movers >= _MOVERS if moved else _even_noise(mean_base, mean_trained, curve)
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


def sign_at_one(curve: DifferenceCurve, error: float) -> int:
    """Sign at k = 1 that is claimed."""
    efficiency = curve.pointwise[0]
    if curve.seeds > 1:  # flips of problems know nothing of what differs between trainings
        return claimed_sign(efficiency, error, curve.seeds)
    return int(np.sign(efficiency.estimate)) if _p_first(curve, error) < error else 0


def _p_first(curve: DifferenceCurve, error: float) -> float:
    """Sign-flip p-value of a difference at k = 1: exact where nothing moved, however few differ."""
    differences = (curve.trained.pass_at_k(1) - curve.base.pass_at_k(1))[:, 0]
    observed = abs(differences.sum())
    # In an order of their own: neither that of the problems nor that of the arms may matter.
    first = np.sort(np.abs(differences[differences != 0]))
    if not len(first):
        return 1.0
    rng, hits = np.random.default_rng(0), 0
    blocks = min(math.ceil(_FLIPS_PER_LEVEL / error / _FLIPS), _BLOCKS)
    for _ in range(blocks):
        bits = rng.bytes(_FLIPS * (len(first) // 8 + 1))
        flips = np.unpackbits(np.frombuffer(bits, np.uint8).reshape(_FLIPS, -1), axis=1)
        sums = first.sum() - 2 * flips[:, : len(first)] @ first
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
