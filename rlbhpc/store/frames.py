"""The bytes of a journal.

A journal is a file header followed by frames, and is only ever appended to.

::

    file header   magic "rlbhpcJ2", salt u32 three times, crc32 of these 20 bytes
    frame         salt u32, kind u32, stored u32, raw u32, check u64, crc32 of these 24 bytes;
                  then ``stored`` bytes of body
    SMPL body     LZ4 block of a sample's canonical bytes (:mod:`rlbhpc.store.body`);
                  ``check`` = their digest
    INDX body     previous INDX offset u64, first cell u32, closed u32, length of names u32,
                  names (JSON list of [arm, step, problem, fingerprint], one per new cell),
                  one RECORD for each SMPL frame since the previous INDX;
                  then a trailer: salt u32, "XEND", own offset u64, crc32 of these 16 bytes;
                  ``check`` = crc32 of the body

All integers are little-endian. Each frame reaches the file in one ``write``.

Why not a format that exists: an Arrow IPC stream with a batch per sample has no checksum (81 of
200 flipped bits read back as other data), takes 2.5 times the bytes and 16 s to list 10⁶ keys;
SQLite needs locks. ``tests/benchmarks/bench_store_write.py`` measures them side by side.

The salt is random and new in every journal. It starts each frame and enters each header's
checksum, so neither text that a model wrote nor a stale disk block can pass for a frame, and a
reader that lost its place finds the next frame by searching for it. It stands three times in the
file header because everything hangs on it: two equal copies outvote a damaged third.

An INDX frame says nothing that the SMPL frames do not say, but it lists a thousand samples in one
read. Its records carry the fixed-width columns, so that counting needs no text. The trailer makes
the last INDX frame findable from the end of the file; from there the previous ones follow.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rlbhpc.store.body import digest
from rlbhpc.store.sample import Sample

MAGIC: Final = b"rlbhpcJ2"
SAMPLE: Final = int.from_bytes(b"SMPL", "little")
INDEX: Final = int.from_bytes(b"INDX", "little")
INDEX_END: Final = int.from_bytes(b"XEND", "little")

_FILE_HEADER: Final = struct.Struct("<8sIIII")
_HEADER: Final = struct.Struct("<IIIIQI")
_TRAILER: Final = struct.Struct("<IIQI")
_INDEX: Final = struct.Struct("<QIII")

FILE_HEADER_SIZE: Final = _FILE_HEADER.size
HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size

#: One sample in an INDX frame. ``cell`` counts the file's distinct (arm, step, problem,
#: fingerprint); ``offset`` is where its SMPL frame starts.
RECORD: Final = np.dtype(
    [
        ("cell", "<u4"),
        ("sample", "<i4"),
        ("offset", "<u8"),
        ("seed", "<i8"),
        ("digest", "<i8"),
        ("logprob_sum", "<f8"),
        ("entropy_sum", "<f8"),
        ("n_tokens", "<i4"),
        ("verdict", "i1"),
        ("finish", "i1"),
        ("paper", "i1"),
        ("spare", "V1"),
    ]
)
_RECORD: Final = struct.Struct("<IiQqqddibbbx")

# LZ4 takes 3 µs for a text of 1 KB where zstd takes 20 and saves another quarter. A journal is
# short-lived; parts, which stay, use zstd over all texts of a problem together.
_LZ4: Final = pa.Codec("lz4_raw")


class Cell(NamedTuple):
    """What all samples of one problem under one request share."""

    arm: str
    step: int
    problem: str
    fingerprint: int


class Header(NamedTuple):
    """A frame header whose checksum holds."""

    kind: int
    stored: int
    raw: int
    check: int

    @property
    def size(self) -> int:
        """Length of the whole frame in the file."""
        return HEADER_SIZE + self.stored + (TRAILER_SIZE if self.kind == INDEX else 0)


class IndexBlock(NamedTuple):
    """A decoded INDX frame."""

    previous: int
    first_cell: int
    closed: bool
    cells: list[Cell]
    records: memoryview


class DamagedError(ValueError):
    """Bytes that are not what was written."""


def file_header(salt: int) -> bytes:
    """First bytes of a journal."""
    head = _FILE_HEADER.pack(MAGIC, salt, salt, salt, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def read_file_header(data: bytes) -> tuple[int, bool]:
    """Salt of a journal, and whether the header is intact.

    Raises
    ------
    DamagedError
        When no two copies of the salt agree, or another version of this program wrote it.
    """
    if len(data) < FILE_HEADER_SIZE:
        raise DamagedError(f"{len(data)} bytes, shorter than a journal's header")
    magic, *salts, crc = _FILE_HEADER.unpack(data[:FILE_HEADER_SIZE])
    salt = max(salts, key=salts.count)
    if salts.count(salt) < 2 or salt == 0:
        raise DamagedError("not a journal, or its header is destroyed")
    intact = crc == zlib.crc32(data[: FILE_HEADER_SIZE - 4])
    if intact and magic != MAGIC:
        raise DamagedError(f"a journal in format {magic!r}; this program knows {MAGIC!r}")
    return salt, intact


def _frame(salt: int, kind: int, body: bytes, raw: int, check: int) -> bytes:
    head = _HEADER.pack(salt, kind, len(body), raw, check, 0)[:-4]
    return b"".join((head, struct.pack("<I", zlib.crc32(head)), body))


def read_header(data: bytes, salt: int) -> Header:
    """Frame header at the start of ``data``.

    Raises
    ------
    DamagedError
        When its checksum fails or it belongs to another journal.
    """
    if len(data) < HEADER_SIZE:
        raise DamagedError("cut within a frame header")
    found, kind, stored, raw, check, crc = _HEADER.unpack_from(data)
    if found != salt or crc != zlib.crc32(data[: HEADER_SIZE - 4]):
        raise DamagedError("frame header fails its checksum")
    return Header(kind, stored, raw, check)


def sample_frame(salt: int, body: bytes, check: int) -> bytes:
    """SMPL frame of a sample's canonical bytes and their digest."""
    return _frame(salt, SAMPLE, _LZ4.compress(body, asbytes=True), len(body), check)


