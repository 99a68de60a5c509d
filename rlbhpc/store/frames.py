"""The bytes of a journal.

A journal is a file header followed by frames, and is only ever appended to.

::

    file header   magic "rlbhpcJ4", salt u32 three times, crc32 of these 20 bytes; the index blocks
                  of "rlbhpcJ2" and "rlbhpcJ3" have other layouts, so that all samples are read
    frame         salt u32, kind u32, stored u32, raw u32, check u64, crc32 of these 24 bytes;
                  then ``stored`` bytes of body
    SMPL body     LZ4 block of a sample's canonical bytes (:mod:`rlbhpc.store.sample_rows`);
                  ``check`` = their digest
    INDX body     previous INDX offset u64, first cell u32, closed u32, crc32c u32 over the SMPL
                  frames since the previous INDX, lengths of the next three u32:
                  names   JSON list of [arm, step, problem, fingerprint], one per new cell
                  stops   u32 where each distinct answer of the block ends among
                  answers UTF-8, one after the other;
                  then one RECORD for each SMPL frame since the previous INDX;
                  then a trailer: salt u32, "XEND", own offset u64, crc32 of these 16 bytes;
                  ``check`` = crc32 of the body

All integers are little-endian. Each frame reaches the file in one ``write``.

Why not a format that exists: an Arrow IPC stream with a batch per sample has no checksum (81 of
200 flipped bits read back as other data), takes 2.5 times the bytes and 16 s to list 10⁶ keys;
SQLite needs locks. ``tests/benchmarks/bench_store_write.py`` measures them side by side.

The salt is random and new in every journal. It starts each frame and enters each header's
checksum, so neither text that a model wrote nor a stale disk block can pass for a frame, and a
reader that lost its place finds the next frame by searching for it. It stands three times in the
file header because everything hangs on it: two equal copies outvote a damaged third. Where all
are lost, the headers of the frames still have it, if all that are intact name the same.

An INDX frame says nothing that the SMPL frames do not say, but it lists a thousand samples in one
read. It has all that a cube is made of, so that neither counting nor compaction decodes a text,
and one checksum by which a thousand samples are verified at once. The trailer makes the last INDX
frame findable from the end of the file; from there the previous ones follow.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection
from contextlib import suppress
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple, Self

import google_crc32c
import numpy as np
import pyarrow as pa

from rlbhpc.store.sample_rows import (
    COLUMNS,
    SCHEMA_VERSION,
    Sample,
    digest,
    upgrade,
    utf8,
)
from rlbhpc.study.keys import Cell

# Changes of the layout here, beside those of a sample's values.
_LAYOUT: Final = 1
MAGIC: Final = f"rlbhpcJ{SCHEMA_VERSION + _LAYOUT:x}".encode()
#: Formats that are read, with the schema version of their samples. Index blocks are read of
#: today's alone; of the others all samples are read instead.
FORMATS: Final = {b"rlbhpcJ2": 2, b"rlbhpcJ3": 2, b"rlbhpcJ4": 3, MAGIC: SCHEMA_VERSION}
SAMPLE: Final = int.from_bytes(b"SMPL", "little")
INDEX: Final = int.from_bytes(b"INDX", "little")
INDEX_END: Final = int.from_bytes(b"XEND", "little")

_FILE_HEADER: Final = struct.Struct("<8sIIII")
_HEADER: Final = struct.Struct("<IIIIQI")
_TRAILER: Final = struct.Struct("<IIQI")
_INDEX: Final = struct.Struct("<QIIIIII")

FILE_HEADER_SIZE: Final = _FILE_HEADER.size
HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size

#: The text of a row that an index carries.
ANSWER: Final = "answer"
#: Columns that an index answers without a look at any response.
INDEXED: Final = tuple(
    name
    for name, column in COLUMNS.items()
    if column.is_number or name in {"arm", "problem", ANSWER}
)
# Numbers of a sample that a record has beside its digest; the widest first. Those of its cell are
# said once for all its samples.
_RECORDED: Final = sorted(
    (
        name
        for name, column in COLUMNS.items()
        if column.is_number and name not in {"step", "sample", "fingerprint", "digest"}
    ),
    key=lambda name: -COLUMNS[name].dtype.itemsize,
)
_SPARE: Final = -(28 + sum(COLUMNS[name].dtype.itemsize for name in _RECORDED)) % 8

#: One sample in an INDX frame. ``cell`` counts the file's distinct (arm, step, problem,
#: fingerprint); ``offset`` is where its SMPL frame starts; ``answer`` counts the block's answers.
RECORD: Final = np.dtype(
    [
        ("cell", "<u4"),
        ("sample", "<i4"),
        ("offset", "<u8"),
        ("digest", "<i8"),
        *((name, COLUMNS[name].dtype) for name in _RECORDED),
        ("spare", f"V{_SPARE}"),
        (ANSWER, "<u4"),
    ]
)
_RECORD: Final = struct.Struct(
    "<IiQq" + "".join(COLUMNS[name].code for name in _RECORDED) + f"{_SPARE}xI"
)
_recorded_numbers: Final = attrgetter(*_RECORDED)

# LZ4 takes 3 µs for a text of 1 KB where zstd takes 20 and saves another quarter. A journal is
# short-lived; parts, which stay, use zstd over all texts of a problem together.
_LZ4: Final = pa.Codec("lz4_raw")


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


class AnswerList(NamedTuple):
    """Distinct answers of a block: where each ends, and their UTF-8 one after the other."""

    stops: bytes
    text: bytes

    @classmethod
    def join(cls, answers: Collection[bytes]) -> Self:
        """Store answers, each as UTF-8, one after the other."""
        stops = np.cumsum([*map(len, answers)], dtype="<u4").tobytes()
        return cls(stops, b"".join(answers))

    @property
    def answer_count(self) -> int:
        """Number of answers."""
        return len(self.stops) // 4

    def to_arrow(self) -> pa.Array:
        """The answers as an Arrow array."""
        offsets = pa.py_buffer(bytes(4) + self.stops)
        return pa.StringArray.from_buffers(self.answer_count, offsets, pa.py_buffer(self.text))


class IndexBlock(NamedTuple):
    """A decoded INDX frame.

    ``previous``: offset of the INDX frame before. ``samples_crc``: crc32c of the SMPL frames since
    that one. ``records``: one :data:`RECORD` for each of them.
    """

    previous: int
    closed: bool
    samples_crc: int
    cells: list[Cell]
    answers: AnswerList
    records: memoryview


class Block:
    """The samples that were written since the last INDX frame, for the next one to list.

    ``start``: offset of the first of their frames. ``cells``: cells that no frame before has.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.cells: list[Cell] = []
        self._samples_crc = 0
        self._records: list[bytes] = []
        self._answers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, frame: bytes, cell: int, offset: int, sample: Sample, digest: int) -> None:
        """List a sample whose frame was written at ``offset``.

        ``frame``: its bytes in the file, header and body. ``cell``: number of its cell (arm, step,
        problem, request) in the whole file. ``digest``: hash of its content. The next index frame
        will have a record of these and of the sample's numbers; the answer is listed once and the
        record has its number.
        """
        self._samples_crc = google_crc32c.extend(self._samples_crc, frame)
        answer_number = self._answers.setdefault(utf8(sample.answer), len(self._answers))
        numbers = _recorded_numbers(sample)
        self._records.append(
            _RECORD.pack(cell, sample.key.sample, offset, digest, *numbers, answer_number)
        )

    def index_frame(
        self, salt: int, *, offset: int, previous: int, cell_count: int, closed: bool
    ) -> bytes:
        """Make the INDX frame that lists the samples of this block, with its trailer.

        ``offset``: where the frame will start. ``previous``: offset of the INDX frame before; 0 for
        none. ``cell_count``: cells of the whole file by now, of which those of this block are the
        last. ``closed``: no more samples follow. The trailer repeats the offset, so that the frame
        can be found from the end of the file.
        """
        names = json.dumps(self.cells, separators=(",", ":")).encode()
        answers = AnswerList.join(self._answers)
        first_cell = cell_count - len(self.cells)
        lengths = (len(names), len(answers.stops), len(answers.text))
        head = _INDEX.pack(previous, first_cell, int(closed), self._samples_crc, *lengths)
        body = b"".join((head, names, *answers, *self._records))
        frame = _frame(salt, INDEX, body, len(body), zlib.crc32(body))
        return frame + _pack_with_crc(_TRAILER, salt, INDEX_END, offset)


