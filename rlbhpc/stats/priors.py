r"""Distribution of success rates over problems, fitted to counts: Beta, and Beta with zeros.

Per problem :math:`c_i \sim \text{Bin}(n_i, p_i)`; over problems :math:`p_i = 0` with probability
:math:`\pi_0` and :math:`p_i \sim \text{Beta}(a, b)` otherwise. The plain Beta has
:math:`\pi_0 = 0`. The two are nearly confounded: data at n samples cannot tell a problem that is
never solved from one that is solved once in 100 n. They agree up to about n/4 and part beyond, so
whatever rests on a prior is given under both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts

# log a, log b, logit of the zero share: wide enough for any real data, and finite, because the
# likelihood of few successes has no maximum inside.
_BOUNDS: Final = ((-7.0, 5.0), (-4.0, 10.0), (-9.0, 6.0))
# Standard deviation of a weak prior on these three, which keeps their covariance finite where
# the data say nothing about one of them.
_LOOSE: Final = 3.0
_STEP: Final = 1e-3
# Information of a problem about a direction of the parameters, below which the likelihood is flat:
# identified fits have 1e-6 and more, others 1e-8 and less, which is the error of the differences.
_FLAT: Final = 1e-7
# Newton steps from where the search ended to the maximum itself: it ends within 1e-8 of it, at a
# place that depends on the processor.
_POLISHES: Final = 3

Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


@dataclass(frozen=True)
class RatePrior:
    """A fitted distribution of success rates.

    ``a, b``: parameters of the Beta part. ``zeros``: share of problems with rate 0.
    ``log_likelihood``: at the maximum, without the constant of the binomial coefficients.
    ``covariance``: of (log a, log b) and, with zeros, of the logit of their share. ``identified``:
    false where other parameters are as likely, or the maximum lies on the edge of what is allowed:
    the fit is then a bound, not an estimate.
    """

    a: float
    b: float
    zeros: float
    log_likelihood: float
    covariance: NDArray[np.float64]
    identified: bool

    @property
    def parameters(self) -> NDArray[np.float64]:
        """Log a, log b and, with zeros, the logit of their share."""
        values = [np.log(self.a), np.log(self.b)]
        return np.asarray([*values, special.logit(self.zeros)] if self.zeros else values)

    @property
    def name(self) -> str:
        """What the distribution is called."""
        return "zero-inflated Beta" if self.zeros else "Beta"

    def fail(self, n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
        r"""Posterior mean of :math:`(1-p)^k` after c right samples of n; they broadcast.

        .. math:: E[(1-p)^k \mid c] = w + (1-w)\,\frac{B(a+c,\, b+n-c+k)}{B(a+c,\, b+n-c)}

        with :math:`w` the posterior probability of a zero rate, which is 0 unless c is.
        With 2k in place of k this is the second moment.
        """
        return _fail(self.parameters, *_floats(n, c, k))

    def never(self, n: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
        """Posterior probability of a rate of exactly 0 after c right samples of n."""
        return _zero(self.parameters, *_floats(n, c))


# A distribution of rates over problems needs two of them.
LEAST: Final = 2
# Parameters of the Beta with zeros. Counts of n samples depend on the first n moments of the rates
# alone, so that with fewer samples other parameters are exactly as likely.
LEAST_SAMPLES: Final = 3


def carries_rates(counts: Counts) -> bool:
    """Whether the counts can tell a distribution of rates, that with zeros too."""
    return int((counts.n >= LEAST_SAMPLES).sum()) >= LEAST


def fit_prior(counts: Counts, zero_inflated: bool) -> RatePrior:
    r"""Maximise the marginal likelihood of the counts.

    .. math:: \sum_i \log\Big[\pi_0 1\{c_i=0\}
              + (1-\pi_0)\frac{B(a+c_i,\, b+n_i-c_i)}{B(a,b)}\Big]

    A stopping rule does not change the likelihood, so stopped rows are welcome here.

    ``counts``: counts of one arm; at least two problems, and as many samples of one as there are
    parameters. ``zero_inflated``: whether problems with
    rate 0 are allowed for.

    Kazdan et al. (2025), arXiv:2510.05197; Levi (2024), arXiv:2410.16377.

    >>> from rlbhpc.stats.counts import pythia
    >>> prior = fit_prior(pythia()["2.8B"], zero_inflated=False)
    >>> round(prior.a, 4), round(prior.b, 2)
    (0.246, 11.7)
    """
    if len(counts) < LEAST or not counts.n.any():
        raise UserError(
            f"{len(counts)} problems cannot carry a distribution of rates; two sampled ones can"
        )
    most, least = int(counts.n.max()), LEAST_SAMPLES if zero_inflated else LEAST_SAMPLES - 1
    if most < least:
        raise UserError(
            f"{most} samples of a problem leave the distribution of rates open: {least} parameters "
            f"need at least {least}; draw more samples of each problem"
        )
    width = int(counts.n.max()) + 1
    pairs, times = np.unique(counts.n * width + counts.c, return_counts=True)
    return _fitted(pairs.tobytes(), times.tobytes(), width, zero_inflated)


@lru_cache(maxsize=256)
def _fitted(pairs_bytes: bytes, times_bytes: bytes, width: int, zero_inflated: bool) -> RatePrior:
    """Fit once what several statistics of one report ask for."""
    from scipy import optimize  # a third of a second, which most who import this never need

    pairs, times = (np.frombuffer(part, np.int64) for part in (pairs_bytes, times_bytes))
    n, c = (part.astype(np.float64) for part in np.divmod(pairs, width))

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = _log_marginal(theta, n, c)
        return -float(times @ value), -(slope @ times)

    exact = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 500}
    best = min(
        (
            optimize.minimize(
                loss,
                start,
                method="L-BFGS-B",
                jac=True,
                bounds=_BOUNDS[: len(start)],
                options=exact,
            )
            for start in _starts(float(times @ c) / float(times @ n), zero_inflated)
        ),
        key=lambda result: float(result.fun),
    )
    flat = _FLAT * float(times.sum())
    theta = _polished(loss, np.asarray(best.x), flat)
    inside, information = _inside(theta), _information(loss, theta)
    # A share of zeros on its edge is no bound: what is left is the Beta.
    identified = inside[:2].all() and _least(information, inside) > flat
    return RatePrior(
        float(np.exp(theta[0])),
        float(np.exp(theta[1])),
        float(special.expit(theta[2])) if zero_inflated else 0.0,
        -loss(theta)[0],
        _covariance(information),
        bool(identified),
    )


def mean_fail(
    theta: NDArray[np.float64], counts: Counts, k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean over problems of the posterior mean of (1 − p)^k, for parameters ``theta``."""
    fail = _fail(theta, *_floats(counts.n[:, None], counts.c[:, None], k))
    return np.asarray(fail.mean(axis=0))


