"""pass@k at equal cost: what a budget of response tokens or device-hours buys from each arm."""

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
from rlbhpc.report.speeds import speeds
from rlbhpc.stats import Interval
from rlbhpc.stats.budget import budget_curve

#: What a budget is counted in, and for what.
TOKENS: Final = "response tokens per problem"
HOURS: Final = "device-hours for the problem set"
_POINTS: Final = 24


@dataclass(frozen=True)
class Budget:
    """Mean pass@budget over problems; NaN above what the samples of some problem cost.

    Attributes
    ----------
    unit
        ``TOKENS`` or ``HOURS``.
    spent
        Budgets, the same for all arms of a problem set.
    """

    of: Measured
    unit: str
    spent: NDArray[np.float64]
    interval: Interval

    @property
    def problem_set(self) -> str:
        """Of the arm."""
        return self.of.problem_set


@dataclass(frozen=True)
class _Priced:
    """An arm with what one response to each of its sampled problems costs."""

    of: Measured
    cost: NDArray[np.float64]

    @property
    def most(self) -> float:
        rows = np.flatnonzero(self.of.sampled)
        return float((self.cost * self.of.counts[rows].n).min())


def budgets(report: Report, measured: Sequence[Responses]) -> list[Budget]:
    """Work out the curves of the compared arms, from one response to all that there are.

    Hours are those of the devices that made the responses, without loading the model; they are
    known where the run sampled all compared arms itself.
    """
    shown = {id(one) for one in compared(report)}
    known = [one for one in measured if id(one.of) in shown and not np.isnan(one.cost).any()]
    rates = speeds(report.folder)
    found = []
    for set_name in dict.fromkeys(one.of.problem_set for one in known):
        here = [one for one in known if one.of.problem_set == set_name]
        found += _curves(report, TOKENS, [_Priced(one.of, one.cost) for one in here])
        if all((one.of.model, one.of.step) in rates for one in here):
            priced = [
                _Priced(one.of, one.cost * len(one.cost)
                        / (3600 * rates[one.of.model, one.of.step]))
                for one in here
            ]  # fmt: skip
            found += _curves(report, HOURS, priced)
    return found


def _curves(report: Report, unit: str, arms: list[_Priced]) -> list[Budget]:
    arms = [one for one in arms if one.most > one.cost.max()]
    if not arms:
        return []
    # From what buys every arm a response to each problem.
    least = max(float(one.cost.max()) for one in arms)
    spent = np.geomspace(least, max(one.most for one in arms), _POINTS)
    found = []
    for one in arms:
        rows = np.flatnonzero(one.of.sampled)
        weights = report.draws.of(tuple(one.of.problems[i] for i in rows))
        counts, prob = one.of.counts[rows], report.settings.prob
        bought = budget_curve(counts, one.cost, spent, weights, prob)
        found.append(Budget(one.of, unit, spent, bought))
    return found
