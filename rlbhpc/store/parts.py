"""Sealed parts: immutable Parquet files whose names vouch for what is in them.

A part holds samples of one arm, problem set and step, sorted by problem and sample. Each row
group belongs to one problem, so that one response is read in a millisecond and the texts of a
problem are compressed together. Its name is
``<step>-<first problem>-<content>.<footer>.parquet``:

* *content*: 64 bits of SHA-256 over the rows' keys and digests and the token policy. Two who
  seal the same samples arrive at the same name; who seals others arrives at another.
* *footer*: CRC-32 of the Parquet footer, which holds the list of the keys and a checksum per row
  group and column. So every bit is covered: pages by their own
  checksums and by those over the decoded values, the footer by the name.

A part is written under a temporary name, synced, read back, and only then renamed. The encodings
are plain enough for pyarrow, DuckDB, polars and ``datasets``. Byte-stream split saves a sixth of
the token ids and is used there; on float16 it saves nothing measurable, and DuckDB cannot read
it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import sample_rows
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.sample import COLUMNS, OLDEST, SCHEMA_VERSION
from rlbhpc.study.keys import Cell
from rlbhpc.verify.verdict import Status

ENDING: Final = ".parquet"

_NAME: Final = re.compile(r"\d{8}-.*-(?P<content>[0-9a-f]{16})\.(?P<footer>[0-9a-f]{8})\.parquet")
_TAIL: Final = 1 << 16
# A page as large as its row group lets zstd see all texts of a problem at once.
_PAGE: Final = 64 << 20
# Samples per row group: one response out of 256 is read in a millisecond. Fewer if they are very
# large: a row group is held in memory, and Arrow's 32-bit offsets end at 2 GB.
_GROUP_ROWS: Final = 256
_GROUP_BYTES: Final = 128 << 20
# Of the per-token values of a token.
_TOKEN_BYTES: Final = sum(COLUMNS[name].dtype.itemsize for name in sample_rows.PER_TOKEN)
_LABEL: Final = 40
# Bytes decoded at a time: bounds the memory, and keeps Arrow's 32-bit offsets from overflowing.
_BATCH_BYTES: Final = 256 << 20
_UNREADABLE: Final = (ValueError, LookupError, pa.ArrowException, OSError)


def write(folder: Path, tables: Iterable[pa.Table], tokens: TokenPolicy) -> Path:
    """Write one part and give it its name.

    ``folder``: where the part belongs. ``tables``: rows in order, all columns; each table has those
    of one cell, or some of them, sorted by sample. ``tokens``: the policy that the rows already
    follow. Gives the part. Whoever seals the same rows arrives at the same name and the same bytes.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.temporary_path(folder) as partial:
            first, content = _write(partial, tables, tokens)
            name = _name(partial, first, content)
            damage = verify(partial, name=name)
            if damage:
                raise UserError(
                    f"{damage[0]}: what was read back is not what was written; check the file "
                    "system, then give the same command again",
                    TRY_AGAIN,
                )
            files.publish(partial, folder / name)
    except FileNotFoundError:
        raise  # a journal that was read for this went away: see snapshot.steady
    except OSError as error:
        raise files.explain(error, folder) from error
    return folder / name


