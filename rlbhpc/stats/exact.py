"""Exact statements about counts: rates, draws without replacement, tests, many comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.pass_at_k import log_fail_at_k

# Deviations by which a flat prior may pull a score: half of one takes a nominal 95 % to 92 %.
_LARGEST_PULL: Final = 0.4


def clopper_pearson(c: ArrayLike, n: ArrayLike, prob: float = PROB) -> Interval:
    r"""Exact interval of a rate, c successes of n; its coverage is never below nominal.

    .. math:: \big[B^{-1}(α/2;\, c,\, n-c+1),\; B^{-1}(1-α/2;\, c+1,\, n-c)\big]

    with the quantile :math:`B^{-1}` of a Beta distribution and α = 1 − ``prob``.

    >>> print(clopper_pearson(0, 1024))
    0.000 [0.000, 0.004]
    """
    c_, n_ = _successes_and_trials(c, n)
    tail = (1 - check_prob(prob)) / 2
    with np.errstate(invalid="ignore"):
        lower = np.where(c_ == 0, 0.0, special.betaincinv(c_, n_ - c_ + 1, tail))
        upper = np.where(c_ == n_, 1.0, special.betaincinv(c_ + 1, n_ - c_, 1 - tail))
    return Interval(c_ / n_, lower, upper, Target.FIXED, "Clopper–Pearson", prob)


def detection_threshold(n: ArrayLike, prob: float = PROB) -> NDArray[np.float64]:
    r"""Largest success rate that n samples may all miss, :math:`1 - (1-\text{prob})^{1/n}`.

    A problem with no right sample among n has a rate below this with the given probability; about
    3/n at 95 %. Rates below it may look unsolvable.

    >>> detection_threshold([1024, 8192]).round(6)
    array([0.002921, 0.000366])
    """
    _, n_ = _successes_and_trials(0, n)
    if (n_ < 1).any():
        raise UserError("a detection threshold needs at least one sample")
    return np.asarray(-np.expm1(np.log1p(-check_prob(prob)) / n_))


def _successes_and_trials(
    c: ArrayLike, n: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give c and n as float arrays of one shape; refuse more successes than trials."""
    c_, n_ = np.broadcast_arrays(np.asarray(c, np.float64), np.asarray(n, np.float64))
    if ((c_ < 0) | (c_ > n_)).any():
        raise UserError("a rate needs 0 <= successes <= trials; count anew")
    return c_, n_


