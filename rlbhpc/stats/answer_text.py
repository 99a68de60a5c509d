"""An answer as sentences that a paper or a terminal can show, with every interval in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlbhpc.stats.interval import Interval
from rlbhpc.stats.joint import FACTOR

if TYPE_CHECKING:
    from rlbhpc.stats.decision import Answer, Finding


def answer_sentences(found: Answer) -> tuple[str, ...]:
    """Lost and gained first, then the net, then k = 1, then what was left out."""
    if not found.solved:
        return (
            f"Neither model solves any of the {found.lost.problems} problems in {found.k:,} "
            f"samples each.",
        )
    parts = [
        _observed(found),
        _finding("lost", found.lost, found.margin),
        _finding("gained", found.gained, found.margin),
        f"At k = {found.k:,} trained minus base is {points(found.net)} points; at k = 1 it is "
        f"{points(found.efficiency)}.",
    ]
    if found.left_out:
        parts.append(
            f"{len(found.left_out)} problems with fewer than {found.k:,} samples are left out."
        )
    return tuple(parts)


def _observed(found: Answer) -> str:
    p = "" if math.isnan(found.p_mcnemar) else f" (McNemar p {p_value(found.p_mcnemar)})"
    return (
        f"In {found.k:,} samples it lost {found.lost.count} of {found.lost.problems} problems and "
        f"gained {found.gained.count}{p}."
    )


def _finding(verb: str, found: Finding, margin: float) -> str:
    shares = f"{100 * found.estimate:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}] %"
    slower = f"{FACTOR:g} times the samples, or never solved"
    told = {
        "yes": f"Problems were {verb}",
        "no": f"Fewer than {100 * margin:g} % of problems were {verb}",
        "undecided": f"It is undecided whether problems were {verb}",
    }[found.verdict]
    return f"{told} ({slower}): {shares}."


def points(interval: Interval) -> str:
    """``+2.3 [-1.7, +6.4]``."""
    values = (interval.estimate, interval.lower, interval.upper)
    middle, low, high = (f"{100 * float(v):+.1f}" for v in values)
    return f"{middle} [{low}, {high}]"


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
