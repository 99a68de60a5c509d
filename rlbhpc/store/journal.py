"""Read journals: whatever a crash left of them, with a word on what had to be skipped.

Format: :mod:`rlbhpc.store.frames`. A reader never writes, so a journal may be read while its
writer appends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import body, files, frames, marks, schema
from rlbhpc.store.frames import ANSWER, INDEXED, Answers, DamagedError
from rlbhpc.store.journal_file import JournalFile, begin, bodies, last_index, walk
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.sample import COLUMNS
from rlbhpc.study.keys import Cell

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
        """Records whose samples are not what was written: all samples are read, once."""
        return _damage(self)


class Whole(NamedTuple):
    """Whole rows of a journal: which of those asked for could be read, and they themselves."""

    positions: NDArray[np.intp]
    table: pa.Table
    skipped: tuple[Skipped, ...]


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
    with files.reading(path) as fd:
        source = JournalFile(fd, path)
        whole = _collect(source)
    records = whole.records
    if noted and (damaged := marks.marked(path)):
        records = records[~np.isin(records["offset"], list(damaged))]
    marked = whole.rows - len(records)
    if marked:
        reason = f"{marked} samples that were found damaged before"
        source.skipped.append(Skipped(path, 0, 0, reason, samples=marked))
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
    for field in schema.select(columns):
        if field.name in Cell._fields:
            arrays.append(journal.of_cells[field.name].take(pa.array(records["cell"])))
        elif field.name == ANSWER:
            arrays.append(journal.answers.take(pa.array(records[ANSWER])))
        else:
            arrays.append(pa.array(np.ascontiguousarray(records[field.name]), field.type))
    return pa.table(arrays, schema=schema.select(columns))


def whole_rows(
    journal: Index, which: NDArray[np.intp], columns: Sequence[str] | None = None
) -> Whole:
    """Rows with any columns, for ascending positions of an index; damaged ones are left out."""
    with files.reading(journal.path) as fd:
        source = JournalFile(fd, journal.path)
        source.salt = journal.salt
        good = list(bodies(source, journal.records[which]))
    positions = np.array([i for i, _ in good], np.intp)
    digests = journal.records["digest"][which][positions]
    table = body.table([canonical for _, canonical in good], digests, columns)
    return Whole(positions, table, tuple(source.skipped))


def _collect(source: JournalFile) -> Index:
    """List samples by the index blocks and the tail behind the last one."""
    if not begin(source):
        return Index(source.path, source.size, 0, [], np.empty(0, frames.RECORD), False)
    last = last_index(source)
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
        _answers=tuple(answers),
    )


def _tail(source: JournalFile, start: int, cells: list[Cell]) -> tuple[NDArray[np.void], Answers]:
    """Make records of the samples from ``start`` on; their cells are added to ``cells``."""
    offsets, bodies, digests = [], [], []
    for offset, canonical in walk(source, start):
        offsets.append(offset)
        bodies.append(canonical)
        digests.append(body.digest(canonical))
    table = body.table(bodies, np.array(digests, np.int64), INDEXED)
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


def _damage(journal: Index) -> dict[int, Skipped]:
    """Find the damaged samples of a journal; the tail was read whole when it was listed."""
    damage: dict[int, Skipped] = {}
    with files.reading(journal.path) as fd:
        source = JournalFile(fd, journal.path)
        source.salt = journal.salt
        for span in journal.spans:
            if _sum(fd, span) != span.check:
                offsets = journal.records["offset"]
                which = np.flatnonzero((offsets >= span.start) & (offsets < span.stop))
                which = which[np.argsort(offsets[which], kind="stable")]
                source.skipped.clear()
                intact = [i for i, _ in bodies(source, journal.records[which])]
                lost = np.delete(which, intact)
                damage |= zip(lost.tolist(), source.skipped, strict=True)
    return damage


def _sum(fd: int, span: Span) -> int:
    """Checksum of the bytes that are there now."""
    check = 0
    for start in range(span.start, span.stop, _WINDOW):
        size = min(_WINDOW, span.stop - start)
        check = google_crc32c.extend(check, files.read_at(fd, size, start))
    return int(check)
