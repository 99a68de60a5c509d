"""Sealed parts: immutable Parquet files whose names vouch for what is in them.

A part holds samples of one arm, problem set and step, sorted by problem and sample. Each row
group belongs to one problem, so that one response is read in a millisecond and the texts of a
problem are compressed together. Its name is
``<step>-<first problem>-<content>.<footer>.parquet``:

* *content*: 64 bits of SHA-256 over the rows' keys and digests and the token policy. Two who
  seal the same samples arrive at the same name; who seals others arrives at another.
* *footer*: CRC-32 of the Parquet footer, which holds the list of the keys and a checksum per row
  group and column. So every bit is covered: pages by their own checksums and by those over the
  decoded values, the footer by the name.

A part is written under a temporary name, synced, and only then renamed. Before a journal is
removed, its parts are read back whole. The encodings are plain enough for pyarrow, DuckDB, polars
and ``datasets``. Byte-stream split saves a sixth of the token ids and is used there; on float16 it
saves nothing measurable, and DuckDB cannot read it.
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
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.store import sample_rows
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.sample_rows import COLUMNS, OLDEST, SCHEMA_VERSION
from rlbhpc.study.keys import Cell
from rlbhpc.verify.verdict import Status

ENDING: Final = ".parquet"

_NAME: Final = re.compile(r"\d{8}-.*-[0-9a-f]{16}\.(?P<footer>[0-9a-f]{8})\.parquet")
_PARQUET_MAGIC: Final = b"PAR1"
# The magic at both ends, and the length of the footer.
_MIN_PARQUET_BYTES: Final = 12
_TAIL_BYTES: Final = 1 << 16
# A page as large as its row group lets zstd see all texts of a problem at once.
_PAGE_BYTES: Final = 64 << 20
# Samples per row group: one response out of 256 is read in a millisecond. Fewer if they are very
# large: a row group is held in memory, and Arrow's 32-bit offsets end at 2 GB.
_GROUP_ROWS: Final = 256
_GROUP_BYTES: Final = 128 << 20
# Id, log-prob and entropy of a token.
_BYTES_PER_TOKEN: Final = sum(COLUMNS[name].dtype.itemsize for name in sample_rows.PER_TOKEN)
_LABEL_CHARACTERS: Final = 40
# Bytes decoded at a time: bounds the memory, and keeps Arrow's 32-bit offsets from overflowing.
_BATCH_BYTES: Final = 256 << 20
_READ_ERRORS: Final = (ValueError, LookupError, pa.ArrowException, OSError)


def write(folder: Path, read_tables: Callable[[], Iterable[pa.Table]], tokens: TokenPolicy) -> Path:
    """Write one part and give it its name.

    A *part* is a Parquet file of samples that never changes; its name vouches for its content.
    ``folder``: where it belongs. ``read_tables``: gives rows in order, all columns; each table has
    those of one cell (a problem at a step, under one request), or some of them, sorted by sample.
    It is called again if a sample has a trace, for which the part needs one more column.
    ``tokens``: the policy for per-token values that the rows already follow. Gives the part's path.
    Whoever seals the same rows arrives at the same name and the same bytes.
    """
    try:
        return _write_part(folder, read_tables(), Listing(tokens))
    except _TracedError:
        return _write_part(folder, read_tables(), Listing(tokens, traced=True))


class _TracedError(Exception):
    """A sample has a trace, and the part that is being written has no column for it."""


def _write_part(folder: Path, tables: Iterable[pa.Table], listing: Listing) -> Path:
    """Write a part whose rows have the columns of an empty listing, and publish it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.temporary_path(folder) as partial_path:
            content_digest = _write_rows(partial_path, tables, listing)
            name = _make_name(partial_path, listing.cells[0], content_digest)
            files.publish(partial_path, folder / name)
    except FileNotFoundError:
        raise  # a journal was removed while its rows were read: the caller begins again
    except OSError as error:
        raise files.explain(error, folder) from error
    return folder / name


