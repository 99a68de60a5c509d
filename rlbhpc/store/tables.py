"""Small tables beside the samples, each with a group of its own in the cube.

======== ===================================== ==============================================
kind     where, below ``Layout.tables(kind)``  what
======== ===================================== ==============================================
counts   ``<arm>/<set>.json``                  (n, c) per problem and step, imported
scores   ``<source>/<set>/<scorer>/*.parquet`` log-probability of texts under a model
======== ===================================== ==============================================

The JSON files are replaced whole and carry a checksum. Parquet files of scores are immutable,
their digest is their name, and any number of them adds up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlbhpc.errors import UserError
from rlbhpc.store import checked, cube, cube_schema, rollouts
from rlbhpc.store.grid import Grid, natural
from rlbhpc.study.layout import Layout, entries

if TYPE_CHECKING:
    import zarr

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
    rows = [[s, p, *merged[s, p]] for s, p in sorted(merged, key=lambda k: (k[0], natural(k[1])))]
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
    return rollouts.inputs(layout) | {
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
    rollouts.write_groups(root, layout)
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
        tuple(sorted({p for _, p in cells}, key=natural)),
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
        name: sorted(rows[name].unique().to_pylist(), key=natural if name == "problem" else None)
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
