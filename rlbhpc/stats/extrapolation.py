r"""pass@K for K above n: three models, the band between them, and a check on held-out samples.

* Beta: rates over problems are Beta(a, b); failure falls as :math:`k^{-a}` for ever.
* Beta with zeros: a share of problems is never solved, and the curve levels off.
* Power law: :math:`-\log \text{pass@}k = A k^{-B}`, a line through the observed curve.

The first two can agree up to n and part beyond, and none of the three is best on real data, so
what is shown is their envelope. Up to 10 n it held the truth in subsampled real data; further out
it is refused unless asked for.

pass@k of exactly these problems: what more samples would show, without other problems.

For :math:`2k \le n` the sampling variance of a problem's pass@k has an unbiased estimate,

.. math:: \hat q_i(k)^2 - \binom{n_i-c_i}{2k} \Big/ \binom{n_i}{2k},
          \qquad \hat q_i(k) = \binom{n_i-c_i}{k} \Big/ \binom{n_i}{k} .

Where sampling stopped both terms are those of :mod:`rlbhpc.stats.pass_at_k`, for
:math:`2k \le n_\max`: :math:`\hat q(k)^2 - \hat q(2k)` is unbiased for the variance of
:math:`\hat q(k)` whenever :math:`\hat q` is unbiased for powers of 1 − p.

Beyond, none exists, and the interval is a posterior: the distribution of rates over problems is
fitted (:mod:`rlbhpc.stats.priors`), each problem's pass@k gets its posterior given its counts, and
the uncertainty of the fitted parameters is added by the delta method. Whether some problems can
never be solved decides the answer there and is not in the data, so the interval is the envelope
of the Beta with and without zeros, and is labelled model-based.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes, k_grid
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.pass_at_k import log_fail_at_k
from rlbhpc.stats.priors import LEAST_SAMPLES, RatePrior, carries_rates, fit_prior, gradient

# Problems that must carry an interval's width. In simulations (tests/stats/calibration.py) it loses
# its level below three.
LEAST_EFFECTIVE: Final = 5
# Draws of k that must have succeeded, and that must have failed, as if the samples were cut into
# such draws. Where problems are alike, the number above is large by luck exactly where no rare
# count was drawn; this one is small there.
_LEAST_DRAWS: Final = 10
# Problems that a fitted prior must stand on.
ENOUGH: Final = 20


@dataclass(frozen=True)
class FixedCurve:
    """pass@k of these problems at infinitely many samples.

    ``interval``: estimate and bounds about these very problems. ``model_based``: where the bounds
    rest on fitted priors rather than on the samples alone.
    """

    k: NDArray[np.int64]
    interval: Interval
    model_based: NDArray[np.bool_]


def fixed_curve(counts: Counts, k: ArrayLike | None = None, prob: float = PROB) -> FixedCurve:
    """Mean pass@k of exactly these problems, with an interval for the noise of sampling.

    ``k``: draw sizes up to the least n; a log-spaced grid where not given.

    >>> from rlbhpc.stats.counts import pythia
    >>> curve = fixed_curve(pythia()["2.8B"], [16, 10_000])
    >>> curve.model_based
    array([False,  True])
    """
    sizes = as_sizes(counts.reach if k is None else k)
    estimate = counts.pass_at_k(sizes).mean(axis=0)
    model_based = 2 * sizes > counts.reach
    variances, times = _problem_variances(counts, sizes)
    carried = _effective(variances, times)
    error = np.sqrt(times @ variances) / len(counts)
    half = special.ndtri((1 + check_prob(prob)) / 2) * error
    lower, upper = np.maximum(estimate - half, 0), np.minimum(estimate + half, 1)
    fitted = False
    inside = estimate[model_based]
    # Where the samples tell no distribution of rates they leave everything open.
    low, high = np.zeros(len(inside)), np.ones(len(inside))
    if model_based.any() and carries_rates(counts):
        priors = [fit_prior(counts, zeros) for zeros in (False, True)]
        fitted = supported(counts, priors)
        bounds = [posterior_bounds(counts, p, sizes[model_based], prob)[1:] for p in priors]
        low, high = np.min(bounds, axis=0)[0], np.max(bounds, axis=0)[1]
        carried[model_based] = effective_under(counts, priors, sizes[model_based])
    lower[model_based] = np.where(np.isnan(inside), np.nan, np.fmin(low, inside))
    upper[model_based] = np.where(np.isnan(inside), np.nan, np.fmax(high, inside))
    draws = counts.n.sum() / sizes * np.minimum(estimate, 1 - estimate)
    sound = np.where(model_based, fitted & undecided(counts, estimate), draws >= _LEAST_DRAWS)
    sound &= (carried >= LEAST_EFFECTIVE) & ~np.isnan(estimate)
    notes = []
    if model_based.any():
        notes.append("beyond k = n/2 the bounds are model-based: two fitted priors, their envelope")
    if not sound.all():
        notes.append("where few problems or few draws of k carry the width it may be too short")
    interval = Interval(
        estimate,
        lower,
        upper,
        Target.FIXED,
        "unbiased variance up to k = n/2, posterior under two fitted priors beyond",
        prob,
        sound,
        tuple(notes),
    )
    return FixedCurve(sizes, interval, model_based)


def _problem_variances(
    counts: Counts, k: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Variance of pass@k of each distinct row of counts, and how many problems have it."""
    alike, _, times = counts.distinct_rows()
    once, twice = alike.broadcast(log_fail_at_k, k), alike.broadcast(log_fail_at_k, 2 * k)
    return np.maximum(np.exp(2 * once) - np.exp(twice), 0), times


