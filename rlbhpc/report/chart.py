"""Charts as data: panels with axes, and the lines, areas, dots and texts between them.

The page draws a chart as SVG (:mod:`rlbhpc.report.svg`), a paper as PDF
(:mod:`rlbhpc.report.paper`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rlbhpc.report.phrases import FloatArray
from rlbhpc.stats import Interval
from rlbhpc.stats.interval import without_noise

# Tick labels that fit beside each other on a telephone.
_MOST_TICKS: Final = 6
_ROUND_STEPS: Final = (1, 2, 2.5, 5, 10)
# Steps of the ticks within a power of ten: of a wide range, and of one below a factor of 3.
_WIDE_LOG_STEPS: Final = (1, 2, 5)
_NARROW_LOG_STEPS: Final = (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7)
_QUARTERS: Final = tuple((float(percent), str(percent)) for percent in (0, 25, 50, 75, 100))


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

    def place(self, values: ArrayLike) -> FloatArray:
        """Where values lie on the axis: 0 at the low end, 1 at the high one; never outside.

        NaN stays NaN. On a log axis equal ratios are equally long.
        """
        array = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.log:
            array = np.log(np.maximum(array, low))
            low, high = math.log(low), math.log(high)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.clip((array - low) / (high - low), 0, 1))


def k_axis(largest: int) -> Axis:
    """Draw sizes from 1 to ``largest`` on a log scale, with powers of two as ticks."""
    octaves = int(math.log2(largest)) if largest > 1 else 0
    octaves_per_tick = math.ceil((octaves + 1) / _MOST_TICKS)
    exponents = range(0, octaves + 1, octaves_per_tick)
    ticks = tuple((2.0**exponent, f"{2**exponent:,}") for exponent in exponents)
    return Axis(1, max(largest, 2), "k (samples per problem)", ticks, log=True)


def percent_axis(label: str = "pass@k, %") -> Axis:
    """From 0 to 100 %, so that figures can be compared by eye."""
    return Axis(0, 100, label, _QUARTERS)


def linear_axis(values: Iterable[ArrayLike], label: str, *, zero: bool = False) -> Axis:
    """A range between round numbers that holds all finite values, and 0 if ``zero``.

    It is divided into about four steps, each with a tick, and ends at whole steps.
    """
    finite = _finite(values)
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    # All values are alike: a range around them.
    if high - low < 1e-12:
        high += 1
        low -= 0 if zero else 1
    step = _round_step((high - low) / 4)
    # Noise beyond a whole step does not add another.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((i * step, _tick_text(i * step)) for i in range(first, last + 1))
    return Axis(first * step, last * step, label, ticks)


def points_axis(intervals: Iterable[Interval], label: str) -> Axis:
    """A range in percentage points that holds 0 and these rates with their intervals.

    Rates are from −1 to 1; estimate and bounds may be arrays.
    """
    ends = [
        100 * end
        for interval in intervals
        for end in (interval.estimate, interval.lower, interval.upper)
    ]
    return linear_axis(ends, label, zero=True)


def log_axis(values: Iterable[ArrayLike], label: str) -> Axis:
    """A log scale from the least to the largest positive value.

    Ticks are round multiples of powers of ten within the range, closer ones where it is narrow. Of
    too many, every ``every``-th is kept.
    """
    finite = _finite(values)
    positive = finite[finite > 0]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 2.0)
    ratio = high / low
    # A margin, so that dots at the ends are whole.
    margin = max(ratio**0.02, 1.05 if ratio < 1.05 else 1.0)
    low, high = low / margin, high * margin
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = _WIDE_LOG_STEPS if high / low > 3 else _NARROW_LOG_STEPS
    candidates = [step * 10.0**power for power in powers for step in steps]
    inside = [value for value in candidates if low <= value <= high] or [low]
    every = math.ceil(len(inside) / _MOST_TICKS)
    ticks = tuple((value, _tick_text(value)) for value in inside[::every])
    return Axis(low, high, label, ticks, log=True)


def step_axis(steps: Iterable[int], label: str = "training step") -> Axis:
    """Training steps; the ticks are steps that were measured, the last one among them.

    Of too many, every ``every``-th is kept, counted from the last.
    """
    measured = sorted(set(steps)) or [0]
    every = math.ceil(len(measured) / _MOST_TICKS)
    ticks = tuple((step, f"{step:,}") for step in measured[::-1][::every][::-1])
    low, high = measured[0], measured[-1]
    if low == high:
        high += 1
    margin = 0.03 * (high - low)
    return Axis(low - margin, high + margin, label, ticks)


def row_axis(rows: int) -> Axis:
    """The upright axis of a chart of rows: one unit per row, the first row at the top."""
    return Axis(-rows, 0)


def _finite(values: Iterable[ArrayLike]) -> FloatArray:
    arrays = [np.ravel(np.asarray(part, np.float64)) for part in values]
    joined = np.concatenate([*arrays, np.empty(0)])
    return np.asarray(joined[np.isfinite(joined)], np.float64)


def _round_step(least: float) -> float:
    """The next larger of 1, 2, 2.5, 5 and 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _ROUND_STEPS if step * power >= least * (1 - 1e-9))


