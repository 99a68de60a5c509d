"""Tables beside the samples, each with a group of its own in the cube.

======== ===================================== ==============================================
kind     where, below ``Layout.tables(kind)``  what
======== ===================================== ==============================================
counts   ``<arm>/<set>.json``                  (n, c) per problem and step, imported
scores   ``<source>/<set>/<scorer>/*.parquet`` log-probability of texts under a model
======== ===================================== ==============================================

The JSON files are replaced whole and carry a checksum. Parquet files of scores are immutable,
their digest is their name, and any number of them adds up.

Trainings have step logs, one JSON object a line, and rollouts beside their state.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import checked, cube, cube_schema, left_out
from rlbhpc.store.grid import Grid, natural_order
from rlbhpc.store.left_out import Note
from rlbhpc.study.layout import Layout, entries

if TYPE_CHECKING:
    import zarr


# --- step logs and rollouts of a training --------------------------------------------------------
#
# A part holds the rows of some steps and is named ``<first>-<last>-<digest>.parquet``. It is
# written before the training state of its last step: a kill in between leaves rows that no state
# knows of, which the run drops when it goes on, and makes again. A part grows by being written
# anew with the steps since, up to :data:`PART_ROWS`; its predecessor goes once the state is saved.


def log_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a log without a line that is being written now; none without a file.

    Every line before the last was whole when it was written: a damaged one is told and left out.
    """
    rows: list[dict[str, Any]] = []
    notes: list[Note] = []
    written = path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(written, 1):
        try:
            row = json.loads(line)
            rows.append({"step": row.pop("step"), **row})
        except (ValueError, AttributeError, LookupError, TypeError):
            if number < len(written):
                notes.append(Note(left_out.DAMAGED, f"{path}: line {number} is damaged"))
    left_out.warn_left_out(path.parent, notes)
    return rows


#: One row per response that was sampled. ``rollout`` counts those of a problem in a step,
#: ``advantage`` is the mean over its tokens, NaN where nothing was learnt from it.
ROLLOUT_ROWS: Final = pa.schema(
    [
        ("train_step", pa.int32()),
        ("problem", pa.string()),
        ("rollout", pa.int32()),
        *((v.name, pa.from_numpy_dtype(v.dtype)) for v in cube_schema.ROLLOUT_VARIABLES),
    ]
)
PART_ROWS: Final = 1 << 18
_EIGHT_DIGITS: Final = "[0-9]" * 8
_NAMES: Final = f"{_EIGHT_DIGITS}-{_EIGHT_DIGITS}-*{checked.PARQUET}"
_TRIES: Final = 5
# Cells of a chunk of the cube.
_CHUNK_CELLS: Final = 1 << 21


def add_rollouts(folder: Path, rows: pa.Table) -> None:
    """Write the rows of the steps since the newest part."""
    steps = rows["train_step"].to_numpy()
    first, last = int(steps.min()), int(steps.max())
    newest = max(rollout_parts(folder), key=_steps_of_part, default=None)
    if newest is not None and (before := _read_rollout_part(newest)).num_rows < PART_ROWS:
        first, rows = _steps_of_part(newest)[0], pa.concat_tables([before, rows])
    checked.put_parquet(folder, rows.cast(ROLLOUT_ROWS), f"{first:08d}-{last:08d}-")


def settle_rollouts(folder: Path, step: int) -> None:
    """Drop what lies behind the training state of ``step``, and parts that another contains."""
    for path in _all_parts(folder):
        if _steps_of_part(path)[1] > step:
            path.unlink()
    kept = rollout_parts(folder)
    for path in set(_all_parts(folder)) - set(kept):
        path.unlink()


def rollout_parts(folder: Path) -> list[Path]:
    """Parts in the order of their steps, without those that another contains."""
    paths = sorted(
        _all_parts(folder), key=lambda path: (_steps_of_part(path)[0], -_steps_of_part(path)[1])
    )
    kept: list[Path] = []
    for path in paths:
        if not kept or _steps_of_part(path)[1] > _steps_of_part(kept[-1])[1]:
            kept.append(path)
    return kept


def _all_parts(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.match(_NAMES)]


