"""Axes: a range, a scale, and ticks that are the same in every figure of a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.stats import Interval
from rlbhpc.stats.interval import without_noise

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
    # Dots at the ends are whole.
    margin = max((high / low) ** 0.02, 1.05 if high / low < 1.05 else 1.0)
    low, high = low / margin, high * margin
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


#: The colour of text and axes: on the page, that of the text around the figure.
INK: Final = "currentColor"
BASE_COLOUR: Final = "#767676"
# Okabe and Ito (2008): colours that stay apart for all kinds of colour vision, without their
# yellow, which is too light for a line, and without black, which is the ink.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHED: Final = "5 3"
DOTTED: Final = "1.5 2.5"

Array = NDArray[np.float64]
# Points of a line for a pointer to rest on.
_SPOTS: Final = 12


@dataclass(frozen=True)
class Stroke:
    """A line through points, interrupted where one is NaN."""

    x: Array
    y: Array
    colour: str
    width: float = 1.6
    dash: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    """What lies between two lines; ``outline`` draws its edge instead of filling it."""

    x: Array
    low: Array
    high: Array
    colour: str
    opacity: float = 0.16
    outline: bool = False


@dataclass(frozen=True)
class Dots:
    """Round dots, the size in pixels; ``hollow`` ones are rings."""

    x: Array
    y: Array
    colour: str
    size: float = 6.0
    hollow: bool = False


@dataclass(frozen=True)
class Label:
    """A text that begins at a point."""

    x: float
    y: float
    text: str
    rise: float = 0.0


@dataclass(frozen=True)
class End:
    """The name of a curve, at the height where it ends."""

    y: float
    name: str
    colour: str


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    name: str
    colour: str
    dash: str = ""


Mark = Stroke | Area | Dots | Label


@dataclass
class Panel:
    """Two axes and what is drawn between them; ``height`` in pixels of the page.

    ``spots`` are values that show when a pointer rests on their places.
    """

    x: Axis
    y: Axis
    title: str = ""
    height: int = 200
    marks: list[Mark] = field(default_factory=list)
    spots: list[Label] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    def line(
        self, x: ArrayLike, y: ArrayLike, colour: str, *, name: str = "", dash: str = "",
        width: float = 1.6, opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a line; one with a name shows its values to a pointer."""
        across, up = _floats(x), _floats(y)
        self.marks.append(Stroke(across, up, colour, width, dash, opacity))
        if name:
            self._rest_on(across, up, name)

    def band(
        self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, opacity: float = 0.16
    ) -> None:
        """Fill what lies between two lines."""
        self.marks.append(Area(_floats(x), _floats(low), _floats(high), colour, opacity))

    def curve(
        self, x: ArrayLike, rates: Interval, colour: str, name: str, *, dash: str = "",
        opacity: float = 0.16,
    ) -> None:  # fmt: skip
        """Draw rates in percent with their band; a single one as a dot: a line has two ends."""
        middle, low, high = (100 * side for side in (rates.estimate, rates.lower, rates.upper))
        if np.size(x) == 1:
            self.points(x, middle, colour, low, high, name=name)
            return
        self.band(x, low, high, colour, opacity)
        self.line(x, middle, colour, name=name, dash=dash)

    def points(
        self, x: ArrayLike, y: ArrayLike, colour: str, low: ArrayLike | None = None,
        high: ArrayLike | None = None, *, name: str = "", hollow: bool = False,
        sideways: bool = False, size: float = 6.0,
    ) -> None:  # fmt: skip
        """Draw dots with their intervals, which are upright unless ``sideways``."""
        across, up = _floats(x), _floats(y)
        if low is not None and high is not None:
            ends = np.stack([_floats(low), _floats(high), np.full_like(across, np.nan)], axis=1)
            fixed = np.repeat(up if sideways else across, 3)
            bars = (ends.ravel(), fixed) if sideways else (fixed, ends.ravel())
            self.marks.append(Stroke(*bars, colour, 1.2))
        self.marks.append(Dots(across, up, colour, size, hollow))
        self._rest_on(across, up, name, len(across))

    def dots(self, x: ArrayLike, y: ArrayLike, colour: str) -> None:
        """Draw a cloud of small dots without values to rest on."""
        self.marks.append(Dots(_floats(x), _floats(y), colour, 2.5))

    def bar(
        self, x: tuple[float, float], y: tuple[float, float], colour: str, *, filled: bool = True,
        text: str = "",
    ) -> None:  # fmt: skip
        """Draw a rectangle, filled or as an outline; ``text`` shows to a pointer."""
        corners = _floats(x)
        low, high = np.full(2, y[0]), np.full(2, y[1])
        self.marks.append(Area(corners, low, high, colour, 0.75 if filled else 1.0, not filled))
        if text:
            self.spots.append(Label(sum(x) / 2, sum(y) / 2, text))

    def level(self, y: float, *, dash: str = "", colour: str = INK, width: float = 0.8) -> None:
        """Draw a horizontal line from end to end."""
        ends = np.array([self.x.low, self.x.high])
        self.marks.append(Stroke(ends, np.full(2, y), colour, width, dash))

    def upright(self, x: float, *, dash: str = DOTTED, colour: str = INK) -> None:
        """Draw a vertical line from end to end."""
        ends = np.array([self.y.low, self.y.high])
        self.marks.append(Stroke(np.full(2, x), ends, colour, 0.8, dash))

    def doubt(self, reach: int) -> None:
        """Shade k > n/4, where one problem holds fewer than four draws of k."""
        if reach >= 4:
            ends = np.array([reach / 4, reach])
            low, high = np.full(2, self.y.low), np.full(2, self.y.high)
            self.marks.append(Area(ends, low, high, BASE_COLOUR, 0.13))
            self.label(reach / 4, self.y.high, "k > n/4", rise=-3)

    def label(self, x: float, y: float, text: str, *, rise: float = 0.0) -> None:
        """Write a text that begins at a point, ``rise`` pixels below it."""
        self.marks.append(Label(x, y, text, rise))

    def end(self, y: ArrayLike, name: str, colour: str) -> None:
        """Write the name of a curve of these heights where it ends."""
        last = float(_floats(y)[-1])
        if np.isfinite(last):
            self.ends.append(End(last, name, colour))

    def row(self, number: int, text: str) -> float:
        """Write the head of a row of a chart of rows; the height for its marks."""
        self.label(self.x.low, -number - 0.28, text)
        return -number - 0.72

    def _rest_on(self, x: Array, y: Array, name: str, most: int = _SPOTS) -> None:
        finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        chosen = np.linspace(0, len(finite) - 1, min(most, len(finite))).round().astype(int)
        across, up = self.x.label.partition(" (")[0], self.y.label
        for i in finite[np.unique(chosen)].tolist():
            right, height = without_noise([x[i], y[i]]).tolist()
            values = [
                f"{up} {height:.4g}" if up else "",
                f"{across} {right:,.5g}" if across else "",
            ]
            text = ", ".join(value for value in values if value)
            self.spots.append(Label(float(x[i]), float(y[i]), f"{name}: {text}" if name else text))


