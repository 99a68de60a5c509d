"""What a part says about its own rows: their keys, their digest, a checksum per column.

Parquet's page checksums leave out the page headers, where a flipped bit can turn one value into
another unnoticed (3 of 73 000 in a trial). The sums here are taken of the values before they are
encoded and compared after they were decoded, so nothing in between can change them silently.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import schema
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.sample import COLUMNS, OLDEST, SCHEMA_VERSION
from rlbhpc.study.keys import Cell
from rlbhpc.verify.verdict import Status

#: Whose per-token values a part keeps; see :mod:`rlbhpc.store.tokens`.
TokenPolicy = Literal["none", "sampled", "all"]

#: Verdicts of samples that may be tried again.
FAILED: Final = (int(Status.FAILED), int(Status.ERROR))

#: How the list of keys begins, wherever in the footer it stands.
_MARK: Final = b'{"rlbhpc part":'
_SUMS: Final = "rlbhpc checksums"
# The sum of what is never written (a missing number): different from any real sum but one in 2³².
_NEVER: Final = 0xFFFFFFFF
_ZERO: Final = np.int8(ord("0"))


class Group(NamedTuple):
    """One row group: samples of one cell, ascending, with their verdicts and tokens in all."""

    cell: int
    samples: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    tokens: int


@dataclass
class Listing:
    """The keys of a part's rows.

    ``tokens``: whose per-token values the part keeps. ``cells, groups``: row group ``i`` has the
    samples ``groups[i].samples`` of ``cells[groups[i].cell]``. ``sums``: checksums by row group and
    column. ``version``: of the schema that the rows were written by.
    """

    tokens: TokenPolicy
    cells: list[Cell] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    sums: list[NDArray[np.uint32]] = field(default_factory=list)
    version: int = SCHEMA_VERSION

    @property
    def columns(self) -> list[str]:
        """Columns that the rows have on disk, in their order."""
        return [name for name, column in COLUMNS.items() if column.since <= self.version]

    def add(self, table: pa.Table) -> None:
        """Take in the next row group: all columns of one cell's samples."""
        cell = cell_of(table)
        if not self.cells or self.cells[-1] != cell:
            self.cells.append(cell)
        samples, verdicts = table["sample"].to_numpy(), table["verdict"].to_numpy()
        tokens = int(table["n_tokens"].to_numpy().sum(dtype=np.int64))
        self.groups.append(Group(len(self.cells) - 1, samples, verdicts, tokens))
        self.sums.append(checksums(table.select(schema.ROWS.names), [table.num_rows])[0])

    @cached_property
    def rows(self) -> int:
        """Number of samples."""
        return sum(len(group.samples) for group in self.groups)

    def metadata(self) -> dict[str, str]:
        """Write it down for the footer."""
        fields = {
            "schema_version": self.version,
            "tokens": self.tokens,
            "cells": self.cells,
            "groups": [
                # One digit per verdict: a resume scan then reads no column at all.
                [cell, _runs(samples), (verdicts + _ZERO).tobytes().decode(), tokens]
                for cell, samples, verdicts, tokens in self.groups
            ],
        }
        return {
            "rlbhpc part": json.dumps({"rlbhpc part": fields}, separators=(",", ":")),
            _SUMS: base64.b64encode(np.array(self.sums, "<u4").tobytes()).decode(),
        }


class Content:
    """What a part's name tells of its rows: keys, digests, token policy, schema version."""

    def __init__(self, listed: Listing) -> None:
        self._hash = hashlib.sha256(f"{listed.tokens} {listed.version}".encode())

    def add(self, table: pa.Table) -> None:
        """Take in the next row group."""
        self._hash.update(json.dumps(cell_of(table)).encode())
        self._hash.update(table["sample"].to_numpy().astype("<i4").tobytes())
        self._hash.update(table["digest"].to_numpy().astype("<i8").tobytes())

    def hex(self) -> str:
        """16 hex digits."""
        return self._hash.hexdigest()[:16]


def cell_of(table: pa.Table) -> Cell:
    """Cell of rows that have only one."""
    return Cell(*(table[name][0].as_py() for name in Cell._fields))


