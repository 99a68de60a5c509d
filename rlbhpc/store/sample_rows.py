"""The one table of sample rows: what journals hold, parts keep and readers return.

Every reading function of the store returns some of these columns, in this order and with these
types, whichever tier the rows come from. A part's Parquet file has plain types only (strings,
integers, floats, lists), so that any tool reads it without this package.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Sequence
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


def select_columns(names: Collection[str] | None) -> pa.Schema:
    """Schema of some columns, in the order of :data:`ROWS`; None means all."""
    if names is None:
        return ROWS
    for name in names:
        if name not in ROWS.names:
            raise UserError(
                f"column {name!r} does not exist; the columns are {', '.join(ROWS.names)}"
            )
    return pa.schema([field for field in ROWS if field.name in names])


def fill_columns(table: pa.Table, schema: pa.Schema, rows: int) -> pa.Table:
    """Add the columns of a schema that an older part does not have; they hold their default.

    ``rows``: number of rows, which a table without any of the columns does not tell.
    """
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table[field.name])
        else:
            default = getattr(Sample, field.name, None)
            columns.append(pa.array([default] * rows, field.type))
    return pa.table(columns, schema=schema)


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
    """How the canonical bytes of a sample are laid out in a schema version.

    ``numbers``: columns whose values make up the head. ``blobs``: columns whose bytes follow the
    head, which ends with their lengths.
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

    def fits(self, body: bytes) -> bool:
        """Whether bytes are as long as the lengths in their head say."""
        if len(body) < self.head.size:
            return False
        lengths: tuple[int, ...] = self.head.unpack_from(body)[len(self.numbers) :]
        return self.head.size + sum(lengths) == len(body)


_LAYOUTS: Final = {version: _Layout(version) for version in range(SCHEMA_VERSION, OLDEST - 1, -1)}
_TODAY: Final = _LAYOUTS[SCHEMA_VERSION]
_TEXTS: Final = tuple(name for name, column in COLUMNS.items() if column.is_text)
# The head of today's layout, for many samples at once.
_HEAD_DTYPE: Final = np.dtype(
    [
        *((name, COLUMNS[name].dtype) for name in _TODAY.numbers),
        ("lengths", "<u4", (len(_TODAY.blobs),)),
    ]
)
# Numbers that came after the oldest version, one behind the other: their defaults, and where the
# last of them ends in the head.
_ADDED: Final = [name for name in _TODAY.numbers if COLUMNS[name].since > OLDEST]
_ADDED_DEFAULTS: Final = [
    struct.pack(f"<{COLUMNS[name].code}", getattr(Sample, name)) for name in _ADDED
]
_ADDED_STOP: Final = _HEAD_DTYPE.fields[_ADDED[-1]][1] + len(_ADDED_DEFAULTS[-1])  # type: ignore[index]


def digest(body: bytes) -> int:
    """63 bits of BLAKE2b over canonical bytes.

    Numbers that later schema versions added are left out, from the last one backwards, while they
    hold their default: then a sample that an earlier version stored has the same digest.
    """
    stop = _ADDED_STOP
    for default in reversed(_ADDED_DEFAULTS):
        if body[stop - len(default) : stop] != default:
            break
        stop -= len(default)
    hashed = hashlib.blake2b(body[:stop] + body[_ADDED_STOP:], digest_size=8)
    return int.from_bytes(hashed.digest(), "little") >> 1


def utf8(text: str) -> bytes:
    """Encode any string; a lone surrogate, which no file may hold, becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _make_getter(names: Sequence[str]) -> attrgetter[tuple[Any, ...]]:
    """Make a function that reads values of a sample, those of its key included."""
    return attrgetter(*(f"key.{name}" if name in SampleKey._fields else name for name in names))


_get_numbers: Final = _make_getter(_TODAY.numbers)
_get_texts: Final = _make_getter(_TEXTS)
_get_arrays: Final = _make_getter(PER_TOKEN)
_ARRAY_TYPES: Final = tuple(COLUMNS[name].dtype for name in PER_TOKEN)


def encode(sample: Sample) -> bytes:
    """Canonical bytes of a sample: the same sample gives the same bytes everywhere."""
    blobs = [utf8(text) for text in _get_texts(sample)]
    for values, dtype in zip(_get_arrays(sample), _ARRAY_TYPES, strict=True):
        blobs.append(values.astype(dtype, copy=False).tobytes())
    head = _TODAY.head.pack(*_get_numbers(sample), *map(len, blobs))
    return b"".join((head, *blobs))


def upgrade(body: bytes, version: int | None) -> bytes:
    """Turn canonical bytes of a schema version into today's; new columns hold their default.

    ``version``: None where the header of the file is damaged. Then it is the version whose lengths
    add up to those of the bytes.
    """
    if version is None:
        fitting = [number for number, layout in _LAYOUTS.items() if layout.fits(body)]
        version = fitting[0] if fitting else SCHEMA_VERSION
    if version == SCHEMA_VERSION:
        return body
    layout = _LAYOUTS[version]
    names = (*layout.numbers, *layout.blobs)
    values = dict(zip(names, layout.head.unpack_from(body), strict=True))
    numbers = [values.get(name, getattr(Sample, name, None)) for name in _TODAY.numbers]
    lengths = [values.get(name, 0) for name in _TODAY.blobs]
    return _TODAY.head.pack(*numbers, *lengths) + body[layout.head.size :]


def without_texts(body: bytes) -> bytes:
    """Canonical bytes up to the answer: without the response and what stands behind it."""
    lengths = _TODAY.head.unpack_from(body)[-len(_TODAY.blobs) :]
    kept_texts = _TEXTS.index("answer") + 1
    return body[: _TODAY.head.size + sum(lengths[:kept_texts])]


def decode_rows(
    bodies: Sequence[bytes], digests: NDArray[np.int64], columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of canonical bytes, decoded a column at a time."""
    head_size = _HEAD_DTYPE.itemsize
    heads = np.frombuffer(b"".join(body[:head_size] for body in bodies), _HEAD_DTYPE)
    lengths = heads["lengths"]
    stops = head_size + np.cumsum(lengths, axis=1, dtype=np.int64)
    schema = select_columns(columns)
    arrays = []
    for field in schema:
        if field.name == "digest":
            arrays.append(pa.array(digests, field.type))
        elif field.name in _TODAY.blobs:
            blob = _TODAY.blobs.index(field.name)
            blob_stops = stops[:, blob].tolist()
            blob_starts = (stops[:, blob] - lengths[:, blob]).tolist()
            values = [
                body[start:stop]
                for body, start, stop in zip(bodies, blob_starts, blob_stops, strict=True)
            ]
            arrays.append(_decode_blobs(values, field))
        else:
            arrays.append(pa.array(np.ascontiguousarray(heads[field.name]), field.type))
    return pa.table(arrays, schema=schema)


def _decode_blobs(values: list[bytes], field: pa.Field) -> pa.Array:
    """Arrow array of a column of texts, or of lists of numbers."""
    if COLUMNS[field.name].is_list:
        numbers = np.frombuffer(b"".join(values), COLUMNS[field.name].dtype)
        offsets = np.cumsum([0, *map(len, values)]) // numbers.itemsize
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(numbers, field.type.value_type), type=field.type
        )
    texts = pa.array(values, pa.binary()).cast(pa.string())
    return texts.dictionary_encode() if pa.types.is_dictionary(field.type) else texts