def _write_rows(path: Path, tables: Iterable[pa.Table], listing: Listing) -> str:
    """Write the Parquet file of a part; give the digest of its content, for its name.

    The *listing*, a list of the samples in each row group with their checksums, is filled and goes
    into the footer of the file. Raises :class:`_TracedError` where it lacks the column of a trace.
    """
    schema = pa.schema([field for field in sample_rows.PLAIN if field.name in listing.columns])
    content = ContentDigest(listing)
    with (
        files.Sink(path) as sink,
        pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=3,
            data_page_size=_PAGE_BYTES,
            use_dictionary=["arm", "problem", "answer", "rule", "grader"],
            use_byte_stream_split=["token_ids.list.element", "logprob_sum", "entropy_sum"],
            write_statistics=["step", "problem", "sample"],
            write_page_checksum=True,
            store_schema=False,
        ) as writer,
    ):
        for group in _cut_row_groups(tables):
            if not listing.traced and pc.max(group[sample_rows.TRACE]).as_py():
                raise _TracedError
            listing.add(group)
            content.add(group)
            # In one piece: the bytes must not tell in what batches the rows came.
            plain = group.select(schema.names).cast(schema).combine_chunks()
            writer.write_table(plain, row_group_size=plain.num_rows)
        writer.add_key_value_metadata(listing.metadata())
    return content.hex()