class Colours:
    """One colour per arm, the same in every figure of a report.

    ``models`` are from model to arm: a model is drawn as the arm that it is known by.
    """

    def __init__(
        self, arms: Iterable[str], bases: Iterable[str], models: Mapping[str, str] | None = None
    ) -> None:
        self._bases = set(bases)
        trained = [arm for arm in dict.fromkeys(arms) if arm not in self._bases]
        self._of = dict.fromkeys(self._bases, BASE_COLOUR) | {
            arm: _PALETTE[i % len(_PALETTE)] for i, arm in enumerate(trained)
        }
        self._models = dict(models or {})

    def __getitem__(self, arm: str) -> str:
        """Give the colour of an arm, or of a model by its arm."""
        return self._of.get(arm) or self._of.get(self._models.get(arm, ""), BASE_COLOUR)

    def dash(self, arm: str) -> str:
        """Give the dashes of an arm's line: a base is dashed, a trained arm solid."""
        return DASHED if arm in self._bases else ""

    def legend(self, arms: Iterable[str]) -> tuple[Key, ...]:
        """Give the legend of some arms, each once."""
        return tuple(Key(arm, self[arm], self.dash(arm)) for arm in dict.fromkeys(arms))


@dataclass(frozen=True)
class Chart:
    """Panels beside each other, the legend that they share, and the numbers in them.

    ``numbers``: a table, or what makes it, since the page asks for none.
    """

    panels: Sequence[Panel]
    numbers: pd.DataFrame | Callable[[], pd.DataFrame]
    legend: tuple[Key, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The numbers as a table."""
        return self.numbers if isinstance(self.numbers, pd.DataFrame) else self.numbers()


def spread_heights(heights: Sequence[float], least: float, low: float, high: float) -> Array:
    """Move rising heights as little as it takes to stand ``least`` apart, within low and high."""
    # Less its rank each, heights only have to rise: runs that fall take their mean.
    groups: list[tuple[float, int]] = []
    for i, height in enumerate(heights):
        groups.append((height - i * least, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    level = np.repeat([value for value, _ in groups], [times for _, times in groups])
    room = high - low - least * max(len(heights) - 1, 0)
    inside = np.clip(level, low, low + max(room, 0.0))
    return np.asarray(inside + least * np.arange(len(heights)))


def _floats(values: ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(values, np.float64))
