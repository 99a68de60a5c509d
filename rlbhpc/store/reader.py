"""Open a study's results: cube, parts and live journals as one tree of lazily read Datasets.

A chunk file that is not there, or whose checksum does not match, is an error here. Zarr alone
would show the first as missing samples.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

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
_MAX_TRIES: Final = 3
_PROBLEM_COORDINATES: Final = {GUESSABLE.name, *(stratum.name for stratum in STRATA)}


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
        return _open_several([Path(folder) for folder in path])
    folder = Path(path)
    if (folder / cube.METADATA).is_file():
        return _open_store(folder)
    layout = Layout(folder)
    for _ in range(_MAX_TRIES):
        version = cube.current_version(layout)
        try:
            sources = Sources.survey(layout, strict=False)
            datasets, notes = _open_run(sources, version)
        except FileNotFoundError:
            # The version was swept, or a journal removed after sealing, a moment ago.
            continue
        left_out.warn_left_out(folder, notes)
        return _make_tree(datasets, folder, notes)
    raise UserError(
        f"{layout.cube}: replaced again and again while it was opened; open it again", TRY_AGAIN
    )


def _open_store(store: Path) -> xr.DataTree:
    """Open a cube by its own path, without the journals and parts of its run.

    A *version* is the folder that a cube lies in, with a list of its sources and of what it left
    out. That is told in a warning and an attribute, unless the cube is a copy without such a list.
    """
    resolved = store.resolve()
    version = cube.version_of(resolved.parent)
    notes = None
    if version.store == resolved and version.sources:
        unlisted = [Note(*note) for note in version.sources.get("unlisted", [])]
        notes = unlisted + all_notes(version.sources)
    tree = _make_tree(read_datasets(open_overlay({}, resolved)), store, notes)
    left_out.warn_left_out(store, notes or [])
    return tree


def _open_several(folders: list[Path]) -> xr.DataTree:
    """Open several runs as one tree, with a group for each, named as its folder.

    What was left out of each is summed by kind in an attribute of the root.
    """
    if not folders:
        raise UserError("open_cube: the list names no run")
    trees: dict[str, xr.DataTree] = {}
    totals: Counter[str] = Counter()
    for folder in folders:
        name = folder.resolve().name
        if name in trees:
            raise UserError(
                f"open_cube: two runs are called {name}; open them one by one, or link one of "
                "the folders under another name"
            )
        trees[name] = open_cube(folder)
        totals.update(json.loads(trees[name].attrs.get(left_out.ATTRIBUTE, "{}")))
    joined = xr.DataTree.from_dict({f"/{name}": tree for name, tree in trees.items()})
    joined.attrs[left_out.ATTRIBUTE] = json.dumps(totals)
    return joined


def _make_tree(
    datasets: dict[str, xr.Dataset], source: Path, notes: list[Note] | None
) -> xr.DataTree:
    """Join Datasets by their paths to a tree.

    ``source``: where they were opened from, which each Dataset keeps in order to find responses.
    ``notes``: what was left out and why, None where nobody knows.
    """
    for dataset in datasets.values():
        dataset.encoding["source"] = str(source)
    tree = xr.DataTree.from_dict(datasets)
    if notes is not None:
        tree.attrs[left_out.ATTRIBUTE] = json.dumps(left_out.count_by_kind(notes))
    return tree


def _open_run(
    sources: Sources, version: Version | None
) -> tuple[dict[str, xr.Dataset], list[Note]]:
    """Open the cube as it would be after a compaction now, and list what that would leave out.

    ``sources``: the journals and parts that are there. ``version``: the current cube on disk, if
    any, which is called the *base*. Groups (an arm on a problem set) with new samples are derived
    into memory, except for bands (a chunk of problems at a step) that did not change. These, and
    all other groups, are read from the base: an *overlay* reads from memory first, then from disk.
    """
    base = Base.open(version)
    store = version.store if version else None
    changed = [group for group in sources.groups if not _is_up_to_date(sources, group, base)]
    notes = [*sources.notes, *(all_notes(base.sources, changed) if base else [])]
    memory: dict[str, Buffer] = {}
    root = cube.create(MemoryStore(memory))
    try:
        derivations = derive(root, sources, base, changed, take_over=lambda files: True)
    except PurgedError as error:
        # As compaction would: the cube stays as it is, and newer samples are not shown either.
        notes += all_notes(base.sources) if base else []
        notes.append(Note(left_out.PURGED, str(error), error.samples))
        return read_datasets(open_overlay({}, store)), notes
    for derivation in derivations.values():
        for band_notes in derivation.notes.values():
            notes += band_notes
    base_tables = base.sources["inputs"]["tables"] if base else {}
    if sources.inputs["tables"] != base_tables:
        tables.write_groups(root, sources.layout)
    return mark_guessable(read_datasets(open_overlay(memory, store))), notes


def purged_notes(sources: Sources) -> list[Note]:
    """Tell what the cube has and no journal or part of a run has any more.

    ``sources``: the files of the run now. Opening the run finds it, which takes a while; so files
    that the cube was made from are looked for first.
    """
    version = cube.current_version(sources.layout)
    base = Base.open(version)
    if base is None:
        return []
    groups = [Group(*name.split("/")) for name in base.sources["inputs"]["groups"]]
    if not any(_has_lost_files(sources, group, base) for group in groups):
        return []
    _, notes = _open_run(sources, version)
    return [note for note in notes if note.kind == left_out.PURGED]


def _has_lost_files(sources: Sources, group: Group, base: Base) -> bool:
    """Whether a file that the cube was made from is gone."""
    sample_counts = base.sample_counts(group)
    if group not in sources.groups:
        return bool(sample_counts)
    return bool(sources.files[group].files_gone(sample_counts))


def _is_up_to_date(sources: Sources, group: Group, base: Base | None) -> bool:
    """Whether the cube holds all that there is of a group."""
    if base is None or base.damaged_bands(group):
        return False
    plans = base.sources["inputs"]["plans"]
    same_plan = plans.get(str(group)) == sources.inputs["plans"][str(group)]
    return same_plan and dict(base.sample_counts(group)) == sources.files[group].sample_counts


# --- Datasets of groups --------------------------------------------------------------------------


class _Overlay(MemoryStore):
    """Chunks that were derived in memory, and behind them those of a cube on disk."""

    def __init__(self, memory: dict[str, Buffer], store: Path | None) -> None:
        super().__init__(memory, read_only=True)
        self._memory = memory
        self._store = store

    def __str__(self) -> str:
        return str(self._store)

    def read_chunk(self, key: str) -> bytes:
        """Read a chunk from memory, else from the disk."""
        value = self._memory.get(key)
        if value is not None:
            return value.to_bytes()
        return _read_chunk_file(self._store or Path(), key)


def _read_chunk_file(store: Path, key: str) -> bytes:
    """Read a chunk of a cube on disk; an error if it is not there.

    ``key``: its path below the cube. Zarr would show its samples as missing.
    """
    try:
        return (store / key).read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"{store}/{key} is not there any more; open the cube again if it was compacted "
            "meanwhile, else run `rlbhpc compact --rebuild`"
        ) from None


def open_overlay(memory: dict[str, Buffer], store: Path | None) -> zarr.Group:
    """Open a cube whose groups lie in memory or, where memory has none of the name, on disk.

    ``memory``: files of a cube, metadata and chunks, by their keys. ``store``: a cube on disk, if
    any. The metadata of both is joined in the root's, by which Zarr finds all groups. A group in
    memory replaces the one on disk with all its arrays; a chunk that memory lacks is still read
    from disk.
    """
    memory_nodes: dict[str, Any] = {}
    for key, value in memory.items():
        if key.endswith(cube.METADATA):
            name = key.removesuffix(f"/{cube.METADATA}")
            memory_nodes[name] = json.loads(value.to_bytes())
    root = memory_nodes.pop(cube.METADATA, None)
    stored_nodes: dict[str, Any] = {}
    if store is not None:
        stored_root, stored_nodes = cube.read_checked(store)
        root = root or stored_root
    # Only groups with values have a kind, not the folders above them.
    derived_groups = tuple(
        f"{name}/" for name, node in memory_nodes.items() if "kind" in node["attributes"]
    )
    nodes = {
        name: node
        for name, node in stored_nodes.items()
        if not f"{name}/".startswith(derived_groups)
    }
    metadata = cube.consolidated(root or {}, nodes | memory_nodes)
    memory[cube.METADATA] = cpu.Buffer.from_bytes(json.dumps(metadata).encode())
    return zarr.open_group(_Overlay(memory, store), mode="r", use_consolidated=True)


class _LazyArray(BackendArray):
    """What xarray indexes instead of a Zarr array."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.shape = array.shape
        # Strings as other readers give them: netCDF, plots and dask know no StringDType.
        is_text = isinstance(array.dtype, np.dtypes.StringDType)
        self.dtype = np.dtype(object) if is_text else array.dtype
        self._array = array

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read by integers and slices; xarray applies any other kind of index to the result."""
        # xarray before 2026.9 looks for the least of a list of positions, also of an empty one.
        if isinstance(key, indexing.OuterIndexer):
            parts = [slice(0) if np.size(part) == 0 else part for part in key.tuple]
            key = indexing.OuterIndexer(tuple(parts))
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[int | slice, ...]) -> Any:
        return _read_array(self._array, key).astype(self.dtype, copy=False)


class _RightArray(_LazyArray):
    """Whether each sample is right, by its verdict; NaN where that says nothing of the model."""

    def __init__(self, verdict: zarr.Array[Any]) -> None:
        super().__init__(verdict)
        self.dtype = np.dtype(np.float32)

    def _read(self, key: tuple[int | slice, ...]) -> Any:
        right = RIGHT_BY_VERDICT[_read_array(self._array, key)]
        return np.where(right < 0, np.float32(np.nan), right)


def _read_array(array: zarr.Array[Any], key: tuple[int | slice, ...] | None = None) -> NDArray[Any]:
    """Read what a key of integers and slices selects of an array; all of it where None.

    Raises :class:`UserError`, which says what to do, where a chunk is damaged or lost. An *overlay*
    is a cube whose newest groups lie in memory.
    """
    store: Any = array.store
    # A cube that is being written has no overlay yet.
    if isinstance(store, _Overlay):
        read_chunk = store.read_chunk
    else:
        read_chunk = partial(_read_chunk_file, store.root)
    if key is None:
        key = (slice(None),) * array.ndim
    try:
        return read_chunks(array, key, read_chunk)
    except UserError:
        raise
    except Exception as error:
        # Every layer between here and the disk has its own exception for damaged bytes.
        raise UserError(
            f"{array.store_path}: a chunk cannot be read ({error}); `rlbhpc check` on the cube "
            "finds which, `rlbhpc compact --rebuild` derives it anew"
        ) from error


def read_datasets(root: zarr.Group) -> dict[str, xr.Dataset]:
    """Datasets of a cube's groups by path.

    Coordinates are read now, all other values when they are asked for.
    """
    datasets = {"/": xr.Dataset(attrs=dict(root.attrs))}
    for name, node in root.members(max_depth=None):
        if not isinstance(node, zarr.Group):
            continue
        dataset = _read_dataset(node)
        # Schema version 2 had the answers among the samples, as JSON of a block of them.
        if "block" in dataset.dims:
            datasets[f"/{ANSWERS}/{name}"] = dataset[["vocabulary"]].drop_attrs(deep=False)
            dataset = dataset.drop_dims("block")
        datasets[f"/{name}"] = dataset
    return datasets


def _read_dataset(group: zarr.Group) -> xr.Dataset:
    """Make the Dataset of one group.

    Arrays named as their dimension become labels of it. Scalars and properties of problems become
    other coordinates, and are read now; all others are read when their values are asked for.
    ``right``, which is NaN where a verdict says nothing of the model, is computed from the
    verdicts. ``looks`` says, if more samples of some problems were asked for after a look at
    results, how many all problems have.
    """
    variables: dict[str, xr.Variable] = {}
    coordinates: dict[str, xr.Variable] = {}
    for name, array in group.arrays():
        dims: tuple[str, ...] = getattr(array.metadata, "dimension_names", None) or ()
        attrs = dict(array.attrs)
        if dims == (name,):
            coordinates[name] = _index_variable(name, _plain_strings(_read_array(array)), attrs)
        elif dims == () or name in _PROBLEM_COORDINATES:
            coordinates[name] = fast_variable(dims, _plain_strings(_read_array(array)), attrs)
        else:
            variables[name] = _lazy_variable(dims, array, _LazyArray(array))
    if "verdict" in variables:
        # Derived whatever the version: old cubes have none, nor have rollouts.
        verdict: Any = group["verdict"]
        right = _lazy_variable(variables["verdict"].dims, verdict, _RightArray(verdict))
        right.attrs = {"long_name": RIGHT.attrs["long_name"]}
        variables[RIGHT.name] = right
    sizes = {dim: size for variable in variables.values() for dim, size in variable.sizes.items()}
    # Scores have none, and samples had none in schema version 2.
    if "sample" in sizes and "sample" not in coordinates:
        coordinates["sample"] = _index_variable("sample", np.arange(sizes["sample"]))
    attrs = dict(group.attrs)
    attrs.pop("coordinates", None)
    looks = provenance(attrs).get(LOOKS)
    if isinstance(looks, dict):
        coordinates[N_OF_ALL] = fast_variable((), np.asarray(looks["n"]))
    if "provenance" in attrs:
        attrs["provenance"] = json.dumps(provenance(attrs))
    return xr.Dataset(variables, coordinates, attrs)


def fast_variable(
    dims: tuple[str, ...], values: NDArray[Any], attrs: dict[str, Any] | None = None
) -> xr.Variable:
    """Make a variable without the checks of xarray, which would import dask."""
    return xr.Variable(dims, values, attrs, fastpath=True)


def _index_variable(
    dim: str, values: NDArray[Any], attrs: dict[str, Any] | None = None
) -> xr.Variable:
    """The same for the labels of a dimension."""
    index: Any = indexing.PandasIndexingAdapter(pd.Index(values), values.dtype)
    return xr.Variable((dim,), index, attrs, fastpath=True)


def _lazy_variable(
    dims: tuple[Any, ...], array: zarr.Array[Any], values: BackendArray
) -> xr.Variable:
    """Wrap a lazy array as xarray's own readers do: read once, copied before it is changed."""
    lazy: Any = indexing.LazilyIndexedArray(values)
    data = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(lazy))  # type: ignore[no-untyped-call]
    encoding = {"preferred_chunks": dict(zip(dims, array.chunks, strict=True))}
    return xr.Variable(dims, data, dict(array.attrs), encoding)


