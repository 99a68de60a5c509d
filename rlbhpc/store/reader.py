"""Open a study's results: cube, parts and live journals as one tree of lazily read Datasets.

A chunk file that is not there, or whose checksum does not match, is an error here. Zarr alone
would show the first as missing samples.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import pandas as pd
import xarray as xr
import zarr
from numcodecs import blosc, zstd
from numcodecs.vlen import VLenUTF8
from numpy.typing import ArrayLike, NDArray
from xarray.backends import BackendArray
from xarray.core import indexing
from zarr.core.buffer import Buffer, cpu
from zarr.storage import MemoryStore

import rlbhpc.xarray  # noqa: F401 puts .rlb on Datasets and trees
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.store import cube, left_out, tables
from rlbhpc.store.cube import Version
from rlbhpc.store.cube_schema import (
    ANSWERS,
    GUESSABLE,
    LOOKS,
    N_OF_ALL,
    NO_THINK,
    RIGHT,
    RIGHT_BY_VERDICT,
    SOME_END_EARLY,
    STRATA,
    provenance,
)
from rlbhpc.store.derive import Base, PurgedError, all_notes, derive
from rlbhpc.store.left_out import Note
from rlbhpc.store.sources import Group, Sources
from rlbhpc.study.layout import Layout

# How often a version may be swept away between being found and being opened.
_TRIES: Final = 3
# Coordinates along the problems.
_OF_PROBLEMS = {GUESSABLE.name, *(stratum.name for stratum in STRATA)}


def open_cube(path: str | Path | Sequence[str | Path]) -> xr.DataTree:
    """Open the results of a run, or of several.

    ``path``: the folder of a run, or a cube by itself (``cube.zarr``, or a copy of one). Of a run,
    samples that came after the last compaction are seen too, also while jobs are writing. A list
    gives one tree, in which each run has a group named as its folder. Gives one group
    ``<arm>/<problem set>`` with dims problem × sample × step each, and groups ``scores`` and
    ``training`` where there are any. Values are read on demand. The tree is a snapshot: what
    arrives later is seen by opening again. Raises :class:`UserError` if there is nothing to open,
    or the cube is damaged.

    Examples
    --------
    >>> import rlbhpc
    >>> cube = rlbhpc.open_cube("runs/demo")  # doctest: +SKIP
    >>> base = cube["base/math500"].to_dataset()  # doctest: +SKIP
    >>> base.rlb.pass_at_k([1, 256], over="problem")  # doctest: +SKIP
    """
    if not isinstance(path, str | Path | Sequence) or "://" in str(path):
        raise UserError(
            f"open_cube: found {path}; allowed: a folder of this machine, or a list of them. Open "
            "a cube elsewhere by xarray.open_datatree(…, engine='zarr'): .rlb is on it too"
        )
    if not isinstance(path, str | Path):
        return _several([Path(folder) for folder in path])
    folder = Path(path)
    if (folder / cube.METADATA).is_file():
        return _alone(folder)
    layout = Layout(folder)
    for _ in range(_TRIES):
        version = cube.current_version(layout)
        try:
            sources = Sources.survey(layout, strict=False)
            datasets, notes = _view(sources, version)
        except FileNotFoundError:
            # The version was swept, or a journal removed after sealing, a moment ago.
            continue
        left_out.warn_left_out(folder, notes)
        return _tree(datasets, folder, notes)
    raise UserError(
        f"{layout.cube}: replaced again and again while it was opened; open it again", TRY_AGAIN
    )


def _alone(store: Path) -> xr.DataTree:
    """A cube by its own path, with what it left out; a copy without its version knows nothing."""
    real = store.resolve()
    version = cube.version_of(real.parent)
    notes = None
    if version.store == real and version.sources:
        unlisted = [Note(*note) for note in version.sources.get("unlisted", [])]
        notes = unlisted + all_notes(version.sources)
    tree = _tree(datasets(open_overlay({}, real)), store, notes)
    left_out.warn_left_out(store, notes or [])
    return tree


def _several(folders: list[Path]) -> xr.DataTree:
    names = [folder.resolve().name for folder in folders]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not folders or twice is not None:
        raise UserError(
            "open_cube: the list names no run"
            if twice is None
            else f"open_cube: two runs are called {twice}; open them one by one, or link one of "
            "the folders under another name"
        )
    trees = {folder.resolve().name: open_cube(folder) for folder in folders}
    whole = xr.DataTree.from_dict({f"/{name}": tree for name, tree in trees.items()})
    counts: Counter[str] = Counter()
    for tree in trees.values():
        counts.update(json.loads(tree.attrs.get(left_out.ATTRIBUTE, "{}")))
    whole.attrs[left_out.ATTRIBUTE] = json.dumps(counts)
    return whole


def _tree(datasets: dict[str, xr.Dataset], source: Path, notes: list[Note] | None) -> xr.DataTree:
    for dataset in datasets.values():
        dataset.encoding["source"] = str(source)
    tree = xr.DataTree.from_dict(datasets)
    if notes is not None:
        tree.attrs[left_out.ATTRIBUTE] = json.dumps(left_out.count_by_kind(notes))
    return tree


def _view(sources: Sources, version: Version | None) -> tuple[dict[str, xr.Dataset], list[Note]]:
    """Datasets of the cube as it would be after compaction now, and what they leave out.

    Groups with news are compacted in memory. Bands without news are those of the cube.
    """
    base = Base.of(version)
    below = version.store if version else None
    changed = [group for group in sources.groups if not (base and _unchanged(sources, group, base))]
    notes = [*sources.notes, *(all_notes(base.sources, changed) if base else [])]
    above: dict[str, Buffer] = {}
    root = cube.create(MemoryStore(above))
    try:
        derivations = derive(root, sources, base, changed, lambda files: True)
    except PurgedError as error:
        # As compaction would: the cube stays as it is, and what came since is not shown either.
        notes += all_notes(base.sources) if base else []
        notes.append(Note(left_out.PURGED, str(error), error.samples))
        return datasets(open_overlay({}, below)), notes
    for derivation in derivations.values():
        notes += [note for band in derivation.notes.values() for note in band]
    if sources.inputs["tables"] != (base.sources["inputs"]["tables"] if base else {}):
        tables.write_groups(root, sources.layout)
    return mark_guessable(datasets(open_overlay(above, below))), notes


def purged_notes(sources: Sources) -> list[Note]:
    """What the cube has and no journal or part of a run has any more."""
    version = cube.current_version(sources.layout)
    base = Base.of(version)
    if base is None:
        return []
    groups = (Group(*name.split("/")) for name in base.sources["inputs"]["groups"])
    if not any(_lost_files(sources, group, base) for group in groups):
        return []
    return [note for note in _view(sources, version)[1] if note.kind == left_out.PURGED]


def _lost_files(sources: Sources, group: Group, base: Base) -> bool:
    files = base.files(group)
    return bool(sources.rows[group].gone(files) if group in sources.groups else files)


def _unchanged(sources: Sources, group: Group, base: Base) -> bool:
    """Whether the cube holds all that there is of a group."""
    plans = base.sources["inputs"]["plans"]
    same_plan = plans.get(str(group)) == sources.inputs["plans"][str(group)]
    same_files = dict(base.files(group)) == sources.rows[group].files
    return same_plan and same_files and not base.lacks(group)


# --- Datasets of groups --------------------------------------------------------------------------


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
        return read_chunks(array, key or (slice(None),) * array.ndim, bytes_of)
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


# --- values of chunk files -----------------------------------------------------------------------
#
# Zarr is made for chunks of many megabytes in stores far away. Through it a chunk of a cube takes
# three times as long, and a report reads thousands.


def read_chunks(
    array: zarr.Array[Any], key: Sequence[int | slice], bytes_of: Callable[[str], bytes]
) -> NDArray[Any]:
    """Read what integers and slices choose of an array with the codecs of ``cube_schema.codecs``.

    ``bytes_of`` gives the bytes of a chunk by its key. Raises :class:`ValueError` where a chunk
    does not have the checksum that it was written with.
    """
    metadata: Any = array.metadata
    chosen = [range(size)[part] for size, part in zip(array.shape, key, strict=True)]
    forwards = [range(c, c + 1) if isinstance(c, int) else c[:: np.sign(c.step)] for c in chosen]
    parts = list(product(*map(_chunk_spans, forwards, array.chunks)))
    values = _empty_values(list(map(len, forwards)), array.chunks, array.dtype)
    for part in parts:
        place, within, target = zip(*part, strict=True) if part else ((), (), ())
        chunk = _decoded(bytes_of(f"{array.path}/{metadata.encode_chunk_key(place)}"), array)
        inside = chunk[(*within, ...)]
        if len(parts) == 1 and inside.size == chunk.size:
            values = inside
        else:
            values[(*target, ...)] = inside
    # An integer drops its dimension, and a slice may go backwards.
    last: list[Any] = [
        0 if isinstance(c, int) else slice(None, None, np.sign(c.step)) for c in chosen
    ]
    return values[(*last, ...)]


def _chunk_spans(chosen: range, length: int) -> Iterator[tuple[int, slice, slice]]:
    """Chunks along a dimension with chosen positions: which, where in it, and where these go."""
    begin = 0
    while begin < len(chosen):
        number = chosen[begin] // length
        first = number * length
        end = min(len(chosen), begin - (chosen[begin] - first - length) // chosen.step)
        inside = slice(chosen[begin] - first, chosen[end - 1] - first + 1, chosen.step)
        yield number, inside, slice(begin, end)
        begin = end


def _empty_values(
    shape: Sequence[int], lengths: Sequence[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Room for values in which those of a step, a chunk of its own, lie together."""
    order = sorted(range(len(shape)), key=lambda axis: lengths[axis] != 1)
    room = np.empty([shape[axis] for axis in order], dtype)
    return room.transpose(np.argsort(order))


def _decoded(data: bytes, array: zarr.Array[Any]) -> NDArray[Any]:
    data, checksum = data[:-4], data[-4:]
    if google_crc32c.value(data).to_bytes(4, "little") != checksum:
        raise ValueError("its checksum does not match")
    if isinstance(array.dtype, np.dtypes.StringDType):
        texts: NDArray[Any] = VLenUTF8().decode(zstd.decompress(data))
        return texts.astype(array.dtype).reshape(array.chunks)
    chunk = np.empty(array.chunks, array.dtype.newbyteorder("<"))
    # Blosc would leave the rest as it was; its header has the length, four bytes after four others.
    if int.from_bytes(data[4:8], "little") != chunk.nbytes:
        raise ValueError("it is a chunk of another array")
    blosc.decompress(data, chunk)
    return chunk


# --- problems that are guessed -------------------------------------------------------------------
#
# An arm with the prompt ``no-think`` asks a model for its answer alone. A problem that the
# untrained model answers so at a low but nonzero rate is guessed from a small set of answers, and
# at large k any model "solves" it. The mark is a coordinate over the problems of every group of
# the same set, whatever its arm, so that any statistic can leave these problems out.


def write_guessable(root: zarr.Group) -> None:
    """Fill in the marks of a cube whose samples and counts are written."""
    for path, data in mark_guessable(datasets(root)).items():
        if GUESSABLE.name in data.coords:
            cube.write(root[path], GUESSABLE.name, data[GUESSABLE.name].values)  # type: ignore[arg-type]


