"""Open a study's results: cube, parts and live journals as one tree of lazily read Datasets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
import zarr.storage
from numpy.typing import NDArray

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import accessor as accessor  # registers ``.rlb``
from rlbhpc.store import cube, guessing, tables, versions
from rlbhpc.store.cube_schema import GUESSABLE
from rlbhpc.store.grid import Grid
from rlbhpc.store.lazy import LazyArray, Stored, variable
from rlbhpc.store.overlay import Overlay
from rlbhpc.store.sources import Group, Sources
from rlbhpc.store.versions import Version
from rlbhpc.study.layout import Layout

# How often a version may be swept away between being found and being opened.
_TRIES: Final = 3


class SkippedWarning(UserWarning):
    """Something on disk could not be read; what is shown is the rest."""


def open_cube(path: str | Path) -> xr.DataTree:
    """Open the results of a run.

    Parameters
    ----------
    path
        The folder of a run, or a cube by itself (``cube.zarr``, or a copy of one). Of a run,
        samples that came after the last compaction are seen too, also while jobs are writing.

    Returns
    -------
    xarray.DataTree
        One group ``<arm>/<problem set>`` with dims problem × sample × step each, and groups
        ``scores`` and ``training`` where there are any. Values are read on demand. The tree is
        a snapshot: what arrives later is seen by opening again.

    Raises
    ------
    UserError
        If there is nothing to open, or the cube is damaged.

    Examples
    --------
    >>> import rlbhpc
    >>> cube = rlbhpc.open_cube("runs/demo")  # doctest: +SKIP
    >>> base = cube["base/math500"].to_dataset()  # doctest: +SKIP
    >>> base.rlb.pass_at_k([1, 256]).mean("problem", skipna=False)  # doctest: +SKIP
    """
    folder = Path(path)
    if (folder / cube.METADATA).is_file():
        return _tree(_Stored(folder.resolve()).datasets(), folder)
    layout = Layout(folder)
    for _ in range(_TRIES):
        sources = Sources.survey(layout)
        version = versions.current(layout)
        try:
            datasets = _view(sources, version)
        except FileNotFoundError:
            # The version was swept, or a journal removed after sealing, a moment ago.
            continue
        for line in sources.skipped:
            warnings.warn(line, SkippedWarning, stacklevel=2)
        return _tree(datasets, folder)
    raise UserError(
        f"{layout.cube}: replaced again and again while it was opened; open it again", TRY_AGAIN
    )


def _tree(datasets: dict[str, xr.Dataset], source: Path) -> xr.DataTree:
    for dataset in datasets.values():
        dataset.encoding["source"] = str(source)
    return xr.DataTree.from_dict(datasets)


class _Stored:
    """A cube as it was compacted."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._root = cube.open_checked(store)

    def datasets(self) -> dict[str, xr.Dataset]:
        """Build the Dataset of every group, by path."""
        datasets = {"/": xr.Dataset(attrs=dict(self._root.attrs))}
        for name, node in self._root.members(max_depth=None):
            if isinstance(node, zarr.Group) and "kind" in node.attrs:
                datasets[f"/{name}"] = _dataset(node, self.arrays(name, node))
        return datasets

    def grid(self, group: Group) -> Grid | None:
        """Read the axes of a group of samples."""
        return cube.read_grid(self._root, str(group))

    def arrays(self, path: str, group: zarr.Group | None = None) -> dict[str, Stored]:
        """List the arrays of a group."""
        node: Any = group or self._root[path]
        return {n: Stored(array, self._store / path / n) for n, array in node.arrays()}


def _view(sources: Sources, version: Version | None) -> dict[str, xr.Dataset]:
    """Lay over the cube what came since."""
    stored = _Stored(version.store) if version else None
    datasets = stored.datasets() if stored else {"/": xr.Dataset()}
    for group in sources.groups:
        fresh = _fresh(sources, group, version)
        if fresh is not None:
            base = stored.grid(group) if stored else None
            arrays = stored.arrays(str(group)) if stored and base else {}
            overlay = Overlay(sources.rows(group), base, arrays, fresh)
            datasets[f"/{group}"] = overlay.dataset()
    known = version.sources["inputs"]["tables"] if version and version.sources else {}
    if sources.inputs["tables"] != known:
        datasets |= _tables(sources.layout)
    return guessing.mark(datasets)


def _tables(layout: Layout) -> dict[str, xr.Dataset]:
    """Read the small tables as the groups that they will be in the cube."""
    root = cube.create(zarr.storage.MemoryStore())
    tables.write_groups(root, layout)
    return {
        f"/{name}": _dataset(node, {n: np.asarray(a[...]) for n, a in node.arrays()})
        for name, node in root.members(max_depth=None)
        if isinstance(node, zarr.Group) and "kind" in node.attrs
    }


def _dataset(group: zarr.Group, values: Mapping[str, NDArray[Any] | Stored]) -> xr.Dataset:
    """Put the arrays of a group together; coordinates are read, all else when it is asked for."""
    variables: dict[str, xr.Variable] = {}
    coordinates: dict[str, xr.Variable] = {}
    for name, array in group.arrays():
        dims: tuple[str, ...] = getattr(array.metadata, "dimension_names", None) or ()
        found, attrs = values[name], dict(array.attrs)
        if dims in {(), (name,)} or name == GUESSABLE.name:
            whole = found if not isinstance(found, Stored) else found.whole()
            coordinates[name] = xr.Variable(dims, whole, attrs)
        elif isinstance(found, Stored):
            lazy = LazyArray(found, array.shape, array.dtype)
            variables[name] = variable(dims, lazy, attrs, array.chunks)
        else:
            variables[name] = xr.Variable(dims, found, attrs)
    attrs = {k: v for k, v in group.attrs.items() if k != "coordinates"}
    return xr.Dataset(variables, coordinates, attrs)


def _fresh(sources: Sources, group: Group, version: Version | None) -> list[str] | None:
    """Files that the cube does not hold wholly; None if nothing at all has changed since."""
    files = sources.rows(group).files
    if version is None or version.sources is None:
        return list(files)
    inputs = version.sources["inputs"]
    known = inputs["groups"].get(str(group), {})
    same_plan = inputs["plans"].get(str(group)) == sources.inputs["plans"][str(group)]
    if known == files and same_plan:
        return None
    return [name for name, mark in files.items() if known.get(name) != mark]
