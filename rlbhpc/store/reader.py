"""Open a study's results: cube, parts and live journals as one tree of lazily read Datasets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import xarray as xr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

import rlbhpc.xarray  # noqa: F401 puts .rlb on Datasets and trees
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import cube, guessing, lazy, left_out, tables, versions
from rlbhpc.store.derive import Base, PurgedError, all_notes, derive
from rlbhpc.store.left_out import Note
from rlbhpc.store.sources import Group, Sources
from rlbhpc.store.versions import Version
from rlbhpc.study.layout import Layout

# How often a version may be swept away between being found and being opened.
_TRIES: Final = 3


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
        version = versions.current(layout)
        try:
            sources = Sources.survey(layout, strict=False)
            datasets, notes = _view(sources, version)
        except FileNotFoundError:
            # The version was swept, or a journal removed after sealing, a moment ago.
            continue
        left_out.tell(folder, notes)
        return _tree(datasets, folder, notes)
    raise UserError(
        f"{layout.cube}: replaced again and again while it was opened; open it again", TRY_AGAIN
    )


def _alone(store: Path) -> xr.DataTree:
    """A cube by its own path, with what it left out; a copy without its version knows nothing."""
    real = store.resolve()
    version = versions.of(real.parent)
    notes = None
    if version.store == real and version.sources:
        unlisted = [Note(*note) for note in version.sources.get("unlisted", [])]
        notes = unlisted + all_notes(version.sources)
    tree = _tree(lazy.datasets(lazy.open_overlay({}, real)), store, notes)
    left_out.tell(store, notes or [])
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
        tree.attrs[left_out.ATTRIBUTE] = json.dumps(left_out.counts(notes))
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
        return lazy.datasets(lazy.open_overlay({}, below)), notes
    for derivation in derivations.values():
        notes += [note for band in derivation.notes.values() for note in band]
    if sources.inputs["tables"] != (base.sources["inputs"]["tables"] if base else {}):
        tables.write_groups(root, sources.layout)
    return guessing.mark(lazy.datasets(lazy.open_overlay(above, below))), notes


def purged(sources: Sources) -> list[Note]:
    """What the cube has and no journal or part of a run has any more."""
    version = versions.current(sources.layout)
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
