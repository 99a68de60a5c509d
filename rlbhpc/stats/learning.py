"""What a training does to single problems over its steps, from the verdicts of its own rollouts.

A *visit* is a step in which a problem was sampled; it is solved if any of its rollouts is right.
With few rollouts a visit misses what is rarely solved, so these counts follow what training met,
and say nothing of the boundary at large k.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats.pass_at_k import pass_at_k

RIGHT: Final = 1
MISSING: Final = -1
# Verdicts that say nothing of the model: missing, failed generation, verifier error.
_UNJUDGED: Final = (MISSING, 4, 5)


def histories(verdict: NDArray[np.int8]) -> dict[str, NDArray[np.float64]]:
    """Counts over training steps, each of shape (steps,).

    ``verdict`` has shape (problems, rollouts, steps). Of the problems that were visited twice or
    more up to a step, ``learnt`` counts those whose first visit failed and whose last is solved,
    ``corrupted`` the opposite, and ``extinct`` those once solved whose last two visits failed.
    ``flips`` is the share of the step's problems that changed since their visit before; NaN where
    none had one.
    """
    solved = np.any(verdict == RIGHT, axis=1)
    visited = np.any(~np.isin(verdict, _UNJUDGED), axis=1)
    problems, steps = solved.shape
    out = {name: np.full(steps, np.nan) for name in ("learnt", "corrupted", "extinct", "flips")}
    first, last, before, ever = (np.zeros(problems, bool) for _ in range(4))
    count = np.zeros(problems, np.int64)
    for step in range(steps):
        here, now = visited[:, step], solved[:, step]
        again = here & (count > 0)
        if again.any():
            out["flips"][step] = float((now != last)[again].mean())
        first = np.where(here & (count == 0), now, first)
        before = np.where(here, last, before)
        last = np.where(here, now, last)
        ever |= here & now
        count += here
        twice = count > 1
        out["learnt"][step] = float((twice & ~first & last).sum())
        out["corrupted"][step] = float((twice & first & ~last).sum())
        out["extinct"][step] = float(((count > 2) & ever & ~last & ~before).sum())
    return out


def least_rollouts(verdict: NDArray[np.int8]) -> int:
    """Rollouts of a problem that is drawn once in a step; one drawn twice has twice as many."""
    counts = (verdict != MISSING).sum(1)
    return int(counts[counts > 0].min(initial=verdict.shape[1]))


def rollout_pass_at_k(verdict: NDArray[np.int8], k: int) -> NDArray[np.float64]:
    """Mean pass@k over the problems of each step that have so many rollouts; shape (steps,)."""
    judged = ~np.isin(verdict, _UNJUDGED)
    n, c = judged.sum(1), (verdict == RIGHT).sum(1)
    values = pass_at_k(np.maximum(n, 1), c, k)
    there = (n >= k) & ~np.isnan(values)
    sums = np.where(there, values, 0.0).sum(0)
    counts = there.sum(0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
