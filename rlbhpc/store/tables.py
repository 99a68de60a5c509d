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
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlbhpc.errors import UserError
from rlbhpc.store import checked, cube, cube_schema, left_out
from rlbhpc.store.grid import Grid, natural_order
from rlbhpc.store.left_out import Note
from rlbhpc.store.snapshot import retry_while_changing
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
    """Rows of a training's step log, one for each step; none without a file.

    A last line that is being written now is left out. Every line before it was whole when it was
    written: a damaged one is told and left out.
    """
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = []
    notes: list[Note] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows.append({"step": row.pop("step"), **row})
        except (ValueError, AttributeError, LookupError, TypeError):
            if number < len(lines):
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
_PART_NAMES: Final = f"{_EIGHT_DIGITS}-{_EIGHT_DIGITS}-*{checked.PARQUET}"
# Cells of a chunk of the cube.
_CHUNK_CELLS: Final = 1 << 21


class RolloutPart(NamedTuple):
    """A file with the rows of the steps from ``first`` to ``last``."""

    first: int
    last: int
    path: Path


def add_rollouts(folder: Path, rows: pa.Table) -> None:
    """Store the rollouts of the steps since the newest part, together with it while it is small.

    A *part* is a file with the rollouts of some steps, which its name tells. Small parts are not
    changed: a new one with the rows of both takes the place of the old one.
    """
    steps = rows["train_step"].to_numpy()
    first, last = int(steps.min()), int(steps.max())
    parts = _current_parts(folder)
    if parts:
        newest_rows = _read_rollout_part(parts[-1].path)
        if newest_rows.num_rows < PART_ROWS:
            first = parts[-1].first
            rows = pa.concat_tables([newest_rows, rows])
    checked.put_parquet(folder, rows.cast(ROLLOUT_ROWS), f"{first:08d}-{last:08d}-")


def settle_rollouts(folder: Path, step: int) -> None:
    """Drop rollouts later than the training state of ``step``, and parts that another contains.

    A *part* is a file with the rollouts of some steps. Rows later than the saved state come from a
    run that was killed before it saved; it makes them again.
    """
    for part in _all_parts(folder):
        if part.last > step:
            part.path.unlink()
    current = _current_parts(folder)
    for part in _all_parts(folder):
        if part not in current:
            part.path.unlink()


def rollout_parts(folder: Path) -> list[Path]:
    """Parts in the order of their steps, without those that another contains."""
    return [part.path for part in _current_parts(folder)]


def _current_parts(folder: Path) -> list[RolloutPart]:
    current: list[RolloutPart] = []
    for part in sorted(_all_parts(folder), key=lambda part: (part.first, -part.last)):
        if not current or part.last > current[-1].last:
            current.append(part)
    return current


def _all_parts(folder: Path) -> list[RolloutPart]:
    """Every file of rollouts in a folder; its name begins with its first and last step."""
    parts = []
    for path in entries(folder):
        if path.match(_PART_NAMES):
            first, last = path.stem.split("-")[:2]
            parts.append(RolloutPart(int(first), int(last), path))
    return parts


def read_rollouts(folder: Path) -> pa.Table:
    """All rows of a training, in the order of their steps."""

    def read_parts() -> list[pa.Table]:
        return [_read_rollout_part(path) for path in rollout_parts(folder)]

    # A training may have just put one part in another's place.
    return pa.concat_tables([ROLLOUT_ROWS.empty_table(), *retry_while_changing(read_parts)])


def _read_rollout_part(path: Path) -> pa.Table:
    remedy = "remove it: its steps will be missing from the cube, and training needs none of it"
    return checked.read_parquet(path, ROLLOUT_ROWS, remedy)


def _training_inputs(layout: Layout) -> dict[str, str]:
    """Step logs and rollouts by path below the run folder, with a digest of their content.

    The cube is made from these; equal digests mean that there is nothing new.
    """
    digests: dict[Path, str] = {}
    for model, log in layout.dynamics().items():
        digests[log] = checked.digest_of_bytes(log.read_bytes())
        for part in rollout_parts(layout.rollouts(model)):
            digests[part] = checked.digest_of_name(part)
    return {path.relative_to(layout.root).as_posix(): mark for path, mark in digests.items()}


