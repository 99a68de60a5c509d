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

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import band, cube, cube_schema, files, guessing, tables, versions
from rlbhpc.store.grid import Grid
from rlbhpc.store.sources import Group, Rows, Sources
from rlbhpc.store.versions import Version
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    import zarr

# How often a compactor that lost a race begins again before it leaves the field to the winners.
_ROUNDS: Final = 5


@dataclass(frozen=True)
class Compacted:
    """What a compaction did.

    ``new`` says whether there was anything to do. ``bands`` were derived from rows and ``linked``
    taken over from the version before. ``skipped`` says in words what could not be read, and
    ``conflicts`` which samples are there in two versions, of which one was taken.
    """

    store: Path
    new: bool
    bands: int = 0
    linked: int = 0
    skipped: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def compact(layout: Layout, *, rebuild: bool = False) -> Compacted:
    """Bring the cube up to date with all that the store holds.

    Parameters
    ----------
    layout
        The run folder.
    rebuild
        Take nothing over from the current version; for a cube that was damaged. The result has
        the same bytes.

    Raises
    ------
    UserError
        If there are no samples, or two different ones with the same key.
    """
    for _ in range(_ROUNDS):
        base = versions.current(layout)
        sources = Sources.survey(layout)
        old = _usable(base) if base and not rebuild else None
        if base and old and old["inputs"] == sources.inputs:
            return Compacted(base.store, new=False)
        if done := _round(layout, sources, base, old):
            return done
    raise UserError(
        f"{layout.root}: other processes kept changing the store while its cube was derived; "
        "run `rlbhpc compact` again when they have finished",
        TRY_AGAIN,
    )


def _usable(base: Version) -> Mapping[str, Any] | None:
    """Give the sources of a version, if its chunk files may be taken over."""
    if base.sources is None or base.sources.get("schema_version") != cube_schema.SCHEMA_VERSION:
        return None
    try:
        cube.open_checked(base.store)
    except (UserError, FileNotFoundError):
        return None
    return base.sources


def _round(
    layout: Layout, sources: Sources, base: Version | None, old: Mapping[str, Any] | None
) -> Compacted | None:
    """Build and publish one version; None if the ground moved meanwhile."""
    made = versions.begin(layout)
    try:
        try:
            build = _Build(made / versions.STORE, base.store if base and old else None, sources)
            build.run(old["inputs"]["groups"] if old else {})
            versions.settle(made / versions.STORE, base.store if base else None)
        except FileNotFoundError:
            # A journal was sealed and removed, or an old version swept, while being read.
            return None
        except OSError as error:
            raise files.explain(error, layout.cubes, "; the cube is as it was") from error
        now = versions.current(layout)
        if (now and now.folder) != (base and base.folder):
            return None
        version = versions.publish(
            layout,
            made,
            {
                "schema_version": cube_schema.SCHEMA_VERSION,
                "inputs": sources.inputs,
                "base": base.folder.name if base else None,
                "before_base": (base.sources or {}).get("base") if base else None,
            },
        )
    finally:
        shutil.rmtree(made, ignore_errors=True)
    versions.sweep(layout, version)
    found = tuple(sources.skipped), tuple(sources.conflicts)
    return Compacted(version.store, True, build.bands, build.linked, *found)


class _Build:
    """One cube in the making."""

    def __init__(self, store: Path, base: Path | None, sources: Sources) -> None:
        self.bands = 0
        self.linked = 0
        self._store = store
        self._base = base
        self._old = cube.open_checked(base) if base else None
        self._sources = sources

    def run(self, known: Mapping[str, Any]) -> None:
        """Write all groups; ``known`` are the inputs that the base was made from."""
        root = cube.create(self._store)
        for group in self._sources.groups:
            self._samples(root, group, known.get(str(group), {}))
        tables.write_groups(root, self._sources.layout)
        guessing.write(root)
        cube.consolidate(self._store)

    def _samples(self, root: zarr.Group, group: Group, known: Mapping[str, Any]) -> None:
        rows = self._sources.rows(group)
        grid = rows.grid()
        target = cube.create_samples(root, group.arm, group.problem_set, grid)
        untouched = self._untouched(group, rows, grid, known)
        for row in range(grid.rows):
            for at in range(len(grid.steps)):
                if (row, at) in untouched and self._link(group, row, at):
                    self.linked += 1
                else:
                    cube.write_band(target, grid, row, at, _band(rows, grid, row, at))
                    self.bands += 1

    def _untouched(
        self, group: Group, rows: Rows, grid: Grid, known: Mapping[str, Any]
    ) -> set[tuple[int, int]]:
        """Bands of the base that no new source touches: (row of chunks, position of step)."""
        named = rows.files
        # A file that is gone took samples along unless others hold them too: look at all of them.
        if self._old is None or not set(known) <= set(named):
            return set()
        old = cube.read_grid(self._old, str(group))
        if old is None or not grid.extends(old) or grid.blocks > old.blocks:
            return set()
        bands = {
            (row, at)
            for row in range(old.rows)
            if grid.row(row) == old.row(row)
            for at in range(len(old.steps))
        }
        row_of = {problem: i // grid.chunk.problems for i, problem in enumerate(grid.problems)}
        place = {step: i for i, step in enumerate(grid.steps)}
        changed = [name for name, mark in named.items() if known.get(name) != mark]
        touched = {(cell.step, cell.problem) for cell in rows.cells(changed)}
        touched |= {k for k, v in grid.fingerprints.items() if old.fingerprints.get(k) != v}
        return bands - {(row_of[problem], place[step]) for step, problem in touched}

    def _link(self, group: Group, row: int, step: int) -> bool:
        """Take the chunk files of a band over from the base; False if one is damaged."""
        assert self._base is not None
        paths = list(cube.band_files(self._base, group.arm, group.problem_set, row, step))
        if not all(cube.intact(path) for path in paths):
            return False
        for path in paths:
            new = self._store / path.relative_to(self._base)
            new.parent.mkdir(parents=True, exist_ok=True)
            if not versions.link(path, new):
                shutil.copyfile(path, new)
        return True


def _band(rows: Rows, grid: Grid, row: int, step: int) -> dict[str, Any]:
    problems = grid.row(row)
    asked = [grid.fingerprints.get((grid.steps[step], problem), -1) for problem in problems]
    found = rows.read(band.COLUMNS, problems=set(problems), steps={grid.steps[step]})
    return band.build(found, problems, asked, grid.n, grid.chunk.samples)