class DamagedError(ValueError):
    """Bytes that are not what was written."""


def _pack_with_crc(layout: struct.Struct, *values: int | bytes) -> bytes:
    """Pack values, and behind them the crc32 of their bytes, which the layout ends with."""
    data = layout.pack(*values, 0)[:-4]
    return data + struct.pack("<I", zlib.crc32(data))


def file_header(salt: int) -> bytes:
    """First bytes of a journal."""
    return _pack_with_crc(_FILE_HEADER, MAGIC, salt, salt, salt)


class FileHeader(NamedTuple):
    """What a journal's first bytes say.

    ``salt``: 0 where no two copies of it agree. ``intact``: whether every bit is as it was written.
    ``has_index``: whether index blocks have the layout that is read here. ``version``: schema
    version of the samples; None where the header is damaged.
    """

    salt: int
    intact: bool
    has_index: bool
    version: int | None


def read_file_header(data: bytes) -> FileHeader:
    """Read a journal's first bytes: its format, and the salt that starts each of its frames.

    The salt stands there three times; two equal copies outvote a damaged third.

    Raises :class:`DamagedError` when the bytes are too few, or of a format that nobody reads any
    more.
    """
    if len(data) < FILE_HEADER_SIZE:
        raise DamagedError(f"{len(data)} bytes, shorter than a journal's header")
    magic, *salts, crc = _FILE_HEADER.unpack(data[:FILE_HEADER_SIZE])
    most_frequent = max(salts, key=salts.count)
    salt = most_frequent if salts.count(most_frequent) > 1 else 0
    intact = crc == zlib.crc32(data[: FILE_HEADER_SIZE - 4])
    if intact and magic not in FORMATS:
        formats = " and ".join(sorted(name.decode() for name in FORMATS))
        raise DamagedError(
            f"a journal in format {magic.decode(errors='replace')}, and this program reads "
            f"{formats}; seal it with the version that wrote it"
        )
    version = FORMATS[magic] if intact else None
    return FileHeader(salt, intact, has_index=magic == MAGIC, version=version)


