"""What a study of its size can decide, as ``rlbhpc plan`` shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc.cli.table import print_table
from rlbhpc.stats.power import CHANCE, smallest_loss
from rlbhpc.study.study import Study
from rlbhpc.sweep.presence import Presence

# Samples of every problem, and right ones where it stops, from which a base's rates are taken.
_ENOUGH: Final = 8


class _Size(NamedTuple):
    """What of a comparison decides its power; ``stop_after``: of the base and of the other arm."""

    base: str
    set_name: str
    n: int
    stop_after: tuple[int, int]


def power_rows(study: Study, present: Sequence[Presence]) -> list[dict[str, Any]]:
    """One row per problem set, number of samples and stopping rule that is compared."""
    by_arm = {(p.block.arm, p.block.set_name): p for p in present}
    shared = [
        _Size(
            base,
            set_name,
            min(study.n(base, set_name), study.n(trained, set_name)),
            (study.stop_after(base, set_name), study.stop_after(trained, set_name)),
        )
        for base, trained in study.comparisons()
        for set_name in study.sets(base)
        if set_name in study.sets(trained)
    ]
    rows = []
    for size in dict.fromkeys(shared):
        problems = len(study.problem_ids(size.set_name))
        rates = _rates(by_arm.get((size.base, size.set_name)))
        rng = np.random.default_rng(0)
        power = smallest_loss(problems, size.n, rng, len(shared), rates, size.stop_after)
        decided = not math.isnan(power.share)
        rows.append({
            "base": size.base,
            "problem_set": size.set_name,
            "problems": problems,
            "n": size.n,
            "comparisons": len(shared),
            "smallest_share": power.share if decided else None,
            "smallest_count": int(power.count) if decided else None,
            "rates": "its first samples" if rates is not None else "a typical base",
        })  # fmt: skip
    return rows


def _rates(present: Presence | None) -> NDArray[np.float64] | None:
    """Success rates of a base that has enough samples of every problem."""
    if present is None or not len(present.count) or present.count.min() < _ENOUGH:
        return None
    if 0 < present.block.stop_after < _ENOUGH:
        return None  # a rate from fewer right samples is mostly noise
    n, c = present.counts().places
    return np.asarray(c / n)


def print_power(rows: Sequence[dict[str, Any]]) -> None:
    """Print the smallest loss or gain that is called."""
    if not rows:
        return
    cells = [
        [
            row["problem_set"], row["base"], row["problems"], row["n"],
            "none" if row["smallest_count"] is None
            else f"{row['smallest_count']:,} ({100 * row['smallest_share']:.1f} %)",
            row["rates"],
        ]
        for row in rows
    ]  # fmt: skip
    title = (
        f"Smallest loss or gain of problems that {100 * CHANCE:g} % of such studies call, "
        f"with {rows[0]['comparisons']:,} comparisons"
    )
    print_table(title, ["problem set", "base", "problems", "n", "smallest", "rates from"], cells)
