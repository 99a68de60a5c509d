r"""Distribution of success rates over problems, fitted to counts: Beta, and Beta with zeros.

Per problem :math:`c_i \sim \text{Bin}(n_i, p_i)`; over problems :math:`p_i = 0` with probability
:math:`\pi_0` and :math:`p_i \sim \text{Beta}(a, b)` otherwise. The plain Beta has
:math:`\pi_0 = 0`. The two are nearly confounded: data at n samples cannot tell a problem that is
never solved from one that is solved once in 100 n. They agree up to about n/4 and part beyond, so
whatever rests on a prior is given under both.

The *parameters* of a fit are log a, log b and, with zeros, the logit of :math:`\pi_0`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts

#: A distribution of rates over problems needs two of them.
LEAST: Final = 2
#: Parameters of the Beta with zeros. Counts of n samples depend on the first n moments of the rates
#: alone, so that with fewer samples other parameters are exactly as likely.
LEAST_SAMPLES: Final = 3
# Edges of the parameters: wide enough for any real data, and finite, because the likelihood of few
# successes has no maximum inside. A parameter this near to an edge lies on it.
_EDGES: Final = ((-7.0, 5.0), (-4.0, 10.0), (-9.0, 6.0))
_ON_EDGE: Final = 1e-6
# Points that the search starts from: log a; b at the mean of the counts, no less than the least
# mean; and logits of the share of zeros, since the likelihood with zeros can have two hills.
_FIRST_A: Final = 0.3
_LEAST_MEAN: Final = 1e-4
_FIRST_ZERO_LOGITS: Final = (-1.5, -4.0)
# Standard deviation of a weak prior on the parameters, which keeps their covariance finite where
# the data say nothing about one of them.
_LOOSE: Final = 3.0
# Step of the differences that derivatives are taken by.
_STEP: Final = 1e-3
# Information of a problem about a direction of the parameters, below which the likelihood is flat:
# identified fits have 1e-6 and more, others 1e-8 and less, which is the error of the differences.
_FLAT: Final = 1e-7
# Newton steps from where the search ended to the maximum itself: it ends within 1e-8 of it, at a
# place that depends on the processor.
_NEWTON_STEPS: Final = 3

Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


@dataclass(frozen=True)
class RatePrior:
    """A fitted distribution of success rates.

    ``a, b``: parameters of the Beta part. ``zeros``: share of problems with rate 0.
    ``log_likelihood``: at the maximum, without the constant of the binomial coefficients.
    ``covariance``: of the parameters. ``identified``: false where other parameters are as likely,
    or the maximum lies on the edge of what is allowed: the fit is then a bound, not an estimate.
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
        if self.zeros:
            values.append(special.logit(self.zeros))
        return np.asarray(values)

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
        return _posterior_fail(self.parameters, *_floats(n, c, k))

    def never(self, n: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
        """Posterior probability of a rate of exactly 0 after c right samples of n."""
        return _posterior_zero(self.parameters, *_floats(n, c))


def carries_rates(counts: Counts) -> bool:
    """Whether the counts can tell a distribution of rates, that with zeros too."""
    return int((counts.n >= LEAST_SAMPLES).sum()) >= LEAST


def fit_prior(counts: Counts, zero_inflated: bool) -> RatePrior:
    r"""Maximise the marginal likelihood of the counts.

    .. math:: \sum_i \log\Big[\pi_0 1\{c_i=0\}
              + (1-\pi_0)\frac{B(a+c_i,\, b+n_i-c_i)}{B(a,b)}\Big]

    A stopping rule does not change the likelihood, so stopped rows are welcome here.

    ``counts``: counts of one arm; at least two problems, and as many samples of one as there are
    parameters. ``zero_inflated``: whether problems with rate 0 are allowed for.

    Kazdan et al. (2025), arXiv:2510.05197; Levi (2024), arXiv:2410.16377.

    ``theta`` holds the parameters: log a, log b and, with zeros, the logit of :math:`\pi_0`. The
    search starts from several points and ends near the maximum; Newton steps go on to it. Their
    information (second derivatives of the negative log-likelihood) gives the covariance, and tells
    whether the counts decide the parameters: they do not where some direction is flat, or where a
    or b ends on the edge of its range.

    >>> from rlbhpc.stats.counts import pythia
    >>> prior = fit_prior(pythia()["2.8B"], zero_inflated=False)
    >>> round(prior.a, 4), round(prior.b, 2)
    (0.246, 11.7)
    """
    if len(counts) < LEAST or not counts.n.any():
        raise UserError(
            f"{len(counts)} problems cannot carry a distribution of rates; two sampled ones can"
        )
    parameters = 3 if zero_inflated else 2
    most_samples = int(counts.n.max())
    if most_samples < parameters:
        raise UserError(
            f"{most_samples} samples of a problem leave the distribution of rates open: "
            f"{parameters} parameters need at least {parameters}; draw more samples of each problem"
        )
    loss = _negative_log_likelihood(counts)
    mean_rate = float(counts.c.sum() / counts.n.sum())
    flat = _FLAT * len(counts)
    theta = _climb_to_maximum(loss, _search(loss, mean_rate, zero_inflated), flat)
    information = _information(loss, theta)
    inside = _inside_edges(theta)
    # A share of zeros on its edge is no bound: what is left is the Beta.
    beta_is_inside = bool(inside[:2].all())
    return RatePrior(
        a=float(np.exp(theta[0])),
        b=float(np.exp(theta[1])),
        zeros=float(special.expit(theta[2])) if zero_inflated else 0.0,
        log_likelihood=-loss(theta)[0],
        covariance=_covariance(information),
        identified=beta_is_inside and _least_information(information, inside) > flat,
    )


def _negative_log_likelihood(counts: Counts) -> Loss:
    """Function of the parameters that gives the negative log-likelihood and its derivatives.

    The parameters are those of the distribution of rates over problems. Problems with equal counts
    (n samples, c right) share one term, weighed by ``problems``, how many they are.
    """
    pairs, problems = np.unique(np.stack([counts.n, counts.c]), axis=1, return_counts=True)
    n, c = pairs.astype(np.float64)

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_likelihoods, derivatives = _log_marginal(theta, n, c)
        return -float(problems @ log_likelihoods), -(derivatives @ problems)

    return loss


def _search(loss: Loss, mean_rate: float, zero_inflated: bool) -> NDArray[np.float64]:
    """Parameters of the least loss, by a bounded search from one start for each hill.

    ``loss``: gives the negative log-likelihood of the parameters and its derivatives. The
    parameters are log a and log b of the Beta distribution of rates and, with ``zero_inflated``,
    the logit of the share of problems with rate 0; the likelihood may then have two maxima, so that
    two starts are taken. ``mean_rate``: of all samples; the first b puts the mean of the Beta about
    there.
    """
    from scipy import optimize  # a third of a second, which most who import this never need

    # The mean a/(a + b) is about a/b where b is much the larger.
    first_b = _FIRST_A / max(mean_rate, _LEAST_MEAN)
    beta = [np.log(_FIRST_A), np.log(first_b)]
    starts = [[*beta, logit] for logit in _FIRST_ZERO_LOGITS] if zero_inflated else [beta]
    results = [
        optimize.minimize(
            loss,
            start,
            method="L-BFGS-B",
            jac=True,
            bounds=_EDGES[: len(start)],
            options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 500},
        )
        for start in starts
    ]
    best = min(results, key=lambda result: float(result.fun))
    return np.asarray(best.x)


