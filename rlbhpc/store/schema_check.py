"""Check a cube against its schema: names, types, codecs, checksums, and that its numbers agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec

from rlbhpc.errors import UserError
from rlbhpc.store import cube, cube_schema, derive
from rlbhpc.store.cube_schema import Variable
from rlbhpc.verify.verdict import Status

_SAMPLE_GROUP: Final = (
    *cube_schema.COORDINATES,
    cube_schema.SAMPLE_NUMBER,
    *cube_schema.SAMPLE_VARIABLES,
    *cube_schema.CELL_VARIABLES,
)
_REBUILD: Final = "`rlbhpc compact --rebuild`"
_REQUIRED: Final = {
    "samples": _SAMPLE_GROUP,
    "counts": (*cube_schema.COORDINATES, *cube_schema.COUNT_VARIABLES),
    cube_schema.SCORES: (*cube_schema.SCORE_COORDINATES, *cube_schema.SCORE_VARIABLES),
    cube_schema.TRAINING: cube_schema.TRAINING_COORDINATES,
    cube_schema.ANSWERS: cube_schema.ANSWER_VARIABLES,
    cube_schema.ROLLOUTS: (*cube_schema.ROLLOUT_COORDINATES, *cube_schema.ROLLOUT_VARIABLES),
}


def validate_cube(path: str | Path) -> list[str]:
    """Check a cube and everything in it.

    ``path``: a cube (``cube.zarr``), or the folder of a run that has one. Gives one line per
    finding, with its place; empty if the cube is sound.
    """
    store = Path(path)
    if not (store / cube.METADATA).is_file() and (store / "cube.zarr").is_dir():
        store /= "cube.zarr"
    if not store.is_dir():
        return [f"{store}: no such folder"]
    store = store.resolve()
    try:
        root = cube.open_checked(store)
    except (UserError, OSError) as error:
        return [str(error)]
    findings = list(_files(store))
    version = root.attrs["schema_version"]
    if not findings and version != cube_schema.SCHEMA_VERSION:
        return [
            f"{store}: undamaged, of schema version {version}; `rlbhpc compact` derives it anew by "
            f"version {cube_schema.SCHEMA_VERSION}"
        ]
    if not findings:
        # Values are looked at only where every byte is known to be as it was written.
        for name, group in root.members(max_depth=None):
            if isinstance(group, zarr.Group) and "kind" in group.attrs:
                findings.extend(f"{name}: {line}" for line in _group(root, group))
    return findings


def _files(store: Path) -> Iterator[str]:
    """Compare the files of a cube with what its metadata says is there."""
    _, nodes = cube.read_checked(store)
    for name in cube.nodes_that_differ(store):
        yield f"{name}/{cube.METADATA}: differs from the root's copy; run {_REBUILD}"
    expected = {store / cube.METADATA, *(store / name / cube.METADATA for name in nodes)}
    for name, node in nodes.items():
        if node["node_type"] == "array":
            chunks = set(_chunks(store / name, node))
            expected |= chunks
            for chunk in sorted(chunks):
                place = chunk.relative_to(store)
                if not chunk.is_file():
                    yield f"{place}: missing; run {_REBUILD}"
                elif not cube.intact(chunk):
                    yield f"{place}: fails its checksum; run {_REBUILD}"
    for path in sorted(store.rglob("*")):
        if path.is_file() and path not in expected:
            yield f"{path.relative_to(store)}: does not belong to the cube; remove it"


def _chunks(folder: Path, node: dict[str, Any]) -> Iterator[Path]:
    shape = node["shape"]
    sizes = node["chunk_grid"]["configuration"]["chunk_shape"]
    for place in np.ndindex(*(-(-n // size) for n, size in zip(shape, sizes, strict=True))):
        yield folder.joinpath("c", *map(str, place))


def _group(root: zarr.Group, group: zarr.Group) -> Iterator[str]:
    kind = str(group.attrs["kind"])
    if kind not in _REQUIRED:
        yield f"unknown kind {kind!r}; the kinds are {', '.join(_REQUIRED)}"
        return
    wanted: Sequence[Variable] = _REQUIRED[kind]
    arrays: dict[str, Any] = dict(group.arrays())
    if kind == cube_schema.TRAINING:
        expected = {spec.name for spec in wanted}
        # The metric's own name, which has a / where the variable's has a point.
        metrics = (str(x.attrs.get("long_name", n)) for n, x in arrays.items() if n not in expected)
        wanted = (*wanted, *map(cube_schema.training_variable, metrics))
    if kind == "samples":
        optional = (cube_schema.STOP_AFTER, *cube_schema.STRATA)
        wanted = (*wanted, *(variable for variable in optional if variable.name in arrays))
    yield from (f"{v.name}: missing" for v in wanted if v.name not in arrays)
    names = {variable.name for variable in wanted}
    yield from (f"{name}: not in the schema" for name in arrays if name not in names)
    wrong = [
        f"{variable.name}: {line}"
        for variable in wanted
        if variable.name in arrays
        for line in _array(variable, arrays[variable.name])
    ]
    yield from wrong
    if not wrong and names <= {*arrays}:
        labels = list(_axes(arrays, wanted))
        yield from labels
        if kind == "samples":
            yield from _samples(arrays)
            if not labels:
                yield from _answers(arrays, root.get(f"{cube_schema.ANSWERS}/{group.path}", {}))
        elif kind == "counts":
            n, c = arrays["n"][...], arrays["c"][...]
            if (n < 0).any() or (c < 0).any() or (c > n).any():
                yield "counts that break 0 <= c <= n"


def _array(wanted: Variable, array: Any) -> Iterator[str]:
    dims = tuple(array.metadata.dimension_names or ())
    if dims != wanted.dims:
        yield f"dimensions {dims}, the schema has {wanted.dims}"
    if array.dtype != wanted.dtype:
        yield f"type {array.dtype}, the schema has {wanted.dtype}"
    elif not np.array_equal(array.fill_value, wanted.fill, equal_nan=wanted.dtype.kind == "f"):
        yield f"fill value {array.fill_value}, the schema has {wanted.fill}"
    for name, value in wanted.attrs.items():
        if array.attrs.get(name) != value:
            yield f"attribute {name} is {array.attrs.get(name)!r}, the schema has {value!r}"
    if "_FillValue" in array.attrs:
        yield "has a _FillValue, by which readers turn codes into floats"
    if not isinstance(array.metadata.codecs[-1], Crc32cCodec):
        yield "its codecs do not end with crc32c"


def _axes(arrays: dict[str, Any], wanted: Sequence[Variable]) -> Iterator[str]:
    """Lengths of dimensions agree; labels come once."""
    sizes: dict[str, int] = {}
    for variable in wanted:
        for dim, size in zip(variable.dims, arrays[variable.name].shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                yield f"{variable.name}: {size} long in {dim}, others {sizes[dim]}"
        if variable.dims == (variable.name,):
            labels = [*map(str, arrays[variable.name][...])]
            if len(set(labels)) < len(labels):
                yield f"{variable.name}: the same label twice"


def _samples(arrays: dict[str, Any]) -> Iterator[str]:
    """Compare the values of each band with each other."""
    problems, _, steps = arrays["verdict"].shape
    size = arrays["verdict"].chunks[0]
    for first in range(0, problems, size):
        for step in range(steps):
            place = (slice(first, first + size), ..., step)
            values = {
                v.name: np.asarray(arrays[v.name][place]) for v in _SAMPLE_GROUP if len(v.dims) > 1
            }
            for line in _band(values):
                yield f"step {arrays['step'][step]}, problems from {first}: {line}"


def _band(values: dict[str, NDArray[Any]]) -> Iterator[str]:
    verdict = values["verdict"]
    missing = verdict == Status.MISSING
    for variable in cube_schema.SAMPLE_VARIABLES:
        codes = variable.attrs.get("flag_values")
        if codes and not np.isin(values[variable.name], codes).all():
            yield f"{variable.name}: a code that has no meaning"
        if variable.dtype.kind == "f":
            has_value = ~np.isnan(values[variable.name])
        else:
            has_value = values[variable.name] != variable.fill
        if (has_value & missing).any():
            yield f"{variable.name}: a value where the verdict says there is no sample"
    with_meaning = verdict < len(Status) - 1
    right = cube_schema.RIGHT_BY_VERDICT[verdict[with_meaning]]
    if not np.array_equal(values["right"][with_meaning], right):
        yield "right differs from what the verdicts give"
    n, c = derive.count_verdicts(verdict, axis=1)
    if not np.array_equal(n, values["n"]) or not np.array_equal(c, values["c"]):
        yield "n or c differ from what the verdicts give"
    seeds = values["seed"][values["seed"] >= 0]
    if len(np.unique(seeds)) < len(seeds):
        yield "seed: two samples share one"


def _answers(arrays: dict[str, Any], table: Any) -> Iterator[str]:
    """Compare the table of answers with the answers of the samples."""
    if any(variable.name not in table for variable in cube_schema.ANSWER_VARIABLES):
        yield "no table of answers"
        return
    problems, steps = (arrays[name][...] for name in ("problem", "step"))
    first = 0
    for j, step in enumerate(steps):
        ids = arrays["answer"][:, :, j]
        place, _ = np.nonzero(ids >= 0)
        pairs, counts = np.unique([place, ids[ids >= 0]], axis=1, return_counts=True)
        n_answers = np.bincount(pairs[0], minlength=len(problems))
        rows = slice(first, first + len(counts))
        first = rows.stop
        expected = {
            "problem": problems[pairs[0]],
            "step": np.full(len(counts), step),
            "answer": pairs[1],
            "count": counts,
        }
        same = all(np.array_equal(table[name][rows], expected[name]) for name in expected)
        if not same or not np.array_equal(arrays["n_answers"][:, j], n_answers):
            yield f"step {step}: the answers of the samples differ from their table"
            return
    if table["answer"].size != first:
        yield "the table of answers has rows too many"
