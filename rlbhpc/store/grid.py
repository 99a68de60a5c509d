"""The noun *Grid*: the axes of one group of the cube, and how it is cut into chunks.

Whoever plans a study writes the grid of each arm and problem set before the first sample. With
it, the cube's shape, order and chunks follow from what was asked for and not from which samples
came first: an interrupted run ends with the same bytes, and a study that grows in steps, or beyond
a million samples a step, only adds chunk files. Where no grid was written (imported samples), one
is derived from the samples alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout

# Samples per sealed part: a checkpoint of 10⁶ has 64 parts.
_UNIT_ROWS: Final = 1 << 14
# Units of a larger grid: even 10⁸ samples have some 250 parts.
_UNITS: Final = 256
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
    def blocks(self) -> int:
        """Chunks along the sample axis."""
        return max(1, -(-self.n // self.chunk.samples))

    @property
    def rows(self) -> int:
        """Chunks along the problem axis."""
        return -(-len(self.problems) // self.chunk.problems)

    def row(self, row: int) -> tuple[str, ...]:
        """Problems of one row of chunks."""
        first = row * self.chunk.problems
        return self.problems[first : first + self.chunk.problems]

    def grown(self, cells: Mapping[Cell, int]) -> Grid:
        """Ask for so many samples of some cells as well. Nothing leaves, nothing moves.

        The order of new cells is that of the cube, for good. A cell that is asked for already gets
        the new fingerprint, and the larger n of the two.
        """
        fingerprints, counts = dict(self.fingerprints), dict(self.counts)
        problems, steps = dict.fromkeys(self.problems), dict.fromkeys(self.steps)
        for cell, n in cells.items():
            problems[cell.problem] = steps[cell.step] = None
            key = (cell.step, cell.problem)
            fingerprints[key] = cell.fingerprint
            counts[key] = max(n, counts.get(key, 0))
        most = max([self.n, *counts.values()])
        return replace(
            self,
            problems=tuple(problems),
            steps=tuple(steps),
            n=most,
            chunk=_planned_chunk(len(problems), most),
            fingerprints=fingerprints,
            counts=counts,
        )

    def covering(self, present: Mapping[Cell, int]) -> Grid:
        """Extend to samples that are there although nobody planned them.

        They stand behind what was planned, problems in natural order and steps ascending. A
        planned cell keeps its fingerprint; one without a plan takes that of its samples, and two
        different ones are an error: nothing says which of them counts.

        ``present``: highest sample index of each cell that has samples.
        """
        unplanned: dict[tuple[int, str], int] = {}
        n = self.n
        for (_, step, problem, fingerprint), last in present.items():
            required = self.fingerprints.get((step, problem))
            if required is None:
                required = unplanned.setdefault((step, problem), fingerprint)
                if required != fingerprint:
                    raise UserError(
                        f"{problem} at step {step} has samples of two different requests "
                        f"(fingerprints {required} and {fingerprint}) and no plan says which one "
                        "counts; run `rlbhpc sample` on the study, or keep the two in folders of "
                        "their own"
                    )
            if required == fingerprint:
                n = max(n, last + 1)
        problems = sorted({p for _, p in unplanned} - set(self.problems), key=natural_order)
        steps = sorted({s for s, _ in unplanned} - set(self.steps))
        return replace(
            self,
            problems=(*self.problems, *problems),
            steps=(*self.steps, *steps),
            n=n,
            fingerprints=dict(self.fingerprints) | unplanned,
        )

    def cells(self, arm: str) -> dict[Cell, int]:
        """All that is asked for, in the order to keep, with the samples of each."""
        return {
            Cell(arm, step, problem, self.fingerprints[step, problem]): self.counts[step, problem]
            for step in self.steps
            for problem in self.problems
            if (step, problem) in self.fingerprints
        }

    def extends(self, older: Grid) -> bool:
        """Whether every cell of ``older`` has the same place in the same chunk here."""
        return (
            self.chunk == older.chunk
            and self.problems[: len(older.problems)] == older.problems
            and self.steps[: len(older.steps)] == older.steps
            and self.n >= older.n
        )

    def save(self, path: Path) -> None:
        """Write the grid, replacing an older one in one step."""
        index = {step: i for i, step in enumerate(self.steps)}
        rows = {problem: [[-1, 0]] * len(self.steps) for problem in self.problems}
        for (step, problem), fingerprint in self.fingerprints.items():
            rows[problem][index[step]] = [fingerprint, self.counts[step, problem]]
        values = {
            "model": self.model,
            "n": self.n,
            "chunk": self.chunk,
            "steps": self.steps,
            "cells": rows,
            "provenance": dict(self.provenance),
        }
        checked.write(path, values)

    @classmethod
    def load(cls, path: Path) -> Grid | None:
        """Read a grid; None if none was planned."""
        try:
            values = checked.read(path)
            steps = tuple(values["steps"])
            n: int = values["n"]
            rows: Mapping[str, Sequence[tuple[int, int]]] = values["cells"]
            fingerprints = {
                (step, problem): cell
                for problem, row in rows.items()
                for step, cell in zip(steps, row, strict=True)
                if cell[0] >= 0
            }
            return cls(
                values["model"],
                tuple(rows),
                steps,
                n,
                _planned_chunk(len(rows), n),
                {key: fingerprint for key, (fingerprint, _) in fingerprints.items()},
                {key: n for key, (_, n) in fingerprints.items()},
                values["provenance"],
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
    most_rows = max(UNPLANNED.problems, CHUNK_CELLS // max(1, n))
    rows = max(1, min(problems, most_rows))
    return Chunk(rows, max(1, min(n, CHUNK_CELLS // rows)))


def request_samples(
    layout: Layout,
    arm: str,
    problem_set: str,
    model: str,
    cells: Mapping[Cell, int],
    provenance: Mapping[str, Any],
    keep: Sequence[str] = (),
) -> None:
    """Record what is asked of an arm and problem set now, beside what was asked before.

    Whoever plans calls this before the first sample is drawn, and again whenever the study has
    grown.

    ``cells``: samples asked for of each cell, in the order of the problem set and the steps.
    ``provenance``: replaces the one before; keys in ``keep`` stay where it does not have them.
    """
    path = layout.grid(arm, problem_set)
    old = Grid.load(path)
    if old is None and not cells:
        return
    grid = (old or Grid(model)).grown(cells)
    earlier = {key: grid.provenance[key] for key in keep if key in grid.provenance}
    # Behind the others, where they stand when they are new: the order is in the cube's bytes.
    grid = replace(grid, provenance={**provenance, **earlier, **provenance})
    if grid != old:
        grid.save(path)


def seal_units(arm: str, grid: Grid) -> Iterator[tuple[Cell, ...]]:
    """Cut a grid into units, problems at one step that share a part, in the grid's order."""
    total = len(grid.fingerprints) * grid.n
    rows = max(_UNIT_ROWS, -(-total // _UNITS))
    size = max(1, rows // max(1, grid.n))
    for step in grid.steps:
        for first in range(0, len(grid.problems), size):
            unit = tuple(
                Cell(arm, step, problem, grid.fingerprints[step, problem])
                for problem in grid.problems[first : first + size]
                if (step, problem) in grid.fingerprints
            )
            if unit:
                yield unit


def natural_order(problem: str) -> list[str | int]:
    """Sort key by which ``set/10`` comes after ``set/9``."""
    return [int(x) if i % 2 else x for i, x in enumerate(re.split(r"(\d+)", problem))]