def _plain_strings(values: NDArray[Any]) -> NDArray[Any]:
    """Turn texts into the string type that plots and every file format know."""
    if isinstance(values.dtype, np.dtypes.StringDType):
        return np.array(values.tolist(), str)
    return values


# --- values of chunk files -----------------------------------------------------------------------
#
# Zarr is made for chunks of many megabytes in stores far away. Through it a chunk of a cube takes
# three times as long, and a report reads thousands.


def read_chunks(
    array: zarr.Array[Any], key: Sequence[int | slice], read_chunk: Callable[[str], bytes]
) -> NDArray[Any]:
    """Read what a key selects of an array, chunk by chunk, without Zarr.

    The array has the codecs of ``cube_schema.codecs``. ``key``: an integer or slice for each
    dimension. ``read_chunk`` gives the bytes of a chunk by its key in the store. A *span* is what
    is selected of one chunk along one dimension: positions inside the chunk, and where they go in
    the result. Every combination of spans, one per dimension, is one chunk.

    Raises :class:`ValueError` where a chunk does not have the checksum that it was written with.
    """
    metadata: Any = array.metadata
    positions = [_positions(size, part) for size, part in zip(array.shape, key, strict=True)]
    spans_by_dim = [
        list(_chunk_spans(chosen, length))
        for chosen, length in zip(positions, array.chunks, strict=True)
    ]
    values = _empty_values([len(chosen) for chosen in positions], array.chunks, array.dtype)
    chunk_count = math.prod(len(spans) for spans in spans_by_dim)
    for spans in product(*spans_by_dim):
        chunk_index = tuple(span.chunk for span in spans)
        chunk_key = f"{array.path}/{metadata.encode_chunk_key(chunk_index)}"
        chunk = _decode_chunk(read_chunk(chunk_key), array)
        inside: Any = (*(span.inside for span in spans), ...)
        selected = chunk[inside]
        # A whole chunk is the result as it is, without a copy.
        if chunk_count == 1 and selected.size == chunk.size:
            values = selected
        else:
            target: Any = (*(span.target for span in spans), ...)
            values[target] = selected
    # Read forwards: an integer drops its dimension now, and a slice backwards is turned round.
    final_index: list[Any] = []
    for part in key:
        if isinstance(part, slice):
            is_backwards = part.step is not None and part.step < 0
            final_index.append(slice(None, None, -1 if is_backwards else 1))
        else:
            final_index.append(0)
    return values[(*final_index, ...)]


