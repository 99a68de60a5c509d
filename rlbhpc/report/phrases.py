"""Numbers as every part of a report gives them: in words, and in the columns of its tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.stats import Interval
from rlbhpc.stats.decision import interval_in_points
from rlbhpc.stats.interval import without_noise

# Significant digits of a number in a file. A seventh may differ from processor to processor.
_DIGITS: Final = 6


def file_number(value: float) -> float:
    """Give a number as files print it: in six digits, whole ones whole, noise and −0 as 0."""
    clean = float(without_noise(value))
    return (
        clean if not math.isfinite(clean) or clean.is_integer() else float(f"{clean:.{_DIGITS}g}")
    )


def percent_text(value: float) -> str:
    """A rate in percent with one decimal; a dash where there is none."""
    return "–" if math.isnan(value) else f"{float(without_noise(100 * value)):z.1f}"


def points_text(value: float) -> str:
    """A difference of rates in points, with its sign."""
    return "–" if math.isnan(value) else f"{float(without_noise(100 * value)):+z.1f}"


def interval_text(
    interval: Interval | None, index: int | None = None, *, sign: bool = False
) -> str:
    """``31.2 [18.0, 45.0]``, with ``?`` behind unsound bounds; alone where there are none."""
    if interval is None:
        return "–"
    return interval_in_points(
        interval if index is None else interval[index], "+z.1f" if sign else "z.1f"
    )


def interval_texts(sizes: Sequence[int], k: NDArray[np.int64], interval: Interval) -> list[str]:
    """:func:`bounds` at some of ``k``; a dash at sizes that are none of them."""
    place = {size: i for i, size in enumerate(k.tolist())}
    return [interval_text(interval, place[size]) if size in place else "–" for size in sizes]


def number_text(interval: Interval, digits: int = 2) -> str:
    """``0.41 [0.38, 0.44]``: a number that is no rate, with ``?`` as in :func:`bounds`."""
    values = (float(v) for v in (interval.estimate, interval.lower, interval.upper))
    if math.isnan(float(interval.estimate)):
        return "–"
    estimate, lower, upper = (f"{value:z,.{digits}f}" for value in values)
    return f"{estimate} [{lower}, {upper}]{'' if bool(interval.sound) else ' ?'}"


def p_value(value: float) -> str:
    """Three digits, never 0; a dash where there is none."""
    if math.isnan(value):
        return "–"
    return "< .001" if value < 0.0005 else "1" if value >= 0.9995 else f"{value:.3f}"[1:]


def equals_p(value: float) -> str:
    """``= .031``, or ``< .001``."""
    text = p_value(value)
    return text if text.startswith("<") else f"= {text}"


def adjusted_p(value: float, holm: float, comparisons: int) -> str:
    """``= .031, = .062 by Holm over 2 comparisons``; alone where there is one comparison."""
    if comparisons < 2 or math.isnan(holm):
        return equals_p(value)
    return f"{equals_p(value)}, {equals_p(holm)} by Holm over {comparisons} comparisons"


def probability_text(value: float) -> str:
    """``= .97``: a probability in two digits, rounded neither to 0 nor to 1."""
    if value == 0:
        return "= 0"
    if value < 0.005:
        return "< .005"
    if 0.995 < value < 1:
        return "> .995"
    return "= " + (f"{value:.2f}".lstrip("0") if value < 1 else "1")


def count_text(number: int, noun: str) -> str:
    """``1 problem``, ``2 problems``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str, *, lines: bool = False) -> str:
    """Text of unknown origin without characters that move a cursor, hide or reorder text."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        char if char.isprintable() or char in kept else "\N{REPLACEMENT CHARACTER}" for char in text
    )


# What LaTeX would take for a command, and what its fonts lack.
_SPECIAL: Final = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "–": "--", "≤": r"$\le$", "Δ": r"$\Delta$", "τ": r"$\tau$", "≥": r"$\ge$",
    "·": r"$\cdot$", "<": r"\textless{}",
    ">": r"\textgreater{}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is; characters that cannot be seen are replaced."""
    return "".join(_SPECIAL.get(char, char) for char in printable(text))


#: What ``?`` means, wherever it is printed.
UNSOUND = (
    "? marks intervals that may be too short: few problems carry the value, or it lies close to "
    "0 or 1."
)


def stack_rows(parts: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Lay parts under each other; all have the same columns, and single values are repeated.

    Examples
    --------
    >>> stacked([{"arm": "base", "k": [1, 2]}, {"arm": "rl", "k": [1]}]).values.tolist()
    [['base', 1], ['base', 2], ['rl', 1]]
    """
    arrays = [{name: _array(value) for name, value in part.items()} for part in parts]
    if not arrays:
        return pd.DataFrame()
    lengths = [max(len(a) for a in part.values() if a.ndim) for part in arrays]
    return pd.DataFrame(
        {
            name: np.concatenate(
                [
                    part[name] if part[name].ndim else np.repeat(part[name], length)
                    for part, length in zip(arrays, lengths, strict=True)
                ]
            )
            for name in arrays[0]
        }
    )


def interval_columns(
    name: str, interval: Interval | None, prefix: str = "", *, sound: bool = False
) -> dict[str, Any]:
    """Columns of an interval: the estimate, its bounds behind ``prefix``, and if they are sound."""
    names = {name: "estimate", f"{prefix}lower": "lower", f"{prefix}upper": "upper"}
    names |= {"sound": "sound"} if sound else {}
    if interval is None:
        return dict.fromkeys(names, np.nan)
    # An index of nothing makes a plain number of an array without dimensions.
    return {column: getattr(interval, side)[()] for column, side in names.items()}


def _array(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array
