"""Copy a model to the node's own disk, once for all tasks that run there.

A hundred tasks that start at once and read the same 60 GB from a parallel file system wait for
each other, and so does everybody else. With ``RLBHPC_STAGE`` set to a folder on the node, the
first task copies, the others wait for it, and all of them load the copy.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "RLBHPC_STAGE"
# What must stay free on the node's disk after a copy, for compiler caches and scratch files.
SPARE: Final = 2 * 1024**3

log = logging.getLogger(__name__)
# Open files whose locks say that this process uses a copy; they live as long as the process.
_in_use: dict[Path, int] = {}


def staged(model: Path) -> Path:
    """The copy of a model folder on this node, or the folder itself where none can be had.

    A copy is named after what it was made from (place, names, sizes and times of change), so a
    model that has been changed is copied anew. A copy that no process uses makes room for another.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return model
    stage = Path(named)
    copy = stage / _name(model)
    try:
        stage.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (stage / "lock").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)  # one copies, the others wait for the whole copy
            _use(copy)
            if not copy.is_dir():
                _copy(model, copy)
    except OSError as error:
        log.warning("%s is read from where it lies, not from %s: %s", model, stage, error)
        return model
    return copy


def _files(model: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path in sorted(model.iterdir()):
        if path.is_file():
            yield path.name, path.stat()


def _name(model: Path) -> str:
    facts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in _files(model)]
    return hashlib.sha256(repr((str(model.resolve()), facts)).encode()).hexdigest()[:16]


def _use(copy: Path) -> None:
    """Hold a shared lock beside the copy for as long as this process lives."""
    if copy not in _in_use:
        fd = os.open(copy.with_suffix(".used"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _in_use[copy] = fd


def _copy(model: Path, copy: Path) -> None:
    needed = sum(stat.st_size for _, stat in _files(model)) + SPARE
    _make_room(copy.parent, needed)
    partial = copy.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, _ in _files(model):
        shutil.copyfile(model / name, partial / name)
    partial.rename(copy)


def _make_room(stage: Path, needed: int) -> None:
    """Remove copies that nobody uses, and what was left half done, until there is room."""
    for path in sorted(stage.iterdir()):
        if shutil.disk_usage(stage).free >= needed:
            return
        if path.is_dir() and not _used(path.with_suffix(".used")):
            shutil.rmtree(path, ignore_errors=True)
            path.with_suffix(".used").unlink(missing_ok=True)
    free = shutil.disk_usage(stage).free
    if free < needed:
        raise OSError(f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed")


def _used(lock: Path) -> bool:
    with lock.open("a") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True