def chances_of_right(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    r"""Chance of 0, 1, … k right ones in a draw of k of n samples of which c are right.

    .. math:: \Pr[X = j] = \binom cj \binom{n-c}{k-j} \Big/ \binom nk

    along a new last axis: the hypergeometric distribution.

    >>> chances_of_right(5, 3, 2).round(6)
    array([0.1, 0.6, 0.3])
    """
    c_, n_ = (values[..., None] for values in _successes_and_trials(c, n))
    j = np.arange(k + 1, dtype=np.float64)
    possible = (j <= c_) & (k - j <= n_ - c_)
    log_ways_right = _log_choose(c_, np.minimum(j, c_))
    log_ways_wrong = _log_choose(n_ - c_, np.clip(k - j, 0, n_ - c_))
    log_chance = log_ways_right + log_ways_wrong - _log_choose(n_, k)
    return np.where(possible, np.exp(log_chance), 0.0)


def _log_choose(n: NDArray[np.float64], k: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(-np.log1p(n) - special.betaln(n - k + 1, k + 1))


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    r"""Chance that all of k samples are right, :math:`\binom ck / \binom nk`; NaN where k > n.

    ``n, c``: samples and right samples of each problem.

    >>> pass_hat_k(5, [3, 4], 2)
    array([0.3, 0.6])
    """
    # All k right is "no wrong one among k".
    return np.exp(log_fail_at_k(n, np.asarray(n) - np.asarray(c), k))


def g_pass_at_k(n: ArrayLike, c: ArrayLike, k: int, tau: float) -> NDArray[np.float64]:
    r"""Chance that at least a share τ of k samples is right; NaN where k > n.

    :math:`\Pr[X \ge \lceil \tau k \rceil]` for X right ones in a draw of k of the n samples, of
    which c are right. At τ = 1 it is pass^k; at τ → 0 it is pass@k, as at least one must be right.

    Liu et al. (2024), "Are your LLMs capable of stable reasoning?", arXiv:2412.13147. The authors
    advise n ≥ 3 k.

    >>> g_pass_at_k(5, [3, 4], 2, 0.5)
    array([0.9, 1. ])
    """
    if not 0 <= tau <= 1:
        raise UserError(f"G-Pass threshold is {tau}; allowed is a share from 0 to 1")
    chances = _chances_of_right_or_nan(n, c, k)
    # tau = j / k asks for exactly j right ones, whatever rounding makes of tau * k.
    whole_part = math.floor(tau * k)
    least_right = whole_part + 1 if tau > whole_part / k else whole_part
    return np.asarray(chances[..., max(1, least_right) :].sum(axis=-1))


def mg_pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    r"""Mean of G-Pass@k over thresholds from ½ to 1.

    :math:`\frac2k \sum_{j > \lceil k/2 \rceil} (j - \lceil k/2 \rceil) \Pr[X=j]` for X right ones
    in a draw of k of the n samples, of which c are right.

    >>> mg_pass_at_k(5, [3, 4], 3).mean().round(6)
    np.float64(0.166667)
    """
    chances = _chances_of_right_or_nan(n, c, k)
    above_half = np.maximum(np.arange(k + 1) - math.ceil(k / 2), 0)
    return np.asarray(2 / k * (chances @ above_half))


def _chances_of_right_or_nan(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    """Chance of 0, 1, … k right ones along a new last axis; NaN where k > n."""
    if k < 1:
        raise UserError(f"draw size is {k}; allowed are whole numbers from 1 on")
    enough_samples = np.asarray(n)[..., None] >= k
    return np.where(enough_samples, chances_of_right(np.maximum(n, k), c, k), np.nan)


@dataclass(frozen=True)
class BayesScore:
    """Posterior mean and standard deviation of the score over these problems.

    ``mean, deviation``: of the posterior. ``pull``: how far the flat prior pulled the mean away
    from the observed mean.
    """

    mean: float
    deviation: float
    pull: float

    def interval(self, low: float = 0.0, high: float = 1.0, prob: float = PROB) -> Interval:
        """Give the normal credible interval, cut to the range of the score, low to high.

        ``pull`` is how far the flat prior moved the mean: where that is much beside the deviation,
        the interval is marked as unsound: take more samples, or c/n.
        """
        half_width = special.ndtri((1 + check_prob(prob)) / 2) * self.deviation
        sound = abs(self.pull) <= _LARGEST_PULL * self.deviation
        return Interval(
            np.asarray(self.mean),
            np.asarray(max(low, self.mean - half_width)),
            np.asarray(min(high, self.mean + half_width)),
            Target.FIXED,
            "Bayes@N, Dirichlet posterior with a flat prior",
            prob,
            np.asarray(sound),
        )


def bayes_at_n(
    outcomes: ArrayLike, worth: ArrayLike = (0.0, 1.0), prior_outcomes: ArrayLike | None = None
) -> BayesScore:
    r"""Score of graded outcomes: posterior mean and deviation, one Dirichlet per problem.

    With outcomes in categories 0 … C worth :math:`w_j`, counts :math:`\nu_{ij}` of problem i that
    start from one each (and from earlier outcomes, if there are any),
    :math:`T_i = \sum_j \nu_{ij}` and P problems,

    .. math:: \mu = \frac1P \sum_i \sum_j \frac{\nu_{ij}}{T_i} w_j, \qquad
              \sigma^2 = \frac1{P^2} \sum_i \frac1{T_i+1} \Big[\sum_j \frac{\nu_{ij}}{T_i} w_j^2
              - \Big(\sum_j \frac{\nu_{ij}}{T_i} w_j\Big)^2\Big] .

    It is a score at k = 1. Its flat prior says that rates near 0 are rare, so pushing it through
    :math:`1-(1-p)^k` gives intervals that never hold the truth at large k; use
    :mod:`rlbhpc.stats.extrapolation` there.

    ``outcomes``: category 0 … C of each sample (problems, samples). ``worth``: worth of each
    category. ``prior_outcomes``: earlier outcomes of the same problems (problems, samples).

    Hariri et al. (2026), "Don't pass@k", arXiv:2510.04265.

    ``concentration`` (problems, categories) is the parameter of each problem's Dirichlet posterior:
    the counts plus one each.

    >>> score = bayes_at_n([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], [0, 0.5, 1])
    >>> round(score.mean, 4), round(score.deviation, 6)
    (0.5625, 0.091998)
    """
    worth_ = np.asarray(worth, np.float64)
    observed = _count_categories(outcomes, len(worth_))
    if prior_outcomes is not None:
        earlier = _count_categories(prior_outcomes, len(worth_))
        if len(earlier) != len(observed):
            raise UserError("earlier outcomes are of other problems; give a row for each problem")
        observed = observed + earlier
    concentration = observed + 1.0
    total = concentration.sum(axis=1)
    shares = concentration / total[:, None]
    scores = shares @ worth_
    variances = (shares @ worth_**2 - scores**2) / (total + 1)
    observed_mean = (observed @ worth_ / observed.sum(axis=1)).mean()
    return BayesScore(
        mean=float(scores.mean()),
        deviation=float(np.sqrt(variances.sum()) / len(scores)),
        pull=float(scores.mean() - observed_mean),
    )


def _count_categories(outcomes: ArrayLike, categories: int) -> NDArray[np.float64]:
    """Number of samples in each category: outcomes (problems, samples) to (problems, categories).

    ``categories``: how many there are; outcomes are whole numbers from 0 below it.
    """
    table = np.asarray(outcomes)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise UserError("outcomes are whole numbers by problem and sample, in two dimensions")
    if table.size and (table.min() < 0 or table.max() >= categories):
        raise UserError(
            f"outcomes go from {table.min()} to {table.max()}, but {categories} categories have "
            f"a worth; allowed are 0 to {categories - 1}"
        )
    columns = [(table == category).sum(axis=1) for category in range(categories)]
    return np.stack(columns, axis=1).astype(float)


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
    discordant, fewer = int(b) + int(c), int(min(b, c))
    # Integers until the last step: exact for any counts.
    splits_as_uneven = sum(math.comb(discordant, i) for i in range(fewer + 1))
    return min(1.0, float(2 * splits_as_uneven / 2**discordant))


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

    Along one curve there is one question, answered by the simultaneous band. Models times data sets
    are many questions.

    :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m-j+1)\, p_{(j)})` for m p-values in rising
    order, valid under any dependence.

    Holm (1979), "A simple sequentially rejective multiple test procedure".

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p_values = np.asarray(p, np.float64)
    if p_values.ndim != 1 or not ((p_values >= 0) & (p_values <= 1)).all():
        raise UserError("p-values must be a list of numbers from 0 to 1; drop comparisons without")
    order = np.argsort(p_values, kind="stable")
    remaining = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(remaining * p_values[order]), 1.0)
    return adjusted
