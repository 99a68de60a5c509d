"""Derive the cube from journals, parts and tables.

Numbered steps; a kill between any two leaves the old cube or the new one:

1. list what there is (the *sources*);
2. build every group in a folder of one's own, linking the chunk files of bands that no new
   source touches;
3. replace what came out the same by links to the current version, sync the rest;
4. publish (rename the folder, rename the link), unless somebody else published meanwhile: then
   begin again from theirs;
5. sweep old versions.

The bytes of the cube are a function of the sources' content alone. Neither the order in which
samples came, nor how often a run was interrupted or compacted, leaves a trace in them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import cube, cube_schema, tables
from rlbhpc.store.cube import Version
from rlbhpc.store.derive import Base, Derivation, all_notes, derive
from rlbhpc.store.left_out import Note
from rlbhpc.store.sources import Group, Sources
from rlbhpc.study.layout import Layout

log = logging.getLogger(__name__)

# How often a compactor that lost a race begins again before it leaves the field to the winners.
_MAX_ROUNDS: Final = 5


@dataclass(frozen=True)
class Compacted:
    """What a compaction did.

    ``new`` says whether there was anything to do. ``bands`` were derived from rows and ``linked``
    taken over from the version before. ``notes`` say what the cube leaves out, and why.
    """

    store: Path
    new: bool
    bands: int = 0
    linked: int = 0
    notes: tuple[Note, ...] = ()


def compact(layout: Layout, *, rebuild: bool = False) -> Compacted:
    """Bring the cube up to date with all that the store holds.

    The *cube* is the array form of a run's samples, kept as immutable versions of which one is
    current. ``Sources.survey`` lists the files that a cube would be made from now. The *base* is
    the current version: its chunk files are reused where no new file touches them. If another
    process changes the store meanwhile, everything begins again.

    ``rebuild``: reuse nothing of the current version; for a cube that was damaged. The result has
    the same bytes. Raises :class:`UserError` if there are no samples, two different requests for
    one problem, or samples of the current cube that no file holds any more.
    """
    for _ in range(_MAX_ROUNDS):
        version = cube.current_version(layout)
        sources = Sources.survey(layout)
        base = Base.open(version, rebuild=rebuild)
        if base and cube.nodes_that_differ(base.store):
            # Readers of other programs stumble over it: a version is never mended, but replaced.
            base = replace(base, reusable=False)
        log.debug("cube of %s from version %s: %d notes", layout.root, version, len(sources.notes))
        has_damage = base and any(base.damaged_bands(group) for group in sources.groups)
        if base and base.was_made_from(sources) and not has_damage:
            return _nothing_new(sources, base)
        compacted = _publish_next_version(layout, sources, version, base)
        if compacted:
            return compacted
    raise UserError(
        f"{layout.root}: other processes kept changing the store while its cube was derived; "
        "run `rlbhpc compact` again when they have finished",
        TRY_AGAIN,
    )


def _publish_next_version(
    layout: Layout, sources: Sources, old_version: Version | None, base: Base | None
) -> Compacted | None:
    """Build and publish a version of the cube; None if another process changed the store meanwhile.

    ``sources``: the files that it is made from. ``old_version``: the one that is current. ``base``:
    the same, opened for reuse of its chunk files, if it can be read. A *draft* is a version in a
    temporary folder; settling it replaces files that did not change by links and syncs the rest.
    """
    try:
        draft = cube.begin_version(layout)
    except OSError as error:
        raise files.explain(error, layout.cubes, "; the cube is as it was") from error
    try:
        derivations = _build(draft / cube.STORE, sources, base)
        is_same = not any(derivation.derived for derivation in derivations.values())
        if base and base.was_made_from(sources) and is_same:
            return _nothing_new(sources, base)
        cube.settle_version(draft / cube.STORE, base.store if base else None)
        current = cube.current_version(layout)
        if _folder_of(current) != _folder_of(old_version):
            return None
        version = cube.publish_version(
            layout,
            draft,
            {
                "schema_version": cube_schema.SCHEMA_VERSION,
                "inputs": sources.inputs,
                "left_out": {str(group): derivations[group].notes for group in derivations},
                "unlisted": sources.notes,
                "base": old_version.folder.name if old_version else None,
                "before_base": old_version.sources.get("base") if old_version else None,
            },
        )
    except FileNotFoundError:
        # A journal was sealed and removed, or an old version swept, while being read.
        return None
    except OSError as error:
        # An error of reading names its file; every other one is of writing the cube.
        path = Path(error.filename or layout.cubes)
        if path.absolute().is_relative_to(layout.cubes.absolute()):
            path = layout.cubes
        raise files.explain(error, path, "; the cube is as it was") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    cube.sweep_versions(layout, version)
    return Compacted(
        version.store,
        new=True,
        bands=sum(len(derivation.derived) for derivation in derivations.values()),
        linked=sum(len(derivation.kept) for derivation in derivations.values()),
        notes=(*sources.notes, *all_notes(version.sources)),
    )


def _folder_of(version: Version | None) -> Path | None:
    return version.folder if version else None


def _nothing_new(sources: Sources, base: Base) -> Compacted:
    """The result where the current version holds everything already."""
    notes = (*sources.notes, *all_notes(base.sources))
    return Compacted(base.store, new=False, notes=notes)


def _build(store: Path, sources: Sources, base: Base | None) -> dict[Group, Derivation]:
    """Write a whole cube into a new folder, and tell what was derived and reused for each group.

    ``sources``: the files that it is made from. ``base``: the version of the cube before, whose
    chunk files may be reused. A *group* is an arm on a problem set. Problems that are guessed are
    marked at the end, from the counts of all groups.
    """

    def link_from_base(names: Iterable[Path]) -> bool:
        """Take chunk files over from the base, the version before; False if one is damaged or lost.

        ``names``: their paths below the root of the cube. They are copied where the disk has no
        hard links.
        """
        assert base is not None
        pairs = [(base.store / name, store / name) for name in names]
        if not all(cube.intact(old) for old, _ in pairs):
            return False
        for old, new in pairs:
            new.parent.mkdir(parents=True, exist_ok=True)
            if not cube.hard_link(old, new):
                shutil.copyfile(old, new)
        return True

    root = cube.create(store)
    derivations = derive(root, sources, base, sources.groups, link_from_base)
    tables.write_groups(root, sources.layout)
    # Reads through Zarr and xarray, for which a verb with nothing to compact has no need.
    from rlbhpc.store.reader import write_guessable

    write_guessable(root)
    cube.consolidate(store)
    return derivations
