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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from stat import S_ISDIR
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.store import frames, left_out, parts, snapshot
from rlbhpc.store.grid import Grid, seal_units
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.snapshot import DistinctSamples, Snapshot
from rlbhpc.store.sources import Group, Rows, groups_of_run
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

    With ``verify`` all parts and journals are read whole first. A damaged part is then written
    again from its intact row groups and from other copies of its samples, under the same name.
    """
    return snapshot.steady(lambda: _Sealer(layout, arm, set_name, grid, policy, verify).run())


class _Sealer:
    def __init__(
        self,
        layout: Layout,
        arm: str,
        set_name: str,
        grid: Grid,
        policy: TokenPolicy,
        verify: bool,
    ) -> None:
        self._folder = layout.parts(arm, set_name)
        self._arm, self._grid, self._policy = arm, grid, policy
        now = snapshot.take(layout, arm, set_name, verify=verify)
        self._listed = [skipped.note for skipped in now.skipped]
        self._view = DistinctSamples(now)
        for part in now.parts:
            self._view.damaged[part.path].update(part.damaged)
        self._rows = self._view.cells
        self._samples = self._view.keys["sample"].to_numpy()
        self._sealed = self._view.sealed
        self._right = self._view.keys["verdict"].to_numpy() == Status.RIGHT
        self._damaged = 0

    def run(self) -> Sealing:
        made: list[Path] = []
        sealed = open_ = 0
        for unit in seal_units(self._arm, self._grid):
            rows = [of_cell for cell in unit if (of_cell := self._complete(cell)) is not None]
            if len(rows) < len(unit):
                open_ += 1
                continue
            fresh = [of_cell[~self._sealed[of_cell]] for of_cell in rows]
            if any(map(len, fresh)):
                try:
                    solved = [(self._right[of_cell].sum(), len(of_cell)) for of_cell in rows]
                    tables = self._tables(fresh, solved)
                    made.append(parts.write(self._folder, tables, self._policy))
                    left_out.forget_damage(made[-1])
                except _DamagedUnitError:
                    open_ += 1
                    continue
            sealed += 1
        for path, places in self._view.damaged.items():
            if places and path not in made:
                left_out.mark_damaged(path, places)
        notes = (*self._listed, *self._view.notes)
        return Sealing(tuple(made), sealed, open_, self._damaged, notes)

    def _complete(self, cell: Cell) -> NDArray[np.intp] | None:
        """Rows of a cell that the grid asks for, None where one is missing; all if unplanned."""
        rows = self._rows.get(cell, np.empty(0, np.intp))
        count = self._grid.counts.get((cell.step, cell.problem))
        if count is None:
            return rows
        requested = rows[self._samples[rows] < count]
        return requested if len(requested) == count else None

    def _tables(
        self, cells: list[NDArray[np.intp]], solved: list[tuple[int, int]]
    ) -> Iterator[pa.Table]:
        of_cell = np.repeat(np.arange(len(cells)), [*map(len, cells)])
        for keys, table in self._view.batches(np.concatenate(cells)):
            if table.num_rows < len(keys):
                self._damaged += len(keys) - table.num_rows
                raise _DamagedUnitError
            numbers, starts = np.unique(of_cell[: len(keys)], return_index=True)
            of_cell = of_cell[len(keys) :]
            bounds = pairwise([*starts.tolist(), len(keys)])
            for number, (start, stop) in zip(numbers.tolist(), bounds, strict=True):
                rows = table.slice(start, stop - start)
                yield parts.apply_policy(rows, self._policy, *solved[number])


class _DamagedUnitError(Exception):
    """A unit whose samples are all listed, but not all readable."""


# --- removing ------------------------------------------------------------------------------------
#
# A journal goes only if every sample that it lists is in a part that was just read whole and found
# intact, and if no writer can still hold it: it was closed in good order, or it has not changed
# for a day (a killed attempt closes nothing; the longest job decides how long a writer may sleep).


#: Hours without change after which an unclosed journal has no writer any more.
IDLE_HOURS: Final = 24.0


class Kept(NamedTuple):
    """A file that stays, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} stays: {self.reason}"


@dataclass(frozen=True)
class Cleaning:
    """What :func:`gc` did; ``skipped`` names parts and journals that are damaged."""

    removed: tuple[Path, ...]
    freed: int
    kept: tuple[Kept, ...]
    skipped: tuple[Skipped, ...]


