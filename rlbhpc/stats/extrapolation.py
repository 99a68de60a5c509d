r"""pass@K for K above n: three models, the band between them, and a check on held-out samples.

* Beta: rates over problems are Beta(a, b); failure falls as :math:`k^{-a}` for ever.
* Beta with zeros: a share of problems is never solved, and the curve levels off.
* Power law: :math:`-\log \text{pass@}k = A k^{-B}`, a line through the observed curve.

The first two can agree up to n and part beyond, and none of the three is best on real data, so
what is shown is their envelope. Up to 10 n it held the truth in subsampled real data; further out
it is refused unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import k_grid
from rlbhpc.stats.fixed import (
    LEAST_EFFECTIVE,
    effective_under,
    posterior_bounds,
    supported,
    undecided,
)
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.priors import LEAST_SAMPLES, RatePrior, fit_prior

#: How far beyond n the models are trusted together.
FACTOR: Final = 10


@dataclass(frozen=True)
class PowerLaw:
    r""":math:`-\log \text{pass@}k = \text{amplitude} \cdot k^{-\text{exponent}}`."""

    amplitude: float
    exponent: float

    def pass_at_k(self, k: ArrayLike) -> NDArray[np.float64]:
        """Value of the law."""
        return np.asarray(np.exp(-self.amplitude * np.asarray(k, np.float64) ** -self.exponent))


@dataclass(frozen=True)
class Extrapolation:
    """pass@k of these problems under three models, and the band that holds them all.

    ``models``: interval of each of the two fitted distributions by name. ``power_law``: the fitted
    line; None where pass@k is 0 or 1 somewhere, so that it has no logarithm. ``band``: envelope of
    the intervals and the line, always model-based; the estimate is the middle model of the three.
    ``priors``: the fitted distributions by name.
    """

    k: NDArray[np.int64]
    models: dict[str, Interval]
    power_law: PowerLaw | None
    band: Interval
    priors: dict[str, RatePrior]


@dataclass(frozen=True)
class HeldOut:
    """Prediction from a part of the samples, beside what all of them show.

    ``n``: samples per problem that the prediction was made from. ``k``: draw size predicted, at
    most the full n. ``predicted``: envelope of the models. ``observed``: unbiased pass@k from all
    samples.
    """

    n: int
    k: int
    predicted: Interval
    observed: float

    @property
    def passed(self) -> bool:
        """Whether the envelope holds what was observed."""
        return bool(self.predicted.covers(self.observed))


def fit_power_law(counts: Counts) -> PowerLaw | None:
    """Least squares line through log(−log pass@k) over log k, up to the least n.

    The points of a curve are correlated and of unequal variance, so no interval comes with it.

    Brown et al. (2024), arXiv:2407.21787; Schaeffer et al. (2025), arXiv:2502.17578.

    >>> from rlbhpc.stats.examples import pythia
    >>> round(fit_power_law(pythia()["70M"]).exponent, 2)
    0.19
    """
    k = k_grid(counts.reach, per_octave=3)
    value = counts.pass_at_k(k).mean(axis=0)
    inside = (value > 0) & (value < 1)
    if inside.sum() < 3:
        return None
    slope, level = np.polyfit(np.log(k[inside]), np.log(-np.log(value[inside])), 1)
    return PowerLaw(float(np.exp(level)), float(-slope))


def extrapolate(
    counts: Counts, k: ArrayLike, prob: float = PROB, *, beyond: bool = False
) -> Extrapolation:
    """Predict pass@k of these problems for any k.

    ``k``: draw sizes; up to ten times the least n, or further where ``beyond`` says so. ``prob``:
    nominal probability of each model's interval. ``beyond``: allow more than ten times n, where the
    models' envelope is known to fail.

    >>> counts = Counts.of(64, [0, 0, 1, 3, 9, 40, 64])
    >>> prediction = extrapolate(counts, [64, 640])
    >>> sorted(prediction.models)
    ['Beta', 'zero-inflated Beta']
    """
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    reach = FACTOR * counts.reach
    if (sizes > reach).any() and not beyond:
        raise UserError(
            f"pass@{sizes.max()} from n = {counts.reach} samples is more than {FACTOR} n away; "
            f"ask for k up to {reach}, sample more, or allow it with beyond=True"
        )
    priors = {p.name: p for p in (fit_prior(counts, zeros) for zeros in (False, True))}
    models = {name: _posterior(counts, prior, sizes, prob) for name, prior in priors.items()}
    law = fit_power_law(counts)
    line = [law.pass_at_k(sizes)] if law else []
    middle = np.median([*(m.estimate for m in models.values()), *line], axis=0)
    lower = np.min([*(m.lower for m in models.values()), *line], axis=0)
    upper = np.max([*(m.upper for m in models.values()), *line], axis=0)
    fitted = tuple(priors.values())
    sound = (sizes <= reach) & (effective_under(counts, fitted, sizes) >= LEAST_EFFECTIVE)
    sound &= supported(counts, fitted) & undecided(counts, middle)
    notes = ["model-based: the envelope of two fitted distributions and a power law"]
    if (sizes > reach).any():
        notes.append(f"beyond {FACTOR} n no check supports it")
    if not sound[sizes <= reach].all():
        notes.append("where few problems carry the width it may be too short")
    if not all(prior.identified for prior in priors.values()):
        notes.append("the samples leave a fitted distribution open: too few of them are right")
    band = Interval(
        middle,
        lower,
        upper,
        Target.FIXED,
        "envelope of Beta, zero-inflated Beta and power law",
        prob,
        sound,
        tuple(notes),
    )
    return Extrapolation(sizes, models, law, band, priors)


def held_out_check(counts: Counts, rng: np.random.Generator, fraction: float = 0.1) -> HeldOut:
    """Predict pass@n from a part of the samples and compare with all of them.

    Samples of a problem are exchangeable, so a part of them has a hypergeometric count; the same
    tenfold step that :func:`extrapolate` takes beyond n is taken here up to n.

    ``rng``: generator that chooses the part. ``fraction``: share of the samples to predict from.
    """
    if not 0 < fraction < 1 or int(fraction * counts.reach) < LEAST_SAMPLES:
        raise UserError(
            f"a share {fraction} of {counts.reach} samples is no part to predict from; "
            f"take a share between 0 and 1 that leaves at least {LEAST_SAMPLES} samples"
        )
    part = int(fraction * counts.reach)
    k = min(counts.reach, FACTOR * part)
    thinned = Counts.of(part, rng.hypergeometric(counts.c, counts.n - counts.c, part))
    predicted = extrapolate(thinned, k).band[0]
    return HeldOut(part, k, predicted, float(counts.pass_at_k(k).mean()))


def _posterior(counts: Counts, prior: RatePrior, k: NDArray[np.int64], prob: float) -> Interval:
    mean, lower, upper = posterior_bounds(counts, prior, k, check_prob(prob))
    return Interval(
        mean,
        np.fmin(lower, mean),
        np.fmax(upper, mean),
        Target.FIXED,
        f"posterior under a fitted {prior.name}",
        prob,
        np.asarray(prior.identified),
    )
