"""The cube on disk: its Zarr tree, and the versions of it.

Nothing here knows where rows come from: see :mod:`rlbhpc.store.derive` and
:mod:`rlbhpc.store.compact`. Everything written is a function of the arguments, down to the byte.

Each version is whole and immutable, and one of them is current.

::

    cube.zarr -> cubes/<version>/cube.zarr
    cubes/<version>/cube.zarr/        a Zarr tree that nobody changes any more
    cubes/<version>/sources.json      what it was made from
    cubes/<uuid>.partial/             a version in the making

A version is built under a name of its own, synced, renamed, and made current by renaming a
symbolic link over the old one. A kill at any point leaves either the old or the new version
current, and a reader that has resolved the link keeps a consistent cube while newer ones appear.
Chunk files that did not change are hard links to those of the version before, so a version costs
what is new in it.

Two compactors at once each publish a whole version; the last link wins. Should that be the one
that saw less, nothing is lost or wrong: its ``sources.json`` says what it holds, readers add the
rest from parts and journals, and the next compaction holds all.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store import checked, cube_schema
from rlbhpc.store.cube_schema import Variable
from rlbhpc.store.grid import Chunk, Grid
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    import zarr
    import zarr.storage


METADATA: Final = "zarr.json"
#: Root attribute: checksum of all metadata. Chunks have their own.
CHECKSUM: Final = "metadata_sha256"

# A cube that holds a planned step of which nothing was sampled yet has chunks of fill values
# only. They are written all the same: then a chunk file that is not there was lost, and a reader
# can say so instead of showing the samples as missing.
_WRITE_EMPTY_CHUNKS: Final = {"array.write_empty_chunks": True}


# Constant, so that a table that grows adds chunks.
TABLE_CHUNKS: Final = {"problem": 1024, "sample": 64, "train_step": 1 << 16, "row": 1 << 17}


def create(root: Path | zarr.storage.MemoryStore) -> zarr.Group:
    """Start a cube, a Zarr tree with the attributes of its schema and no groups yet.

    ``root``: a folder that does not exist yet, or a store in memory.
    """
    import zarr

    return zarr.create_group(
        root,
        zarr_format=3,
        attributes={
            "schema": cube_schema.SCHEMA,
            "schema_version": cube_schema.SCHEMA_VERSION,
            "Conventions": "CF-1.11",
        },
    )


def create_samples(root: zarr.Group, arm: str, problem_set: str, grid: Grid) -> zarr.Group:
    """Create the group of one arm and problem set: coordinates are filled in, samples are not.

    ``grid``: the axes (problems, steps, n samples), the chunks, and the provenance, what the
    samples stand on. A *stratum* is a property of problems such as their difficulty; where the
    problem set has it, it becomes a coordinate. So does the number of right samples at which a
    problem ends, if any.
    """
    provenance = dict(grid.provenance)
    strata = provenance.pop(cube_schema.STRATA_KEY, {})
    # Texts are no part of the cube, so neither is the name of their file.
    provenance.pop(cube_schema.QUESTIONS, None)
    group = create_group(root, f"{arm}/{problem_set}", "samples", provenance)
    variables = (
        cube_schema.SAMPLE_NUMBER,
        *cube_schema.SAMPLE_VARIABLES,
        *cube_schema.traced_variables(grid.provenance),
        *cube_schema.CELL_VARIABLES,
    )
    _create_axes(group, arm, problem_set, grid, variables)
    write(group, "sample", np.arange(grid.n))
    if stop_after := grid.provenance.get(cube_schema.STOP_AFTER.name):
        _add_coordinate(group, grid, cube_schema.STOP_AFTER, stop_after)
    for stratum in cube_schema.STRATA:
        word_of_problem = strata.get(stratum.name)
        if word_of_problem:
            words = [word_of_problem.get(problem, "") for problem in grid.problems]
            _add_coordinate(group, grid, stratum, words)
    return group


def _add_coordinate(group: zarr.Group, grid: Grid, variable: Variable, values: Any) -> None:
    """Add a coordinate that not every group has."""
    sizes = {"problem": len(grid.problems)}
    create_arrays(group, [variable], sizes, {"problem": grid.chunk.problems})
    write(group, variable.name, values)
    names = f"{group.attrs['coordinates']} {variable.name}"
    group.update_attributes({"coordinates": names})


def create_counts(
    root: zarr.Group,
    arm: str,
    problem_set: str,
    grid: Grid,
    n: NDArray[np.int32],
    c: NDArray[np.int32],
) -> None:
    """Write a group of which only counts are known: n samples and c right ones.

    ``n, c``: over (problem, step). ``grid``: the problems and steps.
    """
    group = create_group(root, f"{arm}/{problem_set}", "counts", grid.provenance)
    _create_axes(group, arm, problem_set, grid, cube_schema.COUNT_VARIABLES)
    write(group, "n", n)
    write(group, "c", c)


def create_table(
    root: zarr.Group,
    path: str,
    kind: str,
    variables: Iterable[Variable],
    values: Mapping[str, NDArray[Any] | str],
) -> None:
    """Write a group of small arrays whole: scored texts, training curves.

    ``path``: of the group in the cube. ``kind``: what readers and checks take it for.
    ``variables``: names, dimensions and types. ``values``: the array of each variable by its name.
    """
    variables = list(variables)
    group = create_group(root, path, kind, {})
    sizes: dict[str, int] = {}
    for variable in variables:
        sizes.update(zip(variable.dims, np.shape(values[variable.name]), strict=True))
    create_arrays(group, variables, sizes, TABLE_CHUNKS)
    for variable in variables:
        write(group, variable.name, values[variable.name])


def create_arrays(
    group: zarr.Group,
    variables: Iterable[Variable],
    sizes: Mapping[str, int],
    chunks: Mapping[str, int],
) -> None:
    """Create arrays of a group, all of fill values.

    ``variables``: names, dimensions, types and fill values. ``sizes, chunks``: length of each
    dimension, and of a chunk along it; 1 where none is given.
    """
    for variable in variables:
        chunk_lengths = [max(1, chunks.get(dim, 1)) for dim in variable.dims]
        group.create_array(
            variable.name,
            shape=tuple(sizes[dim] for dim in variable.dims),
            chunks=tuple(chunk_lengths),
            dtype=variable.dtype,
            fill_value=variable.fill,
            dimension_names=variable.dims,
            attributes=dict(variable.attrs),
            compressors=cube_schema.codecs(variable.dtype),
        )


def write(group: zarr.Group, name: str, values: Any) -> None:
    """Write an array whole."""
    dtype = group[name].dtype  # type: ignore[union-attr]
    write_region(group, name, ..., np.asarray(values, dtype))


def write_region(group: zarr.Group, name: str, region: Any, values: NDArray[Any]) -> None:
    """Write a part of an array."""
    import zarr

    with zarr.config.set(_WRITE_EMPTY_CHUNKS):
        array: Any = group[name]
        array[region] = values


def append(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    """Write values behind those of an array of one dimension."""
    import zarr

    with zarr.config.set(_WRITE_EMPTY_CHUNKS):
        array: Any = group[name]
        array.append(values.astype(array.dtype))


def write_band(
    group: zarr.Group,
    grid: Grid,
    chunk_row: int,
    step_index: int,
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write the arrays of a band into a group.

    A *band* is one row of chunks along the problems, at one step, with all samples. ``grid``: the
    axes of the group. ``arrays``: by name of the variable, problems first and the step, of length
    1, last.
    """
    first = chunk_row * grid.chunk.problems
    for name, values in arrays.items():
        region = (slice(first, first + len(values)), ..., slice(step_index, step_index + 1))
        write_region(group, name, region, values)


