"""The groups of a cube as Datasets whose arrays are read chunk by chunk on demand.

A chunk file that is not there, or whose checksum does not match, is an error here. Zarr alone
would show the first as missing samples.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing
from zarr.core.buffer import Buffer, cpu
from zarr.storage import MemoryStore

from rlbhpc.errors import UserError
from rlbhpc.store import chunks, cube
from rlbhpc.store.cube_schema import (
    ANSWERS,
    GUESSABLE,
    LOOKS,
    N_OF_ALL,
    RIGHT,
    RIGHT_BY_VERDICT,
    STRATA,
    provenance,
)

# Coordinates along the problems.
_OF_PROBLEMS = {GUESSABLE.name, *(stratum.name for stratum in STRATA)}


class _Overlay(MemoryStore):
    """What was derived in memory, over the chunk files of a cube on disk."""

    def __init__(self, above: dict[str, Buffer], below: Path | None) -> None:
        super().__init__(above, read_only=True)
        self._above = above
        self._below = below

    def __str__(self) -> str:
        return str(self._below)

    def bytes_of(self, key: str) -> bytes:
        """Read a chunk from memory, else from the disk."""
        value = self._above.get(key)
        return value.to_bytes() if value is not None else _bytes_below(self._below or Path(), key)


def _bytes_below(folder: Path, key: str) -> bytes:
    try:
        return (folder / key).read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"{folder}/{key} is not there any more; open the cube again if it was compacted "
            "meanwhile, else run `rlbhpc compact --rebuild`"
        ) from None


def open_overlay(above: dict[str, Buffer], below: Path | None) -> zarr.Group:
    """Open a cube whose groups lie in memory or, where memory has none of the name, on disk."""
    files = {
        key.removesuffix(f"/{cube.METADATA}"): json.loads(value.to_bytes())
        for key, value in above.items()
        if key.endswith(cube.METADATA)
    }
    top = files.pop(cube.METADATA, None)
    nodes: dict[str, Any] = {}
    if below is not None:
        stored_top, nodes = cube.read_checked(below)
        top = top or stored_top
    fresh = [f"{name}/" for name, node in files.items() if "kind" in node["attributes"]]
    nodes = {k: v for k, v in nodes.items() if not f"{k}/".startswith(tuple(fresh))} | files
    text = json.dumps(cube.consolidated(top or {}, nodes))
    above[cube.METADATA] = cpu.Buffer.from_bytes(text.encode())
    return zarr.open_group(_Overlay(above, below), mode="r", use_consolidated=True)


class _LazyArray(BackendArray):
    """What xarray indexes instead of a Zarr array."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.shape = array.shape
        # Strings as other readers give them: netCDF, plots and dask know no StringDType.
        is_text = isinstance(array.dtype, np.dtypes.StringDType)
        self.dtype = np.dtype(object) if is_text else array.dtype
        self._array = array

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read by integers and slices; xarray takes the rest from the result."""
        # A list of no places: xarray before 2026.9 looks for its least.
        if isinstance(key, indexing.OuterIndexer):
            parts = (slice(0) if np.size(part) == 0 else part for part in key.tuple)
            key = indexing.OuterIndexer(tuple(parts))
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._basic
        )

    def _basic(self, key: tuple[int | slice, ...]) -> Any:
        return _load(self._array, key).astype(self.dtype, copy=False)


class _RightArray(_LazyArray):
    """Whether each sample is right, by its verdict; NaN where that says nothing of the model."""

    def __init__(self, verdict: zarr.Array[Any]) -> None:
        super().__init__(verdict)
        self.dtype = np.dtype(np.float32)

    def _basic(self, key: tuple[int | slice, ...]) -> Any:
        right = RIGHT_BY_VERDICT[_load(self._array, key)]
        return np.where(right < 0, np.float32(np.nan), right)


def _load(array: zarr.Array[Any], key: tuple[int | slice, ...] | None = None) -> NDArray[Any]:
    store: Any = array.store
    # A cube that is being written has no overlay yet.
    overlaid = isinstance(store, _Overlay)
    bytes_of = store.bytes_of if overlaid else partial(_bytes_below, store.root)
    try:
        return chunks.read(array, key or (slice(None),) * array.ndim, bytes_of)
    except UserError:
        raise
    except Exception as error:
        # Every layer between here and the disk has its own exception for damaged bytes.
        raise UserError(
            f"{array.store_path}: a chunk cannot be read ({error}); `rlbhpc check` on the cube "
            "finds which, `rlbhpc compact --rebuild` derives it anew"
        ) from error


def datasets(root: zarr.Group) -> dict[str, xr.Dataset]:
    """Datasets of a cube's groups by path; coordinates are read, all else when it is asked for."""
    groups = {"/": xr.Dataset(attrs=dict(root.attrs))}
    for name, node in root.members(max_depth=None):
        if isinstance(node, zarr.Group):
            dataset = _dataset(node)
            # Schema version 2 had the answers among the samples, as JSON of a block of them.
            if "block" in dataset.dims:
                groups[f"/{ANSWERS}/{name}"] = dataset[["vocabulary"]].drop_attrs(deep=False)
                dataset = dataset.drop_dims("block")
            groups[f"/{name}"] = dataset
    return groups


