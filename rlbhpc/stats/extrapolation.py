r"""pass@K of exactly these problems, up to n and beyond: what more samples would show.

**Up to k = n/2** the sampling variance of a problem's pass@k has an unbiased estimate,

.. math:: \hat q_i(k)^2 - \binom{n_i-c_i}{2k} \Big/ \binom{n_i}{2k},
          \qquad \hat q_i(k) = \binom{n_i-c_i}{k} \Big/ \binom{n_i}{k} .

Where sampling stopped both terms are those of :mod:`rlbhpc.stats.pass_at_k`, for
:math:`2k \le n_\max`: :math:`\hat q(k)^2 - \hat q(2k)` is unbiased for the variance of
:math:`\hat q(k)` whenever :math:`\hat q` is unbiased for powers of 1 − p.

**Beyond k = n/2** none exists, and the interval is a posterior: the distribution of rates over
problems is fitted (:mod:`rlbhpc.stats.priors`), each problem's pass@k gets its posterior given its
counts, and the uncertainty of the fitted parameters is added by the delta method. Whether some
problems can never be solved decides the answer there and is not in the data, so the interval is the
envelope of the Beta with and without zeros, and is labelled model-based.

**Beyond n** three models and the band between them, with a check on held-out samples:

* Beta: rates over problems are Beta(a, b); failure falls as :math:`k^{-a}` for ever.
* Beta with zeros: a share of problems is never solved, and the curve levels off.
* Power law: :math:`-\log \text{pass@}k = A k^{-B}`, a line through the observed curve.

The first two can agree up to n and part beyond, and none of the three is best on real data, so
what is shown is their envelope. Up to 10 n it held the truth in subsampled real data; further out
it is refused unless asked for.
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
from rlbhpc.stats.priors import RatePrior, carries_rates, fit_prior, gradient

#: How far beyond n the models are trusted together.
FACTOR: Final = 10
#: Problems that must carry an interval's width. In simulations (tests/stats/calibration.py) it
#: loses its level below three.
LEAST_EFFECTIVE: Final = 5
#: Problems that a fitted prior must stand on.
ENOUGH: Final = 20
# Draws of k that must have succeeded, and that must have failed, as if the samples were cut into
# such draws. Where problems are alike, the number above is large by luck exactly where no rare
# count was drawn; this one is small there.
_LEAST_DRAWS: Final = 10
# Points of a curve that a power law must go through.
_LEAST_POINTS: Final = 3
# A mean of rates is kept this far from 0 and 1, and its variance and the size of its Beta above
# these, so that the Beta exists.
_EDGE: Final = 1e-9
_LEAST_VARIANCE: Final = 1e-14
_LEAST_SIZE: Final = 0.1


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

    ``model_based``: where k is more than half the samples of some problem (``reach``: largest k
    that every problem supports). There no unbiased variance exists, and the bounds come from two
    fitted distributions of rates. Up to there they come from the samples.

    >>> from rlbhpc.stats.counts import pythia
    >>> curve = fixed_curve(pythia()["2.8B"], [16, 10_000])
    >>> curve.model_based
    array([False,  True])
    """
    sizes = as_sizes(counts.reach if k is None else k)
    estimate = counts.pass_at_k(sizes).mean(axis=0)
    model_based = 2 * sizes > counts.reach
    lower, upper, sound = _bounds_from_samples(counts, sizes, estimate, prob)
    if model_based.any():
        lower[model_based], upper[model_based], sound[model_based] = _bounds_from_priors(
            counts, sizes[model_based], estimate[model_based], prob
        )
    sound &= ~np.isnan(estimate)
    interval = Interval(
        estimate,
        lower,
        upper,
        Target.FIXED,
        "unbiased variance up to k = n/2, posterior under two fitted priors beyond",
        prob,
        sound,
    )
    return FixedCurve(sizes, interval, model_based)


