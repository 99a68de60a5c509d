"""The bootstrap weights of a report: every number of the same problems shares one drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from rlbhpc.stats import ProblemWeights
from rlbhpc.stats.decision import MARGIN


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


@dataclass(frozen=True)
class Draws:
    """Weights by list of problems, so that all that is said of the same problems is paired."""

    settings: Settings

    def of(self, problems: tuple[str, ...]) -> ProblemWeights:
        """Give the weights of some problems; they depend on how many these are alone."""
        return _drawn(len(problems), self.settings.replicates, self.settings.seed)


@lru_cache(maxsize=32)
def _drawn(problems: int, replicates: int, seed: int) -> ProblemWeights:
    return ProblemWeights.draw(problems, np.random.default_rng(seed), replicates)
