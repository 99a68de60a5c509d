"""Seal journals into parts.

The grid of an arm and problem set is cut into *units*: a range of problems at one step. A unit is
sealed when every sample that it asks for is there; samples that nobody planned, such as imported
ones, are sealed as they are. What a unit's part holds therefore follows from the grid and the
samples alone: an interrupted run, or two who seal at once, end with the same files. A larger n
adds parts and rewrites none.

Journals stay; :mod:`rlbhpc.store.gc` removes them. A kill at any moment leaves at most a file
that ends in ``.partial``, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import left_out, parts, snapshot
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Note
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.snapshot import View
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

# Samples per part: enough that a checkpoint of 10⁶ has 64 parts, and at most so many that ...
_UNIT_ROWS: Final = 1 << 14
# ... even 10⁸ have some 250.
_UNITS: Final = 256


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


def units(arm: str, grid: Grid) -> Iterator[tuple[Cell, ...]]:
    """Cut a grid into units, problems at one step that share a part, in the grid's order."""
    total = len(grid.fingerprints) * grid.n
    rows = max(_UNIT_ROWS, -(-total // _UNITS))
    size = max(1, rows // max(1, grid.n))
    numbered = (
        (step, place // size, Cell(arm, step, problem, grid.fingerprints[step, problem]))
        for step in grid.steps
        for place, problem in enumerate(grid.problems)
        if (step, problem) in grid.fingerprints
    )
    for _, unit in groupby(numbered, key=itemgetter(0, 1)):
        yield tuple(cell for _, _, cell in unit)


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
        self._view = View(now)
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
        for unit in units(self._arm, self._grid):
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
