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
from rlbhpc.store.frames import ANSWER, INDEXED, AnswerList, DamagedError
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.sample_rows import COLUMNS, SCHEMA_VERSION, Sample
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
        """Prepare to write ``<folder>/<attempt>.journal``; the first sample creates the file.

        ``sync_seconds``: the longest time between two syncs to the disk while samples arrive.
        ``_salt`` is a random number that starts each frame of this file and tells it from stale
        bytes; 0 means unknown, so it is never 0. ``_cell_numbers`` numbers the cells (arm, step,
        problem, request) of the file. ``_block`` collects the samples since the last index block,
        for the next one.
        """
        self.path = folder / f"{attempt}{ENDING}"
        self.appended = 0
        self._sync_seconds = sync_seconds
        self._fd = -1
        self._failure: UserError | None = None
        self._salt = int.from_bytes(os.urandom(4), "little") or 1
        self._offset = 0
        self._synced_bytes = 0
        self._next_sync = 0.0
        self._cell_numbers: dict[Cell, int] = {}
        self._block = frames.Block(frames.FILE_HEADER_SIZE)
        self._last_index_offset = 0

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
            # A signal handler may have raised between any two lines of _append: the file is good,
            # but the fields of this object may not match it.
            self._failure = UserError(
                f"{self.path}: an append was interrupted; start a new attempt"
            )
            raise

    def _append(self, sample: Sample, canonical: bytes) -> None:
        """Write the canonical bytes of a sample, and an index block when it is time for one.

        A *frame* is one sample as it stands in the file. A *cell* is one problem at one step of an
        arm, under one request; the file numbers its cells in the order in which they come. A
        *block* is the samples since the last index, which lists them so that readers need not read
        each one.
        """
        digest = sample_rows.digest(canonical)
        if not self._is_open:
            self._create()
        key = sample.key
        cell = Cell(key.arm, key.step, key.problem, sample.fingerprint)
        cell_number = self._cell_numbers.get(cell, len(self._cell_numbers))
        frame = frames.sample_frame(self._salt, canonical, digest)
        self._write(frame)
        if cell not in self._cell_numbers:
            self._cell_numbers[cell] = cell_number
            # A cell is entered once its first sample is written, not if that fails.
            self._block.cells.append(cell)
        self._block.add(frame, cell_number, self._offset, sample, digest)
        self._offset += len(frame)
        self.appended += 1
        block_bytes = self._offset - self._block.start
        if len(self._block) >= _BLOCK_SAMPLES or block_bytes >= _BLOCK_BYTES:
            self._write_index(closed=False)
        self.sync_if_due()

    @property
    def _is_open(self) -> bool:
        return self._fd >= 0

    def sync_if_due(self) -> None:
        """Sync if the last sync is too long ago. For loops that wait long between two samples."""
        if self._is_open and time.monotonic() >= self._next_sync:
            self.sync()

    def sync(self) -> None:
        """Make everything appended so far survive the loss of the node.

        Raises :class:`UserError` if somebody removed the file while this process slept: a file
        without a directory entry still takes writes, but nobody will ever read them.
        """
        self._refuse_after_failure()
        if self._synced_bytes < self._offset:
            try:
                os.fsync(self._fd)
                is_removed = os.fstat(self._fd).st_nlink == 0
            except OSError as error:
                # The kernel may have dropped the unsynced pages: what it says next is no proof.
                self._fail(error, f"; safe on disk up to byte {self._synced_bytes}")
            if is_removed:
                self._failure = UserError(
                    f"{self.path} was removed while it was open; what came since is not stored; "
                    "give the same command again",
                    TRY_AGAIN,
                )
                raise self._failure
            self._synced_bytes = self._offset
        self._next_sync = time.monotonic() + self._sync_seconds

    def close(self) -> None:
        """Write the last index, sync and close. The journal is then marked complete.

        After a failure it closes the file and writes no more.
        """
        if not self._is_open:
            return
        if not self._failure:
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
        """Create the file and write its header.

        A file that exists belongs to another writer and is refused. The folder is synced, so that
        the new name survives the loss of the node, too.
        """
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
        self._next_sync = time.monotonic() + self._sync_seconds

    def _write(self, data: bytes) -> None:
        """Write bytes at the end of what is good; an error of the file system ends this journal."""
        try:
            files.write_at(self._fd, data, self._offset)
        except OSError as error:
            self._fail(
                error, f"; {self.appended} samples are stored, good up to byte {self._offset}"
            )

    def _write_index(self, *, closed: bool) -> None:
        """Write an index of the samples since the last one.

        ``closed``: no more samples follow. Each index tells where the one before it starts, so that
        a reader finds all of them from the last. ``cell_count`` is the number of cells of the whole
        file.
        """
        frame = self._block.index_frame(
            self._salt,
            offset=self._offset,
            previous=self._last_index_offset,
            cell_count=len(self._cell_numbers),
            closed=closed,
        )
        self._write(frame)
        self._last_index_offset = self._offset
        self._offset += len(frame)
        self._block = frames.Block(self._offset)

    def _fail(self, error: OSError, state: str) -> NoReturn:
        """Raise an error of the file system, and refuse all that comes after it."""
        self._failure = files.explain(error, self.path, state)
        raise self._failure from error

    def _refuse_after_failure(self) -> None:
        if self._failure:
            raise UserError(str(self._failure), self._failure.code)