def _write_trainings(root: zarr.Group, layout: Layout) -> None:
    """Write what each training of a run did into the cube.

    ``training/<model>`` has the metrics of its step log, ``rollouts/<model>`` its sampled
    responses.
    """
    for model, path in sorted(layout.dynamics().items()):
        steps = log_lines(path)
        if steps:
            _write_curve(root, model, steps)
        rollouts = read_rollouts(layout.rollouts(model))
        if len(rollouts):
            _write_rollouts(root, model, rollouts)


def _write_curve(root: zarr.Group, model: str, steps: list[dict[str, Any]]) -> None:
    """Write the metrics of a step log, an array for each; NaN where a step does not have one.

    ``steps``: the rows of the log, each with its ``step`` and some metrics.
    """
    metrics = sorted({name for step in steps for name in step} - {"step"})
    variables = [cube_schema.training_variable(metric) for metric in metrics]
    values: dict[str, Any] = {"train_step": [step["step"] for step in steps], "model": model}
    for metric, variable in zip(metrics, variables, strict=True):
        values[variable.name] = [step.get(metric, np.nan) for step in steps]
    kind = cube_schema.TRAINING
    all_variables = [*cube_schema.TRAINING_COORDINATES, *variables]
    cube.create_table(root, f"{kind}/{model}", kind, all_variables, values)


