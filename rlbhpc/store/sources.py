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
from rlbhpc.store import checked, cube_schema, left_out, tables
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalIndex
from rlbhpc.store.left_out import Note
from rlbhpc.store.snapshot import (
    DistinctSamples,
    SealedPart,
    retry_while_changing,
    take_snapshot,
)
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


class GroupFiles:
    """The parts and journals of one group, as they are now.

    ``sample_counts``: every file with samples, by its name below the run folder, and how many it
    holds. Parts never change and journals only grow, so an equal number means equal content.
    ``notes``: what could not be listed. ``strict``: raise what keeps a file from being read.
    """

    def __init__(self, layout: Layout, group: Group, *, strict: bool = True) -> None:
        """List the parts and journals of a group (an arm on a problem set) as they are now.

        ``strict``: raise what keeps a file from being read; otherwise leave the file out. Files are
        known by their paths below the run folder.
        """
        self.group = group
        self.snapshot = take_snapshot(layout, *group, strict=strict)
        self.notes = [skipped.note for skipped in self.snapshot.skipped]
        self._layout = layout
        self._files: dict[str, JournalIndex | SealedPart] = {}
        for file in self.snapshot.files:
            self._files[file.path.relative_to(layout.root).as_posix()] = file
        self.sample_counts = {name: file.sample_count for name, file in self._files.items()}

    @cached_property
    def grid(self) -> Grid:
        """The axes: what was planned, then what is there beside it."""
        planned = Grid.load(self._layout.grid(*self.group)) or Grid(self.group.arm)
        return planned.covering(self.last_samples(self.sample_counts))

    def requested_by_cell(self, samples: DistinctSamples) -> dict[Cell, NDArray[np.intp]]:
        """Numbers of the samples that answer what the grid asks for, by cell.

        A *cell* is one problem at one step under one fingerprint, the hash of the request. The grid
        says which fingerprint counts for each step and problem; samples of earlier requests are
        left out.
        """
        fingerprints = self.grid.fingerprints
        return {
            cell: numbers
            for cell, numbers in samples.by_cell.items()
            if fingerprints.get((cell.step, cell.problem)) == cell.fingerprint
        }

    def files_gone(self, earlier_counts: Mapping[str, int]) -> list[str]:
        """Files that are gone, or that lost samples although nothing in them is damaged.

        ``earlier_counts``: files of an earlier moment, and how many samples each had.
        """
        damage_kinds = {left_out.DAMAGED, left_out.UNREADABLE}
        skipped = self.snapshot.skipped
        damaged = {entry.path for entry in skipped if entry.kind in damage_kinds}
        gone = []
        for name, earlier_count in earlier_counts.items():
            path = self._layout.root / name
            has_fewer = self._listed_samples(name) < earlier_count
            if not path.exists() or (has_fewer and path not in damaged):
                gone.append(name)
        return gone

    def _listed_samples(self, name: str) -> int:
        """Samples that a file lists, whether they can be used or not."""
        file = self._files.get(name)
        if isinstance(file, JournalIndex):
            return file.sample_count + file.unused
        return file.listing.sample_count if file else 0

    def last_samples(self, names: Iterable[str]) -> dict[Cell, int]:
        """The cells of some files, each with its highest sample index."""
        last_samples: dict[Cell, int] = {}
        for name in names:
            for cell, sample in _last_samples_of_file(self._files[name]):
                last_samples[cell] = max(last_samples.get(cell, 0), sample)
        return last_samples


def _last_samples_of_file(file: JournalIndex | SealedPart) -> list[tuple[Cell, int]]:
    """List the cells of a file, each with its highest sample index, or with several sample indices.

    A *cell* is one problem at one step under one request. A journal has a record for each sample,
    with the position of its cell in ``cells``. A part lists its samples by row group, each of one
    cell and ascending; a cell may have several.
    """
    if isinstance(file, SealedPart):
        return [(file.cells[group.cell], int(group.samples[-1])) for group in file.listing.groups]
    last_samples = np.full(len(file.cells), -1)
    np.maximum.at(last_samples, file.records["cell"], file.records["sample"])
    return [
        (cell, sample)
        for cell, sample in zip(file.cells, last_samples.tolist(), strict=True)
        if sample >= 0
    ]


@dataclass(frozen=True)
class Sources:
    """Everything that a cube of a run folder is made from.

    ``inputs`` is a JSON value that is equal for equal sources.
    """

    layout: Layout
    groups: tuple[Group, ...]
    inputs: Mapping[str, Any]
    files: Mapping[Group, GroupFiles]

    @classmethod
    def survey(cls, layout: Layout, *, strict: bool = True) -> Self:
        """List everything that a cube of this run would be made from now.

        A *group* is an arm on a problem set; a *plan* is its saved grid, which says what samples
        are asked for; *tables* are imported counts, scores and training logs. ``inputs`` tells by
        numbers of samples and by checksums whether any of these has changed since. ``strict``:
        raise what keeps a file from being read; otherwise leave the file out.
        """
        if not layout.root.is_dir():
            raise UserError(f"{layout.root}: no such folder; give the folder of a run")
        groups = [Group(*group) for group in layout.groups()]
        for group in groups:
            if group.arm in cube_schema.RESERVED:
                raise UserError(
                    f"an arm may not be called {group.arm!r}: the cube has a group of that name; "
                    "call it otherwise"
                )
        files = {group: GroupFiles(layout, group, strict=strict) for group in groups}
        inputs = {
            "groups": {str(group): files[group].sample_counts for group in groups},
            "plans": {str(group): _grid_checksum(layout.grid(*group)) for group in groups},
            "tables": retry_while_changing(lambda: tables.inputs(layout)),
        }
        if not groups and not inputs["tables"]:
            raise UserError(f"{layout.root}: holds no samples; give the folder of a run")
        return cls(layout, tuple(groups), inputs, files)

    @property
    def notes(self) -> list[Note]:
        """What could not be listed."""
        return [note for group_files in self.files.values() for note in group_files.notes]


def _grid_checksum(path: Path) -> str:
    """Checksum of a saved grid, the plan of a group; empty where none was planned.

    A damaged file is an error that tells what to do.
    """
    try:
        return checked.digest(checked.read(path))
    except FileNotFoundError:
        return ""
    except ValueError:
        Grid.load(path)  # raises the error that says what to do
        raise