def _dataset(group: zarr.Group) -> xr.Dataset:
    variables: dict[str, xr.Variable] = {}
    coordinates: dict[str, xr.Variable] = {}
    for name, array in group.arrays():
        dims: tuple[str, ...] = getattr(array.metadata, "dimension_names", None) or ()
        if dims == (name,):
            coordinates[name] = _labels(name, _plain(_load(array)), dict(array.attrs))
        elif dims == () or name in _OF_PROBLEMS:
            coordinates[name] = of_array(dims, _plain(_load(array)), dict(array.attrs))
        else:
            variables[name] = _variable(dims, array, _LazyArray(array))
    if "verdict" in variables:
        # Whatever the version: in cubes of the first two, and among rollouts, there is none.
        verdict: Any = group["verdict"]
        right = _variable(variables["verdict"].dims, verdict, _RightArray(verdict))
        right.attrs = {"long_name": RIGHT.attrs["long_name"]}
        variables[RIGHT.name] = right
    sizes = {dim: size for v in variables.values() for dim, size in v.sizes.items()}
    # Scores have none, and samples had none in schema version 2.
    if "sample" in sizes and "sample" not in coordinates:
        coordinates["sample"] = _labels("sample", np.arange(sizes["sample"]))
    attrs = {k: v for k, v in group.attrs.items() if k != "coordinates"}
    if isinstance(looks := provenance(attrs).get(LOOKS), dict):
        coordinates[N_OF_ALL] = of_array((), np.asarray(looks["n"]))
    if "provenance" in attrs:
        attrs["provenance"] = json.dumps(provenance(attrs))
    return xr.Dataset(variables, coordinates, attrs)


def of_array(
    dims: tuple[str, ...], values: NDArray[Any], attrs: dict[str, Any] | None = None
) -> xr.Variable:
    """Take an array as it is: to see whether it is another's kind, xarray would import dask."""
    return xr.Variable(dims, values, attrs, fastpath=True)


def _labels(dim: str, values: NDArray[Any], attrs: dict[str, Any] | None = None) -> xr.Variable:
    """Take the labels of a dimension as they are, for the same reason."""
    index: Any = indexing.PandasIndexingAdapter(pd.Index(values), values.dtype)
    return xr.Variable((dim,), index, attrs, fastpath=True)


def _variable(dims: tuple[Any, ...], array: zarr.Array[Any], values: BackendArray) -> xr.Variable:
    """Wrap a lazy array as xarray's own readers do: read once, copied before it is changed."""
    lazy: Any = indexing.LazilyIndexedArray(values)
    data = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(lazy))  # type: ignore[no-untyped-call]
    encoding = {"preferred_chunks": dict(zip(dims, array.chunks, strict=True))}
    return xr.Variable(dims, data, dict(array.attrs), encoding)


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Labels in the string type that plots and every file format know."""
    if isinstance(values.dtype, np.dtypes.StringDType):
        return np.array(values.tolist(), str)
    return values
