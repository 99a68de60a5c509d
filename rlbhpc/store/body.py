"""The canonical bytes of a sample: what a journal stores and what a digest is taken of.

::

    FIXED     the numbers of a row but its digest, in the order of the columns and little-endian;
              then the lengths u32 of what follows
    strings   names and texts (UTF-8)
    arrays    per-token values
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import schema
from rlbhpc.store.sample import COLUMNS, Sample
from rlbhpc.study.keys import SampleKey

_NUMBERS: Final = tuple(
    name for name, column in COLUMNS.items() if column.is_number and name != "digest"
)
_STRINGS: Final = tuple(name for name, column in COLUMNS.items() if column.is_text)
_BLOBS: Final = (*_STRINGS, *schema.PER_TOKEN)
_FIXED: Final = struct.Struct(
    "<" + "".join(COLUMNS[name].code for name in _NUMBERS) + f"{len(_BLOBS)}I"
)
# The same bytes as _FIXED, for many samples at once.
_DTYPE: Final = np.dtype(
    [*((name, COLUMNS[name].dtype) for name in _NUMBERS), ("lengths", "<u4", (len(_BLOBS),))]
)


def digest(body: bytes) -> int:
    """63 bits of BLAKE2b over canonical bytes."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little") >> 1


def utf8(text: str) -> bytes:
    """Encode any string; a lone surrogate, which no file may hold, becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _getter(names: Sequence[str]) -> attrgetter[tuple[Any, ...]]:
    """Make a function that reads values of a sample, those of its key included."""
    return attrgetter(*(f"key.{name}" if name in SampleKey._fields else name for name in names))


_numbers: Final = _getter(_NUMBERS)
_strings: Final = _getter(_STRINGS)
_arrays: Final = _getter(schema.PER_TOKEN)
_ARRAY_TYPES: Final = tuple(COLUMNS[name].dtype for name in schema.PER_TOKEN)


def encode(sample: Sample) -> bytes:
    """Canonical bytes of a sample: the same sample gives the same bytes everywhere."""
    arrays = zip(_arrays(sample), _ARRAY_TYPES, strict=True)
    blobs = [
        *map(utf8, _strings(sample)),
        *(values.astype(dtype, copy=False).tobytes() for values, dtype in arrays),
    ]
    return b"".join((_FIXED.pack(*_numbers(sample), *map(len, blobs)), *blobs))


def listed(body: bytes) -> bytes:
    """The beginning of canonical bytes: all that a list of samples shows, without the texts."""
    lengths = _FIXED.unpack_from(body)[-len(_BLOBS) :]
    return body[: _FIXED.size + sum(lengths[: _STRINGS.index("answer") + 1])]


def table(
    bodies: Sequence[bytes], digests: NDArray[np.int64], columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of canonical bytes, a column at a time."""
    fixed = np.frombuffer(b"".join(body[: _DTYPE.itemsize] for body in bodies), _DTYPE)
    ends = _DTYPE.itemsize + np.cumsum(fixed["lengths"], axis=1, dtype=np.int64)
    wanted = schema.select(columns)
    arrays = []
    for field in wanted:
        if field.name in _BLOBS:
            i = _BLOBS.index(field.name)
            stops = ends[:, i]
            starts = stops - fixed["lengths"][:, i]
            spans = zip(bodies, starts.tolist(), stops.tolist(), strict=True)
            arrays.append(_blobs([body[start:stop] for body, start, stop in spans], field))
        else:
            values = digests if field.name == "digest" else np.ascontiguousarray(fixed[field.name])
            arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=wanted)


def _blobs(values: list[bytes], field: pa.Field) -> pa.Array:
    if COLUMNS[field.name].is_list:
        flat = np.frombuffer(b"".join(values), COLUMNS[field.name].dtype)
        ends = np.cumsum([0, *map(len, values)]) // flat.itemsize
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(flat, field.type.value_type), type=field.type
        )
    strings = pa.array(values, pa.binary()).cast(pa.string())
    return strings.dictionary_encode() if pa.types.is_dictionary(field.type) else strings
