"""Axes: a range, a scale, and ticks that are the same in every figure of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.stats import Interval

# Labels that fit beside each other on a telephone.
_LABELS: Final = 6
_STEPS: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """One axis of a panel.

    ``label``: what it measures, with the unit. ``ticks``: values with the text at each. ``log``:
    whether equal ratios are equally long.
    """

    low: float
    high: float
    label: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False

    def place(self, values: ArrayLike) -> NDArray[np.float64]:
        """Where values lie: 0 at the low end, 1 at the high one; never outside."""
        array = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.log:
            array = np.log(np.maximum(array, low))
            low, high = math.log(low), math.log(high)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.clip((array - low) / (high - low), 0, 1))


def k_axis(reach: int) -> Axis:
    """Draw sizes from 1 to ``reach`` on a log scale, with powers of two as ticks."""
    octaves = int(math.log2(reach)) if reach > 1 else 0
    step = -(-(octaves + 1) // _LABELS)
    ticks = tuple((2.0**i, f"{2**i:,}") for i in range(0, octaves + 1, step))
    return Axis(1, max(reach, 2), "k (samples per problem)", ticks, log=True)


def percent_axis(label: str = "pass@k, %") -> Axis:
    """From 0 to 100 %, so that figures can be compared by eye."""
    return Axis(0, 100, label, tuple((float(v), str(v)) for v in (0, 25, 50, 75, 100)))


def linear_axis(values: Iterable[ArrayLike], label: str, *, zero: bool = False) -> Axis:
    """A range of round numbers that holds all values, and 0 where ``zero`` says so."""
    every = _finite(values)
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-12:
        low, high = (low - 1, high + 1) if not zero else (low, high + 1)
    step = _round_step((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((i * step, _text(i * step)) for i in range(first, last + 1))
    return Axis(first * step, last * step, label, ticks)


def points_axis(intervals: Iterable[Interval], label: str) -> Axis:
    """A range in points or percent that holds 0 and all these rates with their intervals."""
    limits = [100 * x for value in intervals for x in (value.estimate, value.lower, value.upper)]
    return linear_axis(limits, label, zero=True)


def log_axis(values: Iterable[ArrayLike], label: str) -> Axis:
    """A log scale from the least to the largest positive value, with ticks of 1, 2 and 5."""
    every = _finite(values)
    every = every[every > 0]
    low, high = (float(every.min()), float(every.max())) if len(every) else (1.0, 2.0)
    if high / low < 1.05:
        low, high = low / 1.05, high * 1.05
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low > 3 else (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7)
    marks = [step * 10.0**power for power in powers for step in steps]
    inside = [mark for mark in marks if low <= mark <= high] or [low]
    thinned = inside[:: -(-len(inside) // _LABELS)]
    return Axis(low, high, label, tuple((mark, _text(mark)) for mark in thinned), log=True)


def step_axis(steps: Sequence[int], label: str = "training step") -> Axis:
    """Training steps, with those that were measured as ticks."""
    every = sorted(set(steps)) or [0]
    # From the last one backwards: the end of the training always has its label.
    thinned = every[::-1][:: -(-len(every) // _LABELS)][::-1]
    low, high = every[0], every[-1] if len(every) > 1 else every[0] + 1
    margin = 0.03 * (high - low)
    return Axis(low - margin, high + margin, label, tuple((s, f"{s:,}") for s in thinned))


def row_axis(rows: int) -> Axis:
    """One unit per row of a chart of rows, the first at the top."""
    return Axis(-rows, 0)


def _finite(values: Iterable[ArrayLike]) -> NDArray[np.float64]:
    parts = [np.ravel(np.asarray(part, np.float64)) for part in values]
    every = np.concatenate(parts) if parts else np.empty(0)
    return np.asarray(every[np.isfinite(every)], np.float64)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


def _text(value: float) -> str:
    return f"{value + 0.0:,.6g}".replace("-", "−")
