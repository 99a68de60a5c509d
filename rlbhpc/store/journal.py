"""Read journals: whatever a crash left of them, with a word on what had to be skipped.

Format: :mod:`rlbhpc.store.frames`. A reader never writes, so a journal may be read while its
writer appends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import body, files, frames, left_out, marks, schema
from rlbhpc.store.frames import Cell, DamagedError
from rlbhpc.store.left_out import Note

#: Columns that an index answers without a look at any response.
INDEXED: Final = (
    "arm", "step", "problem", "sample", "fingerprint", "seed", "digest",
    "verdict", "finish", "paper", "n_tokens", "logprob_sum", "entropy_sum",
)  # fmt: skip

_WINDOW: Final = 1 << 20
# What an index block takes, or a little more: blocks are far apart.
_BLOCK: Final = 80 << 10
_BATCH: Final = 4096


@dataclass(frozen=True)
class Skipped:
    """Bytes of a file that a reader could not use, and why.

    ``samples`` is how many samples are lost with them; 1 where nobody can know.
    """

    path: Path
    start: int
    stop: int
    reason: str
    kind: str = left_out.DAMAGED
    samples: int = 1

    @property
    def note(self) -> Note:
        """The same in words."""
        return Note(self.kind, str(self), self.samples)

    def __str__(self) -> str:
        where = f"bytes {self.start} to {self.stop}: " if self.start < self.stop else ""
        return f"{self.path}: skipped {where}{self.reason}"


@dataclass(frozen=True)
class Index:
    """What a journal holds, without the responses.

    ``records`` has one :data:`frames.RECORD` per sample in the order they were appended;
    ``closed`` says that the writer finished in good order and nothing more will come; ``size`` is
    how long the file was. ``unused`` samples are listed in it but not among the records: they are
    damaged, or foreign to the folder.
    """

    path: Path
    size: int
    salt: int
    cells: list[Cell]
    records: NDArray[np.void]
    closed: bool
    skipped: tuple[Skipped, ...]
    unused: int = 0


class Read(NamedTuple):
    """Rows of a journal, and what was skipped."""

    table: pa.Table
    skipped: tuple[Skipped, ...]


class Whole(NamedTuple):
    """Whole rows of a journal: which of those asked for could be read, and they themselves."""

    positions: NDArray[np.intp]
    table: pa.Table
    skipped: tuple[Skipped, ...]


class _Source:
    """An open journal, read through a window so that hopping over small frames is cheap."""

    def __init__(self, fd: int, path: Path) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self.skipped: list[Skipped] = []
        self._fd = fd
        self._start, self._window = 0, b""
        self.salt = 0

    def read(self, start: int, size: int, window: int = _WINDOW) -> bytes:
        at = start - self._start
        if at < 0 or at + size > len(self._window):
            self._start, at = start, 0
            length = max(0, min(max(size, window), self.size - start))
            self._window = files.retrying(lambda: files.read_at(self._fd, length, start))
        return self._window[at : at + size]

    def header(self, at: int, window: int = _WINDOW) -> frames.Header:
        return frames.read_header(self.read(at, frames.HEADER_SIZE, window), self.salt)

    def body(self, at: int, header: frames.Header) -> bytes:
        return self.read(at + frames.HEADER_SIZE, header.stored)

    def skip(self, start: int, stop: int, reason: str, kind: str = left_out.DAMAGED) -> None:
        self.skipped.append(Skipped(self.path, start, stop, reason, kind))


def index(path: Path, *, verify: bool = False) -> Index:
    """List the samples of a journal.

    Fast, because whole samples are not looked at: a damaged one still counts until somebody who
    read it has marked it. With ``verify`` each is read, and a damaged one is skipped.
    """
    with files.reading(path) as fd:
        source = _Source(fd, path)
        if not _begin(source):
            return Index(
                path, source.size, 0, [], np.empty(0, frames.RECORD), False, tuple(source.skipped)
            )
        cells, records, closed = _collect(source)
        listed = len(records)
        if damaged := marks.marked(path):
            records = records[~np.isin(records["offset"], list(damaged))]
        marked = listed - len(records)
        if marked:
            reason = f"{marked} samples that were found damaged before"
            source.skipped.append(Skipped(path, 0, 0, reason, samples=marked))
        if verify:
            records = records[[i for i, _ in _bodies(source, records)]]
        skipped = tuple(source.skipped)
        return Index(path, source.size, source.salt, cells, records, closed, skipped, marked)


def read(path: Path, columns: Sequence[str] | None = None) -> Read:
    """Rows of a journal in the order they were appended; duplicates are kept."""
    found = index(path)
    if columns is not None and set(columns) <= set(INDEXED):
        return Read(rows(found, columns), found.skipped)
    tables, skipped = [schema.empty(columns)], list(found.skipped)
    for start in range(0, len(found.records), _BATCH):
        which = np.arange(start, min(start + _BATCH, len(found.records)))
        whole = whole_rows(found, which, columns)
        tables.append(whole.table)
        skipped.extend(whole.skipped)
    return Read(pa.concat_tables(tables).unify_dictionaries(), tuple(skipped))


def rows(found: Index, columns: Sequence[str]) -> pa.Table:
    """Rows from the index alone; ``columns`` are among :data:`INDEXED`."""
    cell = found.records["cell"]
    arrays = []
    for field in schema.select(columns):
        if field.name in Cell._fields:
            of_cells = pa.array([getattr(c, field.name) for c in found.cells])
            if pa.types.is_dictionary(field.type):
                distinct = of_cells.cast(pa.string()).dictionary_encode()
                codes = distinct.indices.to_numpy().astype(np.int32)[cell]
                arrays.append(pa.DictionaryArray.from_arrays(codes, distinct.dictionary))
            else:
                values = np.array(of_cells, field.type.to_pandas_dtype())
                arrays.append(pa.array(values[cell], field.type))
        else:
            arrays.append(pa.array(np.ascontiguousarray(found.records[field.name]), field.type))
    return pa.table(arrays, schema=schema.select(columns))


def whole_rows(
    found: Index, which: NDArray[np.intp], columns: Sequence[str] | None = None
) -> Whole:
    """Rows with any columns, for ascending positions of an index; damaged ones are left out."""
    with files.reading(found.path) as fd:
        source = _Source(fd, found.path)
        source.salt = found.salt
        good = list(_bodies(source, found.records[which]))
    positions = np.array([i for i, _ in good], np.intp)
    digests = found.records["digest"][which][positions]
    table = body.table([canonical for _, canonical in good], digests, columns)
    return Whole(positions, table, tuple(source.skipped))


def _begin(source: _Source) -> bool:
    """Read the file header; False if the file holds nothing that can be read."""
    if source.size == 0:
        # A kill, or a node's death, between the file's creation and its first write.
        source.skip(0, 0, "empty file", left_out.TORN)
        return False
    try:
        source.salt, intact = frames.read_file_header(source.read(0, frames.FILE_HEADER_SIZE))
    except DamagedError as error:
        source.skip(0, source.size, str(error))
        return False
    if not intact:
        source.skip(0, frames.FILE_HEADER_SIZE, "damaged header; its copies agree on what matters")
    return True


def _collect(source: _Source) -> tuple[list[Cell], NDArray[np.void], bool]:
    """Cells and records by the index blocks and the tail behind the last one."""
    last = _last_index(source)
    blocks: list[frames.IndexBlock] = []
    start = frames.FILE_HEADER_SIZE
    try:
        at = last
        while at:
            header = source.header(at, _BLOCK)
            block = frames.read_index(header, source.body(at, header))
            if at == last:
                start = at + header.size
            if block.previous >= at:
                raise DamagedError("an index block points forward")
            blocks.append(block)
            at = block.previous
    except DamagedError as error:
        source.skip(at, at, f"{error}; every sample was read instead")
        blocks, start = [], frames.FILE_HEADER_SIZE
    blocks.reverse()
    cells = [cell for block in blocks for cell in block.cells]
    records: list[memoryview | bytes] = [block.records for block in blocks]
    closed = bool(blocks) and blocks[-1].closed and start == source.size
    if start < source.size:
        records.append(_tail(source, start, cells).tobytes())
    return cells, np.frombuffer(b"".join(records), frames.RECORD), closed


def _last_index(source: _Source) -> int:
    """Offset of the last index block; 0 if there is none."""
    mark, size = frames.trailer_mark(source.salt), frames.TRAILER_SIZE
    stop = source.size
    reach = size  # a journal that was closed ends with its last index block
    while stop > frames.FILE_HEADER_SIZE:
        start = max(frames.FILE_HEADER_SIZE, stop - reach)
        reach = _WINDOW
        length = min(stop + size - 1, source.size) - start
        window = source.read(start, length, length)
        at = window.rfind(mark)
        while at >= 0:
            offset = frames.read_trailer(window[at : at + size], source.salt)
            if offset is not None:
                return offset
            at = window.rfind(mark, 0, at)
        stop = start
    return 0


def _tail(source: _Source, start: int, cells: list[Cell]) -> NDArray[np.void]:
    """Make records of the samples from ``start`` on; their cells are added to ``cells``."""
    offsets, bodies, digests = [], [], []
    for at, canonical in _walk(source, start):
        offsets.append(at)
        bodies.append(canonical)
        digests.append(body.digest(canonical))
    found = body.table(bodies, np.array(digests, np.int64), INDEXED)
    records = np.zeros(len(offsets), frames.RECORD)
    records["offset"] = offsets
    for name in set(INDEXED) - set(Cell._fields):
        records[name] = found[name].to_numpy()
    numbers = {cell: i for i, cell in enumerate(cells)}
    names = zip(*(found[name].to_pylist() for name in Cell._fields), strict=True)
    for i, cell in enumerate(map(Cell._make, names)):
        if cell not in numbers:
            numbers[cell] = len(cells)
            cells.append(cell)
        records["cell"][i] = numbers[cell]
    return records


def _walk(source: _Source, start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and canonical bytes of each sample from ``start`` on."""
    at = start
    while at < source.size:
        try:
            header = source.header(at)
        except DamagedError as error:
            resumed = _next_frame(source, at + 1)
            cut = at + frames.HEADER_SIZE > source.size
            source.skip(at, resumed, str(error), left_out.TORN if cut else left_out.DAMAGED)
            at = resumed
            continue
        if at + header.size > source.size:
            source.skip(at, source.size, "the last frame is cut short", left_out.TORN)
            return
        try:
            if header.kind == frames.SAMPLE:
                yield at, frames.read_sample(header, source.body(at, header))
            else:
                frames.read_index(header, source.body(at, header))
        except DamagedError as error:
            source.skip(at, at + header.size, str(error))
        at += header.size


def _next_frame(source: _Source, start: int) -> int:
    """Offset of the next intact frame header; the file's size if there is none."""
    mark = source.salt.to_bytes(4, "little")
    while start < source.size:
        window = source.read(start, min(_WINDOW, source.size - start))
        at = window.find(mark)
        while at >= 0:
            try:
                source.header(start + at)
                return start + at
            except DamagedError:
                at = window.find(mark, at + 1)
        start += max(1, len(window) - len(mark) + 1)
    return source.size


def _bodies(source: _Source, records: NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """Position and canonical bytes of each record's sample, in the order of the file."""
    offsets, digests = records["offset"], records["digest"]
    for i in np.argsort(offsets, kind="stable").tolist():
        at = int(offsets[i])
        try:
            header = source.header(at)
            if header.kind != frames.SAMPLE or header.check != digests[i]:
                raise DamagedError("another frame stands where the index says")
            yield i, frames.read_sample(header, source.body(at, header))
        except DamagedError as error:
            source.skip(at, at, str(error))