def _bounds_from_samples(
    counts: Counts, k: NDArray[np.int64], estimate: NDArray[np.float64], prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Lower and upper bound of the mean pass@k by its unbiased variance, and where they are sound.

    The variance exists up to k = n/2. Each distinct row of counts has one, and ``problems_in_row``
    problems have it; their sum over the squared number of problems is the variance of the mean. The
    bounds are normal, cut to [0, 1].

    Bounds are sound at a k under two conditions. If all samples were cut into ``draws`` of k,
    enough of these would succeed and enough would fail. And the noise is spread over enough
    problems (``carrying``).
    """
    variances, problems_in_row = _sampling_variances(counts, k)
    error = np.sqrt(problems_in_row @ variances) / len(counts)
    half_width = special.ndtri((1 + check_prob(prob)) / 2) * error
    # Draws of k that succeeded, or that failed, whichever are fewer.
    draws = counts.n.sum() / k * np.minimum(estimate, 1 - estimate)
    carrying = _carrying_problems(variances, problems_in_row)
    sound = (draws >= _LEAST_DRAWS) & (carrying >= LEAST_EFFECTIVE)
    return np.maximum(estimate - half_width, 0), np.minimum(estimate + half_width, 1), sound


def _sampling_variances(
    counts: Counts, k: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Variance of pass@k of each distinct row (rows, sizes), and how many problems have it.

    With q(k) the unbiased estimate of the chance that k samples all fail, q(k)² − q(2k) is an
    unbiased variance of q(k). Problems with equal counts share a row. ``broadcast`` calls a
    function of counts and k for rows and sizes.
    """
    distinct, _, problems_in_row = counts.distinct_rows()
    log_fail = distinct.broadcast(log_fail_at_k, k)
    log_fail_twice = distinct.broadcast(log_fail_at_k, 2 * k)
    return np.maximum(np.exp(2 * log_fail) - np.exp(log_fail_twice), 0), problems_in_row


def _bounds_from_priors(
    counts: Counts, k: NDArray[np.int64], estimate: NDArray[np.float64], prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Envelope of the posteriors under both priors, around the estimate, and where it is sound.

    A *prior* is the distribution of rates over problems, fitted to the counts: a Beta, without and
    with a share of problems at rate 0. The data do not tell which, so the bounds hold both.
    ``carries_rates`` says whether the counts tell such a distribution at all; otherwise the bounds
    are 0 and 1. Where the estimate is NaN, so are the bounds.
    """
    is_missing = np.isnan(estimate)
    if not carries_rates(counts):
        # Where the samples tell no distribution of rates they leave everything open.
        lower, upper = np.where(is_missing, np.nan, 0.0), np.where(is_missing, np.nan, 1.0)
        return lower, upper, np.zeros(len(k), bool)
    priors = [fit_prior(counts, zero_inflated) for zero_inflated in (False, True)]
    posteriors = [posterior_bounds(counts, prior, k, prob) for prior in priors]
    lowest = np.min([lower for _, lower, _ in posteriors], axis=0)
    highest = np.max([upper for _, _, upper in posteriors], axis=0)
    return (
        np.where(is_missing, np.nan, np.fmin(lowest, estimate)),
        np.where(is_missing, np.nan, np.fmax(highest, estimate)),
        _posterior_is_sound(counts, priors, k, estimate),
    )


def _carrying_problems(
    variances: NDArray[np.float64], problems_in_row: NDArray[np.int64]
) -> NDArray[np.float64]:
    r"""How many problems carry the noise: Kish's :math:`(\sum_i v_i)^2 / \sum_i v_i^2`.

    At large k most problems are solved for certain or not at all, and a mean over hundreds hangs on
    a few. If P of the variances :math:`v_i` are equal and the others 0, the result is P; it is 0
    where no variance is seen.

    ``variances``: of pass@k (rows, sizes), a row for each distinct pair of counts.
    ``problems_in_row``: how many problems have each.
    """
    sum_of_squares = problems_in_row @ variances**2
    square_of_sum = (problems_in_row @ variances) ** 2
    return np.asarray(square_of_sum / np.where(sum_of_squares > 0, sum_of_squares, 1))


def posterior_bounds(
    counts: Counts, prior: RatePrior, k: NDArray[np.int64], prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean pass@k over these problems under a fitted prior, at any k, with lower and upper bound.

    A *prior* is the distribution of rates over problems. Given it and the counts, each problem's
    pass@k has a mean and a variance. The uncertainty of the prior's own parameters is added by the
    delta method: ``derivatives`` of the mean by each parameter (parameters, sizes), with the
    covariance of the fit between them. The bounds are quantiles of the Beta distribution with this
    mean and variance, so that they stay in [0, 1]; ``size`` is the sum of its two parameters.
    Values are kept off the edges so that such a Beta exists.
    """
    sizes = k.astype(np.float64)
    mean, variances = _posterior_moments(counts, prior, sizes)
    derivatives = gradient(prior, counts, sizes)
    # The delta method: J'CJ at each k, for derivatives J and covariance C of the parameters.
    variance_of_fit = np.einsum("ik,ij,jk->k", derivatives, prior.covariance, derivatives)
    variance = variances.sum(axis=0) / len(counts) ** 2 + np.maximum(variance_of_fit, 0)
    centre = np.clip(mean, _EDGE, 1 - _EDGE)
    # A Beta(a, b) with mean m has the variance m (1 − m) / (a + b + 1); this is its a + b.
    size = centre * (1 - centre) / np.maximum(variance, _LEAST_VARIANCE) - 1
    size = np.maximum(size, _LEAST_SIZE)
    a, b = centre * size, (1 - centre) * size
    tail = (1 - prob) / 2
    return mean, special.betaincinv(a, b, tail), special.betaincinv(a, b, 1 - tail)


def _posterior_is_sound(
    counts: Counts,
    priors: Sequence[RatePrior],
    k: NDArray[np.int64],
    estimate: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """At which k bounds by fitted priors hold what they say.

    A *prior* is a fitted distribution of rates over problems. It needs problems and right samples
    to stand on (``identified``), and the posterior's width must be spread over enough problems
    under each of them. The mean must also be at least one problem away from none solved and from
    all solved: where all are solved, or none, a posterior is as narrow as its prior is sure of
    itself.

    ``estimate``: mean pass@k at each k.
    """
    sound = len(counts) * np.minimum(estimate, 1 - estimate) >= 1
    sound &= len(counts) >= ENOUGH
    each_once = np.ones(len(counts), np.int64)
    for prior in priors:
        _, variances = _posterior_moments(counts, prior, k.astype(np.float64))
        carrying = _carrying_problems(variances, each_once)
        sound &= prior.identified & (carrying >= LEAST_EFFECTIVE)
    return np.asarray(sound)


def _posterior_moments(
    counts: Counts, prior: RatePrior, k: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean pass@k, and the variance of each problem's (problems, sizes), under the fitted prior.

    ``prior.fail(n, c, k)`` is the posterior mean of (1 − p)^k for rate p; at 2k it is that of the
    square, which gives the variance.
    """
    n, c = counts.n[:, None], counts.c[:, None]
    fail = prior.fail(n, c, k)
    squared_fail = prior.fail(n, c, 2 * k)
    return 1 - fail.mean(axis=0), np.maximum(squared_fail - fail**2, 0)


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
    """

    k: NDArray[np.int64]
    models: dict[str, Interval]
    power_law: PowerLaw | None
    band: Interval


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
    has_logs = (value > 0) & (value < 1)
    if has_logs.sum() < _LEAST_POINTS:
        return None
    slope, level = np.polyfit(np.log(k[has_logs]), np.log(-np.log(value[has_logs])), 1)
    return PowerLaw(amplitude=float(np.exp(level)), exponent=float(-slope))


def extrapolate(
    counts: Counts, k: ArrayLike, prob: float = PROB, *, beyond: bool = False
) -> Extrapolation:
    """Predict pass@k of these problems for any k.

    ``k``: draw sizes; up to ten times the least n, or further where ``beyond`` says so. ``prob``:
    nominal probability of each model's interval. ``beyond``: allow more than ten times n, where the
    models' envelope is known to fail.

    A *prior* is a distribution of rates over problems that is fitted to the counts: a Beta, without
    and with a share that is never solved. Its posterior gives an interval. The band goes from the
    lowest to the highest of these two and the power law, and its estimate is the median of the
    three. ``counts.reach``: largest k that every problem has samples for.

    >>> counts = Counts.of(64, [0, 0, 1, 3, 9, 40, 64])
    >>> prediction = extrapolate(counts, [64, 640])
    >>> sorted(prediction.models)
    ['Beta', 'zero-inflated Beta']
    """
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    trusted = sizes <= FACTOR * counts.reach
    if not trusted.all() and not beyond:
        raise UserError(
            f"pass@{sizes.max()} from n = {counts.reach} samples is more than {FACTOR} n away; "
            f"ask for k up to {FACTOR * counts.reach}, sample more, or allow it with beyond=True"
        )
    priors = [fit_prior(counts, zero_inflated) for zero_inflated in (False, True)]
    models = [_posterior_interval(counts, prior, sizes, prob) for prior in priors]
    power_law = fit_power_law(counts)
    lines = [power_law.pass_at_k(sizes)] if power_law else []
    middle = np.median([*(model.estimate for model in models), *lines], axis=0)
    sound = trusted & _posterior_is_sound(counts, priors, sizes, middle)
    band = Interval(
        middle,
        np.min([*(model.lower for model in models), *lines], axis=0),
        np.max([*(model.upper for model in models), *lines], axis=0),
        Target.FIXED,
        "envelope of Beta, zero-inflated Beta and power law",
        prob,
        sound,
    )
    by_name = {prior.name: model for prior, model in zip(priors, models, strict=True)}
    return Extrapolation(sizes, by_name, power_law, band)


def _posterior_interval(
    counts: Counts, prior: RatePrior, k: NDArray[np.int64], prob: float
) -> Interval:
    """Interval of pass@k of these problems, at each k, under one fitted prior.

    A *prior* is the fitted distribution of rates over problems; ``identified`` says whether the
    samples decide its parameters. A bound is moved to the mean where it would lie on its other
    side.
    """
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
