"""The row that the store keeps: one sample with its completion and verdict.

Each value is declared here once; struct formats, the Arrow schema, the cube's variables, checks
and the tables of ``docs/`` follow from that. To add one: a line in :class:`Sample`, ``since`` the
next :data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import Annotated, Any, Final, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.verify.verdict import Status

#: The oldest version of which parts are read: raised whenever a column changes its meaning or goes.
OLDEST: Final = 2

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
    the cube leaves it out. ``attrs``: more attributes in the cube. ``since``: schema version that
    it came with; rows of parts before hold its default.
    """

    kind: str
    meaning: str
    cube: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    since: int = OLDEST

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
        """Arrow type of the column in tables; names, which repeat, are dictionary-encoded."""
        if self.kind == TEXT:
            return pa.string()
        if self.kind == NAME:
            return pa.dictionary(pa.int32(), pa.string())
        number = pa.from_numpy_dtype(self.dtype)
        return pa.list_(number) if self.is_list else number


def flags(codes: type[IntEnum], meanings: Mapping[int, str]) -> dict[str, Any]:
    """CF attributes of an integer code, with −1 for missing.

    ``codes``: the enum of its values, whose names are the words for them. ``meanings``: other words
    for some. Gives ``flag_values``, the sorted numbers, and ``flag_meanings``, one word for each.
    """
    values = sorted({-1, *codes})
    words = {-1: "missing"} | {int(code): code.name.lower() for code in codes} | dict(meanings)
    return {
        "flag_values": [int(value) for value in values],
        "flag_meanings": " ".join(words[value] for value in values),
    }


_VERDICTS: Final = flags(
    Status,
    {
        Status.TIMEOUT: "verifier_timeout",
        Status.FAILED: "generation_failed",
        Status.ERROR: "verifier_error",
    },
)
_FINISHES: Final = flags(Finish, {})
_MASKED: Final = {"comment": "-1 is no sample, and no wrong one: take `right` for a mean"}
_NATS: Final = {"units": "nat"}
_ANSWER_ID: Final = {"long_name": "id of the canonical answer, see the group answers"}


@dataclass(frozen=True)
class Sample:
    """One finished sample, as it is journaled, sealed and read back.

    Only what the same request always gives again stands here, so that a store that was
    interrupted holds the same bytes as one that was not. Times, hosts and attempts live in
    attempt records. Where an engine gives no log-probabilities, their sums are NaN. ``verdict`` is
    the one of ``strict`` and ``lenient`` that decides in the study; these are −1 where a sample was
    not judged so.
    """

    key: SampleKey
    fingerprint: Annotated[
        int, Column("i8", "what was asked for: model, prompt, sampling, problem")
    ]
    seed: Annotated[int, Column("i8", "seed the sample was drawn with", "i8")]
    verdict: Annotated[int, Column("i1", "verdict", "i1", _VERDICTS | _MASKED)]
    finish: Annotated[int, Column("i1", "why the response ended", "i1", _FINISHES)]
    paper: Annotated[
        int, Column("i1", "verdict of the published study's lenient grader", "i1", _VERDICTS)
    ] = field(default=-1, kw_only=True)
    strict: Annotated[
        int, Column("i1", "verdict on an answer that the response states", "i1", _VERDICTS, since=3)
    ] = field(default=-1, kw_only=True)
    lenient: Annotated[
        int,
        Column(
            "i1",
            "verdict that else takes the last value of a finished response",
            "i1",
            _VERDICTS,
            since=3,
        ),
    ] = field(default=-1, kw_only=True)
    n_tokens: Annotated[int, Column("i4", "response tokens, end-of-text included", "i4")]
    logprob_sum: Annotated[
        float,
        Column("f8", "sum of log-probabilities of the response tokens", "f4", _NATS),
    ]
    entropy_sum: Annotated[
        float, Column("f8", "sum of next-token entropies over the response", "f4", _NATS)
    ]
    answer: Annotated[str, Column(TEXT, "canonical answer", "i8", _ANSWER_ID)] = ""
    rule: Annotated[str, Column(NAME, "rule that decided")] = ""
    grader: Annotated[str, Column(NAME, "fingerprint of the grader")] = ""
    text: Annotated[str, Column(TEXT, "the response")] = ""
    error: Annotated[str, Column(TEXT, "why generation or verification failed")] = ""
    token_ids: Annotated[NDArray[np.int32], Column("i4[]", "token ids of the response")] = field(
        default_factory=lambda: np.empty(0, np.int32)
    )
    logprobs: Annotated[NDArray[np.float16], Column("f2[]", "log-probability of each token")] = (
        field(default_factory=lambda: np.empty(0, np.float16))
    )
    entropies: Annotated[NDArray[np.float16], Column("f2[]", "entropy before each token")] = field(
        default_factory=lambda: np.empty(0, np.float16)
    )
    trace: Annotated[
        str, Column(TEXT, "how a response of several turns or moves came about, as JSON")
    ] = ""


