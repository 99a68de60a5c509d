"""The noun *Column*: how one value of a sample is stored, in every tier.

The values themselves are declared in :mod:`rlbhpc.store.sample`, one line each. Struct formats,
the Arrow schema, the cube's variables, checks and the tables of ``docs/`` follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

NAME: Final = "name"
TEXT: Final = "text"
_LIST: Final = "[]"
_CODES: Final = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}


@dataclass(frozen=True)
class Column:
    """How one value of a sample is stored.

    ``kind``: NumPy type of a number, with ``[]`` behind it of a list of numbers; ``text``; or
    ``name``, a text that repeats over thousands of rows and is held once. ``meaning``: what it is,
    for the pages and as ``long_name`` in the cube. ``cube``: NumPy type in the cube; empty where
    the cube leaves it out. ``attrs``: more attributes in the cube.
    """

    kind: str
    meaning: str
    cube: str = ""
    attrs: Mapping[str, Any] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it has a fixed width."""
        return self.kind not in {NAME, TEXT} and not self.is_list

    @property
    def is_text(self) -> bool:
        """Whether it is a string."""
        return self.kind in {NAME, TEXT}

    @property
    def is_list(self) -> bool:
        """Whether it has one number per token."""
        return self.kind.endswith(_LIST)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Little-endian type of a number, or of the numbers in a list."""
        return np.dtype(self.kind.removesuffix(_LIST)).newbyteorder("<")

    @property
    def code(self) -> str:
        """Format of a number for :mod:`struct`."""
        return _CODES[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """Type in tables."""
        if self.kind == TEXT:
            return pa.string()
        if self.kind == NAME:
            return pa.dictionary(pa.int32(), pa.string())
        number = pa.from_numpy_dtype(self.dtype)
        return pa.list_(number) if self.is_list else number


def flags(codes: type[IntEnum], meanings: Mapping[int, str]) -> dict[str, Any]:
    """CF attributes of an integer code, with −1 for missing."""
    values = sorted({-1, *codes})
    words = {-1: "missing"} | {int(code): code.name.lower() for code in codes} | dict(meanings)
    return {
        "flag_values": [int(value) for value in values],
        "flag_meanings": " ".join(words[value] for value in values),
    }
