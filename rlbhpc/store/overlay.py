"""What journals and new parts add to a group of the cube since it was compacted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import band, cube_schema
from rlbhpc.store.cube_schema import STRING, Variable
from rlbhpc.store.grid import Grid
from rlbhpc.store.lazy import LazyArray, Patch, Region, Stored, patched, variable
from rlbhpc.store.listing import FAILED
from rlbhpc.store.sources import Rows

# What decides where a row stands and whether it counts; all of it in a journal's index.
_PLACING: Final = ("step", "problem", "sample", "fingerprint", "verdict")


class Overlay:
    """A view on one group: the cube's arrays with newer samples laid over them.

    Problems and steps that the cube does not have yet stand behind those it has.

    Parameters
    ----------
    rows
        The samples of the group.
    base
        Axes of the cube's group; None if it has none yet.
    arrays
        The cube's arrays by name.
    fresh
        Names of the files that the cube does not hold, or not wholly.
    """

    def __init__(
        self, rows: Rows, base: Grid | None, arrays: Mapping[str, Stored], fresh: Sequence[str]
    ) -> None:
        self._rows = rows
        self._arrays = arrays
        self._fresh = fresh
        planned = rows.planned()
        grid = base or planned or Grid(rows.group.arm, (), (), 0)
        if planned:
            grid = replace(
                grid.grown(planned.cells(), planned.n),
                model=planned.model,
                provenance=planned.provenance,
            )
        self.grid = grid.covering(rows.cells(fresh))
        self._stale = self._changed(base) if base else np.zeros(self._shape, bool)

    def dataset(self) -> xr.Dataset:
        """Build the Dataset of the view."""
        grid = self.grid
        problems, steps = self._shape
        shapes = {
            cube_schema.SAMPLES: (problems, grid.n, steps),
            cube_schema.BLOCKS: (problems, grid.blocks, steps),
            cube_schema.CELLS: (problems, steps),
        }
        chunks = {"problem": grid.chunk.problems, "sample": grid.chunk.samples}
        variables = {
            spec.name: variable(
                spec.dims,
                LazyArray(self._reader(spec), shapes[spec.dims], spec.dtype),
                dict(spec.attrs),
                tuple(chunks.get(dim, 1) for dim in spec.dims),
            )
            for spec in (*cube_schema.SAMPLE_VARIABLES, *cube_schema.CELL_VARIABLES)
        }
        values = {
            "problem": np.array(grid.problems, STRING),
            "step": np.array(grid.steps, np.int32),
            "arm": np.array(self._rows.group.arm, STRING),
            "model": np.array(grid.model, STRING),
            "problem_set": np.array(self._rows.group.problem_set, STRING),
            "guessable": np.full(problems, cube_schema.GUESSABLE.fill, cube_schema.GUESSABLE.dtype),
        }
        coordinates = {
            spec.name: xr.Variable(spec.dims, values[spec.name], dict(spec.attrs))
            for spec in cube_schema.COORDINATES
        }
        attrs = {
            "kind": "samples",
            "schema_version": cube_schema.SCHEMA_VERSION,
            "provenance": dict(grid.provenance),
        }
        return xr.Dataset(variables, coordinates, attrs)

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.grid.problems), len(self.grid.steps)

    def _reader(self, spec: Variable) -> Callable[[Region], NDArray[Any]]:
        if spec.name == "fingerprint":
            return lambda region: self._asked[_slices(region)]
        if spec in cube_schema.COUNT_VARIABLES:
            return lambda region: self._counts[spec.name][_slices(region)]
        if spec.name == "vocabulary":
            return self._read_vocabulary
        new = self._answer_patch if spec.name == "answer" else partial(self._patch, spec.name)
        return patched(self._arrays.get(spec.name), new, spec.dtype, spec.fill)

    @cached_property
    def _asked(self) -> NDArray[np.int64]:
        """Fingerprint of what is asked for, by problem and step."""
        asked = self.grid.fingerprints
        return np.array(
            [[asked.get((s, p), -1) for s in self.grid.steps] for p in self.grid.problems],
            np.int64,
        ).reshape(self._shape)

    def _changed(self, base: Grid) -> NDArray[np.bool_]:
        """Cells whose samples in the cube were drawn for another request."""
        old, new = base.fingerprints, self.grid.fingerprints
        return np.array(
            [
                [old.get((s, p), -1) not in {-1, new.get((s, p), -1)} for s in self.grid.steps]
                for p in self.grid.problems
            ],
            bool,
        ).reshape(self._shape)

    def _place(self, columns: Sequence[str]) -> tuple[pa.Table, NDArray[np.int64]]:
        """Read new rows that count, and their indices along the three dimensions."""
        try:
            rows = self._rows.read(tuple({*_PLACING, *columns}), names=self._fresh)
        except FileNotFoundError as error:
            raise UserError(
                f"{error.filename} was sealed and removed since the cube was opened; open it again",
                TRY_AGAIN,
            ) from error
        problem, known = band.positions(rows["problem"], self.grid.problems)
        place = {step: i for i, step in enumerate(self.grid.steps)}
        step = np.array([place.get(s, -1) for s in rows["step"].to_pylist()], np.int64)
        sample = band.numbers(rows["sample"]).astype(np.int64)
        known &= (step >= 0) & (sample < self.grid.n)
        known &= self._asked[problem, step] == band.numbers(rows["fingerprint"])
        rows, cells = rows.filter(pa.array(known)), np.stack([problem, sample, step], 1)[known]
        left = ~self._outdone(rows, cells)
        return rows.filter(pa.array(left)), cells[left]

    def _outdone(self, rows: pa.Table, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Rows of failed attempts at samples that the cube has from one that worked."""
        below = self._arrays.get("verdict")
        if below is None:
            return np.zeros(len(cells), bool)
        outdone: NDArray[np.bool_] = np.isin(band.numbers(rows["verdict"]), FAILED)
        for step in np.unique(cells[outdone, 2]).tolist():
            here = np.flatnonzero(outdone & (cells[:, 2] == step))
            problem, sample, _ = cells[here].T
            first = int(problem.min())
            region = ((first, int(problem.max()) + 1), (0, self.grid.n), (step, step + 1))
            held = below(region)[problem - first, sample, 0]
            outdone[here] = (held >= 0) & ~np.isin(held, FAILED) & ~self._stale[problem, step]
        return outdone

    @cached_property
    def _new(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """All that a journal's index knows of the new samples."""
        return self._place([name for name in band.COLUMNS if name != "answer"])

    @cached_property
    def _answers(self) -> tuple[NDArray[np.int64], list[str]]:
        """Cells with a new answer, and the answers; read late, for they stand with the texts."""
        rows, cells = self._place(["answer"])
        return cells, rows["answer"].to_pylist()

    def _patch(self, name: str) -> Patch:
        rows, cells = self._new
        return Patch(self._stale, cells, band.numbers(rows[name]))

    def _answer_patch(self) -> Patch:
        cells, texts = self._answers
        ids = [cube_schema.answer_id(text) if text else -1 for text in texts]
        return Patch(self._stale, cells, np.array(ids, np.int64))

    def _read_vocabulary(self, region: Region) -> NDArray[Any]:
        below = self._arrays.get("vocabulary")
        values = patched(below, self._nothing, STRING, "")(region)
        first = [start for start, _ in region]
        for at, words in self._vocabulary.items():
            local = tuple(i - start for i, start in zip(at, first, strict=True))
            if all(0 <= i < size for i, size in zip(local, values.shape, strict=True)):
                known = json.loads(str(values[local]) or "{}")
                values[local] = band.vocabulary({int(i): t for i, t in known.items()} | words)
        return values

    def _nothing(self) -> Patch:
        return Patch(self._stale, np.empty((0, 3), np.int64), np.empty(0, STRING))

    @cached_property
    def _vocabulary(self) -> dict[tuple[int, int, int], dict[int, str]]:
        """What new answers add to the vocabularies, by problem, block and step."""
        cells, texts = self._answers
        added: dict[tuple[int, int, int], dict[int, str]] = {}
        for (problem, sample, step), text in zip(cells.tolist(), texts, strict=True):
            words = added.setdefault((problem, sample // self.grid.chunk.samples, step), {})
            if text:
                words[cube_schema.answer_id(text)] = text
        return added

    @cached_property
    def _counts(self) -> dict[str, NDArray[np.int32]]:
        """Counts: those of the cube, taken anew where something changed."""
        whole = tuple((0, size) for size in self._shape)
        counts = {}
        for name in ("n", "c"):
            below = self._arrays.get(name)
            counts[name] = below(whole) if below else np.zeros(self._shape, np.int32)
            # The cube has no entry for what was not there when it was compacted.
            counts[name][counts[name] < 0] = 0
        changed = self._stale.copy()
        _, cells = self._new
        changed[cells[:, 0], cells[:, 2]] = True
        verdict = self._reader(cube_schema.SAMPLE_VARIABLES[0])
        for step in np.flatnonzero(changed.any(axis=0)).tolist():
            problems = np.flatnonzero(changed[:, step])
            first, last = int(problems[0]), int(problems[-1])
            region = ((first, last + 1), (0, self.grid.n), (step, step + 1))
            n, c = band.counts(verdict(region).astype(np.int8), axis=1)
            counts["n"][problems, step] = n[problems - first, 0]
            counts["c"][problems, step] = c[problems - first, 0]
        return counts


def _slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(*bounds) for bounds in region)
