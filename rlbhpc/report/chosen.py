"""A checkpoint that the data chose: half of the samples choose, the other half report.

The best of several noisy checkpoints looks better than it is. Even samples choose, odd samples say
how good the choice is, and the base is measured on its own odd samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.gather import Line, Report
from rlbhpc.report.measured import Measured, powers_of_two
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.stats.selection import choose_checkpoint, even_odd


@dataclass(frozen=True)
class Chosen:
    """The best checkpoint of a line by pass@``k`` of even samples, on odd samples.

    Attributes
    ----------
    base, chosen
        What is compared.
    k
        The k of the choice, and of what is reported.
    on_even
        Difference to the base that the choosing half shows, which flatters the choice.
    on_odd
        The same on the other half, with its interval.
    problems
        Problems that base and all checkpoints have samples of.
    """

    base: Measured
    chosen: Measured
    checkpoints: int
    k: int
    on_even: float
    on_odd: Interval
    problems: int


def chosen(report: Report) -> list[Chosen]:
    """Choose a checkpoint of each line with two or more, by pass@1 and by pass@K."""
    return [one for line in report.lines for one in _of_line(report, line)]


def _of_line(report: Report, line: Line) -> list[Chosen]:
    every = (line.base, *line.steps)
    if len(line.steps) < 2 or any(one.verdicts is None for one in every):
        return []
    sampled = [dict.fromkeys(p for p, s in zip(one.problems, one.sampled, strict=True) if s)
               for one in every]  # fmt: skip
    problems = tuple(p for p in sampled[0] if all(p in other for other in sampled[1:]))
    width = min(one.depth for one in every)
    if len(problems) < 2 or width < 2:
        return []
    base, *steps = (_codes(one, problems)[:, :width] for one in every)
    stacked = np.stack(steps)
    halves = even_odd(base)
    reach = min(half.reach for codes in (base, *steps) for half in even_odd(codes))
    if not reach:
        return []
    weights = report.draws.of(problems)
    found = []
    for k in dict.fromkeys((1, powers_of_two(reach)[-1])):
        selection = choose_checkpoint(stacked, k)
        curve = difference_curve(halves[1], selection.report, weights, [k], report.settings.prob)
        flattering = float(selection.scores[selection.chosen]) - _mean(halves[0], k)
        best = line.steps[selection.chosen]
        found.append(
            Chosen(line.base, best, len(steps), k, flattering, curve.pointwise[0], len(problems))
        )
    return found


def _codes(one: Measured, problems: tuple[str, ...]) -> NDArray[np.int8]:
    assert one.verdicts is not None
    return one.verdicts[one.rows_of(problems)]


def _mean(counts: Counts, k: int) -> float:
    return float(counts.pass_at_k(k).mean())
