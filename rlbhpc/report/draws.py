"""The bootstrap weights of a report: every number of the same problems shares one drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


class Draws:
    """Weights by list of problems, so that all that is said of the same problems is paired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drawn: dict[tuple[str, ...], ProblemWeights] = {}

    def of(self, problems: tuple[str, ...]) -> ProblemWeights:
        """Give the weights of some problems."""
        if problems not in self._drawn:
            self._drawn[problems] = ProblemWeights.draw(
                len(problems),
                np.random.default_rng(self.settings.seed),
                self.settings.replicates,
            )
        return self._drawn[problems]