def band_files(group: str, grid: Grid, chunk_row: int, step_index: int) -> Iterator[Path]:
    """Paths of the chunk files of a band, below the cube's root.

    A *band* is one row of chunks along the problems, at one step, with all samples. ``group``: path
    of the group. Variables over cells (problem, step) have one file in a band, those over samples
    have one for each chunk of samples.
    """
    traced = cube_schema.traced_variables(grid.provenance)
    for variable in (*cube_schema.SAMPLE_VARIABLES, *traced, *cube_schema.CELL_VARIABLES):
        folder = Path(group, variable.name, "c", str(chunk_row))
        if variable.dims == cube_schema.CELLS:
            yield folder / str(step_index)
            continue
        for sample_chunk in range(grid.sample_chunks):
            yield folder / str(sample_chunk) / str(step_index)


def intact(path: Path) -> bool:
    """Whether a chunk file exists and its last four bytes are the checksum of those before."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    check = google_crc32c.value(data[:-4]).to_bytes(4, "little")
    return len(data) > 4 and data[-4:] == check


def is_intact(store: Path, array: Any) -> bool:
    """Whether every chunk file of a Zarr array is there, with its checksum."""
    for chunk_index in np.ndindex(array.cdata_shape):
        key = array.metadata.encode_chunk_key(chunk_index)
        if not intact(store / array.path / key):
            return False
    return True


def open_checked(store: Path) -> zarr.Group:
    """Open a cube for reading after a look at its metadata, see :func:`read_checked`."""
    import zarr

    read_checked(store)
    return zarr.open_group(store, mode="r")


def read_checked(store: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the metadata of a cube's root and, by path, of every group and array.

    The root holds a copy of all metadata, with a checksum over it. Raises :class:`UserError` if it
    is no cube, one of a later schema, or its metadata was damaged.
    """
    try:
        top = json.loads((store / METADATA).read_bytes())
        attributes = top["attributes"]
        nodes = top["consolidated_metadata"]["metadata"]
        schema, version = attributes["schema"], attributes["schema_version"]
        checksum = attributes[CHECKSUM]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{store}: not a cube of rlbhpc, or damaged ({error!r}); give the folder of a run, or "
            "derive its cube anew with `rlbhpc compact --rebuild`"
        ) from error
    if checksum != metadata_checksum(attributes, nodes) or schema != cube_schema.SCHEMA:
        raise UserError(
            f"{store}: its metadata does not have the checksum it was written with; derive the "
            "cube anew with `rlbhpc compact --rebuild`, or open a copy that another program wrote "
            "by xarray.open_datatree(…, engine='zarr')"
        )
    if version > cube_schema.SCHEMA_VERSION:
        raise UserError(
            f"{store}: written with schema version {version}, this program knows "
            f"{cube_schema.SCHEMA_VERSION}; use a newer rlbhpc"
        )
    return top, nodes


def nodes_that_differ(store: Path) -> list[str]:
    """Paths of the nodes of a cube whose own metadata is not what the root's copy says.

    A *node* is a group or an array, with a metadata file of its own.
    """
    _, nodes = read_checked(store)
    differing = []
    for name, node in nodes.items():
        try:
            same = json.loads((store / name / METADATA).read_bytes()) == node
        except (OSError, ValueError):
            same = False
        if not same:
            differing.append(name)
    return differing


def read_grid(root: zarr.Group, path: str) -> Grid | None:
    """Read axes, chunks and fingerprints of a group of samples; None if there is no such group.

    The *fingerprint* of a (step, problem) is the hash of the request that its samples answer; it is
    negative where nothing is asked for.
    """
    if f"{path}/verdict" not in root:
        return None
    group: Any = root[path]
    verdict: Any = group["verdict"]
    problems = [str(problem) for problem in _read_array(group, "problem")]
    steps = [int(step) for step in _read_array(group, "step")]
    stored_fingerprints = _read_array(group, "fingerprint")
    fingerprints = {}
    # A negative fingerprint stands where nothing is asked for.
    for problem_index, step_index in np.argwhere(stored_fingerprints >= 0).tolist():
        key = (steps[step_index], problems[problem_index])
        fingerprints[key] = int(stored_fingerprints[problem_index, step_index])
    return Grid(
        model=str(_read_array(group, "model")),
        problems=tuple(problems),
        steps=tuple(steps),
        n=verdict.shape[1],
        chunk=Chunk(*verdict.chunks[:2]),
        fingerprints=fingerprints,
        provenance=cube_schema.provenance(group.attrs),
    )


def consolidate(root: Path) -> None:
    """Copy all metadata into the root's, sorted, with a checksum over it.

    One read then opens the tree, and plain xarray warns about a tree without. What
    ``zarr.consolidate_metadata`` does comes with a warning of its own and in the order of the
    folder's listing, which differs between file systems.
    """
    paths = {path.parent.relative_to(root).as_posix(): path for path in root.rglob(METADATA)}
    top = json.loads(paths.pop(".").read_bytes())
    nodes = {name: json.loads(path.read_bytes()) for name, path in paths.items()}
    text = json.dumps(consolidated(top, nodes), indent=1, ensure_ascii=False)
    (root / METADATA).write_text(text)


def consolidated(top: dict[str, Any], nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a root that holds a copy of the metadata of all nodes, with a checksum.

    ``top``: the root's own. ``nodes``: that of each group and array by its path. They are sorted,
    as Zarr loses nodes whose siblings do not stand side by side.
    """
    nodes = dict(sorted(nodes.items()))
    checksum = metadata_checksum(top["attributes"], nodes)
    return top | {
        "attributes": top["attributes"] | {CHECKSUM: checksum},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": nodes},
    }


def metadata_checksum(attributes: Mapping[str, Any], nodes: Mapping[str, Any]) -> str:
    """SHA-256 over the root's attributes, without this one, and the metadata of all nodes."""
    others = {name: value for name, value in attributes.items() if name != CHECKSUM}
    return checked.digest([others, nodes])


def _read_array(group: zarr.Group, name: str) -> NDArray[Any]:
    array: Any = group[name]
    return np.asarray(array[...])


def create_group(
    root: zarr.Group, path: str, kind: str, provenance: Mapping[str, Any]
) -> zarr.Group:
    """Start a group with what every group says of itself, and the groups above it.

    ``kind``: what it holds, such as samples or counts. ``provenance``: what its values stand on.
    """
    group = root
    # One by one: a parent that is missing, zarr makes by a hard link, which some disks have not.
    for name in path.split("/"):
        group = group.require_group(name)
    group.update_attributes(
        {
            "kind": kind,
            "schema_version": cube_schema.SCHEMA_VERSION,
            "provenance": json.dumps(dict(provenance)),
        }
    )
    return group


def _create_axes(
    group: zarr.Group, arm: str, problem_set: str, grid: Grid, variables: Iterable[Variable]
) -> None:
    """Create the arrays of a group, and write its coordinates.

    ``grid``: problems, steps, length of the sample axis, and chunks. ``variables``: the arrays
    beside the coordinates. Which problems are guessed is unknown yet: a fill value stands for each.
    """
    sizes = {"problem": len(grid.problems), "sample": grid.n, "step": len(grid.steps)}
    chunks = {"problem": grid.chunk.problems, "sample": grid.chunk.samples}
    create_arrays(group, (*cube_schema.COORDINATES, *variables), sizes, chunks)
    group.update_attributes({"coordinates": "arm model problem_set guessable"})
    write(group, "problem", list(grid.problems))
    write(group, "step", list(grid.steps))
    write(group, "arm", arm)
    write(group, "model", grid.model)
    write(group, "problem_set", problem_set)
    write(group, "guessable", np.full(len(grid.problems), cube_schema.GUESSABLE.fill))


# --- versions ------------------------------------------------------------------------------------


STORE: Final = "cube.zarr"
SOURCES: Final = "sources.json"

# Debris of a compactor is removed when it is this old: no compaction takes so long, and one that
# did would fail loudly and could be run again.
_ABANDONED_SECONDS: Final = 24 * 3600.0
_NO_LINKS_ERRORS: Final = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


@dataclass(frozen=True)
class Version:
    """One version of the cube.

    ``sources`` is what :func:`publish` was given; empty where it is missing or unreadable, in
    which case nothing may be concluded about what the version holds.
    """

    folder: Path
    sources: Mapping[str, Any]

    @property
    def store(self) -> Path:
        """The Zarr tree."""
        return self.folder / STORE


def current_version(layout: Layout) -> Version | None:
    """Find the version of the cube that the link points to; None before the first compaction.

    A *version* is a folder with a whole cube that never changes and a list of what it was made
    from. ``cube.zarr`` in the run folder is a symbolic link into the current one.
    """
    try:
        target = files.retry_stale(lambda: layout.cube.readlink())
    except FileNotFoundError:
        return None
    except OSError:
        # A cube that was copied without its versions is a plain folder.
        return Version(layout.cube.parent, {}) if layout.cube.is_dir() else None
    folder = (layout.cube.parent / target).parent
    return version_of(folder) if (folder / STORE).is_dir() else None


def version_of(folder: Path) -> Version:
    """The version in a folder, with what it was made from where that can be read."""
    try:
        return Version(folder, checked.read(folder / SOURCES))
    except (OSError, ValueError):
        return Version(folder, {})


def begin_version(layout: Layout) -> Path:
    """Make a folder of one's own to build the next version in."""
    folder = files.partial_path(layout.cubes)
    folder.mkdir(parents=True)
    return folder


def settle_version(version: Path, old: Path | None) -> None:
    """Make a new version ready to publish: all of it is safely on disk when this returns.

    ``version``: its folder of a cube. ``old``: that of the version before, if any. Files with the
    same bytes there become hard links to them, which costs no room; all others are synced.
    """
    for folder, _, names in os.walk(version):
        for name in names:
            file = Path(folder, name)
            old_file = old / file.relative_to(version) if old else None
            if old_file is None or not _link_if_equal(file, old_file):
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
    for folder, _, _ in os.walk(version):
        files.sync_folder(Path(folder))


def _link_if_equal(file: Path, old_file: Path) -> bool:
    """Replace a file by a hard link to an older one with the same bytes; False if it cannot.

    The link is made under a temporary name and then renamed, so that there is always a file.
    """
    if not old_file.exists() or not filecmp.cmp(file, old_file, shallow=False):
        return False
    if file.samefile(old_file):
        return True
    link = files.partial_path(file.parent)
    if not hard_link(old_file, link):
        return False
    link.rename(file)
    return True


def hard_link(existing: Path, new: Path) -> bool:
    """Hard-link a file; False where the file system refuses, as some do across folders.

    A file that is gone is an error, which the caller must see.
    """
    try:
        os.link(existing, new)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def publish_version(layout: Layout, partial: Path, sources: Mapping[str, Any]) -> Version:
    """Make a finished folder the current version of the cube.

    ``partial``: the folder, under a temporary name. ``sources``: what the version was made from, to
    be stored in it. The folder is renamed first; then ``cube.zarr``, a symbolic link, is replaced
    by one that points to it. A reader that followed the old link keeps the old version.
    """
    checked.write(partial / SOURCES, sources)
    version = Version(layout.cubes / uuid.uuid4().hex, sources)
    files.publish(partial, version.folder)
    with files.temporary_path(layout.cube.parent) as pointer:
        try:
            pointer.symlink_to(Path(layout.cubes.name, version.folder.name, STORE))
        except OSError as error:
            if error.errno not in _NO_LINKS_ERRORS:
                raise
            raise UserError(
                f"{layout.cubes}: the file system has no symbolic links ({error.strerror}), which "
                "the cube needs; put the run folder on another one"
            ) from error
        if layout.cube.is_dir() and not layout.cube.is_symlink():
            # Somebody's copy without versions. It stays, as an old version, until it is swept.
            layout.cube.rename(begin_version(layout) / STORE)
        files.publish(pointer, layout.cube)
    return version


def sweep_versions(layout: Layout, keep: Version) -> None:
    """Remove versions of the cube that nobody can need any more.

    ``keep``: the version that was just published. It and the current one stay, and the one that it
    was based on: a reader may have just opened that. The one before goes. All others lost a race or
    were never finished; they go when they are a day old. What may not be removed stays.
    """
    kept_names = {keep.folder.name, keep.sources.get("base")}
    current = current_version(layout)
    if current:
        kept_names.add(current.folder.name)
    # Two versions back: no reader can have just opened it.
    outdated_name = keep.sources.get("before_base")
    for name in files.list_names(layout.cubes, ""):
        folder = layout.cubes / name
        with suppress(OSError):
            if name not in kept_names and (name == outdated_name or _is_abandoned(folder)):
                # Renamed first: a folder that is half removed must not look like a version.
                doomed = files.partial_path(layout.cubes)
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)


def _is_abandoned(path: Path) -> bool:
    """Whether nobody has changed a file or folder for so long that its maker is gone."""
    return time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS
