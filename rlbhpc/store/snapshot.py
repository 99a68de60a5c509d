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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import journal, left_out, parts, sample_rows
from rlbhpc.store.frames import INDEXED, DamagedError
from rlbhpc.store.journal import Index, TooLargeError
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import FAILED, Listing
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout

# --- files ---------------------------------------------------------------------------------------


T = TypeVar("T")

_TRIES: Final = 5


class Sealed(NamedTuple):
    """A part, what its footer lists, and which of its row groups cannot be used.

    ``foreign`` are those whose samples belong to another arm or problem set than the folder.
    """

    path: Path
    listing: Listing
    damaged: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()

    @property
    def cells(self) -> list[Cell]:
        """Cells that the footer lists."""
        return self.listing.cells

    @property
    def unusable(self) -> frozenset[int]:
        """Row groups that nobody may read."""
        return self.damaged | self.foreign

    @property
    def rows(self) -> int:
        """Samples in the row groups that can be used."""
        groups = enumerate(self.listing.groups)
        return sum(len(group.samples) for i, group in groups if i not in self.unusable)


@dataclass(frozen=True)
class Snapshot:
    """Journals and parts of one arm and problem set; ``skipped`` says what could not be listed.

    ``strict``: whether a file that cannot be read is an error; else it is left out.
    """

    journals: tuple[Index, ...]
    parts: tuple[Sealed, ...]
    skipped: tuple[Skipped, ...]
    strict: bool = True


def take(
    layout: Layout, arm: str, set_name: str, *, verify: bool = False, strict: bool = True
) -> Snapshot:
    """List what is there; see :func:`listed`."""

    def attempt() -> Snapshot:
        skipped: list[Skipped] = []
        now = [*listed(layout, arm, set_name, skipped, verify=verify, strict=strict)]
        journals = tuple(file for file in now if isinstance(file, Index))
        sealed = tuple(file for file in now if isinstance(file, Sealed))
        return Snapshot(journals, sealed, tuple(skipped), strict)

    return steady(attempt)