def _positions(size: int, part: int | slice) -> range:
    """Ascending positions that an integer or a slice selects in a dimension."""
    chosen = range(size)[part]
    if isinstance(chosen, int):
        return range(chosen, chosen + 1)
    return chosen if chosen.step > 0 else chosen[::-1]


class _ChunkSpan(NamedTuple):
    """Selected positions in one chunk along a dimension.

    ``chunk``: number of the chunk. ``inside``: the positions in it. ``target``: where their values
    go in the result.
    """

    chunk: int
    inside: slice
    target: slice


def _chunk_spans(positions: range, chunk_length: int) -> Iterator[_ChunkSpan]:
    """Divide ascending positions along a dimension by the chunks that hold them.

    ``chunk_length``: length of a chunk along it. ``begin, end`` count the selected positions;
    ``first`` is the position at which a chunk begins.
    """
    begin = 0
    while begin < len(positions):
        chunk = positions[begin] // chunk_length
        first = chunk * chunk_length
        last_in_chunk = first + chunk_length - 1
        # How many selected positions, from this one on, the chunk holds.
        steps_in_chunk = (last_in_chunk - positions[begin]) // positions.step + 1
        end = min(len(positions), begin + steps_in_chunk)
        inside = slice(positions[begin] - first, positions[end - 1] - first + 1, positions.step)
        yield _ChunkSpan(chunk, inside, slice(begin, end))
        begin = end


