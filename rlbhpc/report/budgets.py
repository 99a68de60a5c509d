"""pass@k at equal cost: what a budget of response tokens buys from each arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.beyond import compared
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.responses import Responses
from rlbhpc.stats import Interval
from rlbhpc.stats.budget import budget_curve

_POINTS: Final = 20


@dataclass(frozen=True)
class Budget:
    """Mean pass@budget over problems; NaN above what the samples of some problem cost."""

    of: Measured
    tokens: NDArray[np.float64]
    interval: Interval

    @property
    def problem_set(self) -> str:
        """Of the arm."""
        return self.of.problem_set


def budgets(report: Report, measured: Sequence[Responses]) -> list[Budget]:
    """Work out the curves of the compared arms, from one response to all that there are."""
    shown = {id(one) for one in compared(report)}
    found = []
    for one in measured:
        counts = one.of.counts[np.flatnonzero(one.of.sampled)]
        cost = one.cost
        if id(one.of) not in shown or np.isnan(cost).any():
            continue
        least, most = float(cost.max()), float((cost * counts.n).min())
        if most <= least:
            continue
        tokens = np.geomspace(least, most, _POINTS)
        problems = tuple(one.of.problems[i] for i in np.flatnonzero(one.of.sampled))
        weights = report.draws.of(problems)
        curve = budget_curve(counts, cost, tokens, weights, report.settings.prob)
        found.append(Budget(one.of, tokens, curve))
    return found
