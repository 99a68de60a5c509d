"""How the intervals of a report are made: every number of the same problems shares one drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def weights(self, problems: Sequence[str]) -> ProblemWeights:
        """Bootstrap weights of some problems, so that all that is said of them is paired.

        They depend on how many these are alone.
        """
        return _drawn(len(problems), self.replicates, self.seed)


@lru_cache(maxsize=32)
def _drawn(problems: int, replicates: int, seed: int) -> ProblemWeights:
    return ProblemWeights.draw(problems, np.random.default_rng(seed), replicates)