def _tick_text(value: float) -> str:
    # Plus 0 makes 0 of −0.
    return f"{value + 0.0:,.6g}".replace("-", "−")


#: The colour of text and axes: on the page, that of the text around the figure.
INK: Final = "currentColor"
BASE_COLOUR: Final = "#767676"
# Okabe and Ito (2008): colours that stay apart for all kinds of colour vision, without their
# yellow, which is too light for a line, and without black, which is the ink.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
#: Lengths of strokes and gaps in pixels.
DASHED: Final = "5 3"
DOTTED: Final = "1.5 2.5"
# Points of a line that show their values to a pointer.
_MOST_HINTS: Final = 12


@dataclass(frozen=True)
class Stroke:
    """A line through points, interrupted where one is NaN."""

    x: FloatArray
    y: FloatArray
    colour: str
    width: float = 1.6
    dash: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    """The area between two lines; ``outline`` draws its edge instead of filling it."""

    x: FloatArray
    low: FloatArray
    high: FloatArray
    colour: str
    opacity: float = 0.16
    outline: bool = False


@dataclass(frozen=True)
class Dots:
    """Round dots, their size in pixels; ``hollow`` ones are rings."""

    x: FloatArray
    y: FloatArray
    colour: str
    size: float = 6.0
    hollow: bool = False