def _climb_to_maximum(loss: Loss, theta: NDArray[np.float64], flat: float) -> NDArray[np.float64]:
    """Take Newton steps from where a search ended to the maximum itself, where there is one.

    The place where a search ends depends on the processor; the maximum does not. ``loss`` gives the
    negative log-likelihood of the parameters ``theta`` and its derivatives; ``_information`` its
    second derivatives. ``flat``: information below which the likelihood has no maximum to go to in
    some direction. Parameters on the edge of their range stay there. A step that does not make the
    slope smaller ends it.
    """
    inside = _inside_edges(theta)
    for _ in range(_NEWTON_STEPS):
        information = _information(loss, theta)
        if not _least_information(information, inside) > flat:
            break
        slope = loss(theta)[1][inside]
        next_theta = theta.copy()
        # Newton's step, in the parameters that are free to move.
        next_theta[inside] -= np.linalg.solve(information[np.ix_(inside, inside)], slope)
        next_slope = loss(next_theta)[1][inside]
        if np.abs(next_slope).sum() >= np.abs(slope).sum():
            break
        theta = next_theta
    return theta


def _inside_edges(theta: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which parameters lie within the edges."""
    low, high = np.array(_EDGES[: len(theta)]).T
    return np.asarray((low + _ON_EDGE < theta) & (theta < high - _ON_EDGE))


def _information(loss: Loss, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Second derivatives of the loss (parameters, parameters)."""
    steps = np.eye(len(theta)) * _STEP
    hessian = np.stack([loss(theta + step)[1] - loss(theta - step)[1] for step in steps])
    return np.asarray((hessian + hessian.T) / (4 * _STEP))


def _least_information(information: NDArray[np.float64], inside: NDArray[np.bool_]) -> float:
    """Least information about any direction of the parameters within the edges."""
    eigenvalues = np.linalg.eigvalsh(information[np.ix_(inside, inside)])
    return float(eigenvalues.min(initial=np.inf))


def _covariance(information: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse of the observed information with a loose prior added."""
    prior_information = 1 / _LOOSE**2
    eigenvalues, vectors = np.linalg.eigh(
        information + np.eye(len(information)) * prior_information
    )
    # On an edge the surface may bend the wrong way; the loose prior is then all there is.
    return np.asarray((vectors / np.maximum(eigenvalues, prior_information)) @ vectors.T)


def mean_fail(
    theta: NDArray[np.float64], counts: Counts, k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean over problems of the posterior mean of (1 − p)^k, for parameters ``theta``."""
    fail = _posterior_fail(theta, *_floats(counts.n[:, None], counts.c[:, None], k))
    return np.asarray(fail.mean(axis=0))


def gradient(prior: RatePrior, counts: Counts, k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Derivative of :func:`mean_fail` by each parameter of the prior (parameters, sizes).

    The prior is the fitted distribution of rates over problems; ``mean_fail`` is the mean over
    problems of the posterior mean of (1 − p)^k. Each parameter is moved a little up and down, and
    the difference is divided by the distance.
    """
    theta = prior.parameters
    differences = [
        mean_fail(theta + step, counts, k) - mean_fail(theta - step, counts, k)
        for step in np.eye(len(theta)) * _STEP
    ]
    return np.asarray(differences) / (2 * _STEP)


def _log_marginal(
    theta: NDArray[np.float64], n: NDArray[np.float64], c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log marginal likelihood of each count, and its derivatives (parameters, counts).

    Marginal means over the distribution of rates: Beta(a, b), or with a third parameter rate 0 for
    a share π₀ of the problems. ``theta`` is log a, log b and the logit of π₀. ``n, c``: samples and
    right ones. The binomial coefficient is left out.

    ``by_…`` are derivatives by a parameter. With zeros, a count of 0 may come from either part; the
    share that is the Beta part's weighs its derivatives.
    """
    a, b = np.exp(theta[0]), np.exp(theta[1])
    beta = special.betaln(a + c, b + n - c) - special.betaln(a, b)
    by_sum = special.digamma(a + b) - special.digamma(a + b + n)
    by_log_a = a * (special.digamma(a + c) - special.digamma(a) + by_sum)
    by_log_b = b * (special.digamma(b + n - c) - special.digamma(b) + by_sum)
    if len(theta) < 3:
        return beta, np.stack([by_log_a, by_log_b])
    zeros, others = special.expit(theta[2]), special.expit(-theta[2])
    log_zeros, log_others = special.log_expit(theta[2]), special.log_expit(-theta[2])
    nonzero = log_others + beta
    total = np.where(c == 0, np.logaddexp(log_zeros, nonzero), nonzero)
    # How much of the likelihood is the Beta part's.
    beta_share = np.exp(nonzero - total)
    by_logit = (1 - beta_share) * others - beta_share * zeros
    return total, np.stack([beta_share * by_log_a, beta_share * by_log_b, by_logit])


def _posterior_fail(
    theta: NDArray[np.float64],
    n: NDArray[np.float64],
    c: NDArray[np.float64],
    k: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Posterior mean of (1 − p)^k for the rate p of a problem with c right samples of n.

    ``theta``: parameters of the distribution of rates over problems: log a and log b of a Beta and,
    if rate 0 has a share of its own, the logit of that share. The arrays broadcast. With a rate
    above 0 the mean is a ratio of Beta functions; with rate 0 it is 1.
    """
    a, b = np.exp(theta[0]), np.exp(theta[1])
    fail_if_nonzero = np.exp(
        special.betaln(a + c, b + n - c + k) - special.betaln(a + c, b + n - c)
    )
    zero = _posterior_zero(theta, n, c)
    return np.asarray(zero + (1 - zero) * fail_if_nonzero)


def _posterior_zero(
    theta: NDArray[np.float64], n: NDArray[np.float64], c: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Posterior probability that the rate of a problem with c right samples of n is exactly 0.

    ``theta``: log a and log b of the Beta distribution of rates and, if rate 0 has a share of its
    own, the logit of that share; without it the result is 0. By Bayes' rule the logit grows by
    minus the log of the chance that a rate from the Beta gives no right sample of n; a right sample
    rules rate 0 out.
    """
    if len(theta) < 3:
        return np.zeros(np.broadcast(n, c).shape)
    a, b = np.exp(theta[0]), np.exp(theta[1])
    log_none_right = special.betaln(a, b + n) - special.betaln(a, b)
    return np.where(c == 0, special.expit(theta[2] - log_none_right), 0.0)


def _floats(*values: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.asarray(value, np.float64) for value in values)