def _effective(variances: NDArray[np.float64], times: NDArray[np.int64]) -> NDArray[np.float64]:
    r"""How many problems carry the noise: Kish's :math:`(\sum_i v_i)^2 / \sum_i v_i^2`.

    At large k most problems are solved for certain or not at all, and a mean over hundreds hangs on
    a few; 0 where no variance is seen.
    """
    squares = times @ variances**2
    return np.asarray((times @ variances) ** 2 / np.where(squares > 0, squares, 1))


def posterior_bounds(
    counts: Counts, prior: RatePrior, k: NDArray[np.int64], prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean pass@k over these problems under a fitted prior, at any k, and its bounds.

    They are those of the Beta distribution with these moments: a mean of rates stays in [0, 1].
    """
    sizes = k.astype(np.float64)
    mean, variances = _posterior(counts, prior, sizes)
    slope = gradient(prior, counts, sizes)
    fitted = np.einsum("ik,ij,jk->k", slope, prior.covariance, slope)
    variance = variances.sum(axis=0) / len(counts) ** 2 + np.maximum(fitted, 0)
    centre = np.clip(mean, 1e-9, 1 - 1e-9)
    size = np.maximum(centre * (1 - centre) / np.maximum(variance, 1e-14) - 1, 0.1)
    tail = (1 - prob) / 2
    a, b = centre * size, (1 - centre) * size
    return mean, special.betaincinv(a, b, tail), special.betaincinv(a, b, 1 - tail)


def supported(counts: Counts, priors: Sequence[RatePrior]) -> bool:
    """Whether fitted priors have enough problems, and right samples, to stand on."""
    return len(counts) >= ENOUGH and all(prior.identified for prior in priors)


def undecided(counts: Counts, estimate: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether at least one problem's worth is solved and one is not.

    Where all are solved, or none, a posterior is as narrow as its prior is sure of itself.
    """
    return np.asarray(len(counts) * np.minimum(estimate, 1 - estimate) >= 1)


def effective_under(
    counts: Counts, priors: Sequence[RatePrior], k: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How many problems carry the posterior's width, under the prior where they are fewest."""
    once = np.ones(len(counts), np.int64)
    posteriors = [_posterior(counts, prior, k.astype(np.float64)) for prior in priors]
    return np.asarray(np.min([_effective(v, once) for _, v in posteriors], axis=0))


def _posterior(
    counts: Counts, prior: RatePrior, k: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean pass@k, and the variance of each problem's, under the fitted prior itself."""
    n, c = counts.n[:, None], counts.c[:, None]
    first, second = prior.fail(n, c, k), prior.fail(n, c, 2 * k)
    return 1 - first.mean(axis=0), np.maximum(second - first**2, 0)


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

    >>> from rlbhpc.stats.counts import pythia
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
    models = {name: _posterior_at(counts, prior, sizes, prob) for name, prior in priors.items()}
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


def _posterior_at(counts: Counts, prior: RatePrior, k: NDArray[np.int64], prob: float) -> Interval:
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
