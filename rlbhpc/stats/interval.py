"""One convention for every interval: estimate, bounds, what they are about, and when to doubt them.

Every statistic of this room that carries uncertainty returns an :class:`Interval`. It says which
*target* its bounds are about, by which *method* they were made, and element by element whether
they are *sound*: whether simulation showed the nominal coverage in data like these. A bound that
is not sound is still given, and says so wherever it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

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


def check_prob(prob: float) -> float:
    """Refuse a probability that no interval has."""
    if not 0 < prob < 1:
        raise UserError(f"interval probability is {prob}; allowed is a number between 0 and 1")
    return prob