def listed(
    layout: Layout,
    arm: str,
    set_name: str,
    skipped: list[Skipped],
    *,
    verify: bool = False,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Iterator[Index | Sealed]:
    """List the journals and then the parts of a group, one by one.

    Journals come first: a journal is removed only when its samples are in a part, so whoever
    misses the journal finds the part afterwards.

    ``skipped`` takes what cannot be used. ``verify``: read every sample, and leave out those that
    are damaged. ``strict``: raise what keeps a file from being read; else it is left out.
    ``passed_over``: says of a journal's name that none of its samples matter: it is not opened.
    """
    folder = layout.journals(arm, set_name)
    names = files.list_names(folder, "")
    noted = set(names)
    for name in names:
        if not name.endswith(journal.ENDING) or (passed_over and passed_over(name)):
            continue
        with left_out.unreadable(folder / name, skipped, strict=strict):
            index = journal.index(
                folder / name, verify=verify, noted=f"{name}{left_out.MARK_ENDING}" in noted
            )
            index = own(index, arm, set_name)
            skipped.extend(index.skipped)
            yield index
    folder = layout.parts(arm, set_name)
    for name in files.list_names(folder, parts.ENDING):
        with left_out.unreadable(folder / name, skipped, strict=strict):
            part = part_of(folder / name, arm, set_name, skipped, verify=verify)
            if part is not None:
                yield part


def part_of(
    path: Path, arm: str, set_name: str, skipped: list[Skipped], *, verify: bool = False
) -> Sealed | None:
    """List a part of a group; None if it cannot be read, which ``skipped`` then says."""
    try:
        listed = parts.contents(path)
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
        return None
    damaged = left_out.damaged_places(path)
    if damaged:
        lost = sum(len(listed.groups[i].samples) for i in damaged)
        reason = f"{lost} samples that were found damaged before"
        skipped.append(Skipped(path, reason, samples=lost))
    if verify:
        every = range(len(listed.groups))
        read = parts.tables_of(path, listed, every, sample_rows.ROWS, skipped)
        damaged |= frozenset(every).difference(*(groups for groups, _ in read))
    strange = _strange(listed.cells, arm, set_name)
    foreign = frozenset(i for i, group in enumerate(listed.groups) if strange[group.cell])
    if foreign:
        samples = sum(len(listed.groups[i].samples) for i in foreign)
        skipped.append(_foreign_note(path, listed.cells[strange.index(True)], samples))
    return Sealed(path, listed, damaged, foreign)


def own(index: Index, arm: str, set_name: str) -> Index:
    """Leave out the samples of a journal that belong to another arm or problem set."""
    strange = np.array(_strange(index.cells, arm, set_name), bool)
    if not strange.any():
        return index
    foreign = strange[index.records["cell"]]
    samples = int(foreign.sum())
    note = _foreign_note(index.path, index.cells[int(np.argmax(strange))], samples)
    return replace(
        index,
        records=index.records[~foreign],
        skipped=(*index.skipped, note),
        unused=index.unused + samples,
    )


def _strange(cells: list[Cell], arm: str, set_name: str) -> list[bool]:
    """Which cells belong to another arm or problem set."""
    return [cell.arm != arm or cell.problem.partition("/")[0] != set_name for cell in cells]


def _foreign_note(path: Path, cell: Cell, samples: int) -> Skipped:
    reason = (
        f"{samples} samples of another arm or problem set ({cell.arm}, {cell.problem}) than its "
        "folder's; move the file to the folder that it belongs to"
    )
    return Skipped(path, reason, left_out.FOREIGN, samples)


def steady(read: Callable[[], T]) -> T:
    """Give the result of a read that begins anew when a journal is removed under it."""
    gone = OSError()
    for attempt in range(_TRIES):
        try:
            return read()
        except FileNotFoundError as error:
            gone = error
            # Where it was not removed, a network file system may not show a new file yet.
            time.sleep(0.01 * 4**attempt)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            gone = error
            break
    path = Path(gone.filename)
    if path.is_symlink():
        raise UserError(
            f"{path}: a link to {path.readlink()}, which leads nowhere; bring its file back, or "
            "remove the link"
        )
    raise UserError(
        f"{gone.filename}: files keep vanishing while the store is read; "
        "give the command again when nobody cleans up",
        TRY_AGAIN,
    )


# --- samples -------------------------------------------------------------------------------------


# What telling copies apart needs.
_BASE: Final = (*sample_rows.KEY, "digest", "verdict")
_PLACE: Final = ("file", "position")
# What is read at once: so many rows, or fewer if they are large. It bounds the memory, and Arrow
# cannot reorder more than 2 GB of texts.
_BATCH_ROWS: Final = 1 << 14
_BATCH_BYTES: Final = 64 << 20


class Conflict(NamedTuple):
    """Two different samples with one key and one fingerprint, neither of them failed."""

    cell: Cell
    sample: int
    counts: Path
    other: Path

    def __str__(self) -> str:
        cell = self.cell
        return (
            f"two different samples of {cell.problem} no. {self.sample} (arm {cell.arm}, step "
            f"{cell.step}): the one in {self.counts} counts, the one in {self.other} does not"
        )


class DistinctSamples:
    """Every sample of a snapshot once, sorted by step, problem, fingerprint and sample.

    ``columns``: what will be read; columns that an index answers are read at once. ``problems,
    steps``: keep to these; None means all. ``verify``: read every sample of a journal, and leave
    out the damaged ones, where nothing but the index would be read otherwise. ``skipped``: what
    could not be read so far. ``damaged``: places of files
    that proved to be damaged, as :func:`rlbhpc.store.left_out.damaged_places` gives them.
    """

    def __init__(
        self,
        now: Snapshot,
        columns: Sequence[str] | None = (),
        *,
        problems: Collection[str] | None = None,
        steps: Collection[int] | None = None,
        verify: bool = False,
    ) -> None:
        self._now = now
        self._verify = verify
        self.skipped = list(now.skipped)
        self.damaged: defaultdict[Path, set[int]] = defaultdict(set)
        self._files: list[Sealed | Index] = [*now.parts, *now.journals]
        names = sample_rows.select(columns).names
        self._light = tuple({*_BASE, *(name for name in names if name in INDEXED)})
        tables = [self._place(number, problems, steps) for number in range(len(self._files))]
        light = [*sample_rows.select(self._light), *((name, pa.int64()) for name in _PLACE)]
        table = pa.concat_tables([pa.schema(light).empty_table(), *tables]).unify_dictionaries()
        self._copies, self._starts = _ordered(table)
        # How many rows the next batch has; the next call begins as the last one ended.
        self._batch_rows = _BATCH_ROWS
        # The copy that is taken for each key; moves on where a copy turns out to be damaged.
        self._chosen = self._starts[:-1].copy()

    @property
    def count(self) -> int:
        """Number of distinct keys."""
        return len(self._chosen)

    @cached_property
    def keys(self) -> pa.Table:
        """Key, digest and verdict of the samples that count."""
        return self._copies.take(self._chosen).select(list(_BASE))

    @cached_property
    def cells(self) -> dict[Cell, NDArray[np.intp]]:
        """Rows of each cell, ascending by sample."""
        keys = self.keys
        names = pc.dictionary_encode(keys["problem"]).combine_chunks().indices.to_numpy()
        changes = np.zeros(keys.num_rows, bool)
        for column in (keys["step"].to_numpy(), keys["fingerprint"].to_numpy(), names):
            changes[1:] |= column[1:] != column[:-1]
        changes[:1] = True
        starts = np.flatnonzero(changes)
        cells = (Cell(*row.values()) for row in keys.take(starts).select(Cell._fields).to_pylist())
        return dict(zip(cells, np.split(np.arange(keys.num_rows), starts[1:]), strict=False))

    @property
    def notes(self) -> list[Note]:
        """What could not be read, and which samples contradict others, so far."""
        listed = len(self._now.skipped)
        conflicts = [Note(left_out.CONFLICTING, str(conflict)) for conflict in self.conflicts]
        return [*(skipped.note for skipped in self.skipped[listed:]), *conflicts]

    @property
    def sealed(self) -> NDArray[np.bool_]:
        """Which of the samples that count are in a part without damage."""
        files = self._copies["file"].to_numpy()[self._chosen]
        sealed = [isinstance(file, Sealed) and not file.damaged for file in self._files]
        is_sealed: NDArray[np.bool_] = np.array(sealed, bool)[files]
        return is_sealed

    @property
    def needed(self) -> set[Path]:
        """Files that hold a copy of a sample that no part without damage holds."""
        sizes = np.diff(self._starts)
        of_copy = np.repeat(self.sealed, sizes)
        files = np.unique(self._copies["file"].to_numpy()[~of_copy])
        return {self._files[i].path for i in files.tolist()}

    def origins(self, which: NDArray[np.intp]) -> list[Path]:
        """Files of the copies that were taken for some keys; ask after they were read."""
        files = self._copies["file"].to_numpy()[self._chosen[which]]
        return [self._files[i].path for i in files.tolist()]

    @cached_property
    def conflicts(self) -> list[Conflict]:
        """Samples that differ from the one that counts, where neither of the two failed."""
        digests = self._copies["digest"].to_numpy()
        failed = np.isin(self._copies["verdict"].to_numpy(), FAILED)
        first = np.repeat(self._starts[:-1], np.diff(self._starts))
        differing = np.flatnonzero((digests != digests[first]) & ~failed & ~failed[first])
        return [self._conflict(int(first[i]), i) for i in differing.tolist()]

    def read(self, which: NDArray[np.intp], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of some keys, in the given order; those of which no copy is intact are left out."""
        wanted = sample_rows.select(columns)
        if set(wanted.names) <= set(self._light):
            return self._copies.take(self._chosen[which]).select(wanted.names)
        tables = [wanted.empty_table(), *(table for _, table in self.batches(which, columns))]
        return pa.concat_tables(tables).unify_dictionaries()

    def batches(
        self, which: NDArray[np.intp], columns: Sequence[str] | None = None
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        """Go through the rows of some keys, as :meth:`read` gives them, some megabytes at a time.

        Each batch comes with its keys. How large a text is shows only when it was decoded: a batch
        that proves too large is begun anew with fewer rows.
        """
        wanted = sample_rows.select(columns)
        start = 0
        while start < len(which):
            batch = which[start : start + self._batch_rows]
            try:
                # One row is read whatever its size.
                table = self._read(batch, wanted, math.inf if len(batch) == 1 else _BATCH_BYTES)
            except TooLargeError as error:
                self._batch_rows = max(1, error.rows // 2)
                continue
            yield batch, table
            start += len(batch)
            rows_that_fit = len(batch) * _BATCH_BYTES // max(1, table.nbytes)
            self._batch_rows = min(_BATCH_ROWS, max(1, rows_that_fit // 2))

    def _read(self, which: NDArray[np.intp], wanted: pa.Schema, most: float) -> pa.Table:
        """Whole rows of some keys, from another copy where one is damaged."""
        tables, order = [wanted.empty_table()], [np.empty(0, np.intp)]
        unread = np.arange(len(which))
        while len(unread):
            copies = self._chosen[which[unread]]
            good, rows = self._fetch(copies, wanted.names, most)
            tables.extend(rows)
            order.append(unread[good])
            unread = np.delete(unread, good)
            self._chosen[which[unread]] += 1
            ended = self._chosen[which[unread]] >= self._starts[which[unread] + 1]
            self._chosen[which[unread][ended]] -= 1
            unread = unread[~ended]
        back = np.argsort(np.concatenate(order))
        return pa.concat_tables(tables).unify_dictionaries().take(back)

    def _place(
        self, number: int, problems: Collection[str] | None, steps: Collection[int] | None
    ) -> pa.Table:
        """Light columns of one file, with the place of each row."""
        file = self._files[number]
        wanted = [
            (problems is None or cell.problem in problems) and (steps is None or cell.step in steps)
            for cell in file.cells
        ]
        if isinstance(file, Index):
            position = self._place_journal(file, np.array(wanted, bool))
            table = journal.rows(file, sample_rows.select(self._light).names, position)
        else:
            table, position = self._place_part(file, wanted)
        table = table.append_column("file", pa.array(np.full(table.num_rows, number), pa.int64()))
        return table.append_column("position", pa.array(position, pa.int64()))

    def _place_journal(self, file: Index, wanted: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Positions of the records of some cells, without those that are damaged."""
        position = np.flatnonzero(wanted[file.records["cell"]])
        if not self._verify or not len(position):
            return position
        lost = position.tolist()
        with left_out.unreadable(file.path, self.skipped, strict=self._now.strict):
            lost = [place for place in file.damage if wanted[file.records["cell"][place]]]
            self.skipped.extend(file.damage[place] for place in lost)
            self.damaged[file.path].update(file.records["offset"][lost].tolist())
        return np.setdiff1d(position, lost)

    def _place_part(self, part: Sealed, wanted: list[bool]) -> tuple[pa.Table, NDArray[np.int64]]:
        light = sample_rows.select(self._light)
        starts = _starts(part)
        groups = [i for i, group in enumerate(part.listing.groups) if wanted[group.cell]]
        groups = [i for i in groups if i not in part.unusable]
        tables, positions = [light.empty_table()], [np.empty(0, np.int64)]
        for numbers, table in parts.tables_of(part.path, part.listing, groups, light, self.skipped):
            tables.append(table)
            positions.extend(np.arange(starts[i], starts[i + 1]) for i in numbers)
        return pa.concat_tables(tables).unify_dictionaries(), np.concatenate(positions)

    def _fetch(
        self, copies: NDArray[np.intp], columns: Sequence[str], most: float
    ) -> tuple[NDArray[np.intp], list[pa.Table]]:
        """Whole rows of some copies: which of them could be read, and their rows.

        Raises :class:`TooLargeError` when they have more than ``most`` bytes.
        """
        of_file = self._copies["file"].to_numpy()[copies]
        position = self._copies["position"].to_numpy()[copies]
        good, tables = [np.empty(0, np.intp)], []
        for number in np.unique(of_file).tolist():
            mine = np.flatnonzero(of_file == number)
            mine = mine[np.argsort(position[mine], kind="stable")]
            file = self._files[number]
            for here, table in self._fetch_of(file, position[mine], columns, most):
                good.append(mine[here])
                tables.append(table)
                most -= table.nbytes
                if most < 0:
                    raise TooLargeError(sum(map(len, good)))
        return np.concatenate(good), tables

    def _fetch_of(
        self, file: Sealed | Index, position: NDArray[np.int64], columns: Sequence[str], most: float
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        """Whole rows of one file, at ascending positions: which could be read, and their rows."""
        if isinstance(file, Sealed):
            yield from self._fetch_part(file, position, columns)
            return
        with left_out.unreadable(file.path, self.skipped, strict=self._now.strict):
            here, table = journal.whole_rows(file, position, columns, self.skipped, most)
            lost = np.delete(position, here)
            self.damaged[file.path].update(file.records["offset"][lost].tolist())
            yield here, table

    def _fetch_part(
        self, part: Sealed, position: NDArray[np.int64], columns: Sequence[str]
    ) -> Iterator[tuple[NDArray[np.intp], pa.Table]]:
        starts = _starts(part)
        group = np.searchsorted(starts, position, side="right") - 1
        groups = np.unique(group).tolist()
        lost = set(groups)
        for numbers, table in parts.tables_of(
            part.path, part.listing, groups, sample_rows.select(columns), self.skipped
        ):
            lost.difference_update(numbers)
            offset = 0
            for i in numbers:
                here = np.flatnonzero(group == i)
                yield here, table.slice(offset).take(position[here] - starts[i])
                offset += len(part.listing.groups[i].samples)
        self.damaged[part.path].update(lost)

    def _conflict(self, counts: int, other: int) -> Conflict:
        row = self._copies.slice(other, 1).to_pylist()[0]
        files = self._copies["file"]
        paths = [self._files[files[i].as_py()].path for i in (counts, other)]
        return Conflict(Cell(*(row[name] for name in Cell._fields)), row["sample"], *paths)


def _starts(part: Sealed) -> NDArray[np.int64]:
    """Row at which each row group starts, and the end."""
    sizes = [len(group.samples) for group in part.listing.groups]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _ordered(table: pa.Table) -> tuple[pa.Table, NDArray[np.intp]]:
    """Sort copies by key and preference; where each key's copies start, and the end."""
    key = _key(table)
    order = np.argsort(key, kind="stable")
    key = key[order]
    repeated = np.flatnonzero(key[1:] == key[:-1])
    if len(repeated):
        # Few keys have copies: only those are put in order of preference.
        among = np.union1d(repeated, repeated + 1)
        rows = order[among]
        failed = np.isin(table["verdict"].to_numpy()[rows], FAILED)
        digest, file = table["digest"].to_numpy()[rows], table["file"].to_numpy()[rows]
        order[among] = rows[np.lexsort((file, digest, failed, key[among]))]
    _, starts = np.unique(key, return_index=True)
    return table.take(order), np.append(starts, len(key))


def _key(table: pa.Table) -> NDArray[np.int64]:
    """Give each key a number; they are in the order of (step, problem, fingerprint, sample)."""
    key = np.zeros(table.num_rows, np.int64)
    for name in ("step", "problem", "fingerprint", "sample"):
        ranks, distinct = _ranks(table[name])
        before, _ = _ranks(pa.chunked_array([pa.array(key)]))
        key = before * distinct + ranks
    return key


def _ranks(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], int]:
    """Rank of each value among the distinct ones, and how many there are."""
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    rank = pc.rank(encoded.dictionary).to_numpy().astype(np.int64)
    return rank[encoded.indices.to_numpy()], len(rank)
