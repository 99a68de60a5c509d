"""What a cube is made from: sealed parts, journals, plans and small tables, listed once.

A list is a snapshot. Parts never change; a journal grows, and its size says how far it had grown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store import checked, cube_schema, left_out, snapshot, tables
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Note
from rlbhpc.store.snapshot import DistinctSamples, Sealed
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout


class Group(NamedTuple):
    """An arm on a problem set: one group of the cube."""

    arm: str
    problem_set: str

    def __str__(self) -> str:
        return f"{self.arm}/{self.problem_set}"


def groups_of_run(layout: Layout) -> list[Group]:
    """List every arm and problem set of a run; a folder without any is an error."""
    groups = [Group(*group) for group in layout.groups()]
    if not groups:
        raise UserError(f"{layout.root}: holds no samples; give the folder of a run")
    return groups


class Rows:
    """Samples of one group, in parts and journals.

    ``files``: every file with samples, by its name below the run folder, and how many it holds.
    Parts never change and journals only grow, so an equal number means equal content. ``notes``:
    what could not be listed. ``strict``: raise what keeps a file from being read.
    """

    def __init__(self, layout: Layout, group: Group, *, strict: bool = True) -> None:
        self.group = group
        self._layout = layout
        self.now = snapshot.take(layout, *group, strict=strict)
        holds: list[Index | Sealed] = [*self.now.parts, *self.now.journals]
        self._holds = {f.path.relative_to(layout.root).as_posix(): f for f in holds}
        self.files = {name: file.rows for name, file in self._holds.items()}
        self.notes = [skipped.note for skipped in self.now.skipped]

    @cached_property
    def grid(self) -> Grid:
        """The axes: what was planned, then what is there beside it."""
        planned = Grid.load(self._layout.grid(*self.group)) or Grid(self.group.arm)
        return planned.covering(self.cells(self.files))

    def counted(self, view: DistinctSamples) -> dict[Cell, NDArray[np.intp]]:
        """Rows of a view that answer what is asked for, by cell."""
        required = self.grid.fingerprints
        return {
            cell: rows
            for cell, rows in view.cells.items()
            if required.get((cell.step, cell.problem)) == cell.fingerprint
        }

    def gone(self, before: Mapping[str, int]) -> list[str]:
        """Files that are not there any more, or that lost samples although nothing is damaged.

        ``before``: files of an earlier moment with the number of samples in each.
        """
        bad = {left_out.DAMAGED, left_out.UNREADABLE}
        damaged = {skipped.path for skipped in self.now.skipped if skipped.kind in bad}
        return [
            name
            for name, samples in before.items()
            if not (path := self._layout.root / name).exists()
            or (samples > self._listed(name) and path not in damaged)
        ]

    def _listed(self, name: str) -> int:
        """Samples that a file lists, whether they can be used or not."""
        file = self._holds.get(name)
        if isinstance(file, Index):
            return file.rows + file.unused
        return file.listing.rows if file else 0

    def cells(self, names: Iterable[str]) -> Mapping[Cell, int]:
        """Find the cells that some of the files hold, with the highest sample index of each."""
        highest: dict[Cell, int] = {}
        for name in names:
            for cell, last in _last(self._holds[name]):
                highest[cell] = max(highest.get(cell, 0), last)
        return highest


def _last(holds: Index | Sealed) -> list[tuple[Cell, int]]:
    """Cells of a file, possibly more than once, with a sample index; the highest is among them."""
    if isinstance(holds, Index):
        last = np.full(len(holds.cells), -1)
        np.maximum.at(last, holds.records["cell"], holds.records["sample"])
        return [(cell, n) for cell, n in zip(holds.cells, last.tolist(), strict=True) if n >= 0]
    listed = holds.listing
    return [
        (listed.cells[group.cell], int(group.samples[-1]))
        for i, group in enumerate(listed.groups)
        if i not in holds.foreign
    ]


@dataclass(frozen=True)
class Sources:
    """Everything that a cube of a run folder is made from.

    ``inputs`` is a JSON value that is equal for equal sources.
    """

    layout: Layout
    groups: tuple[Group, ...]
    inputs: Mapping[str, Any]
    rows: Mapping[Group, Rows]

    @classmethod
    def survey(cls, layout: Layout, *, strict: bool = True) -> Self:
        """List what is there now; ``strict``: raise what keeps a file from being read."""
        if not layout.root.is_dir():
            raise UserError(f"{layout.root}: no such folder; give the folder of a run")
        groups = [Group(*group) for group in layout.groups()]
        for group in groups:
            if group.arm in cube_schema.RESERVED:
                raise UserError(
                    f"an arm may not be called {group.arm!r}: the cube has a group of that name; "
                    "call it otherwise"
                )
        rows = {group: Rows(layout, group, strict=strict) for group in groups}
        inputs = {
            "groups": {str(group): rows[group].files for group in groups},
            "plans": {str(group): _mark(layout.grid(*group)) for group in groups},
            "tables": snapshot.steady(lambda: tables.inputs(layout)),
        }
        if not groups and not inputs["tables"]:
            raise UserError(f"{layout.root}: holds no samples; give the folder of a run")
        return cls(layout, tuple(groups), inputs, rows)

    @property
    def notes(self) -> list[Note]:
        """What could not be listed."""
        return [note for rows in self.rows.values() for note in rows.notes]


def _mark(path: Path) -> str:
    """Mark the content of a plan; empty if there is none."""
    try:
        return checked.mark(path)
    except FileNotFoundError:
        return ""
    except ValueError:
        Grid.load(path)
        raise
