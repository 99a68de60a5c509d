"""Seal journals into parts, and remove the journals that are sealed.

The grid of an arm and problem set is cut into *units*: a range of problems at one step. A unit is
sealed when every sample that it asks for is there; samples that nobody planned, such as imported
ones, are sealed as they are. What a unit's part holds therefore follows from the grid and the
samples alone: an interrupted run, or two who seal at once, end with the same files. A larger n
adds parts and rewrites none.

Sealing leaves the journals; :func:`gc` removes them, after reading the parts again from the disk.
A kill at any moment leaves at most a file
that ends in ``.partial``, which nobody reads.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.store import frames, left_out, parts
from rlbhpc.store.grid import Grid, seal_units
from rlbhpc.store.journal import JournalIndex
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.snapshot import (
    DistinctSamples,
    Snapshot,
    retry_while_changing,
    take_snapshot,
)
from rlbhpc.store.sources import Group, GroupFiles, groups_of_run
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.schema import Storage
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Sealing:
    """What a call of :func:`seal` did.

    ``made``: new parts. ``sealed, open``: units that are sealed now, and units that still miss
    samples. ``damaged``: samples whose only copies proved to be damaged. They count as missing from
    now on. ``notes``: what was left out.
    """

    made: tuple[Path, ...]
    sealed: int
    open: int
    damaged: int
    notes: tuple[Note, ...]


def seal(
    layout: Layout,
    arm: str,
    set_name: str,
    grid: Grid,
    policy: TokenPolicy,
    *,
    verify: bool = False,
) -> Sealing:
    """Write a part for every unit that is complete and not sealed yet.

    A *part* is a finished file of samples. A *unit* is some problems of the grid at one step, whose
    samples share a part; it is complete when every sample that the grid asks for is there.
    ``policy``: whose per-token values are kept.

    With ``verify`` all parts and journals are read whole first. A damaged part is then written
    again from its intact row groups and from other copies of its samples, under the same name.
    """

    def seal_once() -> Sealing:
        snapshot = take_snapshot(layout, arm, set_name, verify=verify)
        sealer = _Sealer(snapshot, layout.parts(arm, set_name), grid, policy)
        return sealer.seal_units(seal_units(arm, grid))

    return retry_while_changing(seal_once)


class _Sealer:
    """Seals units of one arm and problem set; ``folder``: where its parts are."""

    def __init__(self, snapshot: Snapshot, folder: Path, grid: Grid, policy: TokenPolicy) -> None:
        """List the samples of the snapshot, each once, and note damage that is known by now.

        ``snapshot``: the parts and journals of one arm on one problem set. ``grid``: which samples
        are asked for. ``policy``: whose per-token values are kept.
        """
        self._folder = folder
        self._grid = grid
        self._policy = policy
        self._listing_notes = [skipped.note for skipped in snapshot.skipped]
        self._samples = DistinctSamples(snapshot)
        for part in snapshot.parts:
            self._samples.damaged[part.path].update(part.damaged)
        keys = self._samples.keys
        self._sample_indices = keys["sample"].to_numpy()
        self._is_right = keys["verdict"].to_numpy() == Status.RIGHT
        self._is_sealed = self._samples.is_sealed
        self._damaged_count = 0

    def seal_units(self, units: Iterator[tuple[Cell, ...]]) -> Sealing:
        """Seal the complete units, and mark what proved to be damaged.

        ``units``: each is the cells (problems at one step, under one request) whose samples share a
        part. A unit with a missing or damaged sample stays open. Marks, in files beside the data,
        make damaged samples count as missing, so that they are drawn again.
        """
        made: list[Path] = []
        sealed_count = open_count = 0
        for unit in units:
            numbers_of_cells = [self._complete_cell(cell) for cell in unit]
            complete = [numbers for numbers in numbers_of_cells if numbers is not None]
            if len(complete) < len(unit):
                open_count += 1
                continue
            try:
                made += self._seal_unit(complete)
                sealed_count += 1
            except _DamagedUnitError as error:
                self._damaged_count += error.sample_count
                open_count += 1
        for path, places in self._samples.damaged.items():
            if places and path not in made:
                left_out.mark_damaged(path, places)
        notes = (*self._listing_notes, *self._samples.notes)
        return Sealing(tuple(made), sealed_count, open_count, self._damaged_count, notes)

    def _complete_cell(self, cell: Cell) -> NDArray[np.intp] | None:
        """Numbers of the samples of a cell that the grid asks for; None where one is missing.

        A *cell* is one problem at one step, under one request. The grid asks for its first so many
        samples. Where nobody planned it, as with imported samples, all that are there are given.
        """
        numbers = self._samples.by_cell.get(cell, np.empty(0, np.intp))
        requested_count = self._grid.counts.get((cell.step, cell.problem))
        if requested_count is None:
            return numbers
        requested = numbers[self._sample_indices[numbers] < requested_count]
        return requested if len(requested) == requested_count else None

    def _seal_unit(self, cells: list[NDArray[np.intp]]) -> list[Path]:
        """Write the part of a unit, given the samples of its cells; none if all are sealed.

        ``cells``: for each cell (a problem at a step), the numbers of its samples. Only samples
        that no intact part holds are written. The counts are of all its samples: the token policy
        depends on how many of a problem's samples are right.
        """
        unsealed = [numbers[~self._is_sealed[numbers]] for numbers in cells]
        if not any(map(len, unsealed)):
            return []
        right_counts = [int(self._is_right[numbers].sum()) for numbers in cells]
        sample_counts = [len(numbers) for numbers in cells]
        part = parts.write(
            self._folder,
            lambda: self._read_cells(unsealed, right_counts, sample_counts),
            self._policy,
        )
        left_out.forget_damage(part)
        return [part]

    def _read_cells(
        self,
        cells: list[NDArray[np.intp]],
        right_counts: Sequence[int],
        sample_counts: Sequence[int],
    ) -> Iterator[pa.Table]:
        """Rows of some samples of each cell, with the per-token values that the policy keeps.

        ``cells``: the numbers of the samples of each cell (a problem at a step). ``right_counts,
        sample_counts``: of each cell, which the policy depends on. Samples are read in batches of
        limited size; each batch is cut where one cell ends and the next begins. Raises
        :class:`_DamagedUnitError` where a sample has no intact copy.
        """
        first_row = 0
        cell_of_row = np.repeat(np.arange(len(cells)), [len(numbers) for numbers in cells])
        for numbers, table in self._samples.read_batches(np.concatenate(cells)):
            if table.num_rows < len(numbers):
                raise _DamagedUnitError(len(numbers) - table.num_rows)
            # A batch may end within a cell and may have several.
            cells_of_batch = cell_of_row[first_row : first_row + len(numbers)]
            first_row += len(numbers)
            for cell in np.unique(cells_of_batch).tolist():
                start, stop = np.searchsorted(cells_of_batch, [cell, cell + 1]).tolist()
                rows = table.slice(start, stop - start)
                yield parts.apply_policy(
                    rows, self._policy, right_counts[cell], sample_counts[cell]
                )


class _DamagedUnitError(Exception):
    """A unit whose samples are all listed, but not all readable."""

    def __init__(self, sample_count: int) -> None:
        super().__init__(sample_count)
        self.sample_count = sample_count


# --- removing ------------------------------------------------------------------------------------
#
# A journal goes only if every sample that it lists is in a part that was just read whole and found
# intact, and if no writer can still hold it: it was closed in good order, or it has not changed
# for a day (a killed attempt closes nothing; the longest job decides how long a writer may sleep).


#: Hours without change after which an unclosed journal has no writer any more.
IDLE_HOURS: Final = 24.0
_SECONDS_PER_HOUR: Final = 3600


class Kept(NamedTuple):
    """A file that stays, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} stays: {self.reason}"