@dataclass(frozen=True)
class Label:
    """A text that begins at a point, ``rise`` pixels below it."""

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

    ``hints`` are texts that show when a pointer rests on their places.
    """

    x: Axis
    y: Axis
    title: str = ""
    height: int = 200
    marks: list[Mark] = field(default_factory=list)
    hints: list[Label] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    def line(
        self, x: ArrayLike, y: ArrayLike, colour: str, *, name: str = "", dash: str = "",
        width: float = 1.6, opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a line; one with a name shows its values to a pointer.

        ``dash``: lengths of strokes and gaps in pixels; solid where empty. ``width``: in pixels.
        """
        stroke = Stroke(_floats(x), _floats(y), colour, width, dash, opacity)
        self.marks.append(stroke)
        if name:
            self._add_hints(stroke.x, stroke.y, name, _MOST_HINTS)

    def band(
        self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, opacity: float = 0.16
    ) -> None:
        """Fill the area between two lines."""
        self.marks.append(Area(_floats(x), _floats(low), _floats(high), colour, opacity))

    def curve(
        self, x: ArrayLike, rates: Interval, colour: str, name: str, *, dash: str = "",
        opacity: float = 0.16,
    ) -> None:  # fmt: skip
        """Draw rates in percent with their band; a single rate as a dot, since a line needs two.

        ``x, rates``: of the same length; an interval's estimate and bounds are arrays over ``x``.
        """
        estimate, lower, upper = 100 * rates.estimate, 100 * rates.lower, 100 * rates.upper
        if np.size(x) == 1:
            self.points(x, estimate, colour, lower, upper, name=name)
            return
        self.band(x, lower, upper, colour, opacity)
        self.line(x, estimate, colour, name=name, dash=dash)

    def named_curve(
        self, x: ArrayLike, rates: Interval, colour: str, name: str, *, dash: str = "",
        opacity: float = 0.16,
    ) -> None:  # fmt: skip
        """Draw a :meth:`curve` with its name where it ends."""
        self.curve(x, rates, colour, name, dash=dash, opacity=opacity)
        self.end(100 * rates.estimate, name, colour)

    def points(
        self, x: ArrayLike, y: ArrayLike, colour: str, low: ArrayLike | None = None,
        high: ArrayLike | None = None, *, name: str = "", hollow: bool = False,
        sideways: bool = False, size: float = 6.0,
    ) -> None:  # fmt: skip
        """Draw dots with their intervals, which are upright unless ``sideways``.

        ``low, high``: ends of each dot's interval; no bars without them. All bars are one
        interrupted line. ``hollow``: draw rings. ``size``: in pixels.
        """
        dots = Dots(_floats(x), _floats(y), colour, size, hollow)
        if low is not None and high is not None:
            # NaN interrupts the line between two bars.
            gap = np.full_like(dots.x, np.nan)
            ends = np.stack([_floats(low), _floats(high), gap], axis=1).ravel()
            if sideways:
                self.marks.append(Stroke(ends, np.repeat(dots.y, 3), colour, 1.2))
            else:
                self.marks.append(Stroke(np.repeat(dots.x, 3), ends, colour, 1.2))
        self.marks.append(dots)
        self._add_hints(dots.x, dots.y, name, len(dots.x))

    def interval_line(
        self, x: Sequence[float], intervals: Sequence[Interval], colour: str, name: str, *,
        scale: float = 100, hollow: bool = False, size: float = 6.0,
    ) -> None:  # fmt: skip
        """Draw a line through single intervals, each a dot with a bar, times ``scale``.

        A scale of 100 makes rates percent. ``hollow``: draw rings. ``size``: of the dots in pixels.
        """
        estimates = [scale * float(interval.estimate) for interval in intervals]
        lower = [scale * interval.low for interval in intervals]
        upper = [scale * interval.high for interval in intervals]
        self.line(x, estimates, colour, width=1.2)
        self.points(x, estimates, colour, lower, upper, name=name, hollow=hollow, size=size)

    def interval_row(self, number: int, name: str, rate: Interval, colour: str) -> None:
        """Fill a row of a chart of rows with one rate in percent and its interval."""
        middle = self.row(number, name)
        self.points(
            100 * rate.estimate, middle, colour, 100 * rate.lower, 100 * rate.upper, name=name,
            sideways=True,
        )  # fmt: skip

    def dots(self, x: ArrayLike, y: ArrayLike, colour: str) -> None:
        """Draw a cloud of small dots that show no values to a pointer."""
        self.marks.append(Dots(_floats(x), _floats(y), colour, 2.5))

    def bar(
        self, x: tuple[float, float], y: tuple[float, float], colour: str, *, filled: bool = True,
        hint: str = "",
    ) -> None:  # fmt: skip
        """Draw a rectangle, filled or as an outline; ``hint`` shows to a pointer.

        ``x, y``: from and to, in the units of the axes.
        """
        low, high = np.full(2, y[0]), np.full(2, y[1])
        opacity = 0.75 if filled else 1.0
        self.marks.append(Area(_floats(x), low, high, colour, opacity, outline=not filled))
        if hint:
            self.hints.append(Label(sum(x) / 2, sum(y) / 2, hint))

    def level(self, y: float, *, dash: str = "", colour: str = INK, width: float = 0.8) -> None:
        """Draw a horizontal line from end to end."""
        ends = np.array([self.x.low, self.x.high])
        self.marks.append(Stroke(ends, np.full(2, y), colour, width, dash))

    def upright(self, x: float, *, dash: str = DOTTED, colour: str = INK) -> None:
        """Draw a vertical line from end to end."""
        ends = np.array([self.y.low, self.y.high])
        self.marks.append(Stroke(np.full(2, x), ends, colour, 0.8, dash))

    def shade_large_k(self, samples: int) -> None:
        """Shade k > n/4, where the samples of one problem hold fewer than four draws of k.

        ``samples``: n, the samples of each problem. Nothing is shaded below four.
        """
        if samples >= 4:
            ends = np.array([samples / 4, samples])
            low, high = np.full(2, self.y.low), np.full(2, self.y.high)
            self.marks.append(Area(ends, low, high, BASE_COLOUR, 0.13))
            self.label(samples / 4, self.y.high, "k > n/4", rise=-3)

    def label(self, x: float, y: float, text: str, *, rise: float = 0.0) -> None:
        """Write a text that begins at a point, ``rise`` pixels below it."""
        self.marks.append(Label(x, y, text, rise))

    def end(self, y: ArrayLike, name: str, colour: str) -> None:
        """Write the name of a curve of these heights where it ends."""
        heights = _floats(y)
        finite = heights[np.isfinite(heights)]
        if len(finite):
            self.ends.append(End(float(finite[-1]), name, colour))

    def row(self, number: int, text: str) -> float:
        """Write the head of a row of a chart of rows, and give the height for its marks."""
        self.label(self.x.low, -number - 0.28, text)
        return -number - 0.72

    def _add_hints(self, x: FloatArray, y: FloatArray, name: str, most: int) -> None:
        """Let at most ``most`` points, spread evenly, show their values to a pointer.

        A hint is the name with both values, each behind its axis's label; the unit behind " (" is
        cut off. Points with NaN have none.
        """
        finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        chosen = np.linspace(0, len(finite) - 1, min(most, len(finite))).round().astype(int)
        x_label, y_label = self.x.label.partition(" (")[0], self.y.label
        for i in finite[np.unique(chosen)].tolist():
            x_value, y_value = without_noise([x[i], y[i]]).tolist()
            values = []
            if y_label:
                values.append(f"{y_label} {y_value:.4g}")
            if x_label:
                values.append(f"{x_label} {x_value:,.5g}")
            text = ", ".join(values)
            if name:
                text = f"{name}: {text}"
            self.hints.append(Label(float(x[i]), float(y[i]), text))


