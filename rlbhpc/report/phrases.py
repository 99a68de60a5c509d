"""Numbers as every part of a report gives them: in words, and in the columns of its tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.stats import Interval
from rlbhpc.stats.decision import interval_in_points, p_value
from rlbhpc.stats.interval import without_noise

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Significant digits of a number in a file. A seventh may differ from processor to processor.
_FILE_DIGITS: Final = 6
_DASH: Final = "–"


def file_number(value: float) -> float:
    """A number as files print it: six digits, with noise and −0 as 0."""
    clean = float(without_noise(value))
    if not math.isfinite(clean) or clean.is_integer():
        return clean
    return float(f"{clean:.{_FILE_DIGITS}g}")


def percent_text(rate: float) -> str:
    """A rate in percent with one decimal; a dash for NaN."""
    return _DASH if math.isnan(rate) else f"{float(without_noise(100 * rate)):z.1f}"


def points_text(difference: float) -> str:
    """A difference of rates in percentage points with its sign; a dash for NaN."""
    return _DASH if math.isnan(difference) else f"{float(without_noise(100 * difference)):+z.1f}"


def interval_text(
    interval: Interval | None, index: int | None = None, *, sign: bool = False
) -> str:
    """An interval of rates in percent: ``31.2 [18.0, 45.0]``, with ``?`` behind unsound bounds.

    ``index``: which element of an interval over arrays. An estimate without bounds stands alone.
    """
    if interval is None:
        return _DASH
    single = interval if index is None else interval[index]
    return interval_in_points(single, "+z.1f" if sign else "z.1f")


def interval_texts(sizes: Sequence[int], k: IntArray, interval: Interval) -> list[str]:
    """:func:`interval_text` at each of ``sizes``; a dash at a size that ``k`` does not have."""
    position = {size: index for index, size in enumerate(k.tolist())}
    return [
        interval_text(interval, position[size]) if size in position else _DASH for size in sizes
    ]


def number_text(interval: Interval, digits: int = 2) -> str:
    """An interval that is no rate: ``0.41 [0.38, 0.44]``, with ``?`` behind unsound bounds.

    ``digits``: decimals. A dash for NaN. *Sound* bounds hold as often as they should.
    """
    if math.isnan(float(interval.estimate)):
        return _DASH
    estimate, lower, upper = (
        f"{float(value):z,.{digits}f}"
        for value in (interval.estimate, interval.lower, interval.upper)
    )
    doubt = "" if bool(interval.sound) else " ?"
    return f"{estimate} [{lower}, {upper}]{doubt}"


def adjusted_p(value: float, holm: float, comparisons: int) -> str:
    """``= .031, = .062 by Holm over 2 comparisons``; the first alone for one comparison."""
    if comparisons < 2 or math.isnan(holm):
        return p_value(value)
    return f"{p_value(value)}, {p_value(holm)} by Holm over {comparisons} comparisons"


def probability_text(value: float) -> str:
    """``= .97``: a probability in two digits, rounded neither to 0 nor to 1."""
    if value in (0, 1):
        return f"= {value:.0f}"
    if value < 0.005:
        return "< .005"
    if value > 0.995:
        return "> .995"
    return f"= {value:.2f}".replace("0.", ".")


def count_text(number: int, noun: str) -> str:
    """``1 problem``, ``2 problems``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str, *, lines: bool = False) -> str:
    """Text of unknown origin without characters that move a cursor, hide or reorder text.

    ``lines``: line ends and tabs stay.
    """
    if text.isprintable():
        return text
    allowed = "\n\t" if lines else ""
    return "".join(
        char if char.isprintable() or char in allowed else "\N{REPLACEMENT CHARACTER}"
        for char in text
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
    """Stack tables of the same columns; a single value stands in every row of its table.

    Examples
    --------
    >>> stack_rows([{"arm": "base", "k": [1, 2]}, {"arm": "rl", "k": [1]}]).values.tolist()
    [['base', 1], ['base', 2], ['rl', 1]]
    """
    columns: dict[str, list[NDArray[Any]]] = {}
    for part in parts:
        arrays = {name: _column(values) for name, values in part.items()}
        rows = max(len(array) for array in arrays.values() if array.ndim)
        for name, array in arrays.items():
            column = array if array.ndim else np.repeat(array, rows)
            columns.setdefault(name, []).append(column)
    return pd.DataFrame({name: np.concatenate(arrays) for name, arrays in columns.items()})


def _column(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    # Texts of fixed width would be cut when longer ones are appended.
    return array.astype(object) if array.dtype.kind == "U" else array


def interval_columns(
    name: str, interval: Interval | None, prefix: str = "", *, sound: bool = False
) -> dict[str, Any]:
    """Table columns of an interval: its estimate as ``name``, and its bounds behind ``prefix``.

    ``sound``: one more column, which says whether the bounds are sound. Values are arrays where the
    interval is over arrays. NaN without an interval.
    """
    fields = {name: "estimate", f"{prefix}lower": "lower", f"{prefix}upper": "upper"}
    if sound:
        fields["sound"] = "sound"
    if interval is None:
        return dict.fromkeys(fields, np.nan)
    # An empty index turns an array without dimensions into a plain number.
    return {column: getattr(interval, attribute)[()] for column, attribute in fields.items()}