def _empty_values(
    shape: Sequence[int], chunk_lengths: Sequence[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Make an array in which the values of a step, which is one chunk long, lie together."""
    # Axes whose chunks are one long come first, so that they vary slowest in memory.
    axes = sorted(range(len(shape)), key=lambda axis: chunk_lengths[axis] != 1)
    values = np.empty([shape[axis] for axis in axes], dtype)
    return values.transpose(np.argsort(axes))


_CHECKSUM_BYTES: Final = 4


def _decode_chunk(data: bytes, array: zarr.Array[Any]) -> NDArray[Any]:
    """Decode the bytes of a chunk file to its values, in the shape of a chunk.

    A chunk is compressed by Blosc, or by zstd if it has texts, and ends with the checksum of that.
    Raises :class:`ValueError` where the checksum does not match.
    """
    compressed = data[:-_CHECKSUM_BYTES]
    checksum = google_crc32c.value(compressed).to_bytes(_CHECKSUM_BYTES, "little")
    if data[-_CHECKSUM_BYTES:] != checksum:
        raise ValueError("its checksum does not match")
    if isinstance(array.dtype, np.dtypes.StringDType):
        texts: NDArray[Any] = VLenUTF8().decode(zstd.decompress(compressed))
        return texts.astype(array.dtype).reshape(array.chunks)
    chunk = np.empty(array.chunks, array.dtype.newbyteorder("<"))
    # Blosc would leave values behind a shorter content as they were; its header has the length.
    content_bytes = int.from_bytes(compressed[4:8], "little")
    if content_bytes != chunk.nbytes:
        raise ValueError("it is a chunk of another array")
    blosc.decompress(compressed, chunk)
    return chunk


# --- problems that are guessed -------------------------------------------------------------------
#
# An arm with the prompt ``no-think`` asks a model for its answer alone. A problem that the
# untrained model answers so at a low but nonzero rate is guessed from a small set of answers, and
# at large k any model "solves" it. The mark is a coordinate over the problems of every group of
# the same set, whatever its arm, so that any statistic can leave these problems out.


def write_guessable(root: zarr.Group) -> None:
    """Fill in the marks of a cube whose samples and counts are written."""
    for path, data in mark_guessable(read_datasets(root)).items():
        if GUESSABLE.name in data.coords:
            cube.write(root[path], GUESSABLE.name, data[GUESSABLE.name].values)  # type: ignore[arg-type]


# Rate of right answers without reasoning below which a problem counts as guessed.
_LOW_RATE: Final = 0.05


def guessable(n: ArrayLike, right: ArrayLike) -> NDArray[np.bool_]:
    """Mark problems that the no-think prompt answers at a low but nonzero rate.

    Such a problem is solved by luck at large k: its answer is guessed from a small set, not found.
    One that is answered at a high rate is known or easy and stays.

    ``n, right``: samples of the no-think prompt for each problem, and how many were right. Rates
    above 0 and below 5 % mark a problem. Gives one bool a problem: an attribute of the cube that
    every statistic can select by. A problem without samples is not marked.

    Examples
    --------
    >>> guessable([100, 100, 100, 0], [0, 3, 40, 0])
    array([False,  True, False, False])
    """
    samples = np.asarray(n, np.int64)
    hits = np.asarray(right, np.int64)
    return np.asarray((hits > 0) & (hits < _LOW_RATE * samples))


def mark_guessable(datasets: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Give the Datasets of a tree, by path, the coordinate ``guessable`` from their own counts.

    A problem is *guessable* if the untrained model, asked for its answer alone, is right now and
    then: at a rate above 0 and below 5 %. Arms with such a prompt (*no-think*) decide for all
    groups of the same problem set. Where there are several, one that guesses a problem is enough.
    The mark is 1 or 0, and a fill value where no such arm has samples of the problem.
    """
    groups = {
        path: dataset for path, dataset in datasets.items() if GUESSABLE.name in dataset.coords
    }
    marks_of_set: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for dataset in groups.values():
        if _is_untrained_no_think(dataset):
            marks = marks_of_set[str(dataset["problem_set"].item())]
            for problem, is_guessed in _guessed_problems(dataset):
                marks[problem] = max(int(is_guessed), marks.get(problem, GUESSABLE.fill))
    marked = dict(datasets)
    for path, dataset in groups.items():
        marks = marks_of_set[str(dataset["problem_set"].item())]
        problems = dataset["problem"].values.tolist()
        values = [marks.get(problem, GUESSABLE.fill) for problem in problems]
        coordinate = fast_variable(
            ("problem",), np.array(values, GUESSABLE.dtype), dict(GUESSABLE.attrs)
        )
        marked[path] = dataset.assign_coords({GUESSABLE.name: coordinate})
    return marked


def _is_untrained_no_think(dataset: xr.Dataset) -> bool:
    """Whether a group has the untrained model under a prompt that forbids reasoning."""
    return provenance(dataset.attrs).get(NO_THINK) is True and 0 in dataset["step"].values


def _guessed_problems(dataset: xr.Dataset) -> Iterator[tuple[str, bool]]:
    """Each problem of which the untrained model has samples, and whether it was guessed.

    Step 0 is the untrained model. Where a problem's samples end at so many right ones, the last one
    was right by design: ``exchangeable`` gives counts without that bias.
    """
    # Stored counts are read at once; but where problems end early they hold more than is fair.
    ends_early = SOME_END_EARLY & provenance(dataset.attrs).keys()
    counts = dataset.rlb.counts() if ends_early else dataset[["n", "c"]]
    counts = counts.sel(step=0)
    n, c = counts["n"].values, counts["c"].values
    if "stop_after" in counts.coords:
        n, c = Counts.of(n, c, int(counts["stop_after"]), int(counts["n_max"])).exchangeable
    is_guessed = guessable(n, c)
    for index, problem in enumerate(dataset["problem"].values.tolist()):
        if n[index]:
            yield problem, bool(is_guessed[index])