def gradient(prior: RatePrior, counts: Counts, k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differentiate :func:`mean_fail` by each parameter, ``[parameter, k]``."""
    theta = prior.parameters
    rows = [
        mean_fail(theta + step, counts, k) - mean_fail(theta - step, counts, k)
        for step in np.eye(len(theta)) * _STEP
    ]
    return np.asarray(rows) / (2 * _STEP)


def posterior_above(
    counts: Counts, tau: ArrayLike, prior: RatePrior | None = None
) -> NDArray[np.float64]:
    r"""Posterior probability that a problem's rate is at least τ, ``[problem, tau]``.

    Its mean over problems is Cover@τ, the share of problems that are solved with probability at
    least τ. pass@k is its average under Beta(1, k), which looks only at τ of about 1/k:

    .. math:: \text{pass@}k = \int_0^1 \text{Cover@}\tau \; k (1-\tau)^{k-1}\, d\tau .

    Counting :math:`c/n \ge \tau` would be biased by noise near τ. Model-based in the choice of the
    fitted distribution (Beta with zeros where none is given), which matters for τ below about 3/n.

    Dragoi et al. (2025), arXiv:2510.08325.
    """
    level = np.atleast_1d(np.asarray(tau, np.float64))
    if not ((level >= 0) & (level <= 1)).all():
        raise UserError("Cover thresholds are success rates; allowed are numbers from 0 to 1")
    fitted = prior or fit_prior(counts, zero_inflated=True)
    alike, row, _ = counts.distinct_rows()
    n, c = alike.n[:, None], alike.c[:, None]
    beta = special.betaincc(fitted.a + c, fitted.b + n - c, level)
    return np.where(level <= 0, 1.0, (1 - fitted.never(n, c)) * beta)[row]


def flip_probability(
    counts: Counts, k: int | None = None, solved: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Probability per problem that "solved at least once" comes out differently in a new run.

    A problem solved once in n may well not be solved in the next n. Model-based: the distribution
    of rates is a fitted Beta without zeros, which lets every unsolved problem be solvable and so
    gives the larger probability of the two priors.

    ``k, solved``: samples of the new run, and which problems as many samples solved; those of the
    counts where not given.
    """
    draws = counts.limit if k is None else k
    fail = fit_prior(counts, zero_inflated=False).fail(counts.n, counts.c, draws)
    return np.where(counts.solved if solved is None else solved, fail, 1 - fail)


def _starts(mean: float, zero_inflated: bool) -> list[list[float]]:
    """Points to climb from; the likelihood with zeros can have two hills."""
    rate = max(mean, 1e-4)
    spread = [np.log(0.3), np.log(0.3 / rate)]
    return [[*spread, zeros] for zeros in (-1.5, -4.0)] if zero_inflated else [spread]


def _log_marginal(
    theta: NDArray[np.float64], n: NDArray[np.float64], c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log marginal likelihood of each count, and its derivatives ``[parameter, count]``."""
    a, b = np.exp(theta[0]), np.exp(theta[1])
    value = special.betaln(a + c, b + n - c) - special.betaln(a, b)
    shared = special.digamma(a + b) - special.digamma(a + b + n)
    slope = np.stack(
        [
            a * (special.digamma(a + c) - special.digamma(a) + shared),
            b * (special.digamma(b + n - c) - special.digamma(b) + shared),
        ]
    )
    if len(theta) < 3:
        return value, slope
    log_zero, log_rest = special.log_expit(theta[2]), special.log_expit(-theta[2])
    share, rest = special.expit(theta[2]), special.expit(-theta[2])
    total = np.where(c == 0, np.logaddexp(log_zero, log_rest + value), log_rest + value)
    # How much of the likelihood is the Beta part's.
    part = np.exp(log_rest + value - total)
    return total, np.stack([part * slope[0], part * slope[1], (1 - part) * rest - part * share])


def _fail(
    theta: NDArray[np.float64],
    n: NDArray[np.float64],
    c: NDArray[np.float64],
    k: NDArray[np.float64],
) -> NDArray[np.float64]:
    a, b = np.exp(theta[0]), np.exp(theta[1])
    value = np.exp(special.betaln(a + c, b + n - c + k) - special.betaln(a + c, b + n - c))
    zero = _zero(theta, n, c)
    return np.asarray(zero + (1 - zero) * value)


def _zero(
    theta: NDArray[np.float64], n: NDArray[np.float64], c: NDArray[np.float64]
) -> NDArray[np.float64]:
    if len(theta) < 3:
        return np.zeros(np.broadcast(n, c).shape)
    a, b = np.exp(theta[0]), np.exp(theta[1])
    seen_nothing = special.betaln(a, b + n) - special.betaln(a, b)
    return np.where(c == 0, special.expit(theta[2] - seen_nothing), 0.0)


def _inside(theta: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which parameters lie within the edges."""
    low, high = np.array(_BOUNDS[: len(theta)]).T
    return np.asarray((low + 1e-6 < theta) & (theta < high - 1e-6))


def _least(information: NDArray[np.float64], inside: NDArray[np.bool_]) -> float:
    """Least information about any direction of the parameters within the edges."""
    return float(np.linalg.eigvalsh(information[np.ix_(inside, inside)]).min(initial=np.inf))


def _polished(loss: Loss, theta: NDArray[np.float64], flat: float) -> NDArray[np.float64]:
    """Climb from where a search ended to the maximum itself, where there is one."""
    inside = _inside(theta)
    for _ in range(_POLISHES):
        information = _information(loss, theta)
        if not _least(information, inside) > flat:
            break
        slope = loss(theta)[1][inside]
        climbed = theta.copy()
        climbed[inside] -= np.linalg.solve(information[np.ix_(inside, inside)], slope)
        if np.abs(loss(climbed)[1][inside]).sum() >= np.abs(slope).sum():
            break
        theta = climbed
    return theta


def _information(loss: Loss, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Second derivatives of the loss."""
    steps = np.eye(len(theta)) * _STEP
    hessian = np.stack([loss(theta + step)[1] - loss(theta - step)[1] for step in steps])
    return np.asarray((hessian + hessian.T) / (4 * _STEP))


def _covariance(information: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse of the observed information with a loose prior added."""
    values, vectors = np.linalg.eigh(information + np.eye(len(information)) / _LOOSE**2)
    # On an edge the surface may bend the wrong way; the loose prior is then all there is.
    return np.asarray((vectors / np.maximum(values, 1 / _LOOSE**2)) @ vectors.T)


def _floats(*values: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.asarray(v, np.float64) for v in values)
