"""Remove journals whose samples are sealed, after reading the parts again from the disk.

A journal goes only if every sample that it lists is in a part that was just read whole and found
intact, and if no writer can still hold it: it was closed in good order, or it has not changed for
a day (a killed attempt closes nothing; the longest job decides how long a writer may sleep).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Final, NamedTuple

from rlbhpc import files
from rlbhpc.store import frames, left_out, parts, snapshot
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.snapshot import Snapshot, View
from rlbhpc.study.layout import Layout

#: Hours without change after which an unclosed journal has no writer any more.
IDLE_HOURS: Final = 24.0


class Kept(NamedTuple):
    """A file that stays, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} stays: {self.reason}"


@dataclass(frozen=True)
class Cleaning:
    """What :func:`gc` did; ``skipped`` names parts and journals that are damaged."""

    removed: tuple[Path, ...]
    freed: int
    kept: tuple[Kept, ...]
    skipped: tuple[Skipped, ...]


def gc(layout: Layout, arm: str, set_name: str, *, idle_hours: float = IDLE_HOURS) -> Cleaning:
    """Remove the sealed journals of one arm and problem set, and what killed sealers left."""
    now = snapshot.take(layout, arm, set_name)
    damage = {part.path: parts.verify(part.path) for part in now.parts}
    intact = tuple(part for part in now.parts if not damage[part.path])
    view = View(Snapshot(now.journals, intact, now.skipped))
    needed = view.needed
    oldest = time.time() - idle_hours * 3600
    judged = [(journal, _reason(journal, needed, oldest)) for journal in now.journals]
    old = [(journal.path, journal.size) for journal, reason in judged if not reason]
    old.extend(_debris(layout, arm, set_name, oldest))
    for path, _ in old:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            left_out.forget_damage(path)
        except OSError as error:
            raise files.explain(error, path) from error
    return Cleaning(
        tuple(path for path, _ in old),
        sum(size for _, size in old),
        tuple(Kept(journal.path, reason) for journal, reason in judged if reason),
        (*view.skipped, *(line for lines in damage.values() for line in lines)),
    )


def _reason(journal: Index, needed: set[Path], oldest: float) -> str:
    """Why a journal must stay; empty if it need not."""
    if journal.path in needed:
        return "it holds samples that are not sealed"
    if any(skipped.kind == left_out.FOREIGN for skipped in journal.skipped):
        return "it holds samples of another arm or problem set; move it to their folder"
    if journal.size > frames.FILE_HEADER_SIZE and not journal.salt:
        return "it is unreadable; look at it, then remove it by hand"
    try:
        now = journal.path.stat()
    except FileNotFoundError:
        return ""
    if now.st_size != journal.size:
        return "it is being written"
    if not journal.closed and now.st_mtime > oldest:
        return "it was not closed, and its writer may still live"
    return ""


def _debris(layout: Layout, arm: str, set_name: str, oldest: float) -> Iterator[tuple[Path, int]]:
    """Find what a killed process was about to publish, with the sizes."""
    folders = (
        layout.parts(arm, set_name),
        layout.journals(arm, set_name),
        layout.grid(arm, set_name).parent,
        layout.attempts,
        layout.root,
        layout.contents("").parent,
        *layout.root.glob("questions/*/"),
        *layout.root.glob("training/*/"),
        *layout.root.glob("models/*/step-*[0-9]/"),
    )
    for folder in folders:
        for name in files.names(folder, files.PARTIAL):
            with suppress(FileNotFoundError):
                status = (folder / name).stat()
                # Folders in the making, such as a base model's, belong to whoever makes them.
                if status.st_mtime <= oldest and not S_ISDIR(status.st_mode):
                    yield folder / name, status.st_size
    # Checkpoints in the making have names that whoever trains on takes again.
    for pattern in ("models/*/*.partial/", "training/*/state/*.partial/"):
        for draft in layout.root.glob(pattern):
            with suppress(FileNotFoundError):
                statuses = [path.stat() for path in (draft, *draft.rglob("*"))]
                if max(status.st_mtime for status in statuses) <= oldest:
                    yield draft, sum(status.st_size for status in statuses[1:])
