"""Check a cube against its schema: names, types, codecs, checksums, and that its numbers agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
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

    ``path``: a cube (``cube.zarr``, a Zarr tree), or the folder of a run that has one. Gives one
    line per finding, with its place; empty if the cube is sound. Files and checksums come first. A
    sound cube of an older schema is one finding, since today's rules do not hold for it. Then each
    group that says its ``kind`` is compared with the schema.
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
    findings = list(_check_files(store))
    if findings:
        # Values are looked at only where every byte is known to be as it was written.
        return findings
    version = root.attrs["schema_version"]
    if version != cube_schema.SCHEMA_VERSION:
        return [
            f"{store}: undamaged, of schema version {version}; `rlbhpc compact` derives it anew by "
            f"version {cube_schema.SCHEMA_VERSION}"
        ]
    for name, group in root.members(max_depth=None):
        if isinstance(group, zarr.Group) and "kind" in group.attrs:
            findings.extend(f"{name}: {finding}" for finding in _check_group(root, group))
    return findings


def _check_files(store: Path) -> Iterator[str]:
    """Compare the files of a cube with what its metadata says is there.

    The root's metadata holds a copy of that of all *nodes*, the groups and arrays, by their paths.
    Gives one line for each file that differs, is missing, is damaged or does not belong.
    """
    _, nodes = cube.read_checked(store)
    for name in cube.nodes_that_differ(store):
        yield f"{name}/{cube.METADATA}: differs from the root's copy; run {_REBUILD}"
    expected = {store / cube.METADATA, *(store / name / cube.METADATA for name in nodes)}
    for name, node in nodes.items():
        if node["node_type"] != "array":
            continue
        for chunk in sorted(_chunk_files(store / name, node)):
            expected.add(chunk)
            if not chunk.is_file():
                yield f"{chunk.relative_to(store)}: missing; run {_REBUILD}"
            elif not cube.intact(chunk):
                yield f"{chunk.relative_to(store)}: fails its checksum; run {_REBUILD}"
    for path in sorted(store.rglob("*")):
        if path.is_file() and path not in expected:
            yield f"{path.relative_to(store)}: does not belong to the cube; remove it"


def _chunk_files(folder: Path, node: dict[str, Any]) -> Iterator[Path]:
    """Chunk files that an array should have.

    ``node``: its Zarr metadata, which has the shape and that of a chunk.
    """
    chunk_shape = node["chunk_grid"]["configuration"]["chunk_shape"]
    chunk_counts = [
        math.ceil(size / length) for size, length in zip(node["shape"], chunk_shape, strict=True)
    ]
    for chunk_index in np.ndindex(*chunk_counts):
        yield folder.joinpath("c", *map(str, chunk_index))


def _check_group(root: zarr.Group, group: zarr.Group) -> Iterator[str]:
    """Compare a group with the schema, then its values with each other.

    The *kind* of a group says which arrays it must have: samples, counts, answers and so on. Values
    are compared only if all arrays are as the schema has them. n are samples, c the right ones
    among them.
    """
    kind = str(group.attrs["kind"])
    if kind not in _REQUIRED:
        yield f"unknown kind {kind!r}; the kinds are {', '.join(_REQUIRED)}"
        return
    arrays: dict[str, Any] = dict(group.arrays())
    schema = {variable.name: variable for variable in _expected_variables(kind, arrays)}
    findings = [f"{name}: missing" for name in schema if name not in arrays]
    findings += [f"{name}: not in the schema" for name in arrays if name not in schema]
    for name, variable in schema.items():
        if name in arrays:
            findings += [f"{name}: {finding}" for finding in _check_array(variable, arrays[name])]
    if not findings:
        findings += _check_axes(arrays, schema.values())
    yield from findings
    if findings:
        return
    if kind == "samples":
        yield from _check_samples(arrays)
        yield from _check_answers(arrays, root.get(f"{cube_schema.ANSWERS}/{group.path}", {}))
    elif kind == "counts":
        n, c = arrays["n"][...], arrays["c"][...]
        if (n < 0).any() or (c < 0).any() or (c > n).any():
            yield "counts that break 0 <= c <= n"


def _expected_variables(kind: str, arrays: dict[str, Any]) -> Iterator[Variable]:
    """Variables of a kind of group: the required ones, and the optional ones that are there.

    ``arrays``: the arrays of the group by name. The group of a training has one for each metric.
    """
    yield from _REQUIRED[kind]
    if kind == "samples":
        traced = itertools.chain.from_iterable(cube_schema.TRACED.values())
        for variable in (cube_schema.STOP_AFTER, *cube_schema.STRATA, *traced):
            if variable.name in arrays:
                yield variable
    if kind == cube_schema.TRAINING:
        required = {variable.name for variable in _REQUIRED[kind]}
        for name, array in arrays.items():
            if name not in required:
                # The metric's own name, which has a / where the variable's has a point.
                yield cube_schema.training_variable(str(array.attrs.get("long_name", name)))


def _check_array(variable: Variable, array: Any) -> Iterator[str]:
    """Compare an array with what the schema says of it, but for the values.

    ``variable``: its name, dimensions, type, fill value and attributes in the schema. The last
    codec must be the checksum, so that it covers all bytes on disk.
    """
    dims = tuple(array.metadata.dimension_names or ())
    if dims != variable.dims:
        yield f"dimensions {dims}, the schema has {variable.dims}"
    if array.dtype != variable.dtype:
        yield f"type {array.dtype}, the schema has {variable.dtype}"
    else:
        may_be_nan = variable.dtype.kind == "f"
        if not np.array_equal(array.fill_value, variable.fill, equal_nan=may_be_nan):
            yield f"fill value {array.fill_value}, the schema has {variable.fill}"
    for name, value in variable.attrs.items():
        if array.attrs.get(name) != value:
            yield f"attribute {name} is {array.attrs.get(name)!r}, the schema has {value!r}"
    if "_FillValue" in array.attrs:
        yield "has a _FillValue, by which readers turn codes into floats"
    if not isinstance(array.metadata.codecs[-1], Crc32cCodec):
        yield "its codecs do not end with crc32c"


def _check_axes(arrays: dict[str, Any], variables: Iterable[Variable]) -> Iterator[str]:
    """Check that all arrays agree on the length of each dimension and that no label comes twice.

    An array with its own name as its only dimension has the labels of that dimension.
    """
    sizes: dict[str, int] = {}
    for variable in variables:
        for dim, size in zip(variable.dims, arrays[variable.name].shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                yield f"{variable.name}: {size} long in {dim}, others {sizes[dim]}"
        if variable.dims == (variable.name,):
            labels = arrays[variable.name][...].tolist()
            if len(set(labels)) < len(labels):
                yield f"{variable.name}: the same label twice"


def _check_samples(arrays: dict[str, Any]) -> Iterator[str]:
    """Compare the values of each band with each other.

    A *band* is one row of chunks along the problems, at one step, with all samples: what a check
    can hold in memory.
    """
    problem_count, _, step_count = arrays["verdict"].shape
    chunk_problems = arrays["verdict"].chunks[0]
    for first in range(0, problem_count, chunk_problems):
        for step_index in range(step_count):
            region = (slice(first, first + chunk_problems), ..., step_index)
            values = {
                variable.name: np.asarray(arrays[variable.name][region])
                for variable in _SAMPLE_GROUP
                if len(variable.dims) > 1
            }
            step = arrays["step"][step_index]
            for finding in _check_band(values):
                yield f"step {step}, problems from {first}: {finding}"


def _check_band(values: dict[str, NDArray[Any]]) -> Iterator[str]:
    """Compare the values of a band, which is some problems at one step with all their samples.

    ``values``: arrays of samples over (problem, sample), and of counts over (problem,). n counts
    the samples that were judged and c the right ones.
    """
    verdict = values["verdict"]
    is_missing = verdict == Status.MISSING
    for variable in cube_schema.SAMPLE_VARIABLES:
        array = values[variable.name]
        codes = variable.attrs.get("flag_values")
        if codes and not np.isin(array, codes).all():
            yield f"{variable.name}: a code that has no meaning"
        has_value = ~np.isnan(array) if variable.dtype.kind == "f" else array != variable.fill
        if (has_value & is_missing).any():
            yield f"{variable.name}: a value where the verdict says there is no sample"
    # -1 to 5 are verdicts; -1 takes the last entry of the table.
    has_meaning = verdict < len(Status) - 1
    right = cube_schema.RIGHT_BY_VERDICT[verdict[has_meaning]]
    if not np.array_equal(values["right"][has_meaning], right):
        yield "right differs from what the verdicts give"
    n, c = derive.count_verdicts(verdict, axis=1)
    if not np.array_equal(n, values["n"]) or not np.array_equal(c, values["c"]):
        yield "n or c differ from what the verdicts give"
    seeds = values["seed"][values["seed"] >= 0]
    if len(np.unique(seeds)) < len(seeds):
        yield "seed: two samples share one"


def _check_answers(arrays: dict[str, Any], table: Any) -> Iterator[str]:
    """Compare the table of answers with the answers of the samples.

    ``arrays``: those of a group of samples; ``answer`` has the id of each sample's answer, -1 for
    none. ``table``: one row for each distinct answer to a problem at a step, with its count,
    ordered by step, problem and id. The rows that it should have are computed here, step by step.
    """
    if any(variable.name not in table for variable in cube_schema.ANSWER_VARIABLES):
        yield "no table of answers"
        return
    problems = arrays["problem"][...]
    first_row = 0
    for step_index, step in enumerate(arrays["step"][...]):
        answer_ids = arrays["answer"][:, :, step_index]
        has_answer = answer_ids >= 0
        # In the order in which a mask selects values.
        problem_indices, _ = np.nonzero(has_answer)
        pairs, counts = np.unique(
            [problem_indices, answer_ids[has_answer]], axis=1, return_counts=True
        )
        n_answers = np.bincount(pairs[0], minlength=len(problems))
        rows = slice(first_row, first_row + len(counts))
        first_row = rows.stop
        expected = {
            "problem": problems[pairs[0]],
            "step": np.full(len(counts), step),
            "answer": pairs[1],
            "count": counts,
        }
        is_same = all(
            np.array_equal(table[name][rows], values) for name, values in expected.items()
        )
        if not is_same or not np.array_equal(arrays["n_answers"][:, step_index], n_answers):
            yield f"step {step}: the answers of the samples differ from their table"
            return
    if table["answer"].size != first_row:
        yield "the table of answers has rows too many"
