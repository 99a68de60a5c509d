"""Open a study's results: cube, parts and live journals as one tree of lazily read Datasets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
import zarr.storage
from numpy.typing import NDArray

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import cube, guessing, left_out, tables, versions
from rlbhpc.store.cube_schema import GUESSABLE
from rlbhpc.store.derive import Base, Derivation, PurgedError, refuse_purged
from rlbhpc.store.lazy import Layered, LazyArray, Stored, variable
from rlbhpc.store.left_out import Note
from rlbhpc.store.sources import Group, Sources
from rlbhpc.store.versions import Version
from rlbhpc.study.layout import Layout

Values = NDArray[Any] | Stored | Layered

# How often a version may be swept away between being found and being opened.
_TRIES: Final = 3


def open_cube(path: str | Path | Sequence[str | Path]) -> xr.DataTree:
    """Open the results of a run, or of several.

    Parameters
    ----------
    path
        The folder of a run, or a cube by itself (``cube.zarr``, or a copy of one). Of a run,
        samples that came after the last compaction are seen too, also while jobs are writing.
        A list gives one tree, in which each run has a group named as its folder.

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
    if not isinstance(path, str | Path):
        return _several([Path(folder) for folder in path])
    folder = Path(path)
    if (folder / cube.METADATA).is_file():
        return _tree(_Stored(folder.resolve()).datasets(), folder, [])
    layout = Layout(folder)
    for _ in range(_TRIES):
        version = versions.current(layout)
        try:
            sources = Sources.survey(layout)
            datasets, notes = _view(sources, version)
        except FileNotFoundError:
            # The version was swept, or a journal removed after sealing, a moment ago.
            continue
        left_out.tell(folder, notes)
        return _tree(datasets, folder, notes)
    raise UserError(
        f"{layout.cube}: replaced again and again while it was opened; open it again", TRY_AGAIN
    )


def _several(folders: list[Path]) -> xr.DataTree:
    """One tree of several runs, each under the name of its folder."""
    names = [folder.resolve().name for folder in folders]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not folders or twice is not None:
        raise UserError(
            "open_cube: the list names no run"
            if twice is None
            else f"open_cube: two runs are called {twice}; open them one by one, or link one of "
            "the folders under another name"
        )
    trees = {name: open_cube(folder) for name, folder in zip(names, folders, strict=True)}
    whole = xr.DataTree.from_dict({f"/{name}": tree for name, tree in trees.items()})
    counts: Counter[str] = Counter()
    for tree in trees.values():
        counts.update(json.loads(tree.attrs[left_out.ATTRIBUTE]))
    whole.attrs[left_out.ATTRIBUTE] = json.dumps(counts)
    return whole


def _tree(datasets: dict[str, xr.Dataset], source: Path, notes: list[Note]) -> xr.DataTree:
    for dataset in datasets.values():
        dataset.encoding["source"] = str(source)
    tree = xr.DataTree.from_dict(datasets)
    tree.attrs[left_out.ATTRIBUTE] = json.dumps(left_out.counts(notes))
    return tree


class _Stored:
    """A cube as it was compacted."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._root = cube.open_checked(store)

    def datasets(self) -> dict[str, xr.Dataset]:
        """Build the Dataset of every group, by path."""
        datasets = {"/": xr.Dataset(attrs=plain_attributes(self._root.attrs))}
        for name, node in self._root.members(max_depth=None):
            if isinstance(node, zarr.Group) and "kind" in node.attrs:
                datasets[f"/{name}"] = _dataset(node, self.arrays(name, node))
        return datasets

    def arrays(self, path: str, group: zarr.Group | None = None) -> dict[str, Stored]:
        """List the arrays of a group."""
        node: Any = group or self._root[path]
        return {n: Stored(array, self._store / path / n) for n, array in node.arrays()}


def _view(sources: Sources, version: Version | None) -> tuple[dict[str, xr.Dataset], list[Note]]:
    """Datasets of the cube as it would be after compaction now, and what they leave out.

    Groups without news are those of the cube. Of others, bands with news are derived in memory,
    as compaction derives them on disk.
    """
    base = Base.of(version)
    stored = _Stored(version.store) if version else None
    datasets = stored.datasets() if stored else {"/": xr.Dataset()}
    notes = [*sources.notes, *(base.all_notes() if base else [])]
    derivations: dict[Group, Derivation] = {}
    fresh: dict[str, xr.Dataset] = {}
    for group in sources.groups:
        if base is None or not _unchanged(sources, group, base):
            derivations[group], dataset = _derived(sources, group, base)
            fresh[f"/{group}"] = dataset
            notes += [note for band in derivations[group].notes.values() for note in band]
    try:
        refuse_purged(base, sources, derivations)
    except PurgedError as error:
        # As compaction would: the cube stays as it is, and what came since is not shown either.
        return datasets, [*notes, Note(left_out.PURGED, str(error), error.samples)]
    datasets |= fresh
    tables_before = base.sources["inputs"]["tables"] if base else {}
    if sources.inputs["tables"] != tables_before:
        datasets |= _tables(sources.layout)
    return guessing.mark(datasets), notes


def purged(sources: Sources) -> list[Note]:
    """What the cube has and no journal or part of a run has any more."""
    version = versions.current(sources.layout)
    base = Base.of(version)
    if base is None:
        return []
    groups = (Group(*name.split("/", 1)) for name in base.sources["inputs"]["groups"])
    if not any(_lost_files(sources, group, base) for group in groups):
        return []
    return [note for note in _view(sources, version)[1] if note.kind == left_out.PURGED]


def _lost_files(sources: Sources, group: Group, base: Base) -> bool:
    files = base.files(group)
    return bool(sources.rows(group).gone(files) if group in sources.groups else files)


def _unchanged(sources: Sources, group: Group, base: Base) -> bool:
    """Whether the cube holds all that there is of a group."""
    plans = base.sources["inputs"]["plans"]
    same_plan = plans.get(str(group)) == sources.inputs["plans"][str(group)]
    return same_plan and dict(base.files(group)) == sources.rows(group).files


def _derived(sources: Sources, group: Group, base: Base | None) -> tuple[Derivation, xr.Dataset]:
    """Derive a group in memory, but for the bands that the cube has already."""
    rows = sources.rows(group)
    derivation = Derivation(rows, base)
    root = cube.create(zarr.storage.MemoryStore())
    target = cube.create_samples(root, *group, derivation.grid)
    derivation.write(target, keep=lambda place: True)
    values: dict[str, Values] = {}
    node: Any = root[str(group)]
    for name, array in node.arrays():
        if array.ndim > 1 and base is not None and derivation.kept:
            folder = base.store / str(group) / name
            below = Stored(base.root[f"{group}/{name}"], folder)  # type: ignore[arg-type]
            chunk = derivation.grid.chunk.problems
            values[name] = Layered(array, below, frozenset(derivation.kept), chunk)
        else:
            values[name] = np.asarray(array[...]) if array.ndim < 2 else Layered(array, None, (), 1)
    return derivation, _dataset(node, values)


def _tables(layout: Layout) -> dict[str, xr.Dataset]:
    """Read the small tables as the groups that they will be in the cube."""
    root = cube.create(zarr.storage.MemoryStore())
    tables.write_groups(root, layout)
    return {
        f"/{name}": _dataset(node, {n: np.asarray(a[...]) for n, a in node.arrays()})
        for name, node in root.members(max_depth=None)
        if isinstance(node, zarr.Group) and "kind" in node.attrs
    }


def _dataset(group: zarr.Group, values: Mapping[str, Values]) -> xr.Dataset:
    """Put the arrays of a group together; coordinates are read, all else when it is asked for."""
    variables: dict[str, xr.Variable] = {}
    coordinates: dict[str, xr.Variable] = {}
    for name, array in group.arrays():
        dims: tuple[str, ...] = getattr(array.metadata, "dimension_names", None) or ()
        content, attrs = values[name], dict(array.attrs)
        if dims in {(), (name,)} or name == GUESSABLE.name:
            whole = content.whole() if isinstance(content, Stored) else np.asarray(content)
            coordinates[name] = xr.Variable(dims, _plain(whole), attrs)
        elif isinstance(content, Stored | Layered):
            lazy = LazyArray(content, array.shape, _plain_dtype(array.dtype))
            variables[name] = variable(dims, lazy, attrs, array.chunks)
        else:
            variables[name] = xr.Variable(dims, _plain(content), attrs)
    attrs = {k: v for k, v in group.attrs.items() if k != "coordinates"}
    return xr.Dataset(variables, coordinates, plain_attributes(attrs))


def plain_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that every format takes: what is no text or number becomes its JSON."""
    return {
        name: value if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in attrs.items()
    }


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Labels in the string type that plots and every file format know."""
    if isinstance(values.dtype, np.dtypes.StringDType):
        return np.array(values.tolist(), str)
    return values


def _plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(object) if isinstance(dtype, np.dtypes.StringDType) else dtype