@dataclass(frozen=True)
class Cleaning:
    """What :func:`gc` did.

    ``freed``: bytes of the files that were removed. ``skipped``: damage in parts and journals.
    """

    removed: tuple[Path, ...]
    freed: int
    kept: tuple[Kept, ...]
    skipped: tuple[Skipped, ...]


def gc(layout: Layout, arm: str, set_name: str, *, idle_hours: float = IDLE_HOURS) -> Cleaning:
    """Remove the sealed journals of one arm and problem set, and what killed sealers left.

    A journal is removed only if parts that are read whole now, and found intact, hold all its
    samples, and no writer can still have it open. ``idle_hours``: after so long without a change, a
    writer counts as dead.
    """
    snapshot = take_snapshot(layout, arm, set_name)
    damage_of_parts = {part.path: parts.verify(part.path) for part in snapshot.parts}
    intact_parts = tuple(part for part in snapshot.parts if not damage_of_parts[part.path])
    samples = DistinctSamples(replace(snapshot, parts=intact_parts))
    # Files with samples that no intact part holds.
    needed_files = samples.files_with_unsealed
    idle_since = time.time() - idle_hours * _SECONDS_PER_HOUR
    kept = []
    size_of_removed: dict[Path, int] = {}
    for journal in snapshot.journals:
        reason = _reason_to_keep(journal, needed_files, idle_since)
        if reason:
            kept.append(Kept(journal.path, reason))
        else:
            size_of_removed[journal.path] = journal.size
    size_of_removed.update(_abandoned_files(layout, idle_since))
    for path in size_of_removed:
        _remove(path)
    damage = [entry for entries in damage_of_parts.values() for entry in entries]
    return Cleaning(
        removed=tuple(size_of_removed),
        freed=sum(size_of_removed.values()),
        kept=tuple(kept),
        skipped=(*samples.skipped, *damage),
    )


