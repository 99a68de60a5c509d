r"""Intervals over problems, and the problem bootstrap that they stand on.

Every statistic of this room that carries uncertainty returns an :class:`Interval`. It says which
*target* its bounds are about, by which *method* they were made, and element by element whether
they are *sound*: whether simulation showed the nominal coverage in data like these. A bound that
is not sound is still given, and says so wherever it is printed.

**Bootstrap.** A draw of :math:`P` problems with replacement gives each problem a multinomial
weight. The weights are drawn once and used for every arm, step and k, so that differences between
arms are *paired*: the same problems come in for both. The *units* that are drawn are the problems,
or their clusters.

**Mean of values in [0, 1].** The mean :math:`m` with standard error :math:`s` is read as a
proportion out of

.. math:: \nu = \frac{m(1-m)}{s^2} \left(\frac{z}{t_{G-1}}\right)^2

effective trials, with the quantiles z of a normal variable and t of Student's for G units, and its
interval as the Jeffreys interval of that proportion,
:math:`\text{Beta}(m\nu + ½, (1-m)\nu + ½)`. With all values equal there is no standard error and
:math:`\nu` is the number of units, which is the rule of three for "all solved" or "none solved".
Percentiles of the bootstrap are too narrow for skewed values (92 % in place of 95 % for pass@1
of 64 problems with rates from Beta(.25, 2)); this form holds 93 – 97 % there.

**Mean of a paired difference.** The interval is Student's t on the standard error. Two things can
make it too short: few problems carrying the difference, and none at all, where the standard error
is 0 although unseen problems may well differ. Both are met by *two pseudo-problems*, one in each
direction: they add twice a squared scale to the sum of squares,

.. math:: s^2 = \frac{\sum_i (d_i - D)^2 + 2\,w\,r^2}{P(P-1)} ,

with :math:`d_i` the difference of problem i, D their mean, and the scale :math:`r` the largest
difference of a single problem seen at any smaller k. At k = n, where differences are −1, 0 and 1,
this is the adjusted Wald interval of Bonett and Price. The weight :math:`w` is 1 for statements
about a whole curve. For a single k it fades out as more problems carry the spread,
:math:`w = \max(0, 1 - e/10)` with the participation number
:math:`e = (\sum e_i^2)^2 / \sum e_i^4` of the deviations :math:`e_i = d_i - D`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError

#: The probability of every interval that does not say otherwise.
PROB: Final = 0.95
#: Replicates that a report draws. The error of a 95 % bound is then about 2 % of its width.
REPLICATES: Final = 2000
#: Name and values of the dimension that holds the two bounds.
CI_BOUND: Final = "ci_bound"
CI_BOUNDS: Final = ("lower", "upper")
# Decimals that data decide. Further ones depend on the order in which a processor adds, and are
# taken off, so that equal values are equal and 0 is 0.
_DECIMALS: Final = 12
#: Largest part of half an interval that one problem may bring that was not drawn, where such a
#: problem would move the mean more than those that were.
LARGEST_UNSEEN: Final = 0.5
# Fewer units than this are too few for a sound interval.
_LEAST_UNITS: Final = 20
# Where these hold too, simulated coverage of nominal 95 % of a mean is 93 – 97 %;
# tests/stats/test_calibration.py repeats the simulation.
_LARGEST_SQUARED_SKEWNESS_PER_UNIT: Final = 1 / 6
_LEAST_EVENTS: Final = 5.0
# Problems that must carry the spread of differences for the pseudo-problems to fade out.
_NO_PSEUDO_PROBLEMS: Final = 10.0
# Problems that must carry it for a sound interval.
_LEAST_CARRIERS: Final = 4
# A standard error below the first, and fourth powers below the second, are rounding.
_NO_ERROR: Final = 1e-12
_NO_FOURTH_POWER: Final = 1e-48


def without_noise(values: ArrayLike) -> NDArray[np.float64]:
    """Give numbers in the decimals that data decide, without a sign of 0."""
    return np.asarray(np.round(np.asarray(values, np.float64), _DECIMALS) + 0.0)


def check_prob(prob: float) -> float:
    """Refuse a probability that no interval has."""
    if not 0 < prob < 1:
        raise UserError(f"interval probability is {prob}; allowed is a number between 0 and 1")
    return prob


class Target(StrEnum):
    """What an interval is about. The same number has a different interval for each of these."""

    POPULATION = "problems like these"
    FIXED = "these problems, infinitely many samples"


@dataclass(frozen=True)
class Interval:
    """Estimate with lower and upper bound, elementwise over arrays of one shape.

    ``estimate, lower, upper``: float64 arrays of equal shape; zero-dimensional for a single number.
    ``target, method``: what the bounds are about, and how they were made. ``sound``: where
    simulation supports the nominal probability.
    """

    estimate: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    target: Target
    method: str
    prob: float = PROB
    sound: NDArray[np.bool_] = field(default_factory=lambda: np.asarray(True))

    def __post_init__(self) -> None:
        for name in ("estimate", "lower", "upper"):
            object.__setattr__(self, name, without_noise(getattr(self, name)))
        sound = np.broadcast_to(np.asarray(self.sound, bool), self.estimate.shape)
        object.__setattr__(self, "sound", sound)

    @property
    def low(self) -> float:
        """Give the lower bound of a single number."""
        return float(self.lower)

    @property
    def high(self) -> float:
        """Give the upper bound of a single number."""
        return float(self.upper)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Lower and upper bound along a new last axis, the ``ci_bound`` axis."""
        return np.stack([self.lower, self.upper], axis=-1)

    @property
    def sign(self) -> NDArray[np.int8]:
        """+1 where the interval lies above 0, −1 where it lies below, 0 where it holds 0."""
        return (self.lower > 0).astype(np.int8) - (self.upper < 0).astype(np.int8)

    def covers(self, value: ArrayLike) -> NDArray[np.bool_]:
        """Whether a value lies within the closed bounds."""
        point = np.asarray(value, np.float64)
        return np.asarray((self.lower <= point) & (point <= self.upper))

    def __getitem__(self, index: Any) -> Interval:
        """Interval of some elements; target, method and probability stay."""
        return Interval(
            self.estimate[index],
            self.lower[index],
            self.upper[index],
            self.target,
            self.method,
            self.prob,
            self.sound[index],
        )

    def __str__(self) -> str:
        """``0.312 [0.180, 0.450]``, marked where the bounds are not sound."""
        if self.estimate.ndim:
            return f"<Interval of shape {self.estimate.shape}, {self.method}, {self.target}>"
        mark = "" if self.sound else " (unsound)"
        return f"{self.estimate:.3f} [{self.lower:.3f}, {self.upper:.3f}]{mark}"


@dataclass(frozen=True)
class ProblemWeights:
    """How often each problem comes into each bootstrap replicate.

    ``weights``: float64 (replicates, problems); rows sum to about the number of problems.
    ``signs``: int8 of the same shape: +1 or −1 per problem and replicate, for sign-flip tests.
    ``unit``: which independently resampled unit each problem belongs to: itself, or its cluster.
    ``seed``: what the generator was seeded with, to be written beside every result.
    """

    weights: NDArray[np.float64]
    signs: NDArray[np.int8]
    unit: NDArray[np.int64]
    seed: str

    @classmethod
    def draw(
        cls,
        problems: int,
        rng: np.random.Generator,
        replicates: int = REPLICATES,
        clusters: ArrayLike | None = None,
    ) -> ProblemWeights:
        """Draw the weights of a report.

        ``problems``: number of problems. ``rng``: generator that decides; the same state gives the
        same weights. ``clusters``: a label per problem where problems share a source (a
        competition, a template). Whole clusters are then resampled.

        The *unit* of a problem is the number of its cluster, or its own where it has none; units
        are drawn with replacement, and each problem's weight is how often its unit was drawn. Each
        unit also gets a random sign per replicate, for sign-flip tests.

        >>> weights = ProblemWeights.draw(3, np.random.default_rng(0), replicates=2)
        >>> weights.means([1.0, 1.0, 1.0])
        array([1., 1.])
        """
        if problems < 1 or replicates < 1:
            raise UserError(
                f"bootstrap of {problems} problems with {replicates} replicates; "
                "both must be at least 1"
            )
        labels = np.arange(problems) if clusters is None else np.asarray(clusters)
        if labels.shape != (problems,):
            raise UserError(f"{labels.size} cluster labels for {problems} problems; give one each")
        names, unit = np.unique(labels, return_inverse=True)
        units = len(names)
        draws_of_unit = rng.multinomial(units, np.full(units, 1 / units), size=replicates)
        # 0 and 1 become −1 and +1.
        sign_of_unit = rng.integers(0, 2, size=(replicates, units), dtype=np.int8) * np.int8(2) - 1
        return cls(
            weights=draws_of_unit[:, unit].astype(np.float64),
            signs=sign_of_unit[:, unit].astype(np.int8),
            unit=unit,
            seed=str(getattr(rng.bit_generator.seed_seq, "entropy", "unknown")),
        )

    @property
    def replicates(self) -> int:
        """Number of bootstrap replicates."""
        return len(self.weights)

    @property
    def problems(self) -> int:
        """Number of problems."""
        return int(self.weights.shape[1])

    @cached_property
    def units(self) -> int:
        """Number of independently resampled units."""
        return int(self.unit.max()) + 1

    @property
    def inflation(self) -> float:
        """Ratio of an unbiased standard error to the bootstrap's, √(G/(G−1)) for G units."""
        return float(np.sqrt(self.units / (self.units - 1))) if self.units > 1 else np.inf

    def student_quantile(self, prob: float) -> float:
        """Half width, in standard errors, of an interval over these units with this probability."""
        return float(special.stdtrit(max(self.units - 1, 1), (1 + check_prob(prob)) / 2))

    def standard_error(self, values: ArrayLike) -> NDArray[np.float64]:
        r"""Give the standard error of the mean over problems, the limit of the bootstrap's.

        ``values``: (problems, ...).

        .. math:: s^2 = \frac{G}{G-1} \sum_g \Big[\frac1P \sum_{i \in g} (x_i - m)\Big]^2

        over G units, for values :math:`x_i` of P problems with mean m; infinite for a single unit.
        It has no noise of its own, where that of 1,000 replicates has 2 %.
        """
        array = self._one_per_problem(values)
        if self.units == 1:
            return np.full(array.shape[1:], np.inf)
        deviations = self.unit_sums((array - array.mean(axis=0)) / len(array))
        return np.asarray(np.sqrt((deviations**2).sum(axis=0)) * self.inflation)

    def unit_sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values (problems, ...) within each unit."""
        if self.units == self.problems:
            return values
        sums = np.zeros((self.units, *values.shape[1:]))
        np.add.at(sums, self.unit, values)
        return sums

    def means(self, values: ArrayLike) -> NDArray[np.float64]:
        """Mean over problems in every replicate.

        ``values``: (problems, ...). Gives (replicates, ...); NaN where a value is NaN.

        Each replicate is the mean under one row of weights, which say how often each problem was
        drawn.
        """
        array = self._one_per_problem(values)
        sums = self.weights @ array.reshape(self.problems, -1)
        # Clusters of unequal size make the replicates differ in size.
        sizes = self.weights.sum(axis=1, keepdims=True)
        return np.asarray((sums / sizes).reshape(self.replicates, *array.shape[1:]))

    def _one_per_problem(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values as a float array whose first axis must be the problems of these weights."""
        array = np.asarray(values, np.float64)
        if array.shape[0] != self.problems:
            raise UserError(
                f"{array.shape[0]} problems meet bootstrap weights of {self.problems}; "
                "draw the weights for these problems"
            )
        return array


def symmetric_interval(
    mean: NDArray[np.float64],
    half_width: NDArray[np.float64],
    method: str,
    prob: float,
    sound: NDArray[np.bool_],
) -> Interval:
    """Population interval of a difference of rates, which lies within [−1, 1].

    ``mean, half_width``: at each k. ``sound``: where simulation supports the nominal probability
    ``prob``. ``Target.POPULATION`` says that the interval is about problems like these.
    """
    lower = np.maximum(mean - half_width, -1.0)
    upper = np.minimum(mean + half_width, 1.0)
    return Interval(mean, lower, upper, Target.POPULATION, method, prob, sound)


def widened(
    estimate: float, low: float, high: float, other_estimates: Sequence[float]
) -> tuple[float, float]:
    """Bounds widened by a second uncertainty, under which the estimate could be another.

    ``low, high``: bounds from the first source. ``other_estimates``: estimates that the second
    source allows. On each side the distances of both from the estimate are added in squares (Zou
    and Donner, 2008, "Construction of confidence limits about effect measures").
    """
    other_down = estimate - min(estimate, *other_estimates)
    other_up = max(estimate, *other_estimates) - estimate
    down = float(np.hypot(estimate - low, other_down))
    up = float(np.hypot(high - estimate, other_up))
    return estimate - down, estimate + up


def mean_interval(
    values: NDArray[np.float64], weights: ProblemWeights, prob: float, method: str
) -> Interval:
    """Interval of the mean over problems of values in [0, 1], about problems like these.

    ``values``: (problems, ...); a NaN makes the mean NaN. ``weights``: bootstrap weights; their
    ``units`` are the problems or clusters that are drawn independently, over which the standard
    error is taken. ``method``: what the interval is called; the form of the interval is added.

    The mean is read as a proportion, out of as many ``trials`` as would give it this standard
    error; the bounds are those of a Beta distribution, which stays in [0, 1].
    """
    mean = values.mean(axis=0)
    error = weights.standard_error(values)
    lower, upper, trials = effective_beta(mean, error, weights.units, check_prob(prob))
    sound = _mean_is_sound(values, mean, trials, weights.units)
    named = f"{method}, effective-size Beta"
    return Interval(mean, lower, upper, Target.POPULATION, named, prob, sound)


def effective_beta(
    mean: NDArray[np.float64], error: NDArray[np.float64], units: int, prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of a mean of values in [0, 1], and the effective number of trials behind them.

    A proportion m out of t trials has the variance m(1 − m)/t. The mean is treated as the
    proportion whose t gives its standard error; with no error to see, t is the number of units. Few
    units estimate the error poorly, so the trials are reduced by the squared ratio of the normal
    quantile to Student's. The bounds are the Jeffreys interval, quantiles of Beta(mt + ½, (1 − m)t
    + ½).

    ``mean, error``: mean and its standard error, elementwise. ``units``: problems or clusters that
    were drawn independently.
    """
    tail = (1 - prob) / 2
    student = special.stdtrit(max(units - 1, 1), 1 - tail)
    fewer_by_student = (special.ndtri(1 - tail) / student) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        binomial_trials = np.where(error > _NO_ERROR, mean * (1 - mean) / error**2, units)
        trials = binomial_trials * fewer_by_student
    a, b = mean * trials + 0.5, (1 - mean) * trials + 0.5
    lower, upper = special.betaincinv(a, b, tail), special.betaincinv(a, b, 1 - tail)
    # A Beta far from its centre may exclude a mean at the very edge; the estimate stays inside.
    return np.fmin(lower, mean), np.fmax(upper, mean), trials


def _mean_is_sound(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    trials: NDArray[np.float64],
    units: int,
) -> NDArray[np.bool_]:
    """Where a mean's interval holds its nominal probability, by what simulation showed.

    Three things are needed: enough units (problems or clusters that were drawn independently),
    values that are not too skewed for that many units, and enough events. Events are the effective
    trials times the mean, or times its distance from 1 if that is smaller.

    ``values``: (problems, ...); the others have its shape without the first axis. ``trials``: the
    number of trials at which a proportion would have the mean's standard error.
    """
    deviations = values - mean
    squares = deviations**2
    spread = np.sqrt(squares.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # NumPy takes a third power by pow(), at a sixth of the speed.
        third_moment = (squares * deviations).mean(axis=0)
        skewness = np.where(spread > 0, third_moment / spread**3, 0.0)
        even_enough = skewness**2 <= units * _LARGEST_SQUARED_SKEWNESS_PER_UNIT
        events = np.minimum(mean, 1 - mean) * trials
        return np.asarray((units >= _LEAST_UNITS) & even_enough & (events >= _LEAST_EVENTS))


def quotient_interval(
    numerators: ArrayLike, denominators: ArrayLike, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    r"""Fieller's interval of the quotient of two means over problems, each of either sign.

    It holds every r for which the mean of :math:`N_i - r D_i` may be 0,

    .. math:: |\bar N - r \bar D| \le q\, s(N - r D),

    whose bounds solve a quadratic equation. Bounds are NaN where the mean of D may itself be 0.

    ``numerators, denominators``: N and D of each problem. ``weights``: bootstrap weights.

    Fieller (1954), "Some problems in interval estimation", JRSS B 16.
    """
    numerator = np.asarray(numerators, np.float64)
    denominator = np.asarray(denominators, np.float64)
    quantile = weights.student_quantile(prob)
    # Squared half widths of both means, and what stands for their covariance.
    n_width, d_width, sum_width = (
        (quantile * float(weights.standard_error(values))) ** 2
        for values in (numerator, denominator, numerator + denominator)
    )
    cross_width = (sum_width - n_width - d_width) / 2
    n_mean, d_mean = float(numerator.mean()), float(denominator.mean())
    # Of the quadratic equation: square · r² − 2 · linear · r + constant = 0.
    square = d_mean**2 - d_width
    linear = n_mean * d_mean - cross_width
    constant = n_mean**2 - n_width
    estimate = n_mean / d_mean if d_mean else np.nan
    center = half_width = np.nan
    if square > 0:
        center = linear / square
        half_width = np.sqrt(max(linear**2 - square * constant, 0.0)) / square
    return Interval(
        np.asarray(estimate),
        np.asarray(center - half_width),
        np.asarray(center + half_width),
        Target.POPULATION,
        "quotient of means over problems, Fieller",
        prob,
    )


def ratio_interval(
    sums: ArrayLike, totals: ArrayLike, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    r"""Population interval of a ratio of two sums over problems, such as tokens per response.

    .. math:: r = \frac{\sum_i S_i}{\sum_i T_i}, \qquad
              s^2 = \frac{G}{G-1} \sum_g \Big[\sum_{i \in g} \frac{S_i - r\,T_i}{\sum_j T_j}\Big]^2

    over G resampled units (linearised, Student's t on G − 1): problems with long responses weigh
    more in r, and the interval knows it.

    ``sums, totals``: S and T of each problem; one with a total of 0 adds nothing.

    Cochran (1977), "Sampling techniques", section 6.

    ``weights``: bootstrap weights, which say what is drawn independently. A problem's residual is
    its sum minus the ratio times its total, divided by the mean total. Residuals have mean 0, and
    the standard error of their mean is that of the ratio.

    >>> weights = ProblemWeights.draw(3, np.random.default_rng(0))
    >>> ratio_interval([10.0, 2.0, 6.0], [20, 2, 10], weights).estimate
    array(0.5625)
    """
    numerator, denominator = np.asarray(sums, np.float64), np.asarray(totals, np.float64)
    if numerator.shape != denominator.shape or numerator.ndim != 1 or (denominator < 0).any():
        raise UserError("a ratio needs one sum and one total, not below 0, per problem")
    if not denominator.sum() > 0:
        nothing = np.asarray(np.nan)
        return Interval(
            nothing, nothing, nothing, Target.POPULATION, "ratio of sums", prob, np.asarray(False)
        )
    ratio = numerator.sum() / denominator.sum()
    # The linearised ratio: to first order it moves as the mean of these.
    residuals = (numerator - ratio * denominator) / denominator.mean()
    half_width = weights.student_quantile(prob) * weights.standard_error(residuals)
    return Interval(
        np.asarray(ratio),
        np.asarray(ratio - half_width),
        np.asarray(ratio + half_width),
        Target.POPULATION,
        "ratio of sums over problems, linearised, Student t",
        prob,
        np.asarray(weights.units >= _LEAST_UNITS),
    )


def paired_interval(
    differences: NDArray[np.float64], weights: ProblemWeights, prob: float
) -> Interval:
    """Interval of the mean difference at each single k, over problems like these.

    ``differences``: trained minus base pass@k (problems, sizes), columns in rising order of k.
    ``weights``: bootstrap weights; their ``units`` are the problems or clusters that are drawn
    independently.

    ``carriers`` gives the effective number of problems behind the spread at each k. Where it is
    small, two pseudo-problems, one in each direction, add to the standard error, because unseen
    problems may differ where none of these does.

    Bonett and Price (2012), "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data".
    """
    carrying = carriers(differences, weights)
    error = paired_error(differences, weights, pseudo_weight(carrying))
    return symmetric_interval(
        differences.mean(axis=0),
        weights.student_quantile(prob) * error,
        "paired problem bootstrap, Student t",
        prob,
        (weights.units >= _LEAST_UNITS) & (carrying >= _LEAST_CARRIERS),
    )


def pseudo_weight(carrying: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight of the pseudo-problems at a single k where so many problems carry the spread."""
    return np.maximum(1 - carrying / _NO_PSEUDO_PROBLEMS, 0)


def paired_error(
    differences: NDArray[np.float64],
    weights: ProblemWeights,
    pseudo_weight: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    r"""Standard error of the mean difference at each k, with two weighted pseudo-problems.

    Where few problems differ, or none, their spread says little of unseen ones. So two imagined
    problems are added, one in each direction: :math:`s^2 = s_0^2 + 2\,w\,r^2 u / (P \max(P - u,
    1))`, with :math:`s_0` the error from the data, w ``pseudo_weight``, r the largest difference of
    one problem at this k or a smaller one, P the number of problems, and u the problems per
    independently drawn unit (1, or the mean size of a cluster).

    ``differences``: trained minus base pass@k (problems, sizes), columns in rising order of k.
    ``weights.units``: number of units. ``pseudo_weight``: 0 leaves the pseudo-problems out, 1
    counts them in full; a number, or one at each k. If no problem differs anywhere, r is 1, the
    largest a difference can be.
    """
    problems = len(differences)
    variance = weights.standard_error(differences) ** 2
    largest = np.maximum.accumulate(np.abs(differences).max(axis=0, initial=0.0), axis=-1)
    arms_differ = np.nanmax(largest, initial=0.0) > 0
    scale = np.where(arms_differ, largest, 1.0)
    # A pseudo-problem weighs as much as an average unit of the bootstrap.
    unit_size = problems / weights.units
    pseudo_variance = 2 * pseudo_weight * scale**2 * unit_size
    pseudo_variance = pseudo_variance / (problems * max(problems - unit_size, 1))
    return np.asarray(np.sqrt(variance + pseudo_variance))


def carriers(
    differences: NDArray[np.float64], weights: ProblemWeights | None = None
) -> NDArray[np.float64]:
    r"""How many problems, or clusters, carry the spread of the differences at each k.

    The participation number :math:`(\sum e_i^2)^2 / \sum e_i^4` of the deviations :math:`e_i` from
    the mean: P equally large deviations, and zeros otherwise, give P. It is 0 where there is no
    spread: where the fourth powers are mere rounding.

    ``differences``: trained minus base pass@k (problems, sizes). ``weights``: bootstrap weights,
    whose ``unit_sums`` adds up the problems of a cluster; without them each problem counts alone.
    """
    deviations = differences - differences.mean(axis=0)
    if weights is not None:
        deviations = weights.unit_sums(deviations)
    squares = deviations**2
    fourth_powers = (squares**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        participation = squares.sum(axis=0) ** 2 / fourth_powers
    return np.where(fourth_powers > _NO_FOURTH_POWER, participation, 0.0)