# --- reading -------------------------------------------------------------------------------------


_WINDOW_BYTES: Final = 1 << 20
# An index block, or a little more: blocks are far apart.
_INDEX_WINDOW_BYTES: Final = 80 << 10


class CheckedSpan(NamedTuple):
    """Bytes of a journal, a block of samples, that one crc32c vouches for."""

    start: int
    stop: int
    crc: int


@dataclass(frozen=True)
class JournalIndex:
    """What a journal holds, without the responses.

    ``size``: length of the file when it was read. ``salt``: 0 where nothing could be read.
    ``records``: one :data:`frames.RECORD` per usable sample, in the order they were appended.
    ``closed``: whether the writer finished in good order, so that nothing more will come.
    ``unused``: samples that are listed but not among the records: damaged ones, or those of
    another arm or problem set. ``spans``: blocks of samples with their checksums. ``version``:
    schema version of the samples; None where the header is damaged.
    """

    path: Path
    size: int
    salt: int
    cells: list[Cell]
    records: NDArray[np.void]
    closed: bool
    skipped: tuple[Skipped, ...] = ()
    unused: int = 0
    spans: tuple[CheckedSpan, ...] = ()
    version: int | None = SCHEMA_VERSION
    answer_lists: tuple[AnswerList, ...] = ()

    @property
    def sample_count(self) -> int:
        """Samples that can be used."""
        return len(self.records)

    @cached_property
    def answers(self) -> pa.Array:
        """Answers by the numbers that the records have of them; one may stand here twice."""
        arrays = [answers.to_arrow() for answers in self.answer_lists]
        return pa.concat_arrays([pa.array([], pa.string()), *arrays])

    @cached_property
    def cell_columns(self) -> Mapping[str, pa.Array]:
        """The fields of the cells, each as an Arrow array."""
        return {
            name: pa.array([getattr(cell, name) for cell in self.cells], COLUMNS[name].arrow)
            for name in Cell._fields
        }

    @cached_property
    def damage(self) -> Mapping[int, Skipped]:
        """Find the damaged samples by reading every block: why, by the position of their records.

        A *record* is the index entry of a sample. A *span* is the bytes of one block of samples,
        for which there is one checksum. If the checksum of a span fails, its samples are read one
        by one to find which are damaged. Samples behind the last span were read whole when they
        were listed.
        """
        damage: dict[int, Skipped] = {}
        offsets = self.records["offset"]
        with files.open_descriptor(self.path) as fd:
            file = _JournalFile(fd, self.path, self.salt, self.version)
            for span in self.spans:
                if _crc_of_span(fd, span) == span.crc:
                    continue
                in_span = np.flatnonzero((offsets >= span.start) & (offsets < span.stop))
                in_span = in_span[np.argsort(offsets[in_span], kind="stable")]
                file.skipped.clear()
                intact = [position for position, _ in _read_samples(file, self.records[in_span])]
                damaged = np.delete(in_span, intact)
                damage.update(zip(damaged.tolist(), file.skipped, strict=True))
        return damage


