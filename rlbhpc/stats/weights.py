r"""The problem bootstrap: one object of weights, shared by every model of a report.

A draw of the bootstrap takes :math:`P` problems with replacement, which is the same as giving
each problem a multinomial weight. The weights are drawn once and used for every arm, step and k,
so that differences between arms are *paired*: the same problems come in for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