def _cut_row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cut rows into row groups of one cell each: one problem at one step, under one request.

    ``tables``: rows in order, each table of one cell or a piece of it. Where they are cut follows
    from the rows alone, not from the tables in which they come.
    """
    pending = sample_rows.ROWS.empty_table()
    for table in tables:
        if pending.num_rows and cell_of(pending) != cell_of(table):
            yield pending
            pending = table
        else:
            pending = pa.concat_tables([pending, table])
        while (group_rows := _rows_of_next_group(pending)) < pending.num_rows:
            yield pending.slice(0, group_rows)
            pending = pending.slice(group_rows)
    if pending.num_rows:
        yield pending


def _rows_of_next_group(table: pa.Table) -> int:
    """How many of the first rows make a row group, by their number and their bytes."""
    first_rows = table.slice(0, _GROUP_ROWS)
    text_bytes = pc.binary_length(first_rows["text"]).to_numpy().astype(np.int64)
    text_bytes += pc.binary_length(first_rows[sample_rows.TRACE]).to_numpy()
    token_bytes = first_rows["n_tokens"].to_numpy() * _BYTES_PER_TOKEN
    total_bytes = np.cumsum(text_bytes + token_bytes)
    return max(1, int(np.searchsorted(total_bytes, _GROUP_BYTES, side="right")))


def _make_name(path: Path, first_cell: Cell, content_digest: str) -> str:
    """Name of a part; ``path``: the finished file, whose footer the name vouches for."""
    local_id = first_cell.problem.partition("/")[2]
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", local_id)[:_LABEL_CHARACTERS]
    footer_crc = zlib.crc32(read_footer(path))
    return f"{first_cell.step:08d}-{label}-{content_digest}.{footer_crc:08x}{ENDING}"


def read_footer(path: Path) -> bytes:
    """Read the footer of a Parquet file, the bytes that describe its content.

    A file ends with the footer, its length in four bytes, and the mark ``PAR1``. One read at the
    end usually gets all three. Raises :class:`DamagedError` when the file does not end so.
    """
    with files.open_descriptor(path) as fd:
        size = os.fstat(fd).st_size
        tail = files.read_at(fd, min(_TAIL_BYTES, size), max(0, size - _TAIL_BYTES))
        if len(tail) < _MIN_PARQUET_BYTES or tail[-4:] != _PARQUET_MAGIC:
            raise DamagedError("not a whole Parquet file")
        (footer_bytes,) = struct.unpack("<I", tail[-8:-4])
        if footer_bytes > size - _MIN_PARQUET_BYTES:
            raise DamagedError("its footer's length is impossible")
        if footer_bytes + 8 > len(tail):
            tail = files.read_at(fd, footer_bytes + 8, size - footer_bytes - 8)
    # Behind the footer stand its length and the mark, of four bytes each.
    return tail[-8 - footer_bytes : -8]


def read_listing(path: Path) -> Listing:
    """List what a part holds, from its footer alone.

    The name of a part ends with a checksum of its footer.

    Raises :class:`DamagedError` when the footer is not the one that the name tells of.
    """
    name_fields = _NAME.fullmatch(path.name)
    if name_fields is None:
        raise DamagedError("not a part: no checksum in its name")
    footer = read_footer(path)
    if zlib.crc32(footer) != int(name_fields["footer"], 16):
        raise DamagedError("its footer fails the checksum in its name")
    return parse_listing(footer)


def read_groups(
    path: Path,
    listing: Listing,
    numbers: Sequence[int],
    schema: pa.Schema,
    skipped: list[Skipped],
) -> Iterator[tuple[list[int], pa.Table]]:
    """Read row groups of a part, a few hundred megabytes at a time: their numbers and their rows.

    ``listing``: what the part's footer says it holds. ``numbers``: which row groups. ``schema``:
    which columns. Only row groups whose checksums hold are given; ``skipped`` is told of the
    others.
    """
    if not numbers:
        return  # opening the part takes most of the time of reading one problem
    dictionaries = [field.name for field in sample_rows.ROWS if pa.types.is_dictionary(field.type)]
    try:
        with files.retry_stale(
            lambda: pq.ParquetFile(
                path, page_checksum_verification=True, read_dictionary=dictionaries
            )
        ) as file:
            reader = _CheckedReader(file, path, listing, schema, skipped)
            sizes = [file.metadata.row_group(number).total_byte_size for number in numbers]
            for batch in cut_by_bytes(sizes, _BATCH_BYTES):
                yield from reader.read(list(numbers[batch]))
    except (FileNotFoundError, MemoryError):
        raise
    except _READ_ERRORS as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))


def verify(path: Path) -> tuple[Skipped, ...]:
    """Read a part whole and compare every value with its checksum; gives what is damaged.

    The name has a checksum of the footer, and the footer the checksums of the values.
    """
    skipped: list[Skipped] = []
    try:
        listing = read_listing(path)
        all_numbers = range(len(listing.groups))
        for _ in read_groups(path, listing, all_numbers, sample_rows.ROWS, skipped):
            pass
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
    return tuple(skipped)


def cut_by_bytes(sizes: Sequence[int], max_bytes: int) -> Iterator[slice]:
    """Cut a row of things into slices of at most so many bytes; a larger thing is its own slice.

    ``sizes``: bytes of each thing.
    """
    first = 0
    total_bytes = 0
    for index, size in enumerate(sizes):
        if index > first and total_bytes + size > max_bytes:
            yield slice(first, index)
            first = index
            total_bytes = 0
        total_bytes += size
    if sizes:
        yield slice(first, len(sizes))


class _CheckedReader:
    """Reads some columns of a part, and compares the values with the checksums in its footer."""

    def __init__(
        self,
        file: pq.ParquetFile,
        path: Path,
        listing: Listing,
        schema: pa.Schema,
        skipped: list[Skipped],
    ) -> None:
        """Prepare to read the columns of ``schema`` from an open part.

        ``listing``: what the part's footer says it holds. ``skipped``: is told of damaged row
        groups. The footer has a checksum for each row group and stored column; those of the wanted
        columns are kept.
        """
        self._file = file
        self._path = path
        self._listing = listing
        self._schema = schema
        self._skipped = skipped
        # An older part does not have all columns.
        self._stored = pa.schema([field for field in schema if field.name in listing.columns])
        positions = [listing.columns.index(name) for name in self._stored.names]
        all_sums = listed_checksums(file.metadata.metadata, len(listing.columns))
        # Shape (row groups, columns that are read).
        self._checksums = all_sums[:, positions]

    def read(self, numbers: list[int]) -> Iterator[tuple[list[int], pa.Table]]:
        """Read row groups: their numbers and their rows, for those that are intact.

        They are read together. Only if that fails are they read one by one, to find which are
        damaged. Columns that an older part does not have are filled with their default.
        """
        sizes = [len(self._listing.groups[number].samples) for number in numbers]
        names = self._stored.names
        try:
            table = self._file.read_row_groups(numbers, names).select(names).cast(self._stored)
            if (checksums(table, sizes) != self._checksums[numbers]).any():
                raise DamagedError("values fail their checksum")
            yield numbers, sample_rows.fill_columns(table, self._schema, sum(sizes))
        except MemoryError:  # tells nothing of the part
            raise
        except _READ_ERRORS as error:
            if len(numbers) == 1:
                reason = f"row group {numbers[0]}: {error}"
                self._skipped.append(Skipped(self._path, reason, samples=sizes[0]))
                return
            for number in numbers:
                yield from self.read([number])


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
_LISTING_MARK: Final = b'{"rlbhpc part":'
_CHECKSUMS_KEY: Final = "rlbhpc checksums"
# The sum of what is never written (a missing number): different from any real sum but one in 2³².
_NEVER_WRITTEN: Final = 0xFFFFFFFF
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
    samples ``groups[i].samples`` of ``cells[groups[i].cell]``. ``checksums``: one for each row
    group and column. ``version``: of the schema that the rows were written by. ``traced``: whether
    the rows have traces of how their responses came about.
    """

    tokens: TokenPolicy
    cells: list[Cell] = field(default_factory=list)
    groups: list[RowGroup] = field(default_factory=list)
    checksums: list[NDArray[np.uint32]] = field(default_factory=list)
    version: int = SCHEMA_VERSION
    traced: bool = False

    @property
    def columns(self) -> list[str]:
        """Columns that the rows have on disk, in their order."""
        names = [name for name, column in COLUMNS.items() if column.since <= self.version]
        if not self.traced:
            names.remove(sample_rows.TRACE)
        return names

    def add(self, table: pa.Table) -> None:
        """Take in the next row group: all columns of samples of one cell.

        A *cell* is one problem at one step, under one request. Large ones have several row groups.
        """
        cell = cell_of(table)
        if not self.cells or self.cells[-1] != cell:
            self.cells.append(cell)
        self.groups.append(
            RowGroup(
                cell=len(self.cells) - 1,
                samples=table["sample"].to_numpy(),
                verdicts=table["verdict"].to_numpy(),
                tokens=int(table["n_tokens"].to_numpy().sum(dtype=np.int64)),
            )
        )
        columns = table.select(self.columns)
        self.checksums.append(checksums(columns, [table.num_rows])[0])

    @cached_property
    def sample_count(self) -> int:
        """Number of samples."""
        return sum(len(group.samples) for group in self.groups)

    def metadata(self) -> dict[str, str]:
        """The listing as it is written into the footer of the part: two texts by their keys.

        One is JSON with, for each row group: the number of its cell, runs of sample indices, one
        digit per verdict, and the tokens in all. The other has the checksums of its columns.
        """
        groups = []
        for group in self.groups:
            # One digit per verdict: a resume scan then reads no column at all.
            digits = (group.verdicts + _ZERO).tobytes().decode()
            groups.append([group.cell, _encode_runs(group.samples), digits, group.tokens])
        listing = {
            "schema_version": self.version,
            "tokens": self.tokens,
            "cells": self.cells,
            "groups": groups,
        }
        if self.traced:
            listing["traced"] = True
        packed_sums = np.array(self.checksums, "<u4").tobytes()
        return {
            "rlbhpc part": json.dumps({"rlbhpc part": listing}, separators=(",", ":")),
            _CHECKSUMS_KEY: base64.b64encode(packed_sums).decode(),
        }


