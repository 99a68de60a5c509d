r"""Fair comparison across sampling temperatures: each model at its best, or at equal entropy.

One temperature for both models favours whichever it suits: at T = 1.2 the study's base collapses
and the trained model leads everywhere. The *envelope* lets each model choose its temperature at
each k; *entropy matching* samples the trained model as diversely as the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval, percentile_interval
from rlbhpc.stats.weights import ProblemWeights


@dataclass(frozen=True)
class Envelope:
    """Best mean pass@k over temperatures.

    ``interval``: value and population interval. The maximum is taken anew in each replicate, so the
    choice of temperature is part of the uncertainty. ``temperature``: the best temperature at each
    k. ``replicates``: replicates of the value, to compare two envelopes drawn with the same
    weights.
    """

    k: NDArray[np.int64]
    interval: Interval
    temperature: NDArray[np.float64]
    replicates: NDArray[np.float64]


def envelope(
    by_temperature: Mapping[float, Counts],
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> Envelope:
    """Take the best temperature of one model at each k.

    ``by_temperature``: counts at each temperature, the same problems in the same order. ``k``: draw
    sizes; a log-spaced grid where not given.

    The best of several noisy values is biased up by part of their noise, and each replicate takes
    its own best. Compare two models over equally many temperatures, where most of it cancels.
    """
    if not by_temperature:
        raise UserError("an envelope needs counts at one temperature at least")
    temperatures = np.asarray(sorted(by_temperature))
    reach = min(counts.reach for counts in by_temperature.values())
    sizes = as_sizes(reach if k is None else k)
    values = np.stack([by_temperature[t].pass_at_k(sizes) for t in temperatures.tolist()], axis=1)
    mean = values.mean(axis=0)
    best = mean.argmax(axis=0)
    replicates = weights.means(values).max(axis=1)
    interval = percentile_interval(
        mean.max(axis=0),
        replicates,
        prob,
        "problem bootstrap, percentile, temperature chosen in each replicate",
        weights.units >= 50,
        () if weights.units >= 50 else ("percentiles of fewer than 50 problems are too short",),
    )
    return Envelope(sizes, interval, temperatures[best], replicates)


def envelope_difference(base: Envelope, trained: Envelope, prob: float = PROB) -> Interval:
    """Trained minus base envelope, paired over problems, pointwise in k."""
    if base.replicates.shape != trained.replicates.shape or (base.k != trained.k).any():
        raise UserError("envelopes differ in k or in bootstrap weights; draw both with the same")
    return percentile_interval(
        trained.interval.estimate - base.interval.estimate,
        trained.replicates - base.replicates,
        prob,
        "paired problem bootstrap, percentile, temperatures chosen in each replicate",
        base.interval.sound & trained.interval.sound,
    )


def matched_temperature(temperature: ArrayLike, entropy: ArrayLike, wanted: float) -> float:
    """Temperature at which a model's entropy equals ``wanted``, by linear interpolation.

    ``temperature``: temperatures that were sampled, at least two. ``entropy``: mean token entropy
    at each. ``wanted``: entropy of the model to match.

    >>> matched_temperature([0.6, 1.0], [0.22, 0.62], 0.47)
    0.85
    """
    t, h = _by_temperature(temperature, entropy)
    if not h.min() <= wanted <= h.max():
        raise UserError(
            f"entropy {wanted:g} is outside what the sampled temperatures give, {h.min():g} to "
            f"{h.max():g}; sample the model at a {'higher' if wanted > h.max() else 'lower'} one"
        )
    order = np.argsort(h)
    return round(float(np.interp(wanted, h[order], t[order])), 12)


def matched_pass_at_k(
    temperature: ArrayLike, entropy: ArrayLike, curves: ArrayLike, wanted: float
) -> NDArray[np.float64]:
    """pass@k at equal entropy, interpolated between the curves of neighbouring temperatures.

    ``temperature, entropy``: as in :func:`matched_temperature`. ``curves``: one curve per
    temperature (rows): means, values per problem, or replicates. ``wanted``: entropy of the model
    to match.
    """
    matched = matched_temperature(temperature, entropy, wanted)
    t = np.asarray(temperature, np.float64)
    order = np.argsort(t)
    rows = np.asarray(curves, np.float64)[order]
    t = t[order]
    right = int(np.clip(np.searchsorted(t, matched), 1, len(t) - 1))
    share = (matched - t[right - 1]) / (t[right] - t[right - 1])
    return np.asarray((1 - share) * rows[right - 1] + share * rows[right])


def _by_temperature(
    temperature: ArrayLike, entropy: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    t, h = np.asarray(temperature, np.float64), np.asarray(entropy, np.float64)
    if t.shape != h.shape or t.ndim != 1 or len(t) < 2:
        raise UserError("entropy matching needs one entropy for each of two or more temperatures")
    order = np.argsort(t)
    t, h = t[order], h[order]
    if (np.diff(h) <= 0).any():
        raise UserError(
            f"entropy does not rise with temperature: {h.tolist()} at {t.tolist()}; "
            "sample more, or compare the envelopes"
        )
    return t, h
