"""Tables of many parts, made in one go: pandas takes a millisecond for each part otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.stats import Interval


def stacked(parts: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
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


def bounded(name: str, interval: Interval | None, prefix: str = "") -> dict[str, Any]:
    """Columns of an interval: the estimate, and its bounds under names behind ``prefix``."""
    names = {name: "estimate", f"{prefix}lower": "lower", f"{prefix}upper": "upper"}
    if interval is None:
        return dict.fromkeys(names, np.nan)
    # An index of nothing makes a plain number of an array without dimensions.
    return {column: getattr(interval, side)[()] for column, side in names.items()}


def _array(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array