#: Rate of right answers without reasoning below which a problem counts as guessed.
LOW_RATE: Final = 0.05


def guessable(n: ArrayLike, right: ArrayLike, below: float = LOW_RATE) -> NDArray[np.bool_]:
    """Mark problems that the no-think prompt answers at a low but nonzero rate.

    Such a problem is solved by luck at large k: its answer is guessed from a small set, not found.
    One that is answered at a high rate is known or easy and stays.

    ``n, right``: samples of the no-think prompt for each problem, and how many were right.
    ``below``: rates from 0 to here, both ends excluded, mark a problem. Gives one bool a problem:
    an attribute of the cube that every statistic can select by. A problem without samples is not
    marked.

    Examples
    --------
    >>> guessable([100, 100, 100, 0], [0, 3, 40, 0])
    array([False,  True, False, False])
    """
    samples, hits = np.asarray(n, np.int64), np.asarray(right, np.int64)
    if samples.shape != hits.shape or (hits > samples).any() or (hits < 0).any():
        raise UserError("no-think counts: right must be between 0 and n for each problem")
    if not 0 < below <= 1:
        raise UserError(f"guessable below a rate of {below}: allowed is a share above 0 up to 1")
    return np.asarray((hits > 0) & (hits < below * samples))


def mark_guessable(
    datasets: Mapping[str, xr.Dataset], below: float = LOW_RATE
) -> dict[str, xr.Dataset]:
    """Give the Datasets of a tree, by path, the coordinate ``guessable`` from their own counts.

    Where several arms were asked without reasoning, one that guesses a problem is enough.
    ``below``: rates from 0 to here, both ends excluded, mark a problem.
    """
    groups = {path: data for path, data in datasets.items() if GUESSABLE.name in data.coords}
    known: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for data in groups.values():
        if _guesses_blindly(data):
            marks = known[str(data["problem_set"].item())]
            for problem, guessed in _guesses(data, below):
                marks[problem] = max(int(guessed), marks.get(problem, GUESSABLE.fill))
    marked = {}
    for path, data in groups.items():
        marks = known[str(data["problem_set"].item())]
        values = [marks.get(problem, GUESSABLE.fill) for problem in data["problem"].values.tolist()]
        attrs = dict(GUESSABLE.attrs)
        coordinate = of_array(("problem",), np.array(values, GUESSABLE.dtype), attrs)
        marked[path] = data.assign_coords({GUESSABLE.name: coordinate})
    return {**datasets, **marked}


def _guesses_blindly(data: xr.Dataset) -> bool:
    """Whether a group has the untrained model under a prompt that forbids reasoning."""
    return provenance(data.attrs).get(NO_THINK) is True and 0 in data["step"].values


def _guesses(data: xr.Dataset, below: float) -> Iterator[tuple[str, bool]]:
    """Each problem of which the untrained model has samples, and whether it was guessed."""
    # Stored counts are read at once; but where problems end early they hold more than is fair.
    early = SOME_END_EARLY & provenance(data.attrs).keys()
    counts = (data.rlb.counts() if early else data[["n", "c"]]).sel(step=0)
    n, c = counts["n"].values, counts["c"].values
    if "stop_after" in counts.coords:
        n, c = Counts.of(n, c, int(counts["stop_after"]), int(counts["n_max"])).exchangeable
    marked = guessable(n, c, below)
    for problem, samples, guessed in zip(data["problem"].values.tolist(), n, marked, strict=True):
        if samples:
            yield problem, bool(guessed)