def read_index(path: Path, *, verify: bool = False, has_mark: bool = True) -> JournalIndex:
    """List the samples of a journal.

    This is fast because the samples themselves are not read: a damaged one counts until somebody
    who read it has marked it, in a file beside the journal. Samples that are marked so are left
    out.

    ``verify``: read each sample, and leave out the damaged ones. ``has_mark``: whether there may be
    such marks, so that one need not look. What is left out is told in ``skipped`` of the result.
    """
    with files.open_descriptor(path) as fd:
        file = _JournalFile(fd, path)
        index = _list_samples(file)
    records = index.records
    damaged_offsets = left_out.damaged_places(path) if has_mark else frozenset()
    if damaged_offsets:
        records = records[~np.isin(records["offset"], list(damaged_offsets))]
    marked = index.sample_count - len(records)
    if marked:
        reason = f"{marked} samples that were found damaged before"
        file.skipped.append(Skipped(path, reason, samples=marked))
    index = replace(index, records=records, unused=marked, skipped=tuple(file.skipped))
    if not verify or not index.damage:
        return index
    return replace(
        index,
        records=np.delete(records, list(index.damage)),
        skipped=(*index.skipped, *index.damage.values()),
    )


def indexed_rows(index: JournalIndex, schema: pa.Schema, positions: NDArray[np.intp]) -> pa.Table:
    """Make rows of some samples of a journal from its index alone, without reading the samples.

    ``schema``: the columns, which must be among :data:`INDEXED`. ``positions``: which of the
    index's records, one per sample. A record has the number of its cell (arm, step, problem,
    request) and of its answer, which are looked up here, and all other values themselves.
    """
    records = index.records[positions]
    arrays = []
    for field in schema:
        if field.name in Cell._fields:
            arrays.append(index.cell_columns[field.name].take(pa.array(records["cell"])))
        elif field.name == ANSWER:
            arrays.append(index.answers.take(pa.array(records[ANSWER])))
        else:
            arrays.append(pa.array(np.ascontiguousarray(records[field.name]), field.type))
    return pa.table(arrays, schema=schema)


