"""What a reader left out, told once: in an attribute of what it returns and in one warning.

A resume scan reads no samples, so it cannot see that one is damaged. Whoever does read them and
finds one leaves a note, ``<file>.damaged``; from then on that sample counts as missing, and the
next run draws it again. A note that is wrong or lost does no harm: a sample that is drawn twice
is the same sample, and damage is found again.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc import files
from rlbhpc.errors import LeftOutWarning
from rlbhpc.store import checked

DAMAGED: Final = "damaged"
#: The file may be whole; the file system does not give it.
UNREADABLE: Final = "unreadable"
FOREIGN: Final = "foreign"
CONFLICTING: Final = "conflicting"
PURGED: Final = "purged"
#: What a kill leaves behind: a sample that nobody had acknowledged. Nothing is missing for it.
TORN: Final = "torn"

KINDS: Final = (DAMAGED, UNREADABLE, FOREIGN, CONFLICTING, PURGED, TORN)
#: Attribute of a tree: how many samples or places of each kind were left out, as JSON.
ATTRIBUTE: Final = "left_out"

_MAX_DETAILS: Final = 3


class Note(NamedTuple):
    """One thing that was left out. ``samples`` is 1 where nobody knows how many there were."""

    kind: str
    text: str
    samples: int = 1


@dataclass(frozen=True)
class Skipped:
    """Bytes of a file that a reader could not use, and why.

    ``samples`` is how many samples are lost with them; 1 where nobody can know. ``start, stop``:
    where they are; equal where that is no one place.
    """

    path: Path
    reason: str
    kind: str = DAMAGED
    samples: int = 1
    start: int = 0
    stop: int = 0

    @property
    def note(self) -> Note:
        """The same as a line of text."""
        return Note(self.kind, str(self), self.samples)

    def __str__(self) -> str:
        where = f"bytes {self.start} to {self.stop}: " if self.start < self.stop else ""
        return f"{self.path}: skipped {where}{self.reason}"


@contextmanager
def skip_if_unreadable(path: Path, skipped: list[Skipped], *, strict: bool) -> Iterator[None]:
    """Run a block that reads a file, and leave the file out if the file system does not give it.

    ``skipped``: a list to which the file and the reason are then appended. ``strict``: raise the
    error instead. The error that a file vanished is always raised: the store has changed, and its
    reader begins again.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if strict:
            raise
        skipped.append(Skipped(path, files.describe_error(error), UNREADABLE))


def count_by_kind(notes: Iterable[Note]) -> dict[str, int]:
    """Count by kind what was left out; empty if nothing was."""
    totals: Counter[str] = Counter()
    for note in dict.fromkeys(notes):
        totals[note.kind] += note.samples
    return {kind: totals[kind] for kind in KINDS if totals[kind]}


def warn_left_out(root: Path, notes: Iterable[Note]) -> None:
    """Warn once of all that was left out of a run, the worst first.

    ``notes``: one for each thing, with its kind, a text, and how many samples it stands for.
    :data:`KINDS` lists the kinds from the worst, damage, to the harmless ``TORN``: a sample that a
    kill cut short while it was written. ``incomplete`` is False if there is nothing worse, as then
    nothing that was stored is missing.
    """
    distinct = sorted(dict.fromkeys(notes), key=lambda note: KINDS.index(note.kind))
    if not distinct:
        return
    totals = count_by_kind(distinct)
    summary = ", ".join(f"{number:,} {kind}" for kind, number in totals.items())
    details = "; ".join(note.text for note in distinct[:_MAX_DETAILS])
    if len(distinct) > _MAX_DETAILS:
        details += f"; and {len(distinct) - _MAX_DETAILS:,} more"
    warning = LeftOutWarning(f"{root}: left out ({summary}): {details}")
    # A torn sample is what a kill leaves behind: nobody had acknowledged it.
    warning.incomplete = set(totals) != {TORN}
    warnings.warn(warning, stacklevel=3)


# --- notes of damage, beside the file ------------------------------------------------------------


#: Ending of a note's name.
MARK_ENDING: Final = ".damaged"


def damaged_places(path: Path) -> frozenset[int]:
    """Places of a file that proved to be damaged: offsets in a journal, row groups of a part."""
    try:
        return frozenset(checked.read(_mark_file(path))["places"])
    except (FileNotFoundError, ValueError, KeyError):
        return frozenset()


def mark_damaged(path: Path, places: Iterable[int]) -> None:
    """Note that places of a file are damaged, beside those that were noted before."""
    noted = damaged_places(path)
    if not noted.issuperset(places):
        checked.write(_mark_file(path), {"places": sorted(noted.union(places))})


def forget_damage(path: Path) -> None:
    """Forget what was noted of a file that was written again, or removed."""
    _mark_file(path).unlink(missing_ok=True)


def _mark_file(path: Path) -> Path:
    return path.with_name(path.name + MARK_ENDING)
