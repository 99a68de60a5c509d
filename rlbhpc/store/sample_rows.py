"""The one table of sample rows: what journals hold, parts keep and readers return.

Every reading function of the store returns some of these columns, in this order and with these
types, whichever tier the rows come from. A part's Parquet file has plain types only (strings,
integers, floats, lists), so that any tool reads it without this package.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store.sample import COLUMNS, OLDEST, SCHEMA_VERSION, Sample
from rlbhpc.study.keys import SampleKey

#: Columns of a sample row; :data:`rlbhpc.store.sample.COLUMNS` declares them.
ROWS: Final = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
#: The same with types that any tool reads, as parts have them.
PLAIN: Final = pa.schema(
    [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in ROWS]
)

#: What makes a row this row and no other.
KEY: Final = ("arm", "step", "problem", "sample", "fingerprint")
#: What a token policy may leave out of a part.
PER_TOKEN: Final = tuple(name for name, column in COLUMNS.items() if column.is_list)


def select(columns: Sequence[str] | None) -> pa.Schema:
    """Cut the schema down to some columns, in its own order; None means all."""
    if columns is None:
        return ROWS
    unknown = [name for name in columns if name not in ROWS.names]
    if unknown:
        raise UserError(
            f"column {unknown[0]!r} does not exist; the columns are {', '.join(ROWS.names)}"
        )
    return pa.schema([field for field in ROWS if field.name in columns])


def fill_columns(table: pa.Table, wanted: pa.Schema, rows: int) -> pa.Table:
    """Rows with all columns of a schema; one that an older part has not holds its default."""
    columns = [
        table[field.name] if field.name in table.column_names
        else pa.array([getattr(Sample, field.name, None)] * rows, field.type)
        for field in wanted
    ]  # fmt: skip
    return pa.table(columns, schema=wanted)


def to_samples(table: pa.Table) -> Iterator[Sample]:
    """Turn rows with all columns into samples; per-token values that a part left out are empty."""
    for row in table.to_pylist():
        row.pop("digest")
        key = SampleKey(*(row.pop(name) for name in SampleKey._fields))
        for name in PER_TOKEN:
            row[name] = np.asarray(row[name] or [], COLUMNS[name].dtype)
        yield Sample(key, **row)


# --- canonical bytes -----------------------------------------------------------------------------
#
# What a journal stores of a sample, and what its digest is taken of.
#
# ::
#
#     FIXED     the numbers of a row but its digest, in the order of the columns and little-endian;
#               then the lengths u32 of what follows
#     strings   names and texts (UTF-8)
#     arrays    per-token values


class _Layout:
    """Which columns the bytes of a sample have in a schema version, and how their head is packed.

    ``blobs``: columns whose lengths end the head.
    """

    def __init__(self, version: int) -> None:
        columns = {name: column for name, column in COLUMNS.items() if column.since <= version}
        self.numbers = tuple(
            name for name, column in columns.items() if column.is_number and name != "digest"
        )
        texts = tuple(name for name, column in columns.items() if column.is_text)
        self.blobs = (*texts, *(name for name in PER_TOKEN if name in columns))
        codes = "".join(columns[name].code for name in self.numbers)
        self.head = struct.Struct(f"<{codes}{len(self.blobs)}I")

    def is_of(self, body: bytes) -> bool:
        """Whether the lengths that the head would have are those of the body."""
        if len(body) < self.head.size:
            return False
        lengths: tuple[int, ...] = self.head.unpack_from(body)[len(self.numbers) :]
        return self.head.size + sum(lengths) == len(body)


_LAYOUTS: Final = {version: _Layout(version) for version in range(SCHEMA_VERSION, OLDEST - 1, -1)}
_NUMBERS: Final = _LAYOUTS[SCHEMA_VERSION].numbers
# Defaults of the numbers that came after the oldest version, and where these end in the head: they
# stand there one behind the other, by version.
_LATER: Final = [name for name in _NUMBERS if COLUMNS[name].since > OLDEST]
_LATER_DEFAULTS: Final = [
    struct.pack(f"<{COLUMNS[name].code}", getattr(Sample, name)) for name in _LATER
]
_LATER_STOP: Final = struct.calcsize(
    "<" + "".join(COLUMNS[name].code for name in _NUMBERS[: _NUMBERS.index(_LATER[-1]) + 1])
)
_STRINGS: Final = tuple(name for name, column in COLUMNS.items() if column.is_text)
_BLOBS: Final = _LAYOUTS[SCHEMA_VERSION].blobs
_FIXED: Final = _LAYOUTS[SCHEMA_VERSION].head
# The same bytes as _FIXED, for many samples at once.
_DTYPE: Final = np.dtype(
    [*((name, COLUMNS[name].dtype) for name in _NUMBERS), ("lengths", "<u4", (len(_BLOBS),))]
)


def digest(body: bytes) -> int:
    """63 bits of BLAKE2b over canonical bytes.

    The last numbers of later schema versions count only where they say something: the same sample,
    stored by an earlier version, has the same digest.
    """
    stop = _LATER_STOP
    for default in reversed(_LATER_DEFAULTS):
        if body[stop - len(default) : stop] != default:
            break
        stop -= len(default)
    body = body[:stop] + body[_LATER_STOP:]
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


_number_values: Final = _getter(_NUMBERS)
_string_values: Final = _getter(_STRINGS)
_array_values: Final = _getter(PER_TOKEN)
_ARRAY_TYPES: Final = tuple(COLUMNS[name].dtype for name in PER_TOKEN)


def encode(sample: Sample) -> bytes:
    """Canonical bytes of a sample: the same sample gives the same bytes everywhere."""
    arrays = zip(_array_values(sample), _ARRAY_TYPES, strict=True)
    blobs = [
        *map(utf8, _string_values(sample)),
        *(values.astype(dtype, copy=False).tobytes() for values, dtype in arrays),
    ]
    return b"".join((_FIXED.pack(*_number_values(sample), *map(len, blobs)), *blobs))


def as_of_today(body: bytes, version: int | None) -> bytes:
    """Turn canonical bytes of a schema version into today's; new columns hold their default.

    ``version``: None where nothing says it, since the header of the file is damaged. Then the
    lengths in the bytes do: those of another version do not add up.
    """
    if version is None:
        version = next((v for v, layout in _LAYOUTS.items() if layout.is_of(body)), SCHEMA_VERSION)
    if version == SCHEMA_VERSION:
        return body
    layout = _LAYOUTS[version]
    names = (*layout.numbers, *layout.blobs)
    values = dict(zip(names, layout.head.unpack_from(body), strict=True))
    numbers = [values.get(name, getattr(Sample, name, None)) for name in _NUMBERS]
    lengths = [values.get(name, 0) for name in _BLOBS]
    return _FIXED.pack(*numbers, *lengths) + body[layout.head.size :]


def without_texts(body: bytes) -> bytes:
    """The beginning of canonical bytes: all that a list of samples shows, without the texts."""
    lengths = _FIXED.unpack_from(body)[-len(_BLOBS) :]
    return body[: _FIXED.size + sum(lengths[: _STRINGS.index("answer") + 1])]


def table_of(
    bodies: Sequence[bytes], digests: NDArray[np.int64], columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of canonical bytes, a column at a time."""
    fixed = np.frombuffer(b"".join(body[: _DTYPE.itemsize] for body in bodies), _DTYPE)
    ends = _DTYPE.itemsize + np.cumsum(fixed["lengths"], axis=1, dtype=np.int64)
    wanted = select(columns)
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