def _write_rollouts(root: zarr.Group, model: str, rows: pa.Table) -> None:
    """Write the rollouts of a training into the cube, some steps at a time.

    ``rows``: one for each sampled response. Each becomes a cell of arrays over (problem, rollout,
    train_step), where ``rollout`` counts the responses to a problem in a step; cells without one
    hold the fill value. One chunk of steps is put together in memory and written as a whole.
    """
    steps, step_indices = np.unique(rows["train_step"].to_numpy(), return_inverse=True)
    names = rows["problem"].to_numpy().astype(str)
    problems, problem_indices = np.unique(names, return_inverse=True)
    rollout_numbers = rows["rollout"].to_numpy()
    rollout_count = int(rollout_numbers.max()) + 1
    chunk_steps = max(1, _CHUNK_CELLS // (len(problems) * rollout_count))
    sizes = {"problem": len(problems), "rollout": rollout_count, "train_step": len(steps)}
    chunks = {**sizes, "train_step": chunk_steps}
    kind, variables = cube_schema.ROLLOUTS, cube_schema.ROLLOUT_VARIABLES
    group = cube.create_group(root, f"{kind}/{model}", kind, {})
    cube.create_arrays(group, [*cube_schema.ROLLOUT_COORDINATES, *variables], sizes, chunks)
    cube.write(group, "problem", problems)
    cube.write(group, "train_step", steps)
    cube.write(group, "model", model)
    for first in range(0, len(steps), chunk_steps):
        stop = min(first + chunk_steps, len(steps))
        # Rows of these steps.
        in_chunk = (step_indices >= first) & (step_indices < stop)
        cells = (
            problem_indices[in_chunk], rollout_numbers[in_chunk], step_indices[in_chunk] - first,
        )  # fmt: skip
        for variable in variables:
            shape = (len(problems), rollout_count, stop - first)
            array = np.full(shape, variable.fill, variable.dtype)
            array[cells] = rows[variable.name].to_numpy()[in_chunk]
            cube.write_region(group, variable.name, (..., slice(first, stop)), array)


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
    """Store imported counts beside those that are there; give how many are new.

    ``counts``: n samples and c right ones by (step, problem). ``model``: name of the model line,
    which must be that of the stored ones. Another value for a pair that is there is an error.
    """
    path = counts_file(layout, arm, problem_set)
    merged: dict[tuple[int, str], tuple[int, int]] = {}
    if path.exists():
        stored = _load(path)
        if stored["model"] != model:
            raise UserError(
                f"{path}: these counts are of model {stored['model']!r}, the new ones of "
                f"{model!r}; give the new ones an arm of their own (--arm)"
            )
        merged = _counts_by_cell(stored)
    stored_count = len(merged)
    for (step, problem), count in counts.items():
        if merged.setdefault((step, problem), count) != count:
            raise UserError(
                f"{problem} at step {step}: counts {merged[step, problem]} are stored, {count} "
                f"came; remove {path} or import into another arm (--arm)"
            )
    if len(merged) > stored_count:
        cells = sorted(merged, key=lambda cell: (cell[0], natural_order(cell[1])))
        rows = [[step, problem, *merged[step, problem]] for step, problem in cells]
        checked.write(path, {"model": model, "counts": rows})
    return len(merged) - stored_count


def add_scores(layout: Layout, source: str, problem_set: str, scorer: str, rows: pa.Table) -> Path:
    """Store log-probabilities of texts under a model; the same rows again change nothing.

    ``source``: the arm that wrote the texts, or the name of a file of texts. ``scorer``: the model
    that scored them. Rows are sorted, so that the same ones give the same file, named by its
    content.
    """
    folder = layout.tables(SCORES) / source / problem_set / scorer
    keys = [(name, "ascending") for name in ("problem", "sample", "step", "scorer_step")]
    ordered = rows.cast(SCORE_ROWS).sort_by(keys)
    return checked.put_parquet(folder, ordered)


def read_scores(layout: Layout, source: str, problem_set: str, scorer: str) -> pa.Table:
    """Read all scores of one kind of text under one model, in no particular order."""
    return _read_score_files(_files(layout.tables(SCORES) / source / problem_set / scorer))


def _read_score_files(paths: Iterable[Path]) -> pa.Table:
    remedy = "remove it and run `rlbhpc score` again"
    tables = [checked.read_parquet(path, SCORE_ROWS, remedy) for path in paths]
    return pa.concat_tables([SCORE_ROWS.empty_table(), *tables])


def settle_scores(
    layout: Layout, source: str, problem_set: str, scorer: str, current: Collection[int]
) -> None:
    """Gather scores in one file, without those of texts or models that have changed since.

    ``source``: whose texts. ``scorer``: the model that scored them. ``current``: the requests,
    hashes of a text and its scorer, that are still asked for. Files that another process adds
    meanwhile stay.
    """
    paths = _files(layout.tables(SCORES) / source / problem_set / scorer)
    rows = _read_score_files(paths)
    is_current = pc.is_in(rows["request"], pa.array(list(current), pa.int64()))
    rows = rows.filter(is_current)
    distinct_rows = rows.group_by(rows.column_names, use_threads=False).aggregate([])
    gathered = None
    if len(distinct_rows):
        gathered = add_scores(layout, source, problem_set, scorer, distinct_rows)
    for path in paths:
        if path != gathered:
            path.unlink(missing_ok=True)


def inputs(layout: Layout) -> dict[str, str]:
    """Every table by its path below the run folder, with a mark that changes with its content.

    *Tables* are imported counts, scores, step logs and rollouts: what a cube has beside samples.
    """
    marks = _training_inputs(layout)
    for path in _files(layout.tables(COUNTS)):
        marks[path.relative_to(layout.root).as_posix()] = checked.digest(_load(path))
    for path in _files(layout.tables(SCORES)):
        marks[path.relative_to(layout.root).as_posix()] = checked.digest_of_name(path)
    return marks


def write_groups(root: zarr.Group, layout: Layout) -> None:
    """Write the groups of all tables of a run into a cube.

    *Tables* are imported counts, scores, step logs and rollouts. All files of scores in a folder
    ``<source>/<set>/<scorer>`` become one group.
    """
    for path in _files(layout.tables(COUNTS)):
        _write_counts(root, path.parent.name, path.name.removesuffix(_JSON), _load(path))
    _write_trainings(root, layout)
    paths_by_folder: dict[Path, list[Path]] = {}
    for path in _files(layout.tables(SCORES)):
        paths_by_folder.setdefault(path.parent, []).append(path)
    for folder, paths in paths_by_folder.items():
        source, problem_set, scorer = folder.parts[-3:]
        _write_scores(root, _read_score_files(paths), source, problem_set, scorer)


def _write_counts(root: zarr.Group, arm: str, problem_set: str, stored: Mapping[str, Any]) -> None:
    """Write imported counts as a group of their own, over (problem, step).

    ``stored``: the content of a file of counts, n samples and c right ones. A pair that it does not
    have gets n = 0.
    """
    if f"{arm}/{problem_set}" in root:
        raise UserError(
            f"arm {arm} has samples and imported counts of {problem_set}; import the counts into "
            "an arm of their own (--arm)"
        )
    counts = _counts_by_cell(stored)
    grid = Grid(
        model=stored["model"],
        problems=tuple(sorted({problem for _, problem in counts}, key=natural_order)),
        steps=tuple(sorted({step for step, _ in counts})),
        n=max(n for n, _ in counts.values()),
    )
    shape = (len(grid.problems), len(grid.steps))
    n = np.zeros(shape, np.int32)
    c = np.zeros(shape, np.int32)
    for problem_index, problem in enumerate(grid.problems):
        for step_index, step in enumerate(grid.steps):
            if (step, problem) in counts:
                n[problem_index, step_index], c[problem_index, step_index] = counts[step, problem]
    cube.create_counts(root, arm, problem_set, grid, n, c)


def _write_scores(
    root: zarr.Group, rows: pa.Table, source: str, problem_set: str, scorer: str
) -> None:
    """Write the scores of one source on one set under one model as a group.

    ``rows``: one score each: the log-probability of a text (of a problem, a sample and the step of
    its writer) under the scorer at one of its steps. Each goes to its cell in arrays over these
    four axes. If two rows for one cell differ, the later one overwrites the earlier: that is seen
    when the cells are read back, and is an error.
    """
    axes: dict[str, list[Any]] = {
        "problem": sorted(rows["problem"].unique().to_pylist(), key=natural_order),
        "step": sorted(rows["step"].unique().to_pylist()),
        "scorer_step": sorted(rows["scorer_step"].unique().to_pylist()),
    }
    indices = {"sample": rows["sample"].to_numpy()}
    for dim, labels in axes.items():
        indices[dim] = pc.index_in(rows[dim], pa.array(labels, rows[dim].type)).to_numpy()
    cells = tuple(indices[dim] for dim in cube_schema.SCORE_DIMS)
    sizes = {dim: int(index.max()) + 1 for dim, index in indices.items()}
    shape = [sizes[dim] for dim in cube_schema.SCORE_DIMS]
    values: dict[str, Any] = {
        **axes, "source": source, "scorer": scorer, "problem_set": problem_set,
    }  # fmt: skip
    for variable in cube_schema.SCORE_VARIABLES:
        scores = rows[variable.name].to_numpy().astype(variable.dtype)
        array = np.full(shape, variable.fill, variable.dtype)
        array[cells] = scores
        if not np.array_equal(array[cells], scores, equal_nan=variable.dtype.kind == "f"):
            raise UserError(
                f"{source} on {problem_set}: {scorer} scored a text twice with different results; "
                f"remove one of the files in tables/{SCORES}/{source}/{problem_set}/{scorer}"
            )
        values[variable.name] = array
    variables = [*cube_schema.SCORE_COORDINATES, *cube_schema.SCORE_VARIABLES]
    path = f"{SCORES}/{source}/{problem_set}/{scorer}"
    cube.create_table(root, path, SCORES, variables, values)


def _counts_by_cell(stored: Mapping[str, Any]) -> dict[tuple[int, str], tuple[int, int]]:
    """Imported (n, c) by (step, problem)."""
    return {(step, problem): (n, c) for step, problem, n, c in stored["counts"]}


def _files(folder: Path) -> list[Path]:
    """Finished files of tables below a folder, in the order of their names.

    Whatever has another ending is taken for a folder.
    """
    finished: list[Path] = []
    for path in entries(folder):
        if path.suffix in {_JSON, checked.PARQUET}:
            finished.append(path)
        else:
            finished += _files(path)
    return sorted(finished)


def _load(path: Path) -> dict[str, Any]:
    """Read a file of counts."""
    try:
        return checked.read(path)
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); import or write it again") from error
