"""The curves of a run without the problems that are solved by guessing at large k."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rlbhpc.report.beyond import compared
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.stats import k_grid, pass_curve
from rlbhpc.verify.guess import guessable

#: The prompt that asks for an answer and no reasoning.
PROMPT: Final = "no-think"


@dataclass(frozen=True)
class Unguessed:
    """Arms of one problem set on the problems that are not guessable.

    ``kept`` are those of the last comparisons, with curves anew; ``guessed`` the ids left out.
    """

    problem_set: str
    by: str
    kept: tuple[Measured, ...]
    guessed: tuple[str, ...]


def unguessed(report: Report) -> list[Unguessed]:
    """Filter each problem set by the arm that answered it without reasoning, if there is one."""
    found = []
    for arm in report.measured:
        known = report.arms.get(arm.arm)
        if known is None or known.prompt != PROMPT or arm.step:
            continue
        marked = guessable(arm.counts.n, arm.counts.c)
        guessed = {arm.problems[i] for i in np.flatnonzero(marked)}
        others = (
            one
            for one in compared(report)
            if one.problem_set == arm.problem_set and one.arm != arm.arm
        )
        kept = tuple(_without(report, one, guessed) for one in others)
        if guessed and kept:
            out = tuple(p for p in arm.problems if p in guessed)
            found.append(Unguessed(arm.problem_set, arm.arm, kept, out))
    return found


def _without(report: Report, one: Measured, guessed: set[str]) -> Measured:
    """Draw the curve of an arm anew on the problems that are left."""
    left = np.array([p not in guessed for p in one.problems])
    rows = np.flatnonzero(one.sampled & left)
    if not len(rows):
        return replace(one, curve=None)
    counts = one.counts[rows]
    weights = report.draws.of(tuple(one.problems[i] for i in rows))
    curve = pass_curve(counts, weights, k_grid(counts.reach), report.settings.prob)
    return replace(one, curve=curve)