class Colours:
    """One colour per arm, the same in every figure of a report.

    ``arm_of_model``: the arm whose colour a model has.
    """

    def __init__(
        self,
        arms: Iterable[str],
        bases: Iterable[str],
        arm_of_model: Mapping[str, str] | None = None,
    ) -> None:
        """Give each arm a colour: bases a grey, trained arms those of the palette in turn.

        ``arm_of_model``: the arm whose colour a model has.
        """
        self._bases = set(bases)
        self._arm_of_model = arm_of_model or {}
        self._colour_of_arm = dict.fromkeys(self._bases, BASE_COLOUR)
        trained = [arm for arm in dict.fromkeys(arms) if arm not in self._bases]
        for i, arm in enumerate(trained):
            self._colour_of_arm[arm] = _PALETTE[i % len(_PALETTE)]

    def __getitem__(self, name: str) -> str:
        """Give the colour of an arm, or of a model by its arm."""
        arm = name if name in self._colour_of_arm else self._arm_of_model.get(name, "")
        return self._colour_of_arm.get(arm, BASE_COLOUR)

    def dash(self, arm: str) -> str:
        """Give the dashes of an arm's line: a base is dashed, a trained arm solid."""
        return DASHED if arm in self._bases else ""

    def legend(self, arms: Iterable[str]) -> tuple[Key, ...]:
        """Give the legend of some arms, each once."""
        return tuple(Key(arm, self[arm], self.dash(arm)) for arm in dict.fromkeys(arms))


@dataclass(frozen=True)
class Chart:
    """Panels beside each other, the legend that they share, and the numbers in them.

    ``numbers``: a table, or what makes it, since the page needs none.
    """

    panels: Sequence[Panel]
    numbers: pd.DataFrame | Callable[[], pd.DataFrame]
    legend: tuple[Key, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The numbers as a table."""
        return self.numbers if isinstance(self.numbers, pd.DataFrame) else self.numbers()


def spread_heights(
    heights: Sequence[float], distance: float, low: float, high: float
) -> FloatArray:
    """Move rising heights as little as it takes to stand ``distance`` apart, from low to high.

    The names of curves stand at these heights and must not overlap. Each height less its rank times
    the distance only has to rise. Isotonic regression does that: neighbours that fall take their
    mean (pool adjacent violators). A block holds such neighbours. The ranks are added again at the
    end.
    """
    blocks: list[tuple[float, int]] = []  # mean and size
    for rank, height in enumerate(heights):
        blocks.append((height - rank * distance, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            upper_mean, upper_size = blocks.pop()
            lower_mean, lower_size = blocks.pop()
            size = lower_size + upper_size
            mean = (lower_mean * lower_size + upper_mean * upper_size) / size
            blocks.append((mean, size))
    levels = np.repeat([mean for mean, _ in blocks], [size for _, size in blocks])
    ranks = np.arange(len(heights))
    room = high - low - distance * max(len(heights) - 1, 0)
    return np.asarray(np.clip(levels, low, low + max(room, 0.0)) + distance * ranks)


def _floats(values: ArrayLike) -> FloatArray:
    return np.atleast_1d(np.asarray(values, np.float64))