def find_salts(data: bytes) -> set[int]:
    """Find the salts of the SMPL frames whose intact headers stand in some bytes.

    A *salt* is the random number of a journal that starts each of its frames; the kind of frame
    follows it. So the kind is searched for, and what stands before it is a salt if the header that
    begins there has a valid checksum.
    """
    salts = set()
    kind_mark = SAMPLE.to_bytes(4, "little")
    # The salt, of four bytes, stands before the kind.
    position = data.find(kind_mark, 4)
    while position >= 0:
        header = data[position - 4 : position - 4 + HEADER_SIZE]
        salt = int.from_bytes(header[:4], "little")
        with suppress(DamagedError):
            read_header(header, salt)
            salts.add(salt)
        position = data.find(kind_mark, position + 1)
    return salts


def _frame(salt: int, kind: int, body: bytes, raw: int, check: int) -> bytes:
    """A frame of a body; ``raw``: its length before compression."""
    return _pack_with_crc(_HEADER, salt, kind, len(body), raw, check) + body


def read_header(data: bytes, salt: int) -> Header:
    """Read the frame header at the start of ``data``.

    ``salt``: the random number with which every frame of its journal begins. Raises
    :class:`DamagedError` when the checksum fails or the header belongs to another journal.
    """
    if len(data) < HEADER_SIZE:
        raise DamagedError("cut within a frame header")
    magic, kind, stored, raw, check, crc = _HEADER.unpack_from(data)
    if magic != salt or crc != zlib.crc32(data[: HEADER_SIZE - 4]):
        raise DamagedError("frame header fails its checksum")
    return Header(kind, stored, raw, check)


def sample_frame(salt: int, body: bytes, check: int) -> bytes:
    """SMPL frame of a sample's canonical bytes and their digest."""
    return _frame(salt, SAMPLE, _LZ4.compress(body, asbytes=True), len(body), check)


def read_sample(header: Header, stored: memoryview, version: int | None) -> bytes:
    """Decode the body of a SMPL frame: the canonical bytes of its sample in today's version.

    ``stored``: the compressed body. ``header``: has the length before compression (``raw``) and the
    digest of the result (``check``). ``version``: schema version of the file's samples, None where
    it is not known.

    Raises :class:`DamagedError` when they are not the bytes that were written.
    """
    try:
        body: bytes = _LZ4.decompress(stored, header.raw, asbytes=True)
    except OSError as error:
        raise DamagedError(f"a sample's body does not decompress: {error}") from error
    try:
        body = upgrade(body, version)
    except struct.error as error:
        raise DamagedError("a sample's body is too short") from error
    if digest(body) != header.check:
        raise DamagedError("a sample's body fails its checksum")
    return body


def read_trailer(data: bytes, salt: int) -> int | None:
    """Offset of the INDX frame that ends with ``data``; None if these bytes are no trailer.

    A *trailer* follows each INDX frame and tells where it starts. ``salt``: the number with which
    all frames of the journal begin.
    """
    if len(data) != TRAILER_SIZE:
        return None
    magic, kind, offset, crc = _TRAILER.unpack(data)
    if (magic, kind) != (salt, INDEX_END) or crc != zlib.crc32(data[:-4]):
        return None
    return int(offset)


def trailer_mark(salt: int) -> bytes:
    """Bytes with which every trailer of a journal begins."""
    return struct.pack("<II", salt, INDEX_END)


def check_index(header: Header, body: memoryview) -> None:
    """Raise :class:`DamagedError` when the body of an INDX frame fails its checksum."""
    if header.kind != INDEX or zlib.crc32(body) != header.check:
        raise DamagedError("an index block fails its checksum")


def read_index(header: Header, body: memoryview) -> IndexBlock:
    """Decode the body of an INDX frame: what it lists of the samples since the INDX frame before.

    After a head with the lengths of what follows come the names of the new cells, the ends of the
    answers, the answers, and the records. Here these four are the offsets at which each begins.

    Raises :class:`DamagedError` when the body fails its checksum.
    """
    check_index(header, body)
    previous, _, closed, samples_crc, *lengths = _INDEX.unpack_from(body)
    # Offsets at which the four pieces behind the head begin.
    names, stops, answers, records = accumulate([_INDEX.size, *lengths])
    cells = json.loads(bytes(body[names:stops]))
    return IndexBlock(
        previous,
        bool(closed),
        samples_crc,
        [Cell(*cell) for cell in cells],
        # Copies: a view would keep the whole block in memory.
        AnswerList(bytes(body[stops:answers]), bytes(body[answers:records])),
        body[records:],
    )
