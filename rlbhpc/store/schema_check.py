"""Check a cube: that every byte is as it was written, and that its numbers agree.

Names, types and codecs stand in the metadata, which has a checksum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store import cube, cube_schema, derive
from rlbhpc.verify.verdict import Status

_REBUILD: Final = "`rlbhpc compact --rebuild`"


def validate_cube(path: str | Path) -> list[str]:
    """Check a cube and everything in it.

    ``path``: a cube (``cube.zarr``, a Zarr tree), or the folder of a run that has one. Gives one
    line per finding, with its place; empty if the cube is sound. Files and checksums come first. A
    sound cube of an older schema is one finding, since today's rules do not hold for it. Then the
    values of each group of samples are compared with each other.
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
        if isinstance(group, zarr.Group) and group.attrs.get("kind") == "samples":
            findings += [f"{name}: {finding}" for finding in _check_samples(dict(group.arrays()))]
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
                name: np.asarray(array[region]) for name, array in arrays.items() if array.ndim > 1
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
        if variable.name not in values:
            continue
        array = values[variable.name]
        has_value = ~np.isnan(array) if variable.dtype.kind == "f" else array != variable.fill
        if (has_value & is_missing).any():
            yield f"{variable.name}: a value where the verdict says there is no sample"
    # -1 takes the last entry of the table.
    if not np.array_equal(values["right"], cube_schema.RIGHT_BY_VERDICT[verdict]):
        yield "right differs from what the verdicts give"
    n, c = derive.count_verdicts(verdict, axis=1)
    if not np.array_equal(n, values["n"]) or not np.array_equal(c, values["c"]):
        yield "n or c differ from what the verdicts give"
    seeds = values["seed"][values["seed"] >= 0]
    if len(np.unique(seeds)) < len(seeds):
        yield "seed: two samples share one"
