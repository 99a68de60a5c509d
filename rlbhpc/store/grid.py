"""The noun *Grid*: the axes of one group of the cube, and how it is cut into chunks.

Whoever plans a study writes the grid of each arm and problem set before the first sample. With
it, the cube's shape, order and chunks follow from what was asked for and not from which samples
came first: an interrupted run ends with the same bytes, and a study that grows in steps, or beyond
a million samples a step, only adds chunk files. Where no grid was written (imported samples), one
is derived from the samples alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout

# Samples of a unit, which becomes one part: a checkpoint of 10⁶ samples has 64 parts.
_UNIT_SAMPLES: Final = 1 << 14
# A larger grid has larger units, so that even 10⁸ samples have some 250 parts.
_MAX_UNITS: Final = 256
#: Cells of a chunk: 1 MB of verdicts, 8 MB of seeds.
CHUNK_CELLS: Final = 1 << 20


class Chunk(NamedTuple):
    """Problems and samples of a chunk; it always holds one step."""

    problems: int
    samples: int


#: Where nobody planned: constant, so that it cannot depend on which samples came first.
UNPLANNED: Final = Chunk(1024, 1024)


@dataclass(frozen=True)
class Grid:
    """Axes and chunks of one arm on one problem set.

    ``model``: name of the model line. ``problems, steps``: in the order in which they were first
    asked for. ``n``: length of the sample axis: the most samples that any cell has or is asked for.
    ``chunk``: follows from the problems and n that are asked for, never from what was asked for
    first. ``fingerprints, counts``: what is asked for now, and how many samples of it, by (step,
    problem). Samples with another fingerprint no longer count. ``provenance``: what the samples
    stand on (content hashes, revisions, versions, image digest …): JSON values that are the same
    whenever the study is run again.
    """

    model: str
    problems: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    n: int = 0
    chunk: Chunk = UNPLANNED
    fingerprints: Mapping[tuple[int, str], int] = field(default_factory=dict)
    counts: Mapping[tuple[int, str], int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sample_chunks(self) -> int:
        """Chunks along the sample axis."""
        return max(1, -(-self.n // self.chunk.samples))

    @property
    def chunk_rows(self) -> int:
        """Chunks along the problem axis."""
        return -(-len(self.problems) // self.chunk.problems)

    def problems_of_row(self, chunk_row: int) -> tuple[str, ...]:
        """Problems of one row of chunks."""
        first = chunk_row * self.chunk.problems
        return self.problems[first : first + self.chunk.problems]

    def grown(self, cells: Mapping[Cell, int]) -> Grid:
        """Return a grid that also asks for these cells. Nothing leaves and nothing moves.

        A *cell* is one problem at one step, with the fingerprint (hash) of the request; ``cells``
        has the number of samples asked for of each. New problems and steps go behind the old ones,
        and stay in that order for good. A cell that is asked for already gets the new fingerprint,
        and the larger number of the two.
        """
        fingerprints = dict(self.fingerprints)
        counts = dict(self.counts)
        # Dictionaries without values: they keep the order in which labels came.
        problems = dict.fromkeys(self.problems)
        steps = dict.fromkeys(self.steps)
        for cell, n in cells.items():
            problems[cell.problem] = None
            steps[cell.step] = None
            key = (cell.step, cell.problem)
            fingerprints[key] = cell.fingerprint
            counts[key] = max(n, counts.get(key, 0))
        longest = max([self.n, *counts.values()])
        return replace(
            self,
            problems=tuple(problems),
            steps=tuple(steps),
            n=longest,
            chunk=_planned_chunk(len(problems), longest),
            fingerprints=fingerprints,
            counts=counts,
        )

    def covering(self, present: Mapping[Cell, int]) -> Grid:
        """Return a grid that also has room for samples that are there although nobody planned them.

        ``present``: highest sample index of each cell with samples, where a *cell* is one problem
        at one step under one fingerprint, the hash of the request. Only samples of the fingerprint
        that counts for their step and problem get a place. For a planned one that is the plan's
        fingerprint, otherwise that of its samples; two different ones without a plan are an error.

        New problems, in natural order, and new steps, ascending, stand behind those that were
        planned.
        """
        unplanned: dict[tuple[int, str], int] = {}
        n = self.n
        for cell, last_sample in present.items():
            key = (cell.step, cell.problem)
            counted = self.fingerprints.get(key)
            if counted is None:
                counted = unplanned.setdefault(key, cell.fingerprint)
                if counted != cell.fingerprint:
                    raise UserError(
                        f"{cell.problem} at step {cell.step} has samples of two different requests "
                        f"(fingerprints {counted} and {cell.fingerprint}) and no plan says which "
                        "one counts; run `rlbhpc sample` on the study, or keep the two in folders "
                        "of their own"
                    )
            if counted == cell.fingerprint:
                n = max(n, last_sample + 1)
        new_problems = {problem for _, problem in unplanned} - set(self.problems)
        new_steps = {step for step, _ in unplanned} - set(self.steps)
        return replace(
            self,
            problems=(*self.problems, *sorted(new_problems, key=natural_order)),
            steps=(*self.steps, *sorted(new_steps)),
            n=n,
            fingerprints=dict(self.fingerprints) | unplanned,
        )

    def cells(self, arm: str) -> dict[Cell, int]:
        """All cells that are asked for, in the grid's order, with the number of samples of each.

        A *cell* is one problem at one step of an arm, with the fingerprint (hash) of its request.
        """
        return {
            Cell(arm, step, problem, self.fingerprints[step, problem]): self.counts[step, problem]
            for step in self.steps
            for problem in self.problems
            if (step, problem) in self.fingerprints
        }

    def extends(self, older: Grid) -> bool:
        """Whether every cell of ``older`` has the same place in the same chunk here.

        If so, chunk files of the older cube can be reused as they are.
        """
        return (
            self.chunk == older.chunk
            and self.problems[: len(older.problems)] == older.problems
            and self.steps[: len(older.steps)] == older.steps
            and self.n >= older.n
        )

    def save(self, path: Path) -> None:
        """Write the grid to a JSON file, replacing an older one in one step.

        ``cells`` has a row for each problem with ``[fingerprint, count]`` for each step: the hash
        of what is asked for, and how many samples of it. ``[-1, 0]`` stands where nothing is asked
        for.
        """
        not_requested = [-1, 0]
        cells = {problem: [not_requested] * len(self.steps) for problem in self.problems}
        step_index = {step: index for index, step in enumerate(self.steps)}
        for (step, problem), fingerprint in self.fingerprints.items():
            cells[problem][step_index[step]] = [fingerprint, self.counts[step, problem]]
        values = {
            "model": self.model,
            "n": self.n,
            "chunk": self.chunk,
            "steps": self.steps,
            "cells": cells,
            "provenance": dict(self.provenance),
        }
        checked.write(path, values)

    @classmethod
    def load(cls, path: Path) -> Grid | None:
        """Read the grid that :meth:`save` wrote; None if there is no file, that is, no plan.

        The file has for each problem and step ``[fingerprint, count]``: the hash of what is asked
        for, and how many samples of it. A negative fingerprint stands where nothing is asked for.
        """
        try:
            values = checked.read(path)
            fingerprints: dict[tuple[int, str], int] = {}
            counts: dict[tuple[int, str], int] = {}
            for problem, row in values["cells"].items():
                for step, (fingerprint, count) in zip(values["steps"], row, strict=True):
                    if fingerprint >= 0:
                        fingerprints[step, problem] = fingerprint
                        counts[step, problem] = count
            return cls(
                model=values["model"],
                problems=tuple(values["cells"]),
                steps=tuple(values["steps"]),
                n=values["n"],
                chunk=_planned_chunk(len(values["cells"]), values["n"]),
                fingerprints=fingerprints,
                counts=counts,
                provenance=values["provenance"],
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: damaged ({error}); remove it, and `rlbhpc sample` or `launch` of the "
                "study writes it again"
            ) from error


def _planned_chunk(problems: int, n: int) -> Chunk:
    """Chunks of about a million cells; a step of a small study is one.

    A study that grows gets larger chunks until they hold so many, and only adds chunks from then
    on. A small first try therefore leaves no trace in the layout. Few samples of very many problems
    are one chunk, too.
    """
    max_problems = max(UNPLANNED.problems, CHUNK_CELLS // max(1, n))
    chunk_problems = max(1, min(problems, max_problems))
    chunk_samples = max(1, min(n, CHUNK_CELLS // chunk_problems))
    return Chunk(chunk_problems, chunk_samples)


def request_samples(
    layout: Layout,
    arm: str,
    problem_set: str,
    model: str,
    cells: Mapping[Cell, int],
    provenance: Mapping[str, Any],
    keep: Sequence[str] = (),
) -> None:
    """Record in the saved grid what is asked of an arm on a problem set, beside earlier requests.

    Whoever plans calls this before the first sample is drawn, and again whenever the study has
    grown.

    ``model``: name of the model line. ``cells``: how many samples are asked for of each cell (a
    problem at a step, with the hash of its request), in the order of the problem set and the steps.
    ``provenance``: what the samples stand on; it replaces the one before, but keys in ``keep`` keep
    their old value where it does not have them.
    """
    path = layout.grid(arm, problem_set)
    old_grid = Grid.load(path)
    if old_grid is None and not cells:
        return
    grid = (old_grid or Grid(model)).grown(cells)
    new_provenance = dict(provenance)
    # Behind the others, where they stand when they are new: the order is in the cube's bytes.
    for key in keep:
        if key in grid.provenance:
            new_provenance.setdefault(key, grid.provenance[key])
    grid = replace(grid, provenance=new_provenance)
    if grid != old_grid:
        grid.save(path)


def seal_units(arm: str, grid: Grid) -> Iterator[tuple[Cell, ...]]:
    """Cut a grid into units: problems at one step whose samples will share one file, a *part*.

    Gives the cells of each unit, in the grid's order. A *cell* is one problem at one step, with the
    fingerprint (hash) of its request. A unit has about 16,000 samples, or more in a grid so large
    that there would be over 256 units.
    """
    total_samples = len(grid.fingerprints) * grid.n
    unit_samples = max(_UNIT_SAMPLES, math.ceil(total_samples / _MAX_UNITS))
    # n samples of each problem: so many problems fill a unit.
    unit_problems = max(1, unit_samples // max(1, grid.n))
    for step in grid.steps:
        for first in range(0, len(grid.problems), unit_problems):
            unit = tuple(
                Cell(arm, step, problem, grid.fingerprints[step, problem])
                for problem in grid.problems[first : first + unit_problems]
                if (step, problem) in grid.fingerprints
            )
            if unit:
                yield unit


def natural_order(problem: str) -> list[str | int]:
    """Sort key by which ``set/10`` comes after ``set/9``."""
    # The pieces are texts and numbers in turn.
    pieces = re.split(r"(\d+)", problem)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces)]
