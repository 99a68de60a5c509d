"""What a report works out of counts alone: pure functions, the slow ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from rlbhpc.stats import Counts, ProblemWeights, extrapolate
from rlbhpc.stats.decision import MARGIN
from rlbhpc.stats.extrapolation import FACTOR, Extrapolation, HeldOut, held_out_check
from rlbhpc.stats.joint import Finding
from rlbhpc.stats.priors import LEAST, LEAST_SAMPLES

# Samples of which a tenth can tell a distribution of rates.
_LEAST_SAMPLES: Final = FACTOR * LEAST_SAMPLES


@dataclass(frozen=True)
class Settings:
    """How the intervals were made, and what is pooled.

    ``trainings``: arms by the name of the recipe's arm that they are seeds of. ``averages``:
    problem sets by the name of their mean.
    """

    prob: float
    replicates: int
    seed: int
    k: tuple[int, ...]
    margin: float = MARGIN
    trainings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    averages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()

    def weights(self, problems: Sequence[str]) -> ProblemWeights:
        """Bootstrap weights of some problems, so that all that is said of them is paired.

        They depend on how many these are alone.
        """
        return _drawn(len(problems), self.replicates, self.seed)


@lru_cache(maxsize=32)
def _drawn(problems: int, replicates: int, seed: int) -> ProblemWeights:
    return ProblemWeights.draw(problems, np.random.default_rng(seed), replicates)


@dataclass(frozen=True)
class Sides:
    """The counts of a comparison, their problems, and how many comparisons share its error.

    ``looked`` is what looks at more samples say of lost and gained.
    """

    base: Counts
    trained: Counts
    problems: tuple[str, ...]
    comparisons: int
    looked: tuple[Finding, Finding] | None = None


def prediction(counts: Counts, settings: Settings) -> tuple[Extrapolation, HeldOut | None] | None:
    """Extrapolate an arm to ten times its samples; None where it has too few for that."""
    if counts.reach < 4 or len(counts) < LEAST:
        return None
    k = np.unique(np.geomspace(1, FACTOR * counts.reach, 40).round().astype(np.int64))
    rng = np.random.default_rng(settings.seed)
    fixed = counts.reach >= _LEAST_SAMPLES and not counts.stop_after.any()
    check = held_out_check(counts, rng) if fixed else None
    return extrapolate(counts, k, settings.prob), check