class TooLargeError(Exception):
    """Samples that have more bytes together than may be held at once.

    ``rows``: how many of them were read by then.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def whole_rows(
    index: JournalIndex,
    positions: NDArray[np.intp],
    columns: Sequence[str],
    skipped: list[Skipped],
    max_bytes: float = math.inf,
) -> tuple[NDArray[np.intp], pa.Table]:
    """Read rows at ascending positions of an index: which of these are intact, and their rows.

    The first result has indices into ``positions``, in the order of the rows. ``skipped`` is told
    of the samples that are damaged. Raises :class:`TooLargeError`, with the number of samples read,
    when they have more than ``max_bytes`` before they are decoded.
    """
    intact: list[int] = []
    bodies: list[bytes] = []
    total_bytes = 0
    records = index.records[positions]
    with files.open_descriptor(index.path) as fd:
        file = _JournalFile(fd, index.path, index.salt, index.version)
        for position, body in _read_samples(file, records):
            intact.append(position)
            bodies.append(body)
            total_bytes += len(body)
            if total_bytes > max_bytes:
                raise TooLargeError(len(bodies))
    skipped.extend(file.skipped)
    intact_positions = np.array(intact, np.intp)
    digests = records["digest"][intact_positions]
    return intact_positions, sample_rows.decode_rows(bodies, digests, columns)


class _PlacedBlock(NamedTuple):
    """An index block, and where its frame starts and stops in the file."""

    start: int
    stop: int
    block: frames.IndexBlock


def _list_samples(file: _JournalFile) -> JournalIndex:
    """List the samples of a journal by its index blocks, then by reading those behind the last.

    An *index block* lists the samples since the block before: a record of each, the cells that are
    new (arm, step, problem, request), the answers, and one checksum over all these samples. A
    *span* is the bytes of the samples of one block, with that checksum. Samples behind the last
    block, the *tail*, are there if the writer is still running or was killed.
    """
    if not _read_file_header(file):
        no_records = np.empty(0, frames.RECORD)
        return JournalIndex(file.path, file.size, 0, [], no_records, closed=False)
    placed_blocks = _read_index_blocks(file)
    blocks = [placed.block for placed in placed_blocks]
    cells = [cell for block in blocks for cell in block.cells]
    answer_lists = [block.answers for block in blocks]
    record_bytes = bytearray().join(block.records for block in blocks)
    records = np.frombuffer(record_bytes, frames.RECORD)
    # Blocks count their answers from 0; the index counts on.
    first_record = first_answer = 0
    for block in blocks:
        stop = first_record + len(block.records) // frames.RECORD.itemsize
        records[ANSWER][first_record:stop] += np.uint32(first_answer)
        first_record = stop
        first_answer += block.answers.answer_count
    spans = []
    indexed_bytes = frames.FILE_HEADER_SIZE
    for placed in placed_blocks:
        spans.append(CheckedSpan(indexed_bytes, placed.start, placed.block.samples_crc))
        indexed_bytes = placed.stop
    closed = bool(blocks) and blocks[-1].closed and indexed_bytes == file.size
    if indexed_bytes < file.size:
        tail_records, tail_answers = _read_tail(file, indexed_bytes, cells)
        tail_records[ANSWER] += first_answer
        records = np.concatenate([records, tail_records])
        answer_lists.append(tail_answers)
    return JournalIndex(
        file.path,
        file.size,
        file.salt,
        cells,
        records,
        closed,
        spans=tuple(spans),
        version=file.version,
        answer_lists=tuple(answer_lists),
    )


def _read_index_blocks(file: _JournalFile) -> list[_PlacedBlock]:
    """Read the index blocks, each of which tells where the one before is, from the last one on.

    Gives them in the order of the file. Gives none where one is damaged, or the format is old: then
    all samples are read instead. An offset of 0 means that there is no block before.
    """
    offset = _find_last_index(file) if file.has_index else 0
    placed_blocks: list[_PlacedBlock] = []
    try:
        while offset:
            header = file.header(offset, _INDEX_WINDOW_BYTES)
            block = frames.read_index(header, file.body(offset, header, _INDEX_WINDOW_BYTES))
            if block.previous >= offset:
                raise DamagedError("an index block points forward")
            placed_blocks.append(_PlacedBlock(offset, offset + header.size, block))
            offset = block.previous
    except DamagedError as error:
        file.skip(offset, offset, f"{error}; every sample was read instead")
        return []
    return placed_blocks[::-1]


def _read_tail(
    file: _JournalFile, start: int, cells: list[Cell]
) -> tuple[NDArray[np.void], AnswerList]:
    """Make records of the samples from ``start`` on, which no index block lists, and their answers.

    A *record* is what an index says of a sample: its numbers, and the positions of its cell and its
    answer in lists of these. ``cells``: the cells (arm, step, problem, request) that the blocks
    list; new ones are appended to it.
    """
    offsets, bodies, digests = [], [], []
    for offset, digest, body in _scan_samples(file, start):
        offsets.append(offset)
        bodies.append(sample_rows.without_texts(body))
        digests.append(digest)
    table = sample_rows.decode_rows(bodies, np.array(digests, np.int64), INDEXED)
    # One structured element per sample; its fields are filled column by column.
    records = np.zeros(len(offsets), frames.RECORD)
    records["offset"] = offsets
    for name in {*INDEXED, "sample"} - {*Cell._fields, ANSWER}:
        records[name] = table[name].to_numpy()
    answers = table[ANSWER].combine_chunks().dictionary_encode()
    records[ANSWER] = answers.indices.to_numpy()
    cell_numbers = {cell: number for number, cell in enumerate(cells)}
    for position, row in enumerate(table.select(Cell._fields).to_pylist()):
        cell = Cell(**row)
        if cell not in cell_numbers:
            cell_numbers[cell] = len(cells)
            cells.append(cell)
        records["cell"][position] = cell_numbers[cell]
    return records, AnswerList.join([text.encode() for text in answers.dictionary.to_pylist()])


def _crc_of_span(fd: int, span: CheckedSpan) -> int:
    """crc32c of the bytes of a span, read a window at a time."""
    crc = 0
    for start in range(span.start, span.stop, _WINDOW_BYTES):
        size = min(_WINDOW_BYTES, span.stop - start)
        crc = google_crc32c.extend(crc, files.read_at(fd, size, start))
    return int(crc)


class _JournalFile:
    """An open journal, read a window at a time, so that hopping over small frames is cheap.

    ``salt, version``: what the file header says, see :class:`frames.FileHeader`.
    """

    has_index = True

    def __init__(
        self, fd: int, path: Path, salt: int = 0, version: int | None = SCHEMA_VERSION
    ) -> None:
        """Take an open file; ``salt, version`` are known if its header was read before.

        The *window* is the piece of the file that is in memory.
        """
        self.path = path
        self.size = os.fstat(fd).st_size
        self.skipped: list[Skipped] = []
        self.salt = salt
        self.version = version
        self._fd = fd
        self._window_start = 0
        self._window = b""

    def read(self, start: int, size: int, window_bytes: int = _WINDOW_BYTES) -> bytes:
        """Bytes from ``start`` on; fewer only at the end of the file."""
        return self._view_bytes(start, size, window_bytes).tobytes()

    def _view_bytes(self, start: int, size: int, window_bytes: int) -> memoryview:
        """Bytes from ``start`` on, without a copy; fewer only at the end of the file.

        The *window* is the piece of the file in memory, read ahead so that small reads are cheap.
        It moves where it does not hold these bytes. ``window_bytes``: how much to read then.
        """
        offset = start - self._window_start
        if offset < 0 or offset + size > len(self._window):
            self._window_start = start
            offset = 0
            length = min(max(size, window_bytes), self.size - start)
            self._window = files.read_at(self._fd, max(0, length), start)
        return memoryview(self._window)[offset : offset + size]

    def header(self, offset: int, window_bytes: int = _WINDOW_BYTES) -> frames.Header:
        """Frame header at an offset."""
        data = self.read(offset, frames.HEADER_SIZE, window_bytes)
        return frames.read_header(data, self.salt)

    def body(
        self, offset: int, header: frames.Header, window_bytes: int = _WINDOW_BYTES
    ) -> memoryview:
        """Body of the frame at an offset, as it is stored."""
        return self._view_bytes(offset + frames.HEADER_SIZE, header.stored, window_bytes)

    def sample(self, offset: int, header: frames.Header) -> bytes:
        """Canonical bytes of the sample in the frame at an offset."""
        return frames.read_sample(header, self.body(offset, header), self.version)

    def skip(self, start: int, stop: int, reason: str, kind: str = left_out.DAMAGED) -> None:
        """Note bytes that cannot be used."""
        self.skipped.append(Skipped(self.path, reason, kind, start=start, stop=stop))


def _read_file_header(file: _JournalFile) -> bool:
    """Read the header of a journal into ``file``; False if the file holds nothing that can be read.

    The *salt* is a random number that starts every frame of this journal. Without it nothing can be
    found, so where the header has lost it, it is taken from the frames.
    """
    if file.size == 0:
        # A kill, or a node's death, between the file's creation and its first write.
        file.skip(0, 0, "empty file", left_out.TORN)
        return False
    try:
        header = frames.read_file_header(file.read(0, frames.FILE_HEADER_SIZE))
    except DamagedError as error:
        file.skip(0, file.size, str(error))
        return False
    file.has_index = header.has_index
    file.version = header.version
    file.salt = header.salt or _salt_of_frames(file)
    if not file.salt:
        file.skip(0, file.size, "not a journal, or its header is destroyed")
        return False
    if not header.intact:
        file.skip(0, frames.FILE_HEADER_SIZE, "damaged header; other bytes say what it said")
    return True


def _salt_of_frames(file: _JournalFile) -> int:
    """The salt that all intact frames have; 0 if there are none, or they differ.

    Of two salts, one is that of a stale block or of a text that a model wrote, and nothing tells
    which.
    """
    salts: set[int] = set()
    for start in range(0, file.size, _WINDOW_BYTES):
        salts |= frames.find_salts(file.read(start, _WINDOW_BYTES + frames.HEADER_SIZE))
    return salts.pop() if len(salts) == 1 else 0


def _find_last_index(file: _JournalFile) -> int:
    """Find the offset of the last index block, searching from the end of the file; 0 if none.

    Each index block is followed by a *trailer*: a mark, and the offset of the block. A journal that
    was closed ends with one, so the first look is at the last bytes. Otherwise windows of a
    megabyte are searched backwards; they overlap by a trailer, which may lie across the border.
    """
    mark = frames.trailer_mark(file.salt)
    trailer_size = frames.TRAILER_SIZE
    stop = file.size
    # A journal that was closed ends with its last trailer; else a whole window is searched.
    search_bytes = trailer_size
    while stop > frames.FILE_HEADER_SIZE:
        start = max(frames.FILE_HEADER_SIZE, stop - search_bytes)
        window_bytes = search_bytes + trailer_size
        window = file.read(start, window_bytes, window_bytes)
        position = window.rfind(mark)
        while position >= 0:
            trailer = window[position : position + trailer_size]
            offset = frames.read_trailer(trailer, file.salt)
            if offset is not None:
                return offset
            position = window.rfind(mark, 0, position)
        stop = start
        search_bytes = _WINDOW_BYTES
    return 0


def _scan_samples(file: _JournalFile, start: int) -> Iterator[tuple[int, int, bytes]]:
    """Go through the frames from ``start`` on: offset, digest and canonical bytes of each sample.

    A *frame* is a header, with the length and the checksum of its body, and the body: a sample, or
    an index block. Damaged frames are noted and passed over. A frame cut short at the end of the
    file is noted as ``TORN``: a killed writer leaves it, and nobody was told that its sample is
    stored.
    """
    offset = start
    while offset < file.size:
        try:
            header = file.header(offset)
        except DamagedError as error:
            is_cut = offset + frames.HEADER_SIZE > file.size
            next_offset = _find_next_frame(file, offset + 1)
            kind = left_out.TORN if is_cut else left_out.DAMAGED
            file.skip(offset, next_offset, str(error), kind)
            offset = next_offset
            continue
        if offset + header.size > file.size:
            file.skip(offset, file.size, "the last frame is cut short", left_out.TORN)
            return
        try:
            if header.kind == frames.SAMPLE:
                yield offset, header.check, file.sample(offset, header)
            else:
                frames.check_index(header, file.body(offset, header))
        except DamagedError as error:
            file.skip(offset, offset + header.size, str(error))
        offset += header.size


def _find_next_frame(file: _JournalFile, start: int) -> int:
    """Find the offset of the next intact frame header; the file's size if there is none.

    Every frame begins with the journal's salt, a random number, so it is searched for.
    """
    mark = file.salt.to_bytes(4, "little")
    # A file may end before its size, on a file system that shows sizes before data.
    while len(window := file.read(start, _WINDOW_BYTES)) > frames.HEADER_SIZE:
        position = window.find(mark)
        while position >= 0:
            try:
                file.header(start + position)
                return start + position
            except DamagedError:
                position = window.find(mark, position + 1)
        # A header may begin in this window and end in the next.
        start += len(window) - frames.HEADER_SIZE
    return file.size


def _read_samples(file: _JournalFile, records: NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """Read the sample of each record: its position and canonical bytes, in the order of the file.

    ``records``: index entries, with the offset of each sample's frame and the digest of its
    content. A sample that is damaged, or not the one that the index tells of, is noted and passed
    over.
    """
    offsets = records["offset"].tolist()
    digests = records["digest"].tolist()
    for position in np.argsort(records["offset"], kind="stable").tolist():
        offset = offsets[position]
        try:
            header = file.header(offset)
            if header.kind != frames.SAMPLE or header.check != digests[position]:
                raise DamagedError("another frame stands where the index says")
            yield position, file.sample(offset, header)
        except DamagedError as error:
            file.skip(offset, offset, str(error))
