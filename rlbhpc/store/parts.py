"""Sealed parts: immutable Parquet files whose names vouch for what is in them.

A part holds samples of one arm, problem set and step, sorted by problem and sample. Each row
group belongs to one problem, so that one response is read in a millisecond and the texts of a
problem are compressed together. Its name is ``<step>-<first problem>-<content>.<footer>.parquet``:

* *content*: 64 bits of SHA-256 over the rows' keys and digests and the token policy. Two who
  seal the same samples arrive at the same name; who seals others arrives at another.
* *footer*: CRC-32 of the Parquet footer, which holds the list of the keys and a checksum per row
  group and column (:mod:`rlbhpc.store.checksum`). So every bit is covered: pages by their own
  checksums and by those over the decoded values, the footer by the name.

:mod:`rlbhpc.store.part_writer` writes them. Any Parquet reader reads them.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlbhpc.store import files, listing, schema
from rlbhpc.store.checksum import checksums
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.listing import Content, Listing

ENDING: Final = ".parquet"

_NAME: Final = re.compile(r"\d{8}-.*-(?P<content>[0-9a-f]{16})\.(?P<footer>[0-9a-f]{8})\.parquet")
_TAIL: Final = 1 << 16
# Bytes decoded at a time: bounds the memory, and keeps Arrow's 32-bit offsets from overflowing.
_BATCH_BYTES: Final = 256 << 20
_UNREADABLE: Final = (ValueError, LookupError, pa.ArrowException, OSError)


class _Batch(NamedTuple):
    groups: list[int]
    sizes: list[int]


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
    try:
        with _open(path) as file:
            sums = listing.sums(file.metadata.metadata)
            for batch in _batches(file, listed, groups):
                yield from _checked(file, path, batch, wanted, sums, skipped)
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        skipped.append(Skipped(path, 0, 0, f"unreadable part: {error}"))


def verify(path: Path, *, name: str | None = None) -> tuple[Skipped, ...]:
    """Read a part whole and compare every key, digest and value with what its name vouches for."""
    skipped: list[Skipped] = []
    try:
        listed = contents(path, name=name)
        content = Content(listed.tokens)
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
        skipped.append(Skipped(path, 0, 0, f"unreadable part: {error}"))
    return tuple(skipped)


def _open(path: Path) -> pq.ParquetFile:
    named = [field.name for field in schema.ROWS if pa.types.is_dictionary(field.type)]
    return files.retrying(
        lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=named)
    )


def _batches(file: pq.ParquetFile, listed: Listing, groups: Sequence[int]) -> Iterator[_Batch]:
    batch, total = _Batch([], []), 0
    for group in groups:
        total += file.metadata.row_group(group).total_byte_size
        if total > _BATCH_BYTES and batch.groups:
            yield batch
            batch, total = _Batch([], []), 0
        batch.groups.append(group)
        batch.sizes.append(len(listed.groups[group].samples))
    if batch.groups:
        yield batch


def _checked(
    file: pq.ParquetFile,
    path: Path,
    batch: _Batch,
    wanted: pa.Schema,
    sums: NDArray[np.uint32],
    skipped: list[Skipped],
) -> Iterator[tuple[list[int], pa.Table]]:
    """Row groups whose values are what was written: together if all are, else one by one."""
    positions = [schema.ROWS.get_field_index(name) for name in wanted.names]
    try:
        table = file.read_row_groups(batch.groups, wanted.names).select(wanted.names).cast(wanted)
        if table.num_rows != sum(batch.sizes):
            raise DamagedError("rows are missing")
        if (checksums(table, batch.sizes) != sums[batch.groups][:, positions]).any():
            raise DamagedError("values fail their checksum")
        yield batch.groups, table
    except _UNREADABLE as error:
        if len(batch.groups) == 1:
            reason = f"row group {batch.groups[0]}: {error}"
            skipped.append(Skipped(path, 0, 0, reason, samples=batch.sizes[0]))
            return
        for group, size in zip(*batch, strict=True):
            yield from _checked(file, path, _Batch([group], [size]), wanted, sums, skipped)