def gc(layout: Layout, arm: str, set_name: str, *, idle_hours: float = IDLE_HOURS) -> Cleaning:
    """Remove the sealed journals of one arm and problem set, and what killed sealers left."""
    now = snapshot.take(layout, arm, set_name)
    damage = {part.path: parts.verify(part.path) for part in now.parts}
    intact = tuple(part for part in now.parts if not damage[part.path])
    view = DistinctSamples(Snapshot(now.journals, intact, now.skipped))
    needed = view.needed
    oldest = time.time() - idle_hours * 3600
    judged = [(journal, _reason(journal, needed, oldest)) for journal in now.journals]
    old = [(journal.path, journal.size) for journal, reason in judged if not reason]
    old.extend(_debris(layout, arm, set_name, oldest))
    for path, _ in old:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            left_out.forget_damage(path)
        except OSError as error:
            raise files.explain(error, path) from error
    return Cleaning(
        tuple(path for path, _ in old),
        sum(size for _, size in old),
        tuple(Kept(journal.path, reason) for journal, reason in judged if reason),
        (*view.skipped, *(line for lines in damage.values() for line in lines)),
    )


def _reason(journal: Index, needed: set[Path], oldest: float) -> str:
    """Why a journal must stay; empty if it need not."""
    if journal.path in needed:
        return "it holds samples that are not sealed"
    if any(skipped.kind == left_out.FOREIGN for skipped in journal.skipped):
        return "it holds samples of another arm or problem set; move it to their folder"
    if journal.size > frames.FILE_HEADER_SIZE and not journal.salt:
        return "it is unreadable; look at it, then remove it by hand"
    try:
        now = journal.path.stat()
    except FileNotFoundError:
        return ""
    if now.st_size != journal.size:
        return "it is being written"
    if not journal.closed and now.st_mtime > oldest:
        return "it was not closed, and its writer may still live"
    return ""


def _debris(layout: Layout, arm: str, set_name: str, oldest: float) -> Iterator[tuple[Path, int]]:
    """Find what a killed process was about to publish, with the sizes."""
    folders = (
        layout.parts(arm, set_name),
        layout.journals(arm, set_name),
        layout.grid(arm, set_name).parent,
        layout.attempts,
        layout.root,
        layout.contents("").parent,
        *layout.root.glob("questions/*/"),
        *layout.root.glob("training/*/"),
        *layout.root.glob("models/*/step-*[0-9]/"),
    )
    for folder in folders:
        for name in files.list_names(folder, files.PARTIAL):
            with suppress(FileNotFoundError):
                status = (folder / name).stat()
                # Folders in the making, such as a base model's, belong to whoever makes them.
                if status.st_mtime <= oldest and not S_ISDIR(status.st_mode):
                    yield folder / name, status.st_size
    # Checkpoints in the making have names that whoever trains on takes again.
    for pattern in ("models/*/*.partial/", "training/*/state/*.partial/"):
        for draft in layout.root.glob(pattern):
            with suppress(FileNotFoundError):
                statuses = [path.stat() for path in (draft, *draft.rglob("*"))]
                if max(status.st_mtime for status in statuses) <= oldest:
                    yield draft, sum(status.st_size for status in statuses[1:])


# --- a run, as its study says --------------------------------------------------------------------


log = logging.getLogger(__name__)


def token_policy(layout: Layout) -> TokenPolicy:
    """Whose per-token values the study of a run keeps; the default where samples were imported."""
    study = study_of(layout)
    return study.file.storage.tokens if study else Storage().tokens


def seal_run(
    layout: Layout, tokens: TokenPolicy | None = None, *, verify: bool = False
) -> dict[Group, Sealing]:
    """Seal what is complete of every arm and problem set; ``tokens`` overrides the study."""
    policy = tokens or token_policy(layout)
    return {
        group: seal(layout, *group, Rows(layout, group).grid, policy, verify=verify)
        for group in groups_of_run(layout)
    }


def seal_and_clean(layout: Layout) -> None:
    """Seal what is complete and remove the journals that hold nothing else."""
    for group, sealed in seal_run(layout).items():
        log.debug("%s: %d parts sealed, %d left open", group, len(sealed.made), sealed.open)
    for group in groups_of_run(layout):
        gc(layout, *group)