class ContentDigest:
    """What a part's name tells of its rows: keys, digests, token policy, schema version."""

    def __init__(self, listing: Listing) -> None:
        self._hash = hashlib.sha256(f"{listing.tokens} {listing.version}".encode())

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
    """Find the listing in a Parquet footer: which samples each row group has, without checksums.

    The list is searched for in the bytes: parsing the whole footer as Parquet takes a hundred times
    longer, and the checksum in the part's name vouches for each byte. For each row group it has the
    number of its cell, runs of sample indices, one digit per verdict, and the tokens in all.

    Raises :class:`DamagedError` when there is none, or a newer program wrote it.
    """
    position = footer.find(_LISTING_MARK)
    if position < 0:
        raise DamagedError("a Parquet file without a list of samples")
    text = footer[position:].decode("latin-1")
    listing = json.JSONDecoder().raw_decode(text)[0]["rlbhpc part"]
    version = listing["schema_version"]
    if not OLDEST <= version <= SCHEMA_VERSION:
        raise DamagedError(
            f"written with schema version {version}, this program knows {OLDEST} to "
            f"{SCHEMA_VERSION}"
        )
    groups = []
    for cell, runs, digits, tokens in listing["groups"]:
        verdicts = np.frombuffer(digits.encode(), np.int8) - _ZERO
        groups.append(RowGroup(cell, _decode_runs(runs), verdicts, tokens))
    cells = [Cell(*cell) for cell in listing["cells"]]
    traced = listing.get("traced", False)
    return Listing(listing["tokens"], cells, groups, version=version, traced=traced)


