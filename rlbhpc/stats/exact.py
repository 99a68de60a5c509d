r"""Exact statements about counts: a rate and its bounds, McNemar's test, many comparisons.

Many comparisons in one report: adjusted p-values.

Along one curve there is one question, answered by the simultaneous band. Models times data sets
are many questions, and :func:`holm` holds the chance of any false claim.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob


def clopper_pearson(c: ArrayLike, n: ArrayLike, prob: float = PROB) -> Interval:
    r"""Exact interval of a success rate; its coverage is never below nominal.

    .. math:: \big[B^{-1}(α/2;\, c,\, n-c+1),\; B^{-1}(1-α/2;\, c+1,\, n-c)\big]

    >>> print(clopper_pearson(0, 1024))
    0.000 [0.000, 0.004]
    """
    c_, n_ = _counts(c, n)
    tail = (1 - check_prob(prob)) / 2
    with np.errstate(invalid="ignore"):
        lower = np.where(c_ == 0, 0.0, special.betaincinv(c_, n_ - c_ + 1, tail))
        upper = np.where(c_ == n_, 1.0, special.betaincinv(c_ + 1, n_ - c_, 1 - tail))
    return Interval(c_ / n_, lower, upper, Target.FIXED, "Clopper–Pearson", prob)


def jeffreys(c: ArrayLike, n: ArrayLike, prob: float = PROB) -> Interval:
    r"""Interval of a proportion of problems, Beta(c + ½, n − c + ½), closed at 0 and 1.

    Its coverage is nominal on average, where Clopper–Pearson's is above. With n = 0 nothing is
    known: the estimate is NaN and the interval [0, 1].

    Brown, Cai and DasGupta (2001), "Interval estimation for a binomial proportion".
    """
    c_, n_ = _counts(c, n)
    tail = (1 - check_prob(prob)) / 2
    lower = np.where(c_ == 0, 0.0, special.betaincinv(c_ + 0.5, n_ - c_ + 0.5, tail))
    upper = np.where(c_ == n_, 1.0, special.betaincinv(c_ + 0.5, n_ - c_ + 0.5, 1 - tail))
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = c_ / n_
    sound = n_ >= 10
    notes = () if np.all(sound) else ("fewer than ten problems stand behind a proportion",)
    return Interval(
        estimate, lower, upper, Target.POPULATION, "Jeffreys interval", prob, sound, notes
    )


def detection_threshold(n: ArrayLike, prob: float = PROB) -> NDArray[np.float64]:
    r"""Largest success rate that n samples may all miss, :math:`1 - (1-\text{prob})^{1/n}`.

    A problem with no right sample among n has a rate below this with the given probability; about
    3/n at 95 %. Rates below it may look unsolvable.

    >>> detection_threshold([1024, 8192]).round(6)
    array([0.002921, 0.000366])
    """
    _, n_ = _counts(0, n)
    if (n_ < 1).any():
        raise UserError("a detection threshold needs at least one sample")
    return np.asarray(-np.expm1(np.log1p(-check_prob(prob)) / n_))


def chances_of_right(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    r"""Chance of 0, 1, … k right ones in a draw of k of n samples of which c are right.

    .. math:: \Pr[X = j] = \binom cj \binom{n-c}{k-j} \Big/ \binom nk

    along a new last axis: the hypergeometric distribution.

    >>> chances_of_right(5, 3, 2).round(6)
    array([0.1, 0.6, 0.3])
    """
    c_, n_ = (values[..., None] for values in _counts(c, n))
    right = np.arange(k + 1, dtype=np.float64)
    possible = (right <= c_) & (k - right <= n_ - c_)
    log = _log_choose(c_, np.minimum(right, c_))
    log = log + _log_choose(n_ - c_, np.clip(k - right, 0, n_ - c_)) - _log_choose(n_, k)
    return np.where(possible, np.exp(log), 0.0)


def chances_of(n: int, rate: float) -> NDArray[np.float64]:
    """Chance of 0, 1, … n successes of n."""
    successes = np.arange(n + 1, dtype=np.float64)
    log = special.xlogy(successes, rate) + special.xlog1py(n - successes, -rate)
    return np.asarray(np.exp(log + _log_choose(np.asarray(float(n)), successes)))


def _log_choose(n: NDArray[np.float64], k: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(-np.log1p(n) - special.betaln(n - k + 1, k + 1))


def _counts(c: ArrayLike, n: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    c_, n_ = np.broadcast_arrays(np.asarray(c, np.float64), np.asarray(n, np.float64))
    if ((c_ < 0) | (c_ > n_)).any():
        raise UserError("a rate needs 0 <= successes <= trials; count anew")
    return c_, n_


def mcnemar_exact(b: int, c: int) -> float:
    r"""Two-sided p-value of McNemar's test from the two discordant counts.

    Given :math:`b + c` problems that only one of two models solves, each is equally likely to be
    either model's if nothing moved, so

    .. math:: p = \min\big(1,\; 2 \Pr[\text{Bin}(b+c, ½) \le \min(b, c)]\big) .

    With fewer than six discordant problems no split reaches p < .05.

    ``b, c``: problems that only the one and only the other model solves.

    McNemar (1947), "Note on the sampling error of the difference between correlated proportions".

    >>> mcnemar_exact(4, 0)
    0.125
    >>> round(mcnemar_exact(18, 5), 3)
    0.011
    """
    for name, count in (("b", b), ("c", c)):
        if count < 0 or int(count) != count:
            raise UserError(f"McNemar's {name} is {count}; it counts problems, 0 or more")
    n, few = int(b) + int(c), int(min(b, c))
    # Integers until the last step: exact for any counts.
    tail = sum(comb(n, i) for i in range(few + 1))
    return min(1.0, float(2 * tail / 2**n))


def attained_level(discordant: int, alpha: float = 0.05) -> float:
    """Largest p below ``alpha`` that some split of the discordant problems has; 0 for none.

    That is the share of null studies in which the exact test at ``alpha`` claims a difference.

    >>> attained_level(5), attained_level(6)
    (0.0, 0.03125)
    """
    p_values = 2 * special.bdtr(np.arange(discordant // 2 + 1), discordant, 0.5)
    return float(p_values[p_values < alpha].max(initial=0.0))


def holm(p: ArrayLike) -> NDArray[np.float64]:
    r"""Holm's adjusted p-values: any false claim among all has at most the stated probability.

    :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m-j+1)\, p_{(j)})`, valid under any dependence.

    Holm (1979), "A simple sequentially rejective multiple test procedure".

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p, np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise UserError("p-values must be a list of numbers from 0 to 1; drop comparisons without")
    order = np.argsort(values, kind="stable")
    steps = (len(values) - np.arange(len(values))) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