def read_sample(header: Header, stored: bytes) -> bytes:
    """Canonical bytes of the sample in a SMPL frame's body.

    Raises
    ------
    DamagedError
        When they are not the bytes that were written.
    """
    try:
        body: bytes = _LZ4.decompress(stored, header.raw, asbytes=True)
    except OSError as error:
        raise DamagedError(f"a sample's body does not decompress: {error}") from error
    if digest(body) != header.check:
        raise DamagedError("a sample's body fails its checksum")
    return body


def record(cell: int, offset: int, sample: Sample, check: int) -> bytes:
    """RECORD of a sample for the next INDX frame."""
    return _RECORD.pack(
        cell,
        sample.key.sample,
        offset,
        sample.seed,
        check,
        sample.logprob_sum,
        sample.entropy_sum,
        sample.n_tokens,
        sample.verdict,
        sample.finish,
        sample.paper,
    )


def index_frame(
    salt: int,
    offset: int,
    previous: int,
    first_cell: int,
    cells: list[Cell],
    records: list[bytes],
    *,
    closed: bool,
) -> bytes:
    """INDX frame that will start at ``offset``."""
    names = json.dumps(cells, separators=(",", ":")).encode()
    body = b"".join((_INDEX.pack(previous, first_cell, int(closed), len(names)), names, *records))
    trailer = _TRAILER.pack(salt, INDEX_END, offset, 0)[:-4]
    return b"".join(
        (
            _frame(salt, INDEX, body, len(body), zlib.crc32(body)),
            trailer,
            struct.pack("<I", zlib.crc32(trailer)),
        )
    )


def read_trailer(data: bytes, salt: int) -> int | None:
    """Offset of the INDX frame that ends with ``data``; None if these bytes are no trailer."""
    if len(data) != TRAILER_SIZE:
        return None
    found, kind, offset, crc = _TRAILER.unpack(data)
    if (found, kind) != (salt, INDEX_END) or crc != zlib.crc32(data[:-4]):
        return None
    return int(offset)


def trailer_mark(salt: int) -> bytes:
    """Bytes with which every trailer of a journal begins."""
    return struct.pack("<II", salt, INDEX_END)


def read_index(header: Header, body: bytes) -> IndexBlock:
    """Decode the body of an INDX frame.

    Raises
    ------
    DamagedError
        When it fails its checksum.
    """
    if header.kind != INDEX or zlib.crc32(body) != header.check:
        raise DamagedError("an index block fails its checksum")
    previous, first_cell, closed, length = _INDEX.unpack_from(body)
    start = _INDEX.size + length
    cells = list(map(Cell._make, json.loads(body[_INDEX.size : start])))
    return IndexBlock(previous, first_cell, bool(closed), cells, memoryview(body)[start:])
