"""Journals: finished samples appended by one writer, and read whatever a crash left of them.

``append`` returns when the kernel has the sample, so that it survives the death of the process.
The file is synced every few seconds and when the writer is closed, which bounds what the death
of a node can take. A reader never writes, so a journal may be read while its writer appends; it
says what had to be skipped. Format: :mod:`rlbhpc.store.frames`.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Self

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import frames, left_out, sample_rows
from rlbhpc.store.frames import ANSWER, INDEXED, Answers, DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.sample import COLUMNS, SCHEMA_VERSION, Sample
from rlbhpc.study.keys import Cell

# --- writing -------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: Ending of a journal's name.
ENDING: Final = ".journal"

# Whichever comes first ends a block. More samples per block make the tail that a crash leaves
# without index longer; fewer make more blocks to collect. The bytes bound the search for the
# last block.
_BLOCK_SAMPLES: Final = 1024
_BLOCK_BYTES: Final = 32 << 20


class JournalWriter:
    """The one writer of ``<folder>/<attempt>.journal``.

    The file appears with the first sample. ``attempt`` must be new: a name that exists belongs
    to another writer and is refused.

    ``appended``: samples that were acknowledged.
    """

    def __init__(self, folder: Path, attempt: str, *, sync_seconds: float = 5.0) -> None:
        self.path = folder / f"{attempt}{ENDING}"
        self.appended = 0
        self._sync_seconds = sync_seconds
        self._fd = -1
        self._failed: UserError | None = None
        self._salt = int.from_bytes(os.urandom(4), "little") or 1
        self._offset = 0
        self._synced = 0
        self._due = 0.0
        self._cells: dict[Cell, int] = {}
        self._block = frames.Block(frames.FILE_HEADER_SIZE)
        self._last_index = 0

    def append(self, sample: Sample) -> None:
        """Write one finished sample. When this returns, a killed process cannot lose it.

        Raises :class:`UserError` when the disk is full or fails. The journal then stays good up to
        its last acknowledged sample and takes no more.
        """
        self._refuse_after_failure()
        canonical = sample_rows.encode(sample)
        try:
            self._append(sample, canonical)
        except UserError:
            raise
        except BaseException:
            # An exception from outside (a signal handler) may have hit between two lines below;
            # the file is good, but what this object thinks of it may not be.
            self._failed = UserError(f"{self.path}: an append was interrupted; start a new attempt")
            raise

    def _append(self, sample: Sample, canonical: bytes) -> None:
        digest = sample_rows.digest(canonical)
        if self._fd < 0:
            self._create()
        key = sample.key
        cell = Cell(key.arm, key.step, key.problem, sample.fingerprint)
        number = self._cells.get(cell, len(self._cells))
        data = frames.sample_frame(self._salt, canonical, digest)
        self._write(data)
        if number == len(self._cells):
            self._cells[cell] = number
            self._block.cells.append(cell)
        self._block.add(data, number, self._offset, sample, digest)
        self._offset += len(data)
        self.appended += 1
        if len(self._block) >= _BLOCK_SAMPLES or self._offset - self._block.start >= _BLOCK_BYTES:
            self._write_index(closed=False)
        self.tick()

    def tick(self) -> None:
        """Sync if it is time. For loops that wait long between two samples."""
        if time.monotonic() >= self._due and self._fd >= 0:
            self.sync()

    def sync(self) -> None:
        """Make everything appended so far survive the loss of the node.

        Refuses to go on with a file that somebody removed while this process slept.
        """
        self._refuse_after_failure()
        if self._synced < self._offset:
            try:
                os.fsync(self._fd)
                removed = os.fstat(self._fd).st_nlink == 0
            except OSError as error:
                # The kernel may have dropped the unsynced pages: what it says next is no proof.
                self._fail(error, f"; safe on disk up to byte {self._synced}")
            if removed:
                self._failed = UserError(
                    f"{self.path} was removed while it was open; what came since is not stored; "
                    "give the same command again",
                    TRY_AGAIN,
                )
                raise self._failed
            self._synced = self._offset
        self._due = time.monotonic() + self._sync_seconds

    def close(self) -> None:
        """Write the last index, sync and close. The journal is then marked complete."""
        if self._fd < 0:
            return
        if not self._failed:
            self._write_index(closed=True)
            self.sync()
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)  # on NFS an error of the last writes may show only here
        except OSError as error:
            self._fail(error, f"; {self.appended} samples were written")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _create(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = files.create(self.path)
            files.sync_folder(self.path.parent)
            log.debug("journal %s", self.path)
        except FileExistsError as error:
            raise UserError(
                f"{self.path} exists: an attempt's name may be used once; start a new attempt"
            ) from error
        except OSError as error:
            self._fail(error, "")
        self._write(frames.file_header(self._salt))
        self._offset = frames.FILE_HEADER_SIZE
        self._due = time.monotonic() + self._sync_seconds

    def _write(self, data: bytes) -> None:
        try:
            files.write_at(self._fd, data, self._offset)
        except OSError as error:
            self._fail(
                error, f"; {self.appended} samples are stored, good up to byte {self._offset}"
            )

    def _write_index(self, *, closed: bool) -> None:
        data = self._block.frame(
            self._salt, self._offset, self._last_index, len(self._cells), closed=closed
        )
        self._write(data)
        self._last_index = self._offset
        self._offset += len(data)
        self._block = frames.Block(self._offset)

    def _fail(self, error: OSError, after: str) -> NoReturn:
        self._failed = files.explain(error, self.path, after)
        raise self._failed from error

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise UserError(str(self._failed), self._failed.code)


# --- reading -------------------------------------------------------------------------------------


_WINDOW: Final = 1 << 20
# What an index block takes, or a little more: blocks are far apart.
_BLOCK: Final = 80 << 10


@dataclass(frozen=True)
class Index:
    """What a journal holds, without the responses.

    ``records`` has one :data:`frames.RECORD` per sample in the order they were appended;
    ``closed`` says that the writer finished in good order and nothing more will come; ``size`` is
    how long the file was. ``unused`` samples are listed in it but not among the records: they are
    damaged, or foreign to the folder. ``spans`` are the bytes of samples that have one checksum.
    ``version``: schema version of its samples; None where the header is damaged.
    """

    path: Path
    size: int
    salt: int
    cells: list[Cell]
    records: NDArray[np.void]
    closed: bool
    skipped: tuple[Skipped, ...] = ()
    unused: int = 0
    spans: tuple[Span, ...] = ()
    version: int | None = SCHEMA_VERSION
    _answers: tuple[Answers, ...] = ()

    @property
    def rows(self) -> int:
        """Samples that can be used."""
        return len(self.records)

    @cached_property
    def answers(self) -> pa.Array:
        """Answers, some more than once; those of the records count them."""
        strings = [answers.strings() for answers in self._answers]
        return pa.concat_arrays([pa.array([], pa.string()), *strings])

    @cached_property
    def of_cells(self) -> Mapping[str, pa.Array]:
        """What the cells say, by column."""
        columns = zip(*self.cells, strict=True) if self.cells else ((),) * len(Cell._fields)
        return {
            name: pa.array(values, COLUMNS[name].arrow)
            for name, values in zip(Cell._fields, columns, strict=True)
        }

    @cached_property
    def damage(self) -> Mapping[int, Skipped]:
        """Records whose samples are not what was written: all samples are read, once.

        Those of the tail were read whole when they were listed.
        """
        damage: dict[int, Skipped] = {}
        offsets = self.records["offset"]
        with files.open_descriptor(self.path) as fd:
            source = _JournalFile(fd, self.path, self.salt, self.version)
            for span in self.spans:
                if _sum(fd, span) != span.check:
                    which = np.flatnonzero((offsets >= span.start) & (offsets < span.stop))
                    which = which[np.argsort(offsets[which], kind="stable")]
                    source.skipped.clear()
                    intact = [i for i, _ in _bodies(source, self.records[which])]
                    lost = np.delete(which, intact)
                    damage |= zip(lost.tolist(), source.skipped, strict=True)
        return damage


class Span(NamedTuple):
    """Samples of a journal that one crc32c vouches for."""

    start: int
    stop: int
    check: int


def index(path: Path, *, verify: bool = False, noted: bool = True) -> Index:
    """List the samples of a journal.

    Fast, because whole samples are not looked at: a damaged one still counts until somebody who
    read it has marked it. With ``verify`` each is read, and a damaged one is skipped. ``noted``
    says that there may be such marks.
    """
    with files.open_descriptor(path) as fd:
        source = _JournalFile(fd, path)
        whole = _collect(source)
    records = whole.records
    if noted and (damaged := left_out.damaged_places(path)):
        records = records[~np.isin(records["offset"], list(damaged))]
    marked = whole.rows - len(records)
    if marked:
        reason = f"{marked} samples that were found damaged before"
        source.skipped.append(Skipped(path, reason, samples=marked))
    whole = replace(whole, records=records, unused=marked, skipped=tuple(source.skipped))
    if not verify or not whole.damage:
        return whole
    return replace(
        whole,
        records=np.delete(records, list(whole.damage)),
        skipped=(*whole.skipped, *whole.damage.values()),
    )


def rows(journal: Index, columns: Sequence[str], which: NDArray[np.intp] | None = None) -> pa.Table:
    """Rows from the index alone: all, or some positions; ``columns`` are among :data:`INDEXED`."""
    records = journal.records if which is None else journal.records[which]
    arrays = []
    for field in sample_rows.select(columns):
        if field.name in Cell._fields:
            arrays.append(journal.of_cells[field.name].take(pa.array(records["cell"])))
        elif field.name == ANSWER:
            arrays.append(journal.answers.take(pa.array(records[ANSWER])))
        else:
            arrays.append(pa.array(np.ascontiguousarray(records[field.name]), field.type))
    return pa.table(arrays, schema=sample_rows.select(columns))


class TooLargeError(Exception):
    """Samples that have more bytes together than may be held at once.

    ``rows``: how many of them were read by then.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def whole_rows(
    journal: Index,
    which: NDArray[np.intp],
    columns: Sequence[str],
    skipped: list[Skipped],
    most: float = math.inf,
) -> tuple[NDArray[np.intp], pa.Table]:
    """Rows with any columns, for ascending positions of an index: which could be read, and they.

    ``skipped`` tells of the others. Raises :class:`TooLargeError` where they have more than
    ``most`` bytes.
    """
    good: list[tuple[int, bytes]] = []
    size = 0
    with files.open_descriptor(journal.path) as fd:
        source = _JournalFile(fd, journal.path, journal.salt, journal.version)
        for position, canonical in _bodies(source, journal.records[which]):
            good.append((position, canonical))
            size += len(canonical)
            if size > most:
                raise TooLargeError(len(good))
    positions = np.array([i for i, _ in good], np.intp)
    digests = journal.records["digest"][which][positions]
    skipped.extend(source.skipped)
    return positions, sample_rows.table_of([canonical for _, canonical in good], digests, columns)


