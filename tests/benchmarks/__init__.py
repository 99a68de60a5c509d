"""Measured ratios: every figure that the documentation cites comes from here.

A module ``bench_<topic>.py`` has a function ``run() -> list[Row]``. Both sides of a comparison do
the same work in the same run, and medians are compared, so that a slow or busy machine moves both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measured figure beside its target.

    ``ok`` is None where the figure is stated without a target.
    """

    what: str
    value: float
    unit: str
    target: str = ""
    ok: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON-ready values."""
        return asdict(self)


def median_seconds(work: Callable[[], Any], runs: int = 5, warm_up: int = 1) -> float:
    """Median wall time of ``work`` over ``runs`` calls after ``warm_up`` uncounted ones."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@cache
def loop_seconds() -> float:
    """Seconds of this machine for a million squares in plain Python, which no processor's
    instructions of its own make faster."""
    times = []
    for _ in range(9):
        start = time.process_time()
        sum(i * i for i in range(1_000_000))
        times.append(time.process_time() - start)
    return statistics.median(times)


def in_loops(what: str, seconds: float, most: float, note: str = "") -> Row:
    """A time as a multiple of :func:`loop_seconds` in the same run, and the most that it may be."""
    loops = seconds / loop_seconds()
    stated = f"{seconds:.3g} s; {note}" if note else f"{seconds:.3g} s"
    return Row(what, loops, "loops of a million", f"<= {most:g}", loops <= most, stated)


def paired_medians(
    ours: Callable[[], Any], theirs: Callable[[], Any], runs: int = 5
) -> tuple[float, float]:
    """Median wall times of two sides that take turns, so that drift hits both alike."""
    pairs = [(median_seconds(ours, 1, 0), median_seconds(theirs, 1, 0)) for _ in range(runs + 1)]
    mine, others = zip(*pairs[1:], strict=True)  # the first pair warms up
    return statistics.median(mine), statistics.median(others)