def listed_checksums(metadata: dict[bytes, bytes], columns: int) -> NDArray[np.uint32]:
    """Checksums by row group and column, from a Parquet file's metadata."""
    packed = base64.b64decode(metadata[_CHECKSUMS_KEY.encode()])
    return np.frombuffer(packed, "<u4").reshape(-1, columns)


def checksums(table: pa.Table, sizes: Sequence[int]) -> NDArray[np.uint32]:
    """CRC-32 over the values of each column, for consecutive groups of rows.

    ``table``: rows of all groups together. ``sizes``: rows of each group. Gives shape (groups,
    columns). Equal values give equal sums in any chunks and encoding.
    """
    starts = np.cumsum(sizes) - sizes
    sums = np.zeros((len(sizes), table.num_columns), np.uint32)
    for number, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        array = column.combine_chunks()
        for group, (start, size) in enumerate(zip(starts.tolist(), sizes, strict=True)):
            sums[group, number] = _crc_of_values(array.slice(start, size))
    return sums


def _crc_of_values(array: pa.Array) -> int:
    """CRC-32 over the bytes of numbers; of texts and lists over their lengths, then their values.

    Before the lengths it goes over which rows are null. Numbers with a null were never written and
    have a fixed sum.
    """
    if pa.types.is_string(array.type):
        data = memoryview(array.buffers()[2] or b"")
        item_bytes = 1
    else:
        numbers = array.values if pa.types.is_list(array.type) else array
        if numbers.null_count:
            return _NEVER_WRITTEN
        data = _value_bytes(numbers)
        if numbers is array:
            return zlib.crc32(data)
        item_bytes = numbers.type.bit_width // 8
    # Arrow's second buffer has the offset at which each row begins.
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    crc = zlib.crc32(array.is_valid().to_numpy(zero_copy_only=False).data)
    crc = zlib.crc32(np.diff(offsets).data, crc)
    return zlib.crc32(data[offsets[0] * item_bytes : offsets[-1] * item_bytes], crc)


def _value_bytes(array: pa.Array) -> memoryview:
    """The bytes of an Arrow array of numbers, without those before its offset."""
    data = array.buffers()[1]
    if data is None:
        return memoryview(b"")
    item_bytes = array.type.bit_width // 8
    start = array.offset * item_bytes
    return memoryview(data)[start : start + len(array) * item_bytes]


def _encode_runs(samples: NDArray[np.int32]) -> list[int]:
    """Ascending sample indices as (first, count) of each run without a gap, in one list."""
    is_start = np.append(True, np.diff(samples) != 1)
    starts = np.flatnonzero(is_start)
    counts = np.diff(np.append(starts, len(samples)))
    return [int(number) for number in np.column_stack([samples[starts], counts]).ravel()]


def _decode_runs(runs: list[int]) -> NDArray[np.int32]:
    """Sample indices of runs, see :func:`_encode_runs`."""
    pairs = zip(runs[::2], runs[1::2], strict=True)
    indices = [np.arange(first, first + count, dtype=np.int32) for first, count in pairs]
    return np.concatenate(indices)


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
_MAX_RARE_RIGHT: Final = 2


def in_lot(seeds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the policy ``sampled`` keeps the tokens of samples with these seeds, right or wrong.

    A seed is 63 hashed bits of the key: a fair lot that falls the same way every time.
    """
    return np.asarray(seeds % ONE_IN == 0)


def apply_policy(
    table: pa.Table, policy: TokenPolicy, right_count: int, sample_count: int
) -> pa.Table:
    """Drop the per-token values that a policy does not keep; they become null.

    These are the id, log-probability and entropy of each token. ``table``: some samples of one
    problem, all columns. ``right_count, sample_count``: right samples of the problem, and all of
    them. ``"sampled"`` keeps one sample in a hundred, chosen by its seed, and the right samples of
    problems that are rarely solved.
    """
    if policy == "all":
        return table
    is_kept = np.zeros(table.num_rows, bool)
    if policy == "sampled":
        is_kept |= in_lot(table["seed"].to_numpy())
        if right_count <= max(_MAX_RARE_RIGHT, sample_count // ONE_IN):
            is_kept |= table["verdict"].to_numpy() == Status.RIGHT
    for name in sample_rows.PER_TOKEN:
        column = pc.if_else(pa.array(is_kept), table[name], None)
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), column)
    return table
