"""Sealed parts: immutable Parquet files whose names vouch for what is in them.

A part holds samples of one arm, problem set and step, sorted by problem and sample. Each row
group belongs to one problem, so that one response is read in a millisecond and the texts of a
problem are compressed together. Its name is ``<step>-<first problem>-<content>.<footer>.parquet``:

* *content*: 64 bits of SHA-256 over the rows' keys and digests and the token policy. Two who
  seal the same samples arrive at the same name; who seals others arrives at another.
* *footer*: CRC-32 of the Parquet footer, which holds the list of the keys and a checksum per row
  group and column (:mod:`rlbhpc.store.listing`). So every bit is covered: pages by their own
  checksums and by those over the decoded values, the footer by the name.

A part is written under a temporary name, synced, read back, and only then renamed. The encodings
are plain enough for pyarrow, DuckDB, polars and ``datasets``. Byte-stream split saves a sixth of
the token ids and is used there; on float16 it saves nothing measurable, and DuckDB cannot read it.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import listing, schema
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.listing import Content, Listing, TokenPolicy, checksums
from rlbhpc.store.sample import COLUMNS
from rlbhpc.study.keys import Cell

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
_TOKEN_BYTES: Final = sum(COLUMNS[name].dtype.itemsize for name in schema.PER_TOKEN)
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
        with files.making(folder) as partial:
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
            schema.PLAIN,
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
            plain = group.cast(schema.PLAIN).combine_chunks()
            writer.write_table(plain, row_group_size=plain.num_rows)
        writer.add_key_value_metadata(listed.metadata())
    return listed.cells[0], content.hex()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cut rows into row groups of one cell each.

    Where they are cut follows from the rows alone, not from the tables in which they come.
    """
    held = schema.ROWS.empty_table()
    for table in tables:
        if held.num_rows and listing.cell_of(held) != listing.cell_of(table):
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
    with files.reading(path) as fd:
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
    return listing.parse(found)


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
    named = [field.name for field in schema.ROWS if pa.types.is_dictionary(field.type)]
    try:
        with files.retrying(
            lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=named)
        ) as file:
            sums = listing.sums(file.metadata.metadata, len(listed.columns))
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
        for groups, table in tables_of(path, listed, every, schema.ROWS, skipped):
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
        yield batch, schema.filled(table, wanted, sum(sizes))
    except MemoryError:  # tells nothing of the part
        raise
    except _UNREADABLE as error:
        if len(batch) == 1:
            reason = f"row group {batch[0]}: {error}"
            skipped.append(Skipped(path, reason, samples=sizes[0]))
            return
        for group in batch:
            yield from _checked(file, path, listed, [group], wanted, sums, skipped)
