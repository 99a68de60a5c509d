"""What a report can leave to another process: pure functions of counts, the slow ones.

Nothing here reads a run or draws, so that the other process starts in little time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from rlbhpc.report.draws import Draws, Settings
from rlbhpc.stats import Answer, Counts, extrapolate
from rlbhpc.stats.decision import decide
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.extrapolation import FACTOR, Extrapolation, HeldOut, held_out_check
from rlbhpc.stats.finding import Finding
from rlbhpc.stats.priors import LEAST
from rlbhpc.stats.sequential import Forecast, forecast

T = TypeVar("T")

#: Sizes of a forecast as multiples of what is there, and simulated studies of each size: as many
#: as a report has time for, since each costs a tenth of a second with 500 problems.
SIZES: Final = (2, 4)
STUDIES: Final = (5, 20)
_STUDIES_IN_ALL: Final = 60
# Fewer samples than this are no part to check a prediction with.
_LEAST_SAMPLES: Final = 20


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


def answers_and_forecasts(
    sides: Sequence[Sides], settings: Settings
) -> tuple[list[Answer], dict[int, list[Forecast]]]:
    """Decide comparisons, and forecast those that stay undecided."""
    draws = Draws(settings)
    answers = [
        decide(
            difference_curve(side.base, side.trained, draws.of(side.problems), prob=settings.prob),
            settings.margin,
            comparisons=side.comparisons,
            looked=side.looked,
        )
        for side in sides
    ]
    return answers, forecasts(sides, answers, draws)


def forecasts(
    sides: Sequence[Sides], answers: Sequence[Answer], draws: Draws
) -> dict[int, list[Forecast]]:
    """Simulate every undecided comparison at larger sizes, by its position."""
    undecided = [
        number
        for number, (side, answer) in enumerate(zip(sides, answers, strict=True))
        if answer.word.open
        and len(side.problems) >= LEAST
        and not (side.base.stop_after.any() or side.trained.stop_after.any())
    ]
    studies = studies_of_each(len(undecided))
    chances = {}
    for number in undecided:
        side = sides[number]
        have = int(max(side.base.n.max(), side.trained.n.max()))
        rng = np.random.default_rng(draws.settings.seed)
        sizes = [times * have for times in SIZES]
        weights = draws.of(side.problems)
        chances[number] = forecast(
            side.base, side.trained, weights, sizes, rng, studies,
            draws.settings.margin, side.comparisons,
        )  # fmt: skip
    return chances


def studies_of_each(undecided: int) -> int:
    """Simulated studies of each size, fewer where many comparisons are undecided."""
    least, most = STUDIES
    return min(most, max(least, _STUDIES_IN_ALL // (len(SIZES) * max(undecided, 1))))


def each(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call a function several times."""
    return [work(*values) for values in arguments]


def prediction(counts: Counts, settings: Settings) -> tuple[Extrapolation, HeldOut | None] | None:
    """Extrapolate an arm to ten times its samples; None where it has too few for that."""
    if counts.reach < 4 or len(counts) < LEAST:
        return None
    k = np.unique(np.geomspace(1, FACTOR * counts.reach, 40).round().astype(np.int64))
    rng = np.random.default_rng(settings.seed)
    fixed = counts.reach >= _LEAST_SAMPLES and not counts.stop_after.any()
    check = held_out_check(counts, rng) if fixed else None
    return extrapolate(counts, k, settings.prob), check