def _write(path: Path, tables: Iterable[pa.Table], tokens: TokenPolicy) -> tuple[Cell, str]:
    listed = Listing(tokens)
    content = Content(listed)
    with (
        files.Sink(path) as sink,
        pq.ParquetWriter(
            sink,
            sample_rows.PLAIN,
            compression="zstd",
            compression_level=3,
            data_page_size=_PAGE,
            use_dictionary=["arm", "problem", "answer", "rule", "grader"],
            use_byte_stream_split=["token_ids.list.element", "logprob_sum", "entropy_sum"],
            write_statistics=["step", "problem", "sample"],
            write_page_checksum=True,
            store_schema=False,
        ) as writer,
    ):
        for group in _row_groups(tables):
            listed.add(group)
            content.add(group)
            # In one piece: the bytes must not tell in what batches the rows came.
            plain = group.cast(sample_rows.PLAIN).combine_chunks()
            writer.write_table(plain, row_group_size=plain.num_rows)
        writer.add_key_value_metadata(listed.metadata())
    return listed.cells[0], content.hex()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cut rows into row groups of one cell each.

    Where they are cut follows from the rows alone, not from the tables in which they come.
    """
    held = sample_rows.ROWS.empty_table()
    for table in tables:
        if held.num_rows and cell_of(held) != cell_of(table):
            yield held
            held = table
        else:
            held = pa.concat_tables([held, table])
        while (rows := _rows_of_group(held)) < held.num_rows:
            yield held.slice(0, rows)
            held = held.slice(rows)
    if held.num_rows:
        yield held


def _rows_of_group(table: pa.Table) -> int:
    """How many of the first rows make a row group."""
    some = table.slice(0, _GROUP_ROWS)
    lengths = pc.binary_length(some["text"]).to_numpy().astype(np.int64)
    sizes = np.cumsum(lengths + some["n_tokens"].to_numpy() * _TOKEN_BYTES)
    return max(1, int(np.searchsorted(sizes, _GROUP_BYTES, side="right")))


def _name(path: Path, first: Cell, content: str) -> str:
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", first.problem.partition("/")[2])[:_LABEL]
    crc = zlib.crc32(footer(path))
    return f"{first.step:08d}-{label}-{content}.{crc:08x}{ENDING}"


def footer(path: Path) -> bytes:
    """Read the Parquet footer of any file.

    Raises :class:`DamagedError` when the file does not end as Parquet does.
    """
    with files.open_descriptor(path) as fd:
        size = os.fstat(fd).st_size
        tail = files.read_at(fd, min(_TAIL, size), max(0, size - _TAIL))
        if len(tail) < 12 or tail[-4:] != b"PAR1":
            raise DamagedError("not a whole Parquet file")
        (length,) = struct.unpack("<I", tail[-8:-4])
        if length > size - 12:
            raise DamagedError("its footer's length is impossible")
        if length + 8 > len(tail):
            tail = files.read_at(fd, length + 8, size - length - 8)
    return tail[-8 - length : -8]


def contents(path: Path, *, name: str | None = None) -> Listing:
    """List what a part holds, from its footer alone.

    ``name`` is the name to judge it by, where that is not yet the file's name.

    Raises :class:`DamagedError` when the footer is not the one that the name tells of.
    """
    match = _NAME.fullmatch(name or path.name)
    if match is None:
        raise DamagedError("not a part: no checksum in its name")
    found = footer(path)
    if zlib.crc32(found) != int(match["footer"], 16):
        raise DamagedError("its footer fails the checksum in its name")
    return parse_listing(found)


def tables_of(
    path: Path,
    listed: Listing,
    groups: Sequence[int],
    wanted: pa.Schema,
    skipped: list[Skipped],
) -> Iterator[tuple[list[int], pa.Table]]:
    """Go through a part a few hundred megabytes at a time: numbers of row groups, their rows.

    Only rows whose checksums hold are given; ``skipped`` tells of the others.
    """
    if not groups:
        return  # opening the part takes most of the time of reading one problem
    named = [field.name for field in sample_rows.ROWS if pa.types.is_dictionary(field.type)]
    try:
        with files.retry_stale(
            lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=named)
        ) as file:
            sums = listed_checksums(file.metadata.metadata, len(listed.columns))
            sizes = [file.metadata.row_group(group).total_byte_size for group in groups]
            for part in stretches(sizes, _BATCH_BYTES):
                batch = [*groups[part]]
                yield from _checked(file, path, listed, batch, wanted, sums, skipped)
    except (FileNotFoundError, MemoryError):
        raise
    except _UNREADABLE as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))


def verify(path: Path, *, name: str | None = None) -> tuple[Skipped, ...]:
    """Read a part whole and compare every key, digest and value with what its name vouches for."""
    skipped: list[Skipped] = []
    try:
        listed = contents(path, name=name)
        content = Content(listed)
        every = range(len(listed.groups))
        for groups, table in tables_of(path, listed, every, sample_rows.ROWS, skipped):
            offset = 0
            for group in groups:
                size = len(listed.groups[group].samples)
                content.add(table.slice(offset, size))
                offset += size
        match = _NAME.fullmatch(name or path.name)
        if not skipped and (match is None or content.hex() != match["content"]):
            raise DamagedError("its rows are not those that its name tells of")
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
    return tuple(skipped)


def stretches(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Cut a row of things into stretches of at most so many bytes; a larger thing is its own."""
    first = total = 0
    for i, size in enumerate(sizes):
        if i > first and total + size > most:
            yield slice(first, i)
            first, total = i, 0
        total += size
    if sizes:
        yield slice(first, len(sizes))