def _collect(source: _JournalFile) -> Index:
    """List samples by the index blocks and the tail behind the last one."""
    if not _begin(source):
        return Index(source.path, source.size, 0, [], np.empty(0, frames.RECORD), False)
    last = _last_index(source) if source.has_index else 0
    blocks: list[frames.IndexBlock] = []
    # Where each block stands and ends.
    bounds: list[tuple[int, int]] = []
    at = last
    try:
        while at:
            header = source.header(at, _BLOCK)
            block = frames.read_index(header, source.body(at, header, _BLOCK))
            if block.previous >= at:
                raise DamagedError("an index block points forward")
            blocks.append(block)
            bounds.append((at, at + header.size))
            at = block.previous
    except DamagedError as error:
        source.skip(at, at, f"{error}; every sample was read instead")
        blocks, bounds = [], []
    blocks.reverse()
    bounds.append((0, frames.FILE_HEADER_SIZE))
    bounds.reverse()
    cells = [cell for block in blocks for cell in block.cells]
    answers = [block.answers for block in blocks]
    records = np.frombuffer(bytearray().join(block.records for block in blocks), frames.RECORD)
    if len(blocks) > 1:
        sizes = [len(block.records) // frames.RECORD.itemsize for block in blocks]
        first = np.cumsum([0, *(a.number for a in answers[:-1])], dtype=np.uint32)
        records[ANSWER] += np.repeat(first, sizes)
    start = bounds[-1][1]
    closed = bool(blocks) and blocks[-1].closed and start == source.size
    if start < source.size:
        tail, of_tail = _tail(source, start, cells)
        tail[ANSWER] += sum(a.number for a in answers)
        records = np.concatenate([records, tail])
        answers.append(of_tail)
    spans = tuple(
        Span(stop, offset, block.check)
        for (_, stop), (offset, _), block in zip(bounds[:-1], bounds[1:], blocks, strict=True)
    )
    return Index(
        source.path,
        source.size,
        source.salt,
        cells,
        records,
        closed,
        spans=spans,
        version=source.version,
        _answers=tuple(answers),
    )


def _tail(source: _JournalFile, start: int, cells: list[Cell]) -> tuple[NDArray[np.void], Answers]:
    """Make records of the samples from ``start`` on; their cells are added to ``cells``."""
    offsets, bodies, digests = [], [], []
    for offset, digest, canonical in _walk(source, start):
        offsets.append(offset)
        bodies.append(sample_rows.without_texts(canonical))
        digests.append(digest)
    table = sample_rows.table_of(bodies, np.array(digests, np.int64), INDEXED)
    records = np.zeros(len(offsets), frames.RECORD)
    records["offset"] = offsets
    for name in {*INDEXED, "sample"} - {*Cell._fields, ANSWER}:
        records[name] = table[name].to_numpy()
    answers = table[ANSWER].combine_chunks().dictionary_encode()
    records[ANSWER] = answers.indices.to_numpy()
    numbers = {cell: i for i, cell in enumerate(cells)}
    names = zip(*(table[name].to_pylist() for name in Cell._fields), strict=True)
    for i, cell in enumerate(map(Cell._make, names)):
        if cell not in numbers:
            numbers[cell] = len(cells)
            cells.append(cell)
        records["cell"][i] = numbers[cell]
    return records, Answers.of([text.encode() for text in answers.dictionary.to_pylist()])


def _sum(fd: int, span: Span) -> int:
    check = 0
    for start in range(span.start, span.stop, _WINDOW):
        size = min(_WINDOW, span.stop - start)
        check = google_crc32c.extend(check, files.read_at(fd, size, start))
    return int(check)


class _JournalFile:
    """An open journal, read through a window so that hopping over small frames is cheap."""

    has_index = True

    def __init__(
        self, fd: int, path: Path, salt: int = 0, version: int | None = SCHEMA_VERSION
    ) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self.skipped: list[Skipped] = []
        self._fd = fd
        self._start, self._window = 0, b""
        self.salt = salt
        self.version = version

    def read(self, start: int, size: int, window: int = _WINDOW) -> bytes:
        """Bytes from ``start`` on, with the next ones read along."""
        return self._view(start, size, window).tobytes()

    def _view(self, start: int, size: int, window: int) -> memoryview:
        offset = start - self._start
        if offset < 0 or offset + size > len(self._window):
            self._start, offset = start, 0
            length = max(0, min(max(size, window), self.size - start))
            self._window = files.read_at(self._fd, length, start)
        return memoryview(self._window)[offset : offset + size]

    def header(self, offset: int, window: int = _WINDOW) -> frames.Header:
        """Frame header at an offset."""
        return frames.read_header(self.read(offset, frames.HEADER_SIZE, window), self.salt)

    def body(self, offset: int, header: frames.Header, window: int = _WINDOW) -> memoryview:
        """Body of a frame, as it is stored."""
        return self._view(offset + frames.HEADER_SIZE, header.stored, window)

    def sample(self, offset: int, header: frames.Header) -> bytes:
        """Canonical bytes of a sample."""
        return frames.read_sample(header, self.body(offset, header), self.version)

    def skip(self, start: int, stop: int, reason: str, kind: str = left_out.DAMAGED) -> None:
        """Note bytes that cannot be used."""
        self.skipped.append(Skipped(self.path, reason, kind, start=start, stop=stop))


def _begin(source: _JournalFile) -> bool:
    """Read the file header; False if the file holds nothing that can be read."""
    if source.size == 0:
        # A kill, or a node's death, between the file's creation and its first write.
        source.skip(0, 0, "empty file", left_out.TORN)
        return False
    try:
        header = frames.read_file_header(source.read(0, frames.FILE_HEADER_SIZE))
    except DamagedError as error:
        source.skip(0, source.size, str(error))
        return False
    source.has_index = header.has_index
    source.version = header.version
    source.salt = header.salt or _salt_of_frames(source)
    if not source.salt:
        source.skip(0, source.size, "not a journal, or its header is destroyed")
    elif not header.intact:
        source.skip(
            0,
            frames.FILE_HEADER_SIZE,
            "damaged header; other bytes say what it said",
        )
    return bool(source.salt)


def _salt_of_frames(source: _JournalFile) -> int:
    """The salt that all intact frames have; 0 if there are none, or they differ.

    Of two, one is that of a stale block or of a text that a model wrote, and nothing says which.
    """
    salts: set[int] = set()
    for start in range(0, source.size, _WINDOW):
        salts |= frames.salts(source.read(start, _WINDOW + frames.HEADER_SIZE))
    return salts.pop() if len(salts) == 1 else 0


def _last_index(source: _JournalFile) -> int:
    """Offset of the last index block; 0 if there is none."""
    mark, size = frames.trailer_mark(source.salt), frames.TRAILER_SIZE
    stop = source.size
    reach = size  # a journal that was closed ends with its last index block
    while stop > frames.FILE_HEADER_SIZE:
        start = max(frames.FILE_HEADER_SIZE, stop - reach)
        window = source.read(start, reach + size, reach + size)
        reach = _WINDOW
        position = window.rfind(mark)
        while position >= 0:
            offset = frames.read_trailer(window[position : position + size], source.salt)
            if offset is not None:
                return offset
            position = window.rfind(mark, 0, position)
        stop = start
    return 0


def _walk(source: _JournalFile, start: int) -> Iterator[tuple[int, int, bytes]]:
    """Offset, digest and canonical bytes of each sample from ``start`` on."""
    offset = start
    while offset < source.size:
        try:
            header = source.header(offset)
        except DamagedError as error:
            resumed = _next_frame(source, offset + 1)
            cut = offset + frames.HEADER_SIZE > source.size
            source.skip(offset, resumed, str(error), left_out.TORN if cut else left_out.DAMAGED)
            offset = resumed
            continue
        if offset + header.size > source.size:
            source.skip(offset, source.size, "the last frame is cut short", left_out.TORN)
            return
        try:
            if header.kind == frames.SAMPLE:
                yield offset, header.check, source.sample(offset, header)
            else:
                frames.check_index(header, source.body(offset, header))
        except DamagedError as error:
            source.skip(offset, offset + header.size, str(error))
        offset += header.size


def _next_frame(source: _JournalFile, start: int) -> int:
    """Offset of the next intact frame header; the file's size if there is none."""
    mark = source.salt.to_bytes(4, "little")
    # A file may end before its size, on a file system that shows sizes before data.
    while len(window := source.read(start, _WINDOW)) > frames.HEADER_SIZE:
        position = window.find(mark)
        while position >= 0:
            try:
                source.header(start + position)
                return start + position
            except DamagedError:
                position = window.find(mark, position + 1)
        # A header may begin in this window and end in the next.
        start += len(window) - frames.HEADER_SIZE
    return source.size


def _bodies(source: _JournalFile, records: NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """Position and canonical bytes of each record's sample, in the order of the file."""
    offsets, digests = records["offset"], records["digest"]
    for i in np.argsort(offsets, kind="stable").tolist():
        offset = int(offsets[i])
        try:
            header = source.header(offset)
            if header.kind != frames.SAMPLE or header.check != digests[i]:
                raise DamagedError("another frame stands where the index says")
            yield i, source.sample(offset, header)
        except DamagedError as error:
            source.skip(offset, offset, str(error))