def _columns() -> dict[str, Column]:
    """Columns of a row: the key, what was asked, a hash over everything, then the sample.

    All but the key and the hash are declared as annotations of the fields of :class:`Sample`.
    """
    declared = {
        name: hint.__metadata__[0]
        for name, hint in get_type_hints(Sample, include_extras=True).items()
        if name != "key"
    }
    key = {
        "arm": Column(NAME, "model line under one prompt and sampling setting"),
        "step": Column("i4", "training step of the model; 0 is the base"),
        "problem": Column(NAME, "problem id"),
        "sample": Column("i4", "index of the sample, from 0"),
    }
    request = {name: declared.pop(name) for name in ("fingerprint", "seed")}
    digest = {"digest": Column("i8", "hash of the whole sample as it was drawn")}
    return key | request | digest | declared


#: Columns of a sample row by name, in their order. ``digest`` is 63 bits of a hash over the whole
#: sample as it was generated: two rows with one key and one fingerprint are the same sample exactly
#: when their digests agree, also where a part no longer keeps the per-token values.
COLUMNS: Final = _columns()
#: Kept in every part and cube.
SCHEMA_VERSION: Final = max(column.since for column in COLUMNS.values())


# ---- sample rows ---------------------------------------------------------------------------------
# The one table of sample rows: what journals hold, parts keep and readers return.
#
# Every reading function of the store returns some of these columns, in this order and with these
# types, whichever tier the rows come from. A part's Parquet file has plain types only (strings,
# integers, floats, lists), so that any tool reads it without this package.


#: Columns of a sample row; :data:`rlbhpc.store.sample_rows.COLUMNS` declares them.
ROWS: Final = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
#: The same with types that any tool reads, as parts have them.
PLAIN: Final = pa.schema(
    [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in ROWS]
)

#: What makes a row this row and no other.
KEY: Final = ("arm", "step", "problem", "sample", "fingerprint")
#: Column of what only some samplings tell. It is empty in all other samples, which then hold no
#: byte of it, and parts of such samples lack it.
TRACE: Final = "trace"
#: What a token policy may leave out of a part.
PER_TOKEN: Final = tuple(name for name, column in COLUMNS.items() if column.is_list)


def select_columns(names: Collection[str] | None) -> pa.Schema:
    """Schema of some columns, in the order of :data:`ROWS`; None means all.

    A name that is no column is an error.
    """
    if names is None:
        return ROWS
    for name in names:
        if name not in ROWS.names:
            raise UserError(
                f"column {name!r} does not exist; the columns are {', '.join(ROWS.names)}"
            )
    return pa.schema([field for field in ROWS if field.name in names])


def fill_columns(table: pa.Table, schema: pa.Schema, rows: int) -> pa.Table:
    """Add the columns of a schema that an older part (a file of samples) does not have.

    They hold the default of their field in :class:`Sample`. ``rows``: number of rows, which a table
    without any of the columns does not tell.
    """
    columns = []
    for column in schema:
        if column.name in table.column_names:
            columns.append(table[column.name])
        else:
            default = getattr(Sample, column.name, None)
            columns.append(pa.array([default] * rows, column.type))
    return pa.table(columns, schema=schema)


def to_samples(table: pa.Table) -> Iterator[Sample]:
    """Turn rows with all columns into samples.

    Per-token values that a part left out, null in the table, become empty arrays.
    """
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
#     trace     UTF-8, up to the end: most samples have none, and no byte for it


_TEXTS: Final = tuple(name for name, column in COLUMNS.items() if column.is_text and name != TRACE)