def _checked(
    file: pq.ParquetFile,
    path: Path,
    listed: Listing,
    batch: list[int],
    wanted: pa.Schema,
    sums: NDArray[np.uint32],
    skipped: list[Skipped],
) -> Iterator[tuple[list[int], pa.Table]]:
    """Row groups whose values are what was written: together if all are, else one by one."""
    stored = pa.schema([field for field in wanted if field.name in listed.columns])
    positions = [listed.columns.index(name) for name in stored.names]
    sizes = [len(listed.groups[group].samples) for group in batch]
    try:
        table = file.read_row_groups(batch, stored.names).select(stored.names).cast(stored)
        if (checksums(table, sizes) != sums[batch][:, positions]).any():
            raise DamagedError("values fail their checksum")
        yield batch, sample_rows.fill_columns(table, wanted, sum(sizes))
    except MemoryError:  # tells nothing of the part
        raise
    except _UNREADABLE as error:
        if len(batch) == 1:
            reason = f"row group {batch[0]}: {error}"
            skipped.append(Skipped(path, reason, samples=sizes[0]))
            return
        for group in batch:
            yield from _checked(file, path, listed, [group], wanted, sums, skipped)


# --- what a part says about its own rows ---------------------------------------------------------
#
# Parquet's page checksums leave out the page headers, where a flipped bit can turn one value into
# another unnoticed (3 of 73 000 in a trial). The sums here are taken of the values before they are
# encoded and compared after they were decoded, so nothing in between can change them silently.


#: Whose per-token values a part keeps; see :mod:`rlbhpc.store.parts`.
TokenPolicy = Literal["none", "sampled", "all"]

#: Verdicts of samples that may be tried again.
FAILED: Final = (int(Status.FAILED), int(Status.ERROR))

#: How the list of keys begins, wherever in the footer it stands.
_MARK: Final = b'{"rlbhpc part":'
_SUMS: Final = "rlbhpc checksums"
# The sum of what is never written (a missing number): different from any real sum but one in 2³².
_NEVER: Final = 0xFFFFFFFF
_ZERO: Final = np.int8(ord("0"))


class RowGroup(NamedTuple):
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
    groups: list[RowGroup] = field(default_factory=list)
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
        self.groups.append(RowGroup(len(self.cells) - 1, samples, verdicts, tokens))
        self.sums.append(checksums(table.select(sample_rows.ROWS.names), [table.num_rows])[0])

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


def parse_listing(footer: bytes) -> Listing:
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
            RowGroup(cell, _samples(runs), np.frombuffer(digits.encode(), np.int8) - _ZERO, tokens)
            for cell, runs, digits, tokens in fields["groups"]
        ],
        version=version,
    )


def listed_checksums(metadata: dict[bytes, bytes], columns: int) -> NDArray[np.uint32]:
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


# --- whose per-token values a part keeps ---------------------------------------------------------
#
# Token ids, log-probs and entropies of a response take ten times the room of its text. Their sums
# are kept for every sample; the values themselves for all, for none, or for a sample of them:
#
# ``sampled`` keeps a seeded 1 %, and every correct answer to a rare problem. A problem is rare if
# at most 1 % of its samples, or at most two of them, are correct: those are the responses in which
# a model reaches beyond what it usually does.


#: One sample in so many has its per-token values kept, right or wrong.
ONE_IN: Final = 100
_RARE: Final = 2


def in_lot(seeds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which samples the policy ``sampled`` keeps whatever their verdict, from their seeds.

    A seed is 63 hashed bits of the key: a fair lot that falls the same way every time.
    """
    return np.asarray(seeds % ONE_IN == 0)


def apply_policy(table: pa.Table, policy: TokenPolicy, right: int, drawn: int) -> pa.Table:
    """Drop the per-token values that a policy does not keep; they become null.

    ``table``: samples of one problem, all columns. ``policy``: what to keep. ``right, drawn``: how
    many samples of the problem are correct, and how many there are.
    """
    if policy == "all":
        return table
    keep = np.zeros(table.num_rows, bool)
    if policy == "sampled":
        keep |= in_lot(table["seed"].to_numpy())
        if right <= max(_RARE, drawn // ONE_IN):
            keep |= table["verdict"].to_numpy() == Status.RIGHT
    for name in sample_rows.PER_TOKEN:
        column = pc.if_else(pa.array(keep), table[name], None)
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), column)
    return table
