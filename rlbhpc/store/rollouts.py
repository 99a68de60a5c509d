"""Rollouts of a training: immutable parts beside its state, and two groups of the cube.

A part holds the rows of some steps and is named ``<first>-<last>-<digest>.parquet``. It is written
before the training state of its last step: a kill in between leaves rows that no state knows of,
which the run drops when it goes on, and makes again. A part grows by being written anew with the
steps since, up to :data:`PART_ROWS`; its predecessor goes once the state is saved.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import checked, cube, cube_schema
from rlbhpc.store.step_log import lines
from rlbhpc.study.layout import Layout, entries

if TYPE_CHECKING:
    import zarr

#: One row per response that was sampled. ``rollout`` counts those of a problem in a step,
#: ``advantage`` is the mean over its tokens, NaN where nothing was learnt from it.
ROWS: Final = pa.schema(
    [
        ("train_step", pa.int32()),
        ("problem", pa.string()),
        ("rollout", pa.int32()),
        *((v.name, pa.from_numpy_dtype(v.dtype)) for v in cube_schema.ROLLOUT_VARIABLES),
    ]
)
PART_ROWS: Final = 1 << 18
_STEP: Final = "[0-9]" * 8
_NAMES: Final = f"{_STEP}-{_STEP}-*{checked.PARQUET}"
_TRIES: Final = 5
# Cells of a chunk of the cube.
_CELLS: Final = 1 << 21


def add(folder: Path, rows: pa.Table) -> None:
    """Write the rows of the steps since the newest part."""
    steps = rows["train_step"].to_numpy()
    first, last = int(steps.min()), int(steps.max())
    newest = max(parts(folder), key=_steps, default=None)
    if newest is not None and (before := _read(newest)).num_rows < PART_ROWS:
        first, rows = _steps(newest)[0], pa.concat_tables([before, rows])
    checked.put_parquet(folder, rows.cast(ROWS), f"{first:08d}-{last:08d}-")


def settle(folder: Path, step: int) -> None:
    """Drop what lies behind the training state of ``step``, and parts that another contains."""
    for path in _all_parts(folder):
        if _steps(path)[1] > step:
            path.unlink()
    kept = parts(folder)
    for path in set(_all_parts(folder)) - set(kept):
        path.unlink()


def parts(folder: Path) -> list[Path]:
    """Parts in the order of their steps, without those that another contains."""
    paths = sorted(_all_parts(folder), key=lambda path: (_steps(path)[0], -_steps(path)[1]))
    kept: list[Path] = []
    for path in paths:
        if not kept or _steps(path)[1] > _steps(kept[-1])[1]:
            kept.append(path)
    return kept


def _all_parts(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.match(_NAMES)]


def read(folder: Path) -> pa.Table:
    """All rows of a training, in the order of their steps."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # a training has just put one part in another's place
            return pa.concat_tables([ROWS.empty_table(), *map(_read, parts(folder))])
    raise UserError(f"{folder}: keeps changing; try again", TRY_AGAIN)


def inputs(layout: Layout) -> dict[str, str]:
    """Files that the groups are made of, with a mark that changes with their content."""
    marks = {
        path: checked.digest_of_bytes(path.read_bytes()) for path in layout.dynamics().values()
    }
    for model in layout.dynamics():
        marks |= {path: checked.digest_of_name(path) for path in parts(layout.rollouts(model))}
    return {path.relative_to(layout.root).as_posix(): mark for path, mark in marks.items()}


def write_groups(root: zarr.Group, layout: Layout) -> None:
    """Write ``training/<model>`` and ``rollouts/<model>`` of every training of a run."""
    for model, path in sorted(layout.dynamics().items()):
        steps = lines(path)
        if steps:
            _write_curve(root, model, steps)
        table = read(layout.rollouts(model))
        if len(table):
            _write_rollouts(root, model, table)


def _write_curve(root: zarr.Group, model: str, lines: list[dict[str, Any]]) -> None:
    names = sorted({name for line in lines for name in line} - {"step"})
    variables = [cube_schema.training_variable(name) for name in names]
    values: dict[str, Any] = {"train_step": [line["step"] for line in lines], "model": model}
    for name, variable in zip(names, variables, strict=True):
        values[variable.name] = [line.get(name, np.nan) for line in lines]
    described = [*cube_schema.TRAINING_COORDINATES, *variables]
    kind = cube_schema.TRAINING
    cube.create_table(root, f"{kind}/{model}", kind, described, values)


def _write_rollouts(root: zarr.Group, model: str, table: pa.Table) -> None:
    step, problem, rollout = (
        table[name].to_numpy() for name in ("train_step", "problem", "rollout")
    )
    steps, at_step = np.unique(step, return_inverse=True)
    problems, at_problem = np.unique(problem.astype(str), return_inverse=True)
    sizes = {"problem": len(problems), "rollout": int(rollout.max()) + 1}
    sizes["train_step"] = len(steps)
    slab = max(1, _CELLS // (sizes["problem"] * sizes["rollout"]))
    chunks = dict(sizes, train_step=slab)
    kind, variables = cube_schema.ROLLOUTS, cube_schema.ROLLOUT_VARIABLES
    group = cube.create_group(root, f"{kind}/{model}", kind, {})
    cube.create_arrays(group, [*cube_schema.ROLLOUT_COORDINATES, *variables], sizes, chunks)
    cube.write(group, "problem", problems)
    cube.write(group, "train_step", steps)
    cube.write(group, "model", model)
    for first in range(0, len(steps), slab):
        rows = (at_step >= first) & (at_step < first + slab)
        width = min(slab, len(steps) - first)
        where = (at_problem[rows], rollout[rows], at_step[rows] - first)
        for variable in variables:
            array = np.full(
                (sizes["problem"], sizes["rollout"], width), variable.fill, variable.dtype
            )
            array[where] = table[variable.name].to_numpy()[rows]
            cube.write_region(group, variable.name, (..., slice(first, first + width)), array)


def _steps(path: Path) -> tuple[int, int]:
    first, last = path.stem.split("-")[:2]
    return int(first), int(last)


def _read(path: Path) -> pa.Table:
    remedy = "remove it: its steps will be missing from the cube, and training needs none of it"
    return checked.read_parquet(path, ROWS, remedy)
