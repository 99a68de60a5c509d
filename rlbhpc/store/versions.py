"""Versions of the cube: each whole and immutable, one of them current.

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
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout

STORE: Final = "cube.zarr"
SOURCES: Final = "sources.json"

# Debris of a compactor is removed when it is this old: no compaction takes so long, and one that
# did would fail loudly and could be run again.
_ABANDONED_SECONDS: Final = 24 * 3600.0
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


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


def current(layout: Layout) -> Version | None:
    """Find the version that the link points to; None before the first compaction."""
    try:
        target = files.retrying(lambda: layout.cube.readlink())
    except FileNotFoundError:
        return None
    except OSError:
        # A cube that was copied without its versions is a plain folder.
        return Version(layout.cube.parent, {}) if layout.cube.is_dir() else None
    folder = (layout.cube.parent / target).parent
    return of(folder) if (folder / STORE).is_dir() else None


def of(folder: Path) -> Version:
    """The version in a folder, with what it was made from where that can be read."""
    try:
        return Version(folder, checked.read(folder / SOURCES))
    except (OSError, ValueError):
        return Version(folder, {})


def begin(layout: Layout) -> Path:
    """Make a folder of one's own to build the next version in."""
    folder = files.partial(layout.cubes)
    folder.mkdir(parents=True)
    return folder


def settle(version: Path, old: Path | None) -> None:
    """Replace files that did not change by links to the old version's, and sync the others."""
    folders = []
    for path, _, names in os.walk(version):
        folders.append(Path(path))
        for name in names:
            file = Path(path, name)
            twin = old / file.relative_to(version) if old else None
            if twin and twin.exists() and filecmp.cmp(file, twin, shallow=False):
                if file.samefile(twin):
                    continue
                other = files.partial(file.parent)
                if link(twin, other):
                    other.rename(file)
                    continue
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    for folder in folders:
        files.sync_folder(folder)


def link(existing: Path, new: Path) -> bool:
    """Hard-link a file; False where the file system refuses, as some do across folders."""
    try:
        os.link(existing, new)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def publish(layout: Layout, partial: Path, sources: Mapping[str, Any]) -> Version:
    """Make a finished folder the current version of the cube."""
    checked.write(partial / SOURCES, sources)
    version = Version(layout.cubes / uuid.uuid4().hex, sources)
    files.publish(partial, version.folder)
    with files.making(layout.cube.parent) as pointer:
        try:
            pointer.symlink_to(Path(layout.cubes.name, version.folder.name, STORE))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise UserError(
                f"{layout.cubes}: the file system has no symbolic links ({error.strerror}), which "
                "the cube needs; put the run folder on another one"
            ) from error
        if layout.cube.is_dir() and not layout.cube.is_symlink():
            # Somebody's copy without versions. It stays, as an old version, until it is swept.
            layout.cube.rename(begin(layout) / STORE)
        files.publish(pointer, layout.cube)
    return version


def sweep(layout: Layout, keep: Version) -> None:
    """Remove versions that nobody can need any more.

    The current version and the one it was based on stay: a reader may have just opened that.
    The one before goes. All others lost a race or were never finished; they go when they are
    a day old. What may not be removed stays.
    """
    staying = {keep.folder.name, keep.sources.get("base")}
    if now := current(layout):
        staying.add(now.folder.name)
    older = keep.sources.get("before_base")
    for name in files.names(layout.cubes, ""):
        folder = layout.cubes / name
        with suppress(OSError):
            if name not in staying and (name == older or _abandoned(folder)):
                # Renamed first: a folder that is half removed must not look like a version.
                doomed = files.partial(layout.cubes)
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
    for name in files.names(layout.cube.parent, files.PARTIAL):
        pointer = layout.cube.parent / name
        with suppress(OSError):
            if pointer.is_symlink() and _abandoned(pointer):
                pointer.unlink()


def _abandoned(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS
