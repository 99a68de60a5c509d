"""The problem bootstrap: one object of weights, shared by every model of a report.

A draw of the bootstrap takes :math:`P` problems with replacement, which is the same as giving
each problem a multinomial weight. The weights are drawn once and used for every arm, step and k,
so that differences between arms are *paired*: the same problems come in for both.
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

#: Replicates that a report draws. The error of a 95 % bound is then about 2 % of its width.
REPLICATES: Final = 2000


@dataclass(frozen=True)
class ProblemWeights:
    """How often each problem (columns) comes into each bootstrap replicate (rows).

    ``weights``: float64 of shape (replicates, problems); rows sum to about the number of problems.
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
        drawn = rng.multinomial(units, np.full(units, 1 / units), size=replicates)
        signs = rng.integers(0, 2, size=(replicates, units), dtype=np.int8) * np.int8(2) - 1
        return cls(
            drawn[:, unit].astype(np.float64),
            signs[:, unit].astype(np.int8),
            unit,
            str(getattr(rng.bit_generator.seed_seq, "entropy", "unknown")),
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

    def standard_error(self, values: ArrayLike) -> NDArray[np.float64]:
        r"""Give the standard error of the mean over problems, the limit of the bootstrap's.

        .. math:: s^2 = \frac{G}{G-1} \sum_g \Big[\frac1P \sum_{i \in g} (x_i - m)\Big]^2

        over G units; infinite for a single unit. It has no noise of its own, where that of 1,000
        replicates has 2 %.
        """
        array = self._checked(values)
        if self.units == 1:
            return np.full(array.shape[1:], np.inf)
        deviations = self.unit_sums((array - array.mean(axis=0)) / len(array))
        return np.asarray(np.sqrt((deviations**2).sum(axis=0)) * self.inflation)

    def unit_sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values of problems (first axis) within each unit."""
        if self.units == self.problems:
            return values
        sums = np.zeros((self.units, *values.shape[1:]))
        np.add.at(sums, self.unit, values)
        return sums

    def means(self, values: ArrayLike) -> NDArray[np.float64]:
        """Mean over problems in every replicate.

        ``values``: one value per problem along the first axis. Gives ``[replicate, ...]``; NaN
        where a value is NaN.
        """
        array = self._checked(values)
        flat = array.reshape(self.problems, -1)
        sums = self.weights @ flat / self._sizes
        return np.asarray(sums.reshape(self.replicates, *array.shape[1:]))

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        """Problems in each replicate; clusters of unequal size make them differ."""
        return np.asarray(self.weights.sum(axis=1, keepdims=True))

    def _checked(self, values: ArrayLike) -> NDArray[np.float64]:
        array = np.asarray(values, np.float64)
        if array.shape[0] != self.problems:
            raise UserError(
                f"{array.shape[0]} problems meet bootstrap weights of {self.problems}; "
                "draw the weights for these problems"
            )
        return array


# ---- interval ------------------------------------------------------------------------------------
# One convention for every interval: estimate, bounds, target, and when to doubt them.
#
# Every statistic of this room that carries uncertainty returns an :class:`Interval`. It says which
# *target* its bounds are about, by which *method* they were made, and element by element whether
# they are *sound*: whether simulation showed the nominal coverage in data like these. A bound that
# is not sound is still given, and says so wherever it is printed.
#
# Interval for the mean of values in [0, 1] over problems, kept inside [0, 1].
#
# The mean :math:`m` with standard error :math:`s` is read as a proportion out of
#
# .. math:: \nu = \frac{m(1-m)}{s^2} \left(\frac{z}{t_{G-1}}\right)^2
#
# effective trials, and its interval as the Jeffreys interval of that proportion,
# :math:`\text{Beta}(m\nu + ½, (1-m)\nu + ½)`. With all values equal there is no standard error and
# :math:`\nu` is the number of units, which is the rule of three for "all solved" or "none solved".
#
# Percentiles of the bootstrap are too narrow for skewed values (92 % in place of 95 % for pass@1
# of 64 problems with rates from Beta(.25, 2)); this form holds 93 – 97 % there.
#
# Ratio of two sums over problems, such as entropy per token or tokens per response.
#
# .. math:: r = \frac{\sum_i S_i}{\sum_i T_i}, \qquad
#           s^2 = \frac{G}{G-1} \sum_g \Big[\sum_{i \in g} \frac{S_i - r\,T_i}{\sum_j T_j}\Big]^2
#
# over G resampled units (linearised, Student's t on G − 1): problems with long responses weigh
# more in r, and the interval knows it.
#
# Interval for the mean of a paired difference over problems.
#
# The interval is Student's t on the bootstrap's standard error. Two things can make it too short:
# few problems carrying the difference, and none at all, where the standard error is 0 although
# unseen problems may well differ. Both are met by *two pseudo-problems*, one in each direction:
# they add twice a squared scale to the sum of squares,
#
# .. math:: s^2 = \frac{\sum_i (d_i - D)^2 + 2\,w\,r^2}{P(P-1)} ,
#
# with the scale :math:`r` the largest difference of a single problem seen at any smaller k. At k =
# n, where differences are −1, 0 and 1, this is the adjusted Wald interval of Bonett and Price. The
# weight :math:`w` is 1 for statements about a whole curve. For a single k it fades out as more
# problems carry the spread, :math:`w = \max(0, 1 - e/10)` with the participation number :math:`e =
# (\sum e_i^2)^2 / \sum e_i^4` of the deviations :math:`e_i = d_i - D`.


#: The probability of every interval that does not say otherwise.
PROB: Final = 0.95
#: Name and values of the dimension that holds the two bounds.
CI_BOUND: Final = "ci_bound"
CI_BOUNDS: Final = ("lower", "upper")
# Decimals that data decide. Further ones depend on the order in which a processor adds, and are
# taken off, so that equal values are equal and 0 is 0.
_DECIMALS: Final = 12


def without_noise(values: ArrayLike) -> NDArray[np.float64]:
    """Give numbers in the decimals that data decide, without a sign of 0."""
    return np.asarray(np.round(np.asarray(values, np.float64), _DECIMALS) + 0.0)


class Target(StrEnum):
    """What an interval is about. The same number has a different interval for each of these."""

    POPULATION = "problems like these"
    FIXED = "these problems, infinitely many samples"
    FINITE = "these samples of these problems"


@dataclass(frozen=True)
class Interval:
    """Estimate with lower and upper bound, elementwise over arrays of one shape.

    ``estimate, lower, upper``: float64 arrays of equal shape; zero-dimensional for a single number.
    ``target, method``: what the bounds are about, and how they were made. ``sound``: where
    simulation supports the nominal probability; elsewhere a note tells why not. ``notes``: what a
    reader must know, one sentence each.
    """

    estimate: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    target: Target
    method: str
    prob: float = PROB
    sound: NDArray[np.bool_] = field(default_factory=lambda: np.asarray(True))
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("estimate", "lower", "upper"):
            object.__setattr__(self, name, without_noise(getattr(self, name)))
        sound = np.broadcast_to(np.asarray(self.sound, bool), self.estimate.shape)
        object.__setattr__(self, "sound", sound)
        if not self.estimate.shape == self.lower.shape == self.upper.shape:
            raise ValueError("estimate, lower and upper of an interval have different shapes")

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
        """Give some elements, with everything that is said about them."""
        estimate, lower, upper = self.estimate[index], self.lower[index], self.upper[index]
        about = self.target, self.method, self.prob
        return Interval(estimate, lower, upper, *about, self.sound[index], self.notes)

    def __str__(self) -> str:
        """``0.312 [0.180, 0.450]``, marked where the bounds are not sound."""
        if self.estimate.ndim:
            return f"<Interval of shape {self.estimate.shape}, {self.method}, {self.target}>"
        mark = "" if self.sound else " (unsound)"
        return f"{self.estimate:.3f} [{self.lower:.3f}, {self.upper:.3f}]{mark}"


def percentile_interval(
    estimate: ArrayLike,
    draws: NDArray[np.float64],
    prob: float,
    method: str,
    sound: ArrayLike,
    notes: tuple[str, ...] = (),
) -> Interval:
    """Population interval with equal tails of draws (first axis), which holds the estimate."""
    point = np.asarray(estimate, np.float64)
    lower, upper = np.quantile(draws, [(1 - check_prob(prob)) / 2, (1 + prob) / 2], axis=0)
    ends = np.fmin(lower, point), np.fmax(upper, point)
    return Interval(point, *ends, Target.POPULATION, method, prob, np.asarray(sound), notes)


def widened(
    estimate: float, low: float, high: float, others: Sequence[float]
) -> tuple[float, float]:
    """Bounds that hold what else is uncertain too, which moves the estimate to ``others``.

    Distances from two sources are added in squares (Zou and Donner, 2008, "Construction of
    confidence limits about effect measures").
    """
    down = estimate - min(estimate, *others)
    up = max(estimate, *others) - estimate
    return estimate - float(np.hypot(estimate - low, down)), estimate + float(
        np.hypot(high - estimate, up)
    )


def check_prob(prob: float) -> float:
    """Refuse a probability that no interval has."""
    if not 0 < prob < 1:
        raise UserError(f"interval probability is {prob}; allowed is a number between 0 and 1")
    return prob


# Where these hold, simulated coverage of nominal 95 % is 93 – 97 %;
# tests/stats/test_calibration.py repeats the simulation.
_MIN_UNITS: Final = 20
_MAX_SKEW: Final = 1 / 6  # skewness² per unit
_MIN_EVENTS: Final = 5.0


def mean_interval(
    values: NDArray[np.float64], weights: ProblemWeights, prob: float, method: str
) -> Interval:
    """Put a population interval around the mean over problems of values in [0, 1].

    ``values``: ``[problem, ...]``; a NaN makes the mean NaN. ``weights``: bootstrap weights, whose
    units the standard error is over. ``method``: what the interval is called; the form of the
    interval is added.
    """
    mean = values.mean(axis=0)
    error = weights.standard_error(values)
    lower, upper, trials = effective_beta(mean, error, weights.units, check_prob(prob))
    sound, notes = _soundness(values, mean, trials, weights.units)
    named = f"{method}, effective-size Beta"
    return Interval(mean, lower, upper, Target.POPULATION, named, prob, sound, notes)


def effective_beta(
    mean: NDArray[np.float64], error: NDArray[np.float64], units: int, prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of the Beta form, and the effective number of trials behind them."""
    tail = (1 - prob) / 2
    t = special.stdtrit(max(units - 1, 1), 1 - tail)
    shrink = (special.ndtri(1 - tail) / t) ** 2
    spread = mean * (1 - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        trials = np.where(error > 1e-12, spread / error**2, units) * shrink
    a, b = mean * trials + 0.5, (1 - mean) * trials + 0.5
    lower, upper = special.betaincinv(a, b, tail), special.betaincinv(a, b, 1 - tail)
    # A Beta far from its centre may exclude a mean at the very edge; the estimate stays inside.
    return np.fmin(lower, mean), np.fmax(upper, mean), trials


def _soundness(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    trials: NDArray[np.float64],
    units: int,
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Where skewness and the number of effective events allow the nominal probability."""
    deviation = values - mean
    squares = deviation**2
    spread = np.sqrt(squares.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # NumPy takes a third power by pow(), at a sixth of the speed.
        skew = np.where(spread > 0, (squares * deviation).mean(axis=0) / spread**3, 0.0)
        events = np.minimum(mean, 1 - mean) * trials
        sound = (units >= _MIN_UNITS) & (skew**2 <= units * _MAX_SKEW) & (events >= _MIN_EVENTS)
    notes: tuple[str, ...] = ()
    if not np.all(sound):
        notes = (
            "where a mean rests on few problems or lies close to 0 or 1 the interval may be too "
            "short",
        )
    return np.asarray(sound), notes


def ratio_interval(
    sums: ArrayLike, totals: ArrayLike, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    """Population interval of a ratio of sums.

    ``sums, totals``: numerator and denominator of each problem; a problem with a total of 0 adds
    nothing.

    Cochran (1977), "Sampling techniques", section 6.

    >>> weights = ProblemWeights.draw(3, np.random.default_rng(0))
    >>> ratio_interval([10.0, 2.0, 6.0], [20, 2, 10], weights).estimate
    array(0.5625)
    """
    s, t = np.asarray(sums, np.float64), np.asarray(totals, np.float64)
    if s.shape != t.shape or s.ndim != 1 or (t < 0).any():
        raise UserError("a ratio needs one sum and one total, not below 0, per problem")
    if not t.sum() > 0:
        nothing = np.asarray(np.nan)
        return Interval(
            nothing, nothing, nothing, Target.POPULATION, "ratio of sums", prob, np.asarray(False)
        )
    ratio = s.sum() / t.sum()
    error = weights.standard_error((s - ratio * t) / t.mean())
    half = special.stdtrit(max(weights.units - 1, 1), (1 + check_prob(prob)) / 2) * error
    return Interval(
        np.asarray(ratio),
        np.asarray(ratio - half),
        np.asarray(ratio + half),
        Target.POPULATION,
        "ratio of sums over problems, linearised, Student t",
        prob,
        np.asarray(weights.units >= 20),
    )


#: Problems that must carry the spread for the pseudo-problems to fade out.
FEW: Final = 10.0
_PAIRED_UNITS: Final = 20
# Fourth powers below this are rounding.
_TINY: Final = 1e-48
_FEW_NOTE: Final = (
    "where fewer than ten problems carry the spread, two pseudo-problems widen the interval"
)


def paired_interval(
    differences: NDArray[np.float64], weights: ProblemWeights, prob: float
) -> Interval:
    """Pointwise population interval of the mean difference.

    ``differences``: ``[problem, k]``, trained minus base, columns in rising order of k.

    Bonett and Price (2012), "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data".
    """
    tail = (1 - check_prob(prob)) / 2
    carried = carriers(differences, weights)
    error = paired_error(differences, weights, fade(carried))
    half = special.stdtrit(max(weights.units - 1, 1), 1 - tail) * error
    mean = differences.mean(axis=0)
    sound = np.broadcast_to(weights.units >= _PAIRED_UNITS, mean.shape) & (carried >= 4)
    notes = () if (carried >= FEW).all() else (_FEW_NOTE,)
    return around(mean, half, "paired problem bootstrap, Student t", prob, sound, notes)


def around(
    mean: NDArray[np.float64],
    half: NDArray[np.float64],
    method: str,
    prob: float,
    sound: NDArray[np.bool_],
    notes: tuple[str, ...] = (),
) -> Interval:
    """Put a half width on both sides of a difference of rates, which lies within [−1, 1]."""
    ends = np.maximum(mean - half, -1.0), np.minimum(mean + half, 1.0)
    return Interval(mean, *ends, Target.POPULATION, method, prob, sound, notes)


def fade(carried: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight of the pseudo-problems of a single k where so many problems carry the spread."""
    return np.maximum(1 - carried / FEW, 0)


def paired_error(
    differences: NDArray[np.float64], weights: ProblemWeights, weight: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Give the standard error of the mean with ``weight`` times the two pseudo-problems."""
    problems, units = len(differences), weights.units
    variance = weights.standard_error(differences) ** 2
    scale = _scale(differences)
    # A pseudo-problem weighs as much as an average unit of the bootstrap.
    per_unit = problems / units
    pseudo = 2 * weight * scale**2 * per_unit / (problems * max(problems - per_unit, 1))
    return np.asarray(np.sqrt(variance + pseudo))


def carriers(
    differences: NDArray[np.float64], weights: ProblemWeights | None = None
) -> NDArray[np.float64]:
    """Participation number: how many problems carry the spread of the differences at each k.

    Of clustered problems it is the number of clusters.
    """
    deviations = differences - differences.mean(axis=0)
    if weights is not None:
        deviations = weights.unit_sums(deviations)
    squares = deviations**2
    fourth = (squares**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fourth > _TINY, squares.sum(axis=0) ** 2 / fourth, 0.0)


def _scale(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest single difference seen up to each k; 1 where the arms never differ at all."""
    largest = np.maximum.accumulate(np.abs(differences).max(axis=0, initial=0.0), axis=-1)
    return np.where(np.nanmax(largest, initial=0.0) > 0, largest, 1.0)
