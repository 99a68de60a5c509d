"""How reliably an arm solves what it solves, and what is certain of these very problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.stats import (
    Interval,
    bayes_at_n,
    detection_threshold,
    g_pass_at_k,
    mg_pass_at_k,
    pass_hat_k,
)
from rlbhpc.stats.cover import cover_at
from rlbhpc.stats.fixed import FixedCurve, fixed_curve
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.verify.verdict import Status

#: Draws of the metrics that ask for all or most of them to be right, and levels of Cover@τ.
DRAWS: Final = 8
LEVELS: Final = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Reliability:
    """Metrics of one arm at one step.

    Attributes
    ----------
    k
        Draws of the metrics, at most ``DRAWS``.
    values
        By name: pass@1, pass^k, G-Pass@k at τ = .5, mG-Pass@k and Cover@τ, with intervals for
        problems like these; and Bayes@N of exactly these, where samples are known one by one and
        of all problems equally many.
    fixed
        pass@k of exactly these problems, with the noise of sampling alone.
    threshold
        Success rates below this may look unsolvable in as many samples as there are.
    """

    of: Measured
    k: int
    values: dict[str, Interval]
    fixed: FixedCurve
    threshold: float


def reliability(report: Report, shown: Sequence[Measured]) -> list[Reliability]:
    """Work out the metrics of some arms, at the same k for all arms of a problem set."""
    found = []
    prob = report.settings.prob
    sampled = [one for one in shown if one.sampled.any()]
    reach = {one.problem_set: DRAWS for one in sampled}
    for one in sampled:
        least = one.counts[one.sampled].reach
        reach[one.problem_set] = min(reach[one.problem_set], least)
    for one in sampled:
        rows = np.flatnonzero(one.sampled)
        counts = one.counts[rows]
        weights = report.draws.of(tuple(one.problems[i] for i in rows))
        k = reach[one.problem_set]
        n, c = counts.n, counts.c
        means = {
            "pass@1": c / n,
            f"pass^{k}": pass_hat_k(n, c, k),
            f"G-Pass@{k}, τ = .5": g_pass_at_k(n, c, k, 0.5),
            f"mG-Pass@{k}": mg_pass_at_k(n, c, k),
        }
        values = {
            name: mean_interval(value, weights, prob, "problem bootstrap")
            for name, value in means.items()
        }
        cover = cover_at(counts, weights, LEVELS, prob)
        values |= {f"Cover@{level:g}": cover[i] for i, level in enumerate(LEVELS)}
        outcomes = _outcomes(one, rows)
        if outcomes is not None:
            values["Bayes@N"] = bayes_at_n(outcomes).interval(prob=prob)
        threshold = float(detection_threshold([counts.reach], prob)[0])
        found.append(Reliability(one, k, values, fixed_curve(counts, None, prob), threshold))
    return found


def _outcomes(one: Measured, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Right or not of every sample; None unless all problems have equally many, one by one."""
    if one.verdicts is None or len({*one.counts.n[rows].tolist()}) != 1:
        return None
    verdicts = one.verdicts[rows]
    judged = (verdicts >= Status.WRONG) & (verdicts <= Status.TIMEOUT)
    right = (verdicts == Status.RIGHT)[judged]
    return np.asarray(right.reshape(len(rows), -1), np.int64)