class _Layout:
    """How the canonical bytes of a sample are laid out in a schema version.

    ``numbers``: columns whose values make up the head. ``blobs``: columns whose bytes follow the
    head, which ends with their lengths.
    """

    def __init__(self, version: int) -> None:
        """Lay out the columns that a schema version has.

        The *head* holds the numbers, then the byte length of each blob. *Blobs*, texts and
        per-token arrays, follow it. The digest is left out: it is taken of these bytes.
        """
        columns = {name: column for name, column in COLUMNS.items() if column.since <= version}
        self.numbers = tuple(
            name for name, column in columns.items() if column.is_number and name != "digest"
        )
        texts = tuple(name for name in columns if name in _TEXTS)
        self.blobs = (*texts, *(name for name in PER_TOKEN if name in columns))
        codes = "".join(columns[name].code for name in self.numbers)
        self.head = struct.Struct(f"<{codes}{len(self.blobs)}I")

    def fits(self, body: bytes) -> bool:
        """Whether bytes are as long as the lengths in their head say."""
        if len(body) < self.head.size:
            return False
        lengths: tuple[int, ...] = self.head.unpack_from(body)[len(self.numbers) :]
        trace = body[self.head.size + sum(lengths) :]
        return self.head.size + sum(lengths) == len(body) or trace.startswith(b"{")


_LAYOUTS: Final = {version: _Layout(version) for version in range(SCHEMA_VERSION, OLDEST - 1, -1)}
_TODAY: Final = _LAYOUTS[SCHEMA_VERSION]
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
    """63 bits of BLAKE2b over canonical bytes, the form in which a journal stores a sample.

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
    return b"".join((head, *blobs, utf8(sample.trace)))


def upgrade(body: bytes, version: int | None) -> bytes:
    """Turn canonical bytes of a schema version into today's; new columns hold their default.

    The bytes are a head, with the numbers of a sample and the lengths of its blobs, and the blobs:
    texts and arrays. Only the head changes. ``version``: None where the header of the file is
    damaged. Then it is the version whose lengths add up to those of the bytes.
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
    """Make rows of the canonical bytes of samples, a column at a time.

    The bytes of a sample are a head of fixed size, with its numbers and the lengths of its blobs,
    then the blobs (texts and per-token arrays), one after the other. So sums of the lengths tell
    where each blob is. ``digests``: hash of each sample, which its bytes do not hold.
    """
    head_size = _HEAD_DTYPE.itemsize
    heads = np.frombuffer(b"".join(body[:head_size] for body in bodies), _HEAD_DTYPE)
    lengths = heads["lengths"]
    # Where each blob of each sample ends in its bytes.
    stops = head_size + np.cumsum(lengths, axis=1, dtype=np.int64)
    schema = select_columns(columns)
    arrays = []
    for column in schema:
        if column.name == "digest":
            arrays.append(pa.array(digests, column.type))
        elif column.name == TRACE:
            ends = stops[:, -1].tolist()
            traces = [body[end:] for body, end in zip(bodies, ends, strict=True)]
            arrays.append(_decode_blobs(traces, column))
        elif column.name in _TODAY.blobs:
            blob = _TODAY.blobs.index(column.name)
            blob_stops = stops[:, blob].tolist()
            blob_starts = (stops[:, blob] - lengths[:, blob]).tolist()
            values = [
                body[start:stop]
                for body, start, stop in zip(bodies, blob_starts, blob_stops, strict=True)
            ]
            arrays.append(_decode_blobs(values, column))
        else:
            arrays.append(pa.array(np.ascontiguousarray(heads[column.name]), column.type))
    return pa.table(arrays, schema=schema)


def _decode_blobs(values: list[bytes], field: pa.Field) -> pa.Array:
    """Arrow array of a column of texts, or of lists of numbers.

    ``values``: for each row its bytes, UTF-8 or the numbers of its list. ``field``: the column.
    """
    if COLUMNS[field.name].is_list:
        numbers = np.frombuffer(b"".join(values), COLUMNS[field.name].dtype)
        # Where the list of each row begins among all numbers.
        offsets = np.cumsum([0, *map(len, values)]) // numbers.itemsize
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(numbers, field.type.value_type), type=field.type
        )
    texts = pa.array(values, pa.binary()).cast(pa.string())
    return texts.dictionary_encode() if pa.types.is_dictionary(field.type) else texts
