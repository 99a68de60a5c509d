"""What one arm and problem set has on disk at one moment: its files, and one sample per key.

Copies are ordered by preference: a sample that did not fail before one that failed, then the
smaller digest, then a part before a journal. The first two depend on the samples alone, so that
neither the order of files nor when something was sealed changes which sample counts. Digests
have nothing to do with being right or wrong, so the choice favours neither.
"""

from __future__ import annotations

import errno
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import journal, left_out, parts, sample_rows
from rlbhpc.store.frames import INDEXED, DamagedError
from rlbhpc.store.journal import JournalIndex, TooLargeError
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import FAILED, Listing, RowGroup
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

# --- files ---------------------------------------------------------------------------------------


T = TypeVar("T")

_MAX_TRIES: Final = 5
_FIRST_WAIT_SECONDS: Final = 0.01


class SealedPart(NamedTuple):
    """A part with what its footer lists.

    ``damaged``: row groups that failed their checksum.
    """

    path: Path
    listing: Listing
    damaged: frozenset[int] = frozenset()

    @property
    def cells(self) -> list[Cell]:
        """Cells that the footer lists."""
        return self.listing.cells

    @property
    def usable_group_numbers(self) -> list[int]:
        """Row groups that may be read."""
        numbers = range(len(self.listing.groups))
        return [number for number in numbers if number not in self.damaged]

    @property
    def usable_groups(self) -> list[RowGroup]:
        """What the footer lists of the row groups that may be read."""
        return [self.listing.groups[number] for number in self.usable_group_numbers]

    @property
    def sample_count(self) -> int:
        """Samples in the row groups that may be read."""
        return sum(len(group.samples) for group in self.usable_groups)

    @property
    def group_bounds(self) -> NDArray[np.int64]:
        """Row at which each row group starts, and the number of rows at the end."""
        sizes = [len(group.samples) for group in self.listing.groups]
        return np.cumsum([0, *sizes], dtype=np.int64)

    def rows_of_cells(self, is_selected: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Numbers of the usable rows of some cells.

        ``is_selected``: of each cell of the part, whether its rows are wanted.
        """
        bounds = self.group_bounds
        rows = [
            np.arange(bounds[number], bounds[number + 1])
            for number in self.usable_group_numbers
            if is_selected[self.listing.groups[number].cell]
        ]
        return np.concatenate([np.empty(0, np.int64), *rows])


@dataclass(frozen=True)
class Snapshot:
    """Journals and parts of one arm and problem set.

    ``skipped``: what could not be listed. ``strict``: whether a file that cannot be read is an
    error; otherwise it is left out.
    """

    journals: tuple[JournalIndex, ...]
    parts: tuple[SealedPart, ...]
    skipped: tuple[Skipped, ...]
    strict: bool = True

    @property
    def files(self) -> list[SealedPart | JournalIndex]:
        """The parts, then the journals."""
        return [*self.parts, *self.journals]


def take_snapshot(
    layout: Layout, arm: str, set_name: str, *, verify: bool = False, strict: bool = True
) -> Snapshot:
    """List the files of an arm on a problem set at one moment; see :func:`list_files`.

    A *journal* is a file that a sampler appends to; a *part* is a finished Parquet file. Starts
    again if a file vanishes while it is listed, since its samples have then moved to another.
    """

    def read_files() -> Snapshot:
        """List the files as they are now.

        A ``JournalIndex`` is what a journal lists, a ``SealedPart`` what a part does. ``skipped``
        collects what cannot be used.
        """
        skipped: list[Skipped] = []
        listed = list(list_files(layout, arm, set_name, skipped, verify=verify, strict=strict))
        return Snapshot(
            journals=tuple(file for file in listed if isinstance(file, JournalIndex)),
            parts=tuple(file for file in listed if isinstance(file, SealedPart)),
            skipped=tuple(skipped),
            strict=strict,
        )

    return retry_while_changing(read_files)


def list_files(
    layout: Layout,
    arm: str,
    set_name: str,
    skipped: list[Skipped],
    *,
    verify: bool = False,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Iterator[JournalIndex | SealedPart]:
    """List the journals and then the parts of an arm on a problem set, one by one.

    A *journal* is a file that a sampler appends to; a *part* is a finished Parquet file. Journals
    come first: one is removed only when its samples are in a part, so whoever misses the journal
    finds the part afterwards.

    What cannot be used is appended to ``skipped``, such as a file of another arm or problem set
    that somebody put here. ``verify``: read every sample, and leave out those that are damaged.
    ``strict``: raise what keeps a file from being read; otherwise leave the file out.
    ``passed_over``: tells by a journal's name that it need not be opened.
    """
    folder = layout.journals(arm, set_name)
    names = files.list_names(folder, "")
    for name in names:
        if not name.endswith(journal.ENDING) or (passed_over and passed_over(name)):
            continue
        path = folder / name
        has_mark = f"{name}{left_out.MARK_ENDING}" in names
        with left_out.skip_if_unreadable(path, skipped, strict=strict):
            index = journal.read_index(path, verify=verify, has_mark=has_mark)
            skipped.extend(index.skipped)
            if not _is_foreign(index, arm, set_name, skipped):
                yield index
    folder = layout.parts(arm, set_name)
    for name in files.list_names(folder, parts.ENDING):
        with left_out.skip_if_unreadable(folder / name, skipped, strict=strict):
            part = read_part(folder / name, skipped, verify=verify)
            if part is not None and not _is_foreign(part, arm, set_name, skipped):
                yield part


def read_part(path: Path, skipped: list[Skipped], *, verify: bool = False) -> SealedPart | None:
    """List what a part holds; None if it cannot be read, which ``skipped`` then says.

    A *part* is a Parquet file whose footer lists its samples by *row group* (rows that are stored
    and checked together, all of one cell). ``verify``: read every row group, and leave out those
    that fail their checksum. Row groups noted as damaged before are left out as well. Each omission
    is appended to ``skipped``.
    """
    try:
        listing = parts.read_listing(path)
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
        return None
    damaged = left_out.damaged_places(path)
    if damaged:
        sample_count = sum(len(listing.groups[number].samples) for number in damaged)
        reason = f"{sample_count} samples that were found damaged before"
        skipped.append(Skipped(path, reason, samples=sample_count))
    if verify:
        numbers = range(len(listing.groups))
        readable: set[int] = set()
        for read_numbers, _ in parts.read_groups(path, listing, numbers, sample_rows.ROWS, skipped):
            readable.update(read_numbers)
        damaged |= set(numbers) - readable
    return SealedPart(path, listing, damaged)


def _is_foreign(
    file: JournalIndex | SealedPart, arm: str, set_name: str, skipped: list[Skipped]
) -> bool:
    """Whether a file belongs into the folder of another arm or problem set, which is then noted."""
    for cell in file.cells:
        if cell.arm != arm or cell.problem.partition("/")[0] != set_name:
            count = file.sample_count
            reason = (
                f"{count} samples of another arm or problem set ({cell.arm}, {cell.problem}) than "
                "its folder's; move the file to the folder that it belongs to"
            )
            skipped.append(Skipped(file.path, reason, left_out.FOREIGN, count))
            return True
    return False


def retry_while_changing(read: Callable[[], T]) -> T:
    """Call ``read``, and call it again if a file that it had listed was removed meanwhile.

    Gives what ``read`` returns. Gives up after a few tries with longer and longer waits, or at once
    if the file is a link that leads in a circle (``ELOOP``).
    """
    last_error = OSError()
    for attempt in range(_MAX_TRIES):
        try:
            return read()
        except FileNotFoundError as error:
            last_error = error
            # If nothing was removed, a network file system may not show a new file yet.
            time.sleep(_FIRST_WAIT_SECONDS * 4**attempt)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            last_error = error
            break
    path = Path(last_error.filename)
    if path.is_symlink():
        raise UserError(
            f"{path}: a link to {path.readlink()}, which leads nowhere; bring its file back, or "
            "remove the link"
        )
    raise UserError(
        f"{path}: files keep vanishing while the store is read; "
        "give the command again when nobody cleans up",
        TRY_AGAIN,
    )


# --- samples -------------------------------------------------------------------------------------


# What is needed to tell copies of a sample apart.
_COPY_COLUMNS: Final = (*sample_rows.KEY, "digest", "verdict")
_CELL_COLUMNS: Final = ("step", "problem", "fingerprint")
# What is read at once: so many rows, or fewer if they are large. It bounds the memory, and Arrow
# cannot reorder more than 2 GB of texts.
_MAX_BATCH_ROWS: Final = 1 << 14
_MAX_BATCH_BYTES: Final = 64 << 20


class Conflict(NamedTuple):
    """Two different samples with one key and one fingerprint, neither of them failed."""

    cell: Cell
    sample: int
    counted_file: Path
    ignored_file: Path

    def __str__(self) -> str:
        """Say which sample it is, which file's copy counts, and which one does not."""
        cell = self.cell
        return (
            f"two different samples of {cell.problem} no. {self.sample} (arm {cell.arm}, step "
            f"{cell.step}): the one in {self.counted_file} counts, the one in "
            f"{self.ignored_file} does not"
        )


class DistinctSamples:
    """Every sample of a snapshot once, sorted by step, problem, fingerprint and sample.

    The samples are numbered from 0 in that order; methods take and give these numbers. Several
    files may hold copies of one sample. The preferred copy is read, and the next one where it turns
    out to be damaged.

    ``columns``: what will be read; columns that an index answers are read at once. ``problems,
    steps``: keep to these; None means all. ``verify``: read every sample of a journal now, and
    leave out the damaged ones.

    ``skipped``: what could not be read so far. ``damaged``: places of files that proved to be
    damaged, as :func:`rlbhpc.store.left_out.damaged_places` gives them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str] | None = (),
        *,
        problems: Collection[str] | None = None,
        steps: Collection[int] | None = None,
        verify: bool = False,
    ) -> None:
        """List the copies of all samples in the snapshot's files, and choose the best copy of each.

        ``_copies`` is a table with one row per stored copy, sorted so that copies of one sample
        stand together, the preferred one first. A copy has ``file`` (position in :attr:`_files`),
        ``position`` (its row there), what tells copies apart, and those of ``columns`` that a
        file's index holds (:data:`INDEXED`). ``_first_copies`` has the first row of each sample,
        and the number of rows at the end. ``_chosen_copies`` has the row to read for each sample;
        it moves on past damaged copies.
        """
        self.skipped = list(snapshot.skipped)
        self.damaged: defaultdict[Path, set[int]] = defaultdict(set)
        self._snapshot = snapshot
        self._verify = verify
        self._files = snapshot.files
        requested = sample_rows.select_columns(columns).names
        indexed = [name for name in requested if name in INDEXED]
        self._index_schema = sample_rows.select_columns({*_COPY_COLUMNS, *indexed})
        copies = self._empty_copies()
        for file_number in range(len(self._files)):
            copies.append(self._list_copies(file_number, problems, steps))
        self._copies, self._first_copies = _sort_copies(
            pa.concat_tables(copies).unify_dictionaries()
        )
        # Without the end; a copy, since it changes when a copy of a sample proves to be damaged.
        self._chosen_copies = self._first_copies[:-1].copy()
        # The next batch has so many rows; the size of the last one is the best guess.
        self._batch_rows = _MAX_BATCH_ROWS

    @property
    def count(self) -> int:
        """Number of distinct samples."""
        return len(self._chosen_copies)

    @cached_property
    def keys(self) -> pa.Table:
        """Key, digest and verdict of each sample."""
        return self._copies.take(self._chosen_copies).select(list(_COPY_COLUMNS))

    @cached_property
    def by_cell(self) -> dict[Cell, NDArray[np.intp]]:
        """The numbers of the samples of each cell, ascending by sample index.

        A *cell* is one problem at one step of an arm, under one fingerprint (hash of the request).
        Samples are sorted by these, so a cell begins wherever one of its three columns changes.
        """
        keys = self.keys
        is_first_of_cell = np.zeros(keys.num_rows, bool)
        is_first_of_cell[:1] = True
        for name in _CELL_COLUMNS:
            codes = pc.dictionary_encode(keys[name]).combine_chunks().indices.to_numpy()
            # Where one of the three columns changes, another cell begins.
            is_first_of_cell[1:] |= codes[1:] != codes[:-1]
        starts = np.flatnonzero(is_first_of_cell)
        rows = keys.take(starts).select(Cell._fields).to_pylist()
        numbers = np.split(np.arange(keys.num_rows), starts[1:])
        return {Cell(**row): of_cell for row, of_cell in zip(rows, numbers, strict=False)}

    @property
    def notes(self) -> list[Note]:
        """What could not be read since the snapshot, and which samples contradict others."""
        known = len(self._snapshot.skipped)
        conflicts = [Note(left_out.CONFLICTING, str(conflict)) for conflict in self.conflicts]
        return [*(skipped.note for skipped in self.skipped[known:]), *conflicts]

    @property
    def is_sealed(self) -> NDArray[np.bool_]:
        """Whether each sample's chosen copy is in a part without damage.

        A *part* is a finished Parquet file; samples in a journal, which still grows, are not
        sealed. ``_copies`` is a table of all stored copies, and ``_chosen_copies`` has the row of
        each sample.
        """
        in_sound_part = np.array(
            [isinstance(file, SealedPart) and not file.damaged for file in self._files], bool
        )
        files_of_samples = self._copies["file"].to_numpy()[self._chosen_copies]
        return np.asarray(in_sound_part[files_of_samples])

    @property
    def files_with_unsealed(self) -> set[Path]:
        """Files that hold a copy of a sample that no part without damage holds."""
        copies_per_sample = np.diff(self._first_copies)
        # From one value per sample to one per copy.
        is_sealed_copy = np.repeat(self.is_sealed, copies_per_sample)
        file_numbers = np.unique(self._copies["file"].to_numpy()[~is_sealed_copy])
        return {self._files[number].path for number in file_numbers.tolist()}

    def paths_of(self, samples: NDArray[np.intp]) -> list[Path]:
        """Files that the samples were read from; ask after reading them."""
        file_numbers = self._copies["file"].to_numpy()[self._chosen_copies[samples]]
        return [self._files[number].path for number in file_numbers.tolist()]

    @cached_property
    def conflicts(self) -> list[Conflict]:
        """List copies that differ from the one that counts, where neither of the two failed.

        ``_copies`` is a table of all stored copies, where those of one sample stand together and
        the one that counts comes first. ``_first_copies`` has the first row of each sample, and the
        number of rows at the end. Copies with different digests have different content.
        """
        digests = self._copies["digest"].to_numpy()
        failed = np.isin(self._copies["verdict"].to_numpy(), FAILED)
        # For each copy the row of the one that counts, the first of the same sample.
        counted_copy = np.repeat(self._first_copies[:-1], np.diff(self._first_copies))
        is_conflict = (digests != digests[counted_copy]) & ~failed & ~failed[counted_copy]
        conflicts = []
        for copy in np.flatnonzero(is_conflict).tolist():
            row = self._copies.slice(copy, 1).to_pylist()[0]
            counted_file = self._copies["file"][counted_copy[copy]].as_py()
            conflicts.append(
                Conflict(
                    cell=Cell(*(row[name] for name in Cell._fields)),
                    sample=row["sample"],
                    counted_file=self._files[counted_file].path,
                    ignored_file=self._files[row["file"]].path,
                )
            )
        return conflicts

    def read(self, samples: NDArray[np.intp], columns: Sequence[str] | None = None) -> pa.Table:
        """Read rows of some samples in the given order, without those of which no copy is intact.

        ``samples``: numbers of samples. ``columns``: None means all. Columns that were listed
        already come from memory; any other makes this read the files.
        """
        schema = sample_rows.select_columns(columns)
        if set(schema.names) <= set(self._index_schema.names):
            return self._copies.take(self._chosen_copies[samples]).select(schema.names)
        tables = [schema.empty_table()]
        for _, table in self.read_batches(samples, columns):
            tables.append(table)
        return pa.concat_tables(tables).unify_dictionaries()

    def read_batches(
        self, samples: NDArray[np.intp], columns: Sequence[str] | None = None
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        """Go through rows as :meth:`read` gives them, some megabytes at a time.

        Gives the numbers of the samples of each batch with their rows. The size of a text is known
        only when it was decoded: a batch that proves too large is read again with half of the rows
        that fitted.
        """
        schema = sample_rows.select_columns(columns)
        start = 0
        while start < len(samples):
            batch = samples[start : start + self._batch_rows]
            # A single row is read whatever its size.
            max_bytes = math.inf if len(batch) == 1 else _MAX_BATCH_BYTES
            try:
                table = self._read_batch(batch, schema, max_bytes)
            except TooLargeError as error:
                self._batch_rows = max(1, error.rows // 2)
                continue
            yield batch, table
            start += len(batch)
            rows_that_fit = len(batch) * _MAX_BATCH_BYTES // max(1, table.nbytes)
            self._batch_rows = min(_MAX_BATCH_ROWS, max(1, rows_that_fit // 2))

    def _read_batch(
        self, samples: NDArray[np.intp], schema: pa.Schema, max_bytes: float
    ) -> pa.Table:
        """Read whole rows of some samples, each from the first of its copies that is intact.

        Rows come in the order of ``samples``, without those of which no copy is intact. Each round
        reads the chosen copies of what is unread, and chooses the next copy of those that prove
        damaged.
        """
        tables = [schema.empty_table()]
        positions_read = [np.empty(0, np.intp)]
        unread = np.arange(len(samples))
        while len(unread):
            copies = self._chosen_copies[samples[unread]]
            intact, intact_rows = self._fetch_copies(copies, schema.names, max_bytes)
            tables.extend(intact_rows)
            positions_read.append(unread[intact])
            unread = self._choose_next_copies(samples, np.delete(unread, intact))
        # Rows came file by file: put them back in the order that was asked for.
        order = np.argsort(np.concatenate(positions_read))
        return pa.concat_tables(tables).unify_dictionaries().take(order)

    def _choose_next_copies(
        self, samples: NDArray[np.intp], unread: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Choose the next copy of samples whose copy is damaged; give those that have one.

        ``unread``: positions in ``samples`` of what could not be read. Copies of one sample stand
        together in the table of copies; the next sample's first copy ends them.
        """
        numbers = samples[unread]
        has_next = self._chosen_copies[numbers] + 1 < self._first_copies[numbers + 1]
        self._chosen_copies[numbers[has_next]] += 1
        return unread[has_next]

    def _empty_copies(self) -> list[pa.Table]:
        """A table without rows that has the columns of :attr:`_copies`."""
        place_fields = [pa.field("file", pa.int64()), pa.field("position", pa.int64())]
        return [pa.schema([*self._index_schema, *place_fields]).empty_table()]

    def _list_copies(
        self, file_number: int, problems: Collection[str] | None, steps: Collection[int] | None
    ) -> pa.Table:
        """List the samples in one file: the columns that its index holds, and where each one is.

        ``problems, steps``: keep to these; None means all. A *cell* is one problem at one step,
        under one request. Adds the columns ``file`` (the given number) and ``position`` (row in the
        file).
        """
        file = self._files[file_number]
        is_selected = np.zeros(len(file.cells), bool)
        for number, cell in enumerate(file.cells):
            in_problems = problems is None or cell.problem in problems
            is_selected[number] = in_problems and (steps is None or cell.step in steps)
        if isinstance(file, JournalIndex):
            positions = self._journal_positions(file, is_selected)
            table = journal.indexed_rows(file, self._index_schema, positions)
        else:
            selected_rows = file.rows_of_cells(is_selected)
            read_positions = [np.empty(0, np.int64)]
            tables = [self._index_schema.empty_table()]
            names = self._index_schema.names
            for intact, rows in self._fetch_from_part(file, selected_rows, names):
                read_positions.append(selected_rows[intact])
                tables.append(rows)
            positions = np.concatenate(read_positions)
            table = pa.concat_tables(tables).unify_dictionaries()
        file_numbers = np.full(table.num_rows, file_number)
        table = table.append_column("file", pa.array(file_numbers, pa.int64()))
        return table.append_column("position", pa.array(positions, pa.int64()))

    def _journal_positions(
        self, index: JournalIndex, is_selected: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """Positions of a journal's samples of the selected cells, without damaged ones.

        ``index``: what the journal lists, with a record for each sample. ``is_selected``: for each
        of its cells, whether its samples are wanted. Only with ``verify`` are the samples
        themselves read, to find the damaged ones: ``index.damage`` has these by position. If the
        file cannot be read, all count as damaged.
        """
        positions = np.flatnonzero(is_selected[index.records["cell"]])
        if not self._verify or not len(positions):
            return positions
        damaged = positions
        with left_out.skip_if_unreadable(index.path, self.skipped, strict=self._snapshot.strict):
            damaged_records = np.array(list(index.damage), np.intp)
            damaged = np.intersect1d(positions, damaged_records)
            self.skipped.extend(index.damage[position] for position in damaged.tolist())
            self.damaged[index.path].update(index.records["offset"][damaged].tolist())
        return np.setdiff1d(positions, damaged)

    def _fetch_copies(
        self, copies: NDArray[np.intp], columns: Sequence[str], max_bytes: float
    ) -> tuple[NDArray[np.intp], list[pa.Table]]:
        """Read whole rows of some copies: which of them are intact, and the rows of these.

        ``copies``: rows of the table of copies, which says in which file and at which position each
        one is. The first result has positions in ``copies``, in the order of the rows. Raises
        :class:`TooLargeError`, with the number of rows read so far, when they have more than
        ``max_bytes``.
        """
        file_numbers = self._copies["file"].to_numpy()[copies]
        positions = self._copies["position"].to_numpy()[copies]
        intact = [np.empty(0, np.intp)]
        tables: list[pa.Table] = []
        bytes_left = max_bytes
        for number in np.unique(file_numbers).tolist():
            in_file = np.flatnonzero(file_numbers == number)
            in_file = in_file[np.argsort(positions[in_file], kind="stable")]
            for intact_rows, table in self._fetch_from_file(
                self._files[number], positions[in_file], columns, bytes_left
            ):
                intact.append(in_file[intact_rows])
                tables.append(table)
                bytes_left -= table.nbytes
                if bytes_left < 0:
                    raise TooLargeError(sum(map(len, intact)))
        return np.concatenate(intact), tables

    def _fetch_from_file(
        self,
        file: SealedPart | JournalIndex,
        positions: NDArray[np.int64],
        columns: Sequence[str],
        max_bytes: float,
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        """Read rows at ascending positions of a file: which of these are intact, and their rows.

        Intact ones are given as indices into ``positions``. Damaged places are noted in
        :attr:`damaged`, by the offset of a sample in a journal. ``max_bytes`` holds for journals.
        """
        if isinstance(file, SealedPart):
            yield from self._fetch_from_part(file, positions, columns)
            return
        with left_out.skip_if_unreadable(file.path, self.skipped, strict=self._snapshot.strict):
            intact, table = journal.whole_rows(file, positions, columns, self.skipped, max_bytes)
            damaged = np.delete(positions, intact)
            self.damaged[file.path].update(file.records["offset"][damaged].tolist())
            yield intact, table

    def _fetch_from_part(
        self, part: SealedPart, positions: NDArray[np.int64], columns: Sequence[str]
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        """Read rows at ascending positions of a part, several row groups at a time.

        ``group_bounds`` is the row at which each row group starts. Gives indices into ``positions``
        with their rows. Row groups that :func:`parts.read_groups` does not give are damaged, and
        noted as such.
        """
        bounds = part.group_bounds
        # Where the positions of each row group begin.
        starts = np.searchsorted(positions, bounds)
        numbers = np.flatnonzero(np.diff(starts)).tolist()
        damaged = set(numbers)
        schema = sample_rows.select_columns(columns)
        for read_numbers, table in parts.read_groups(
            part.path, part.listing, numbers, schema, self.skipped
        ):
            damaged.difference_update(read_numbers)
            group_sizes = np.diff(bounds)[read_numbers]
            # Where each row group begins in the table.
            table_starts = np.cumsum(group_sizes) - group_sizes
            shifts = table_starts - bounds[read_numbers]
            in_table = np.concatenate(
                [np.arange(starts[number], starts[number + 1]) for number in read_numbers]
            )
            rows = positions[in_table] + np.repeat(shifts, np.diff(starts)[read_numbers])
            yield in_table, table.take(rows)
        self.damaged[part.path].update(damaged)


def _sort_copies(copies: pa.Table) -> tuple[pa.Table, NDArray[np.intp]]:
    """Sort copies by key, then by preference.

    A *key* is (step, problem, fingerprint, sample); copies with one key are the same sample in
    several files. A copy that did not fail comes first, then the smaller digest, then the earlier
    file. Gives the sorted table, and where the copies of each key start in it, with its length at
    the end.
    """
    problems = copies["problem"].combine_chunks()
    problem_ranks = pc.rank(problems.dictionary).to_numpy()[problems.indices.to_numpy()]
    sample, fingerprint, step, digest, verdict, file = (
        copies[name].to_numpy()
        for name in ("sample", "fingerprint", "step", "digest", "verdict", "file")
    )
    key_columns = [sample, fingerprint, problem_ranks, step]
    # lexsort takes the most important criterion last.
    order = np.lexsort([file, digest, np.isin(verdict, FAILED), *key_columns])
    is_first = np.zeros(len(order), bool)
    is_first[:1] = True
    for column in key_columns:
        ordered = column[order]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    return copies.take(order), np.append(np.flatnonzero(is_first), len(order))


# ---- inventory -----------------------------------------------------------------------------------
# Which samples of an arm and problem set are stored: one byte of flags for each.
#
# The answer comes from the data, the index blocks of journals and the footers of parts; never from
# a marker or an exit status. Every verb that asks what is missing asks here.


#: Flags of a stored sample. Completed: it was generated, and its verifier gave a verdict. Right:
#: completed, and the verdict is right. Failed: some file has a row that says generation or
#: verification failed; such a row alone is stored, but not completed.
COMPLETED_FLAG: Final = np.uint8(1)
RIGHT_FLAG: Final = np.uint8(2)
FAILED_FLAG: Final = np.uint8(4)


class StoredFlags(NamedTuple):
    """What is stored of some problems at one step.

    ``flags``: a row for each problem, a column for each sample index; 0 where nothing is stored.
    ``tokens``: response tokens of the completed samples of each problem. ``outdated``: stored
    samples of these problems that answer another request than the one asked about.
    """

    flags: NDArray[np.uint8]
    tokens: NDArray[np.float64]
    outdated: int


class Inventory:
    """Flags of every stored sample of an arm on a problem set.

    ``notes``: what could not be read.
    """

    def __init__(self, arm: str) -> None:
        """Start without any sample.

        ``_flags`` has a row for each cell (a problem at a step, under one request) and a column for
        each sample index. ``_tokens`` counts the response tokens of each row.
        """
        self.notes: list[Note] = []
        self._arm = arm
        self._row_of_cell: dict[Cell, int] = {}
        self._cells_at_step: defaultdict[int, list[Cell]] = defaultdict(list)
        self._flags = np.zeros((0, 0), np.uint8)
        self._tokens = np.zeros(0)

    def add_file(self, file: JournalIndex | SealedPart) -> None:
        """Enter the samples of a journal or a part; one that another file has too counts once.

        A journal has a record for each sample, whose ``cell`` is a position in ``file.cells``. A
        part lists samples and verdicts by row group, and each row group belongs to one cell.
        """
        if isinstance(file, JournalIndex):
            records = file.records
            rows = self._rows_of_cells(file.cells)[records["cell"]]
            self._enter(rows, records["sample"], records["verdict"], records["n_tokens"])
            return
        groups = file.usable_groups
        if not groups:
            return
        sizes = [len(group.samples) for group in groups]
        rows = self._rows_of_cells([file.listing.cells[group.cell] for group in groups])
        # A part lists the tokens of a whole row group: each sample gets an equal share.
        mean_tokens = np.array([group.tokens for group in groups]) / sizes
        self._enter(
            np.repeat(rows, sizes),
            np.concatenate([group.samples for group in groups]),
            np.concatenate([group.verdicts for group in groups]),
            np.repeat(mean_tokens, sizes),
        )

    def flags_of(
        self, step: int, problems: Sequence[str], fingerprints: NDArray[np.int64]
    ) -> StoredFlags:
        """Look up which samples of some problems are stored at one step.

        ``fingerprints``: for each problem, the hash of the request asked about. A *cell* is one
        problem at one step under one fingerprint. Stored samples of the problem under another
        fingerprint answer an earlier request, and are only counted as outdated.
        """
        requested_cells = {
            Cell(self._arm, step, problem, fingerprint)
            for problem, fingerprint in zip(problems, fingerprints.tolist(), strict=True)
        }
        flags = np.zeros((len(problems), self._flags.shape[1]), np.uint8)
        tokens = np.zeros(len(problems))
        outdated = 0
        index_of_problem = {problem: index for index, problem in enumerate(problems)}
        for cell in self._cells_at_step[step]:
            if cell.problem not in index_of_problem:
                continue
            row = self._row_of_cell[cell]
            if cell in requested_cells:
                index = index_of_problem[cell.problem]
                flags[index] = self._flags[row]
                tokens[index] = self._tokens[row]
            else:
                outdated += int(np.count_nonzero(self._flags[row]))
        return StoredFlags(flags, tokens, outdated)

    def _rows_of_cells(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Table row of each cell; a new cell gets the next free row."""
        for cell in cells:
            if cell not in self._row_of_cell:
                self._row_of_cell[cell] = len(self._row_of_cell)
                self._cells_at_step[cell.step].append(cell)
        return np.array([self._row_of_cell[cell] for cell in cells], np.int64)

    def _enter(
        self,
        rows: NDArray[np.int64],
        samples: NDArray[np.int32],
        verdicts: NDArray[np.int8],
        tokens: NDArray[Any],
    ) -> None:
        """Set the flags of the samples of one file, and count the tokens of new ones.

        The arrays have one entry per sample: its row in the table of flags (that of its cell), its
        index, its verdict code and its response tokens. A sample that was completed before adds no
        tokens, and no flag but that of a failure. One that comes twice in the file adds its tokens
        once.
        """
        self._make_room(int(samples.max(initial=-1)) + 1)
        failed = np.isin(verdicts, FAILED)
        flags = np.where(verdicts == int(Status.RIGHT), COMPLETED_FLAG | RIGHT_FLAG, COMPLETED_FLAG)
        flags[failed] = FAILED_FLAG
        # Flat view: a sample is at row × width + index.
        table = self._flags.reshape(-1)
        places = rows * self._flags.shape[1] + samples
        known = table[places] & COMPLETED_FLAG != 0
        # The first completed copy counts; the copies are the same sample.
        flags[known & ~failed] = 0
        # `.at`, since one place may come several times in a file.
        np.bitwise_or.at(table, places, flags)
        new = np.flatnonzero(~known & ~failed)
        _, first_copies = np.unique(places[new], return_index=True)
        new = new[first_copies]
        self._tokens += np.bincount(rows[new], tokens[new], len(self._tokens))

    def _make_room(self, samples: int) -> None:
        """Grow the table to a row for each known cell, and to at least ``samples`` columns.

        Rows double, so that thousands of small files don't copy the table each time.
        """
        rows, width = self._flags.shape
        needed_rows = len(self._row_of_cell)
        if needed_rows <= rows and samples <= width:
            return
        if needed_rows > rows:
            needed_rows = max(needed_rows, 2 * rows)
        table = np.zeros((max(rows, needed_rows), max(width, samples)), np.uint8)
        table[:rows, :width] = self._flags
        self._flags = table
        self._tokens = np.append(self._tokens, np.zeros(len(table) - rows))


def take_inventory(
    layout: Layout,
    arm: str,
    set_name: str,
    *,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Inventory:
    """Find out which samples an arm has on a problem set.

    Samples are not read whole, so one with a flipped bit counts as stored until sealing has marked
    it. ``strict``: raise what keeps a file from being read; otherwise leave the file out.
    ``passed_over``: tells by a journal's name that it need not be opened.
    """

    def read_files() -> Inventory:
        """Enter the samples of every file, as the files are now.

        ``skipped`` collects what cannot be read.
        """
        inventory = Inventory(arm)
        skipped: list[Skipped] = []
        for file in list_files(
            layout, arm, set_name, skipped, strict=strict, passed_over=passed_over
        ):
            inventory.add_file(file)
        inventory.notes = [entry.note for entry in skipped]
        return inventory

    return retry_while_changing(read_files)