def _remove(path: Path) -> None:
    """Remove a file or folder, and the note beside it that tells of damage in it."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        left_out.forget_damage(path)
    except OSError as error:
        raise files.explain(error, path) from error


def _reason_to_keep(journal: JournalIndex, needed_files: set[Path], idle_since: float) -> str:
    """Why a journal must stay; empty if it need not.

    ``needed_files``: files with samples that no intact part holds. ``idle_since``: time after which
    a writer that has not closed its journal may still live. A journal without a salt, the number
    with which its frames begin, cannot be read.
    """
    if journal.path in needed_files:
        return "it holds samples that are not sealed"
    if journal.size > frames.FILE_HEADER_SIZE and not journal.salt:
        return "it is unreadable; look at it, then remove it by hand"
    try:
        status = journal.path.stat()
    except FileNotFoundError:
        return ""
    if status.st_size != journal.size:
        return "it is being written"
    if not journal.closed and status.st_mtime > idle_since:
        return "it was not closed, and its writer may still live"
    return ""


def _abandoned_files(layout: Layout, idle_since: float) -> Iterator[tuple[Path, int]]:
    """Files and folders of a run that a killed process was about to publish, with their bytes.

    They have the ending of temporary names, and nothing in them has changed since ``idle_since``.
    """
    for path in layout.root.rglob(f"*{files.PARTIAL}"):
        with suppress(FileNotFoundError):
            statuses = [entry.lstat() for entry in (path, *path.rglob("*"))]
            sizes = [status.st_size for status in statuses if not S_ISDIR(status.st_mode)]
            if max(status.st_mtime for status in statuses) <= idle_since:
                yield path, sum(sizes)


# --- a run, as its study says --------------------------------------------------------------------


log = logging.getLogger(__name__)


def token_policy(layout: Layout) -> TokenPolicy:
    """Whose per-token values the study of a run keeps; the default where samples were imported."""
    study = study_of(layout)
    return study.file.storage.tokens if study else Storage().tokens


def seal_run(
    layout: Layout, tokens: TokenPolicy | None = None, *, verify: bool = False
) -> dict[Group, Sealing]:
    """Seal what is complete of every arm and problem set of a run.

    A group's grid says which samples are asked for. ``tokens``: whose per-token values are kept; it
    overrides the study. ``verify``: read all files whole, and write damaged parts again.
    """
    policy = tokens or token_policy(layout)
    return {
        group: seal(layout, *group, GroupFiles(layout, group).grid, policy, verify=verify)
        for group in groups_of_run(layout)
    }


def seal_and_clean(layout: Layout) -> None:
    """Seal what is complete and remove the journals that hold nothing else."""
    for group, sealed in seal_run(layout).items():
        log.debug("%s: %d parts sealed, %d left open", group, len(sealed.made), sealed.open)
    for group in groups_of_run(layout):
        gc(layout, *group)