def parse(footer: bytes) -> Listing:
    """Find the listing in a Parquet footer; the checksums are left out.

    The list is searched for in the bytes: parsing the whole footer as Parquet takes a hundred
    times longer, and the checksum in the part's name vouches for each byte.

    Raises :class:`DamagedError` when there is none, or a newer program wrote it.
    """
    position = footer.find(_MARK)
    if position < 0:
        raise DamagedError("a Parquet file without a list of samples")
    fields = json.JSONDecoder().raw_decode(footer[position:].decode("latin-1"))[0]["rlbhpc part"]
    version = fields["schema_version"]
    if not OLDEST <= version <= SCHEMA_VERSION:
        knows = " to ".join(map(str, sorted({OLDEST, SCHEMA_VERSION})))
        raise DamagedError(f"written with schema version {version}, this program knows {knows}")
    return Listing(
        fields["tokens"],
        [Cell(*cell) for cell in fields["cells"]],
        [
            Group(cell, _samples(runs), np.frombuffer(digits.encode(), np.int8) - _ZERO, tokens)
            for cell, runs, digits, tokens in fields["groups"]
        ],
        version=version,
    )


def sums(metadata: dict[bytes, bytes], columns: int) -> NDArray[np.uint32]:
    """Checksums by row group and column, of a Parquet file's metadata."""
    packed = base64.b64decode(metadata[_SUMS.encode()])
    return np.frombuffer(packed, "<u4").reshape(-1, columns)


def checksums(table: pa.Table, sizes: Sequence[int]) -> NDArray[np.uint32]:
    """CRC-32 over the values of each column, for consecutive groups of rows.

    ``table``: rows of all groups together. Equal values give equal sums in any chunks and encoding.
    ``sizes``: rows of each group. Gives shape (groups, columns).
    """
    spans = list(pairwise([0, *np.cumsum(sizes).tolist()]))
    sums = np.zeros((len(spans), table.num_columns), np.uint32)
    for i, column in enumerate(table.columns):
        of = _summer(column)
        sums[:, i] = [of(start, stop) for start, stop in spans]
    return sums


def _summer(column: pa.ChunkedArray) -> Callable[[int, int], int]:
    """Make a function that gives the checksum of a span of one column."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    array = column.combine_chunks()
    if pa.types.is_string(array.type):
        return _ragged(array, array.buffers()[2], 1)
    values = array.values if pa.types.is_list(array.type) else array
    if values.null_count:
        return lambda start, stop: _NEVER
    if values is not array:
        return _ragged(array, _bytes(values), values.type.bit_width // 8)
    data, width = _bytes(array), array.type.bit_width // 8
    return lambda start, stop: zlib.crc32(data[start * width : stop * width])


def _ragged(array: pa.Array, data: object, width: int) -> Callable[[int, int], int]:
    """Sum over which rows are null, the lengths of the rows, and their values."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :]
    lengths = np.diff(offsets[: len(array) + 1]).data
    valid = array.is_valid().to_numpy(zero_copy_only=False).data
    view = memoryview(data) if data is not None else memoryview(b"")  # type: ignore[arg-type]

    def of(start: int, stop: int) -> int:
        crc = zlib.crc32(valid[start:stop])
        crc = zlib.crc32(lengths[start:stop], crc)
        return zlib.crc32(view[offsets[start] * width : offsets[stop] * width], crc)

    return of


def _bytes(array: pa.Array) -> memoryview:
    data, width = array.buffers()[1], array.type.bit_width // 8
    if data is None:
        return memoryview(b"")
    return memoryview(data)[array.offset * width : (array.offset + len(array)) * width]


def _runs(samples: NDArray[np.int32]) -> list[int]:
    """Ascending samples as (first, count) of each run without a gap, one after the other."""
    starts = np.flatnonzero(np.append(True, np.diff(samples) != 1))
    counts = np.diff(np.append(starts, len(samples)))
    return [int(x) for x in np.column_stack([samples[starts], counts]).ravel()]


def _samples(runs: list[int]) -> NDArray[np.int32]:
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return np.concatenate([np.arange(a, a + n, dtype=np.int32) for a, n in pairs])