def read_rollouts(folder: Path) -> pa.Table:
    """All rows of a training, in the order of their steps."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # a training has just put one part in another's place
            return pa.concat_tables(
                [ROLLOUT_ROWS.empty_table(), *map(_read_rollout_part, rollout_parts(folder))]
            )
    raise UserError(f"{folder}: keeps changing; try again", TRY_AGAIN)


def _training_inputs(layout: Layout) -> dict[str, str]:
    """Files that the groups are made of, with a mark that changes with their content."""
    marks = {
        path: checked.digest_of_bytes(path.read_bytes()) for path in layout.dynamics().values()
    }
    for model in layout.dynamics():
        marks |= {
            path: checked.digest_of_name(path) for path in rollout_parts(layout.rollouts(model))
        }
    return {path.relative_to(layout.root).as_posix(): mark for path, mark in marks.items()}


def _write_trainings(root: zarr.Group, layout: Layout) -> None:
    """Write ``training/<model>`` and ``rollouts/<model>`` of every training of a run."""
    for model, path in sorted(layout.dynamics().items()):
        steps = log_lines(path)
        if steps:
            _write_curve(root, model, steps)
        table = read_rollouts(layout.rollouts(model))
        if len(table):
            _write_rollouts(root, model, table)


def _write_curve(root: zarr.Group, model: str, log_lines: list[dict[str, Any]]) -> None:
    names = sorted({name for line in log_lines for name in line} - {"step"})
    variables = [cube_schema.training_variable(name) for name in names]
    values: dict[str, Any] = {"train_step": [line["step"] for line in log_lines], "model": model}
    for name, variable in zip(names, variables, strict=True):
        values[variable.name] = [line.get(name, np.nan) for line in log_lines]
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
    slab = max(1, _CHUNK_CELLS // (sizes["problem"] * sizes["rollout"]))
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


def _steps_of_part(path: Path) -> tuple[int, int]:
    first, last = path.stem.split("-")[:2]
    return int(first), int(last)


def _read_rollout_part(path: Path) -> pa.Table:
    remedy = "remove it: its steps will be missing from the cube, and training needs none of it"
    return checked.read_parquet(path, ROLLOUT_ROWS, remedy)


# --- counts and scores ---------------------------------------------------------------------------


COUNTS: Final = "counts"
SCORES: Final = cube_schema.SCORES

#: Rows of a scores file. ``step`` is that of the model that wrote the text, 0 for a file;
#: ``request`` is a fingerprint of text and scorer, which tells whether a score is still asked for.
SCORE_ROWS: Final = pa.schema(
    [
        ("problem", pa.string()),
        ("sample", pa.int32()),
        ("step", pa.int32()),
        ("scorer_step", pa.int32()),
        ("n_tokens", pa.int32()),
        ("logprob_sum", pa.float64()),
        ("entropy_sum", pa.float64()),
        ("request", pa.int64()),
    ]
)
_JSON: Final = ".json"
# Key of the metadata of a scores file: the place that it was written for.
_PLACE: Final = b"place"


def counts_file(layout: Layout, arm: str, problem_set: str) -> Path:
    """Where the imported counts of an arm on a problem set are."""
    return layout.tables(COUNTS) / arm / f"{problem_set}{_JSON}"


def put_counts(
    layout: Layout,
    arm: str,
    problem_set: str,
    model: str,
    counts: Mapping[tuple[int, str], tuple[int, int]],
) -> int:
    """Store (n, c) by (step, problem) beside what is there; how many are new.

    Another value for one that is there is an error.
    """
    path = counts_file(layout, arm, problem_set)
    merged: dict[tuple[int, str], tuple[int, int]] = {}
    if path.exists():
        old = _load(path)
        if old["model"] != model:
            raise UserError(
                f"{path}: these counts are of model {old['model']!r}, the new ones of {model!r}; "
                "give the new ones an arm of their own (--arm)"
            )
        merged = _cells(old)
    before = len(merged)
    for key, value in counts.items():
        if merged.setdefault(key, value) != value:
            step, problem = key
            raise UserError(
                f"{problem} at step {step}: counts {merged[key]} are stored, {value} came; "
                f"remove {path} or import into another arm (--arm)"
            )
    rows = [
        [s, p, *merged[s, p]] for s, p in sorted(merged, key=lambda k: (k[0], natural_order(k[1])))
    ]
    if len(merged) > before:
        checked.write(path, {"model": model, "counts": rows})
    return len(merged) - before


def add_scores(layout: Layout, source: str, problem_set: str, scorer: str, rows: pa.Table) -> Path:
    """Store log-probabilities of texts under a model; the same rows again change nothing.

    ``source`` is the arm that wrote the texts or the name of a file of texts.
    """
    folder = layout.tables(SCORES) / source / problem_set / scorer
    keys = [(name, "ascending") for name in ("problem", "sample", "step", "scorer_step")]
    ordered = rows.cast(SCORE_ROWS).sort_by(keys)
    return checked.put_parquet(folder, ordered.replace_schema_metadata({_PLACE: _place(folder)}))


def read_scores(layout: Layout, source: str, problem_set: str, scorer: str) -> pa.Table:
    """Read all scores of one kind of text under one model, in no particular order."""
    folder = layout.tables(SCORES) / source / problem_set / scorer
    return pa.concat_tables([SCORE_ROWS.empty_table(), *map(_read_scores, _files(folder))])


def settle_scores(
    layout: Layout, source: str, problem_set: str, scorer: str, wanted: Collection[int]
) -> None:
    """Gather scores in one file, without those of texts or models that have changed since.

    Files that another process adds meanwhile stay.
    """
    folder = layout.tables(SCORES) / source / problem_set / scorer
    paths = _files(folder)
    rows = pa.concat_tables([SCORE_ROWS.empty_table(), *map(_read_scores, paths)])
    kept = rows.filter(pc.is_in(rows["request"], pa.array(list(wanted), pa.int64())))
    kept = kept.group_by(kept.column_names, use_threads=False).aggregate([])
    whole = add_scores(layout, source, problem_set, scorer, kept) if len(kept) else None
    for path in paths:
        if path != whole:
            path.unlink(missing_ok=True)


def inputs(layout: Layout) -> dict[str, str]:
    """Every table by its path below the run folder, with a mark that changes with its content."""
    return _training_inputs(layout) | {
        path.relative_to(layout.root).as_posix(): (
            str(checked.digest(_load(path))) if kind == COUNTS else checked.digest_of_name(path)
        )
        for kind in (COUNTS, SCORES)
        for path in _files(layout.tables(kind))
    }


def write_groups(root: zarr.Group, layout: Layout) -> None:
    """Write the groups of all tables into a cube."""
    for path in _files(layout.tables(COUNTS)):
        _write_counts(root, path.parent.name, path.name.removesuffix(_JSON), _load(path))
    _write_trainings(root, layout)
    scores: dict[Path, list[pa.Table]] = {}
    for path in _files(layout.tables(SCORES)):
        scores.setdefault(path.parent, []).append(_read_scores(path))
    for folder, rows in scores.items():
        _write_scores(root, pa.concat_tables(rows), *folder.parts[-3:])


def _write_counts(root: zarr.Group, arm: str, problem_set: str, stored: Mapping[str, Any]) -> None:
    if f"{arm}/{problem_set}" in root:
        raise UserError(
            f"arm {arm} has samples and imported counts of {problem_set}; import the counts into "
            "an arm of their own (--arm)"
        )
    cells = _cells(stored)
    grid = Grid(
        stored["model"],
        tuple(sorted({p for _, p in cells}, key=natural_order)),
        tuple(sorted({s for s, _ in cells})),
        max(n for n, _ in cells.values()),
    )
    shape = (len(grid.problems), len(grid.steps))
    n, c = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for i, problem in enumerate(grid.problems):
        for j, step in enumerate(grid.steps):
            n[i, j], c[i, j] = cells.get((step, problem), (0, 0))
    cube.create_counts(root, arm, problem_set, grid, n, c)


def _write_scores(
    root: zarr.Group, rows: pa.Table, source: str, problem_set: str, scorer: str
) -> None:
    axes: dict[str, list[Any]] = {
        name: sorted(
            rows[name].unique().to_pylist(), key=natural_order if name == "problem" else None
        )
        for name in ("problem", "step", "scorer_step")
    }
    places = {
        name: pc.index_in(rows[name], pa.array(axis, rows[name].type)).to_numpy()
        for name, axis in axes.items()
    }
    sample = rows["sample"].to_numpy()
    where = (places["problem"], sample, places["step"], places["scorer_step"])
    shape = (len(axes["problem"]), int(sample.max()) + 1, len(axes["step"]))
    values: dict[str, Any] = {**axes, "source": source, "scorer": scorer}
    values["problem_set"] = problem_set
    for variable in cube_schema.SCORE_VARIABLES:
        new = rows[variable.name].to_numpy().astype(variable.dtype)
        array = np.full((*shape, len(axes["scorer_step"])), variable.fill, variable.dtype)
        array[where] = new
        if not np.array_equal(array[where], new, equal_nan=variable.dtype.kind == "f"):
            raise UserError(
                f"{source} on {problem_set}: {scorer} scored a text twice with different results; "
                f"remove one of the files in tables/{SCORES}/{source}/{problem_set}/{scorer}"
            )
        values[variable.name] = array
    variables = [*cube_schema.SCORE_COORDINATES, *cube_schema.SCORE_VARIABLES]
    path = f"{SCORES}/{source}/{problem_set}/{scorer}"
    cube.create_table(root, path, SCORES, variables, values)


def _cells(stored: Mapping[str, Any]) -> dict[tuple[int, str], tuple[int, int]]:
    return {(step, problem): (n, c) for step, problem, n, c in stored["counts"]}


def _files(folder: Path) -> list[Path]:
    """Finished files below a folder, in the order of their names."""
    finished: list[Path] = []
    for path in entries(folder):
        if path.suffix in {_JSON, checked.PARQUET}:
            finished.append(path)
        else:
            finished += _files(path)
    return sorted(finished)


def _load(path: Path) -> dict[str, Any]:
    try:
        return checked.read(path)
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); import or write it again") from error


def _read_scores(path: Path) -> pa.Table:
    rows = checked.read_parquet(path, SCORE_ROWS, "remove it and run `rlbhpc score` again")
    place = (rows.schema.metadata or {}).get(_PLACE, _place(path.parent))
    if place != _place(path.parent):
        raise UserError(f"{path}: of {place.decode()}; remove it and run `rlbhpc score` again")
    return rows


def _place(folder: Path) -> bytes:
    """Whose texts, of which problem set, under which model: the last names of a folder."""
    return "/".join(folder.parts[-3:]).encode()
