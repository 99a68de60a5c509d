"""Notes beside files of which some samples proved to be damaged.

A resume scan reads no samples, so it cannot see that one is damaged. Whoever does read them and
finds one leaves a note, ``<file>.damaged``; from then on that sample counts as missing, and the
next run draws it again. A note that is wrong or lost does no harm: a sample that is drawn twice
is the same sample, and damage is found again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rlbhpc.store import checked

#: Ending of a note's name.
ENDING: Final = ".damaged"


def marked(path: Path) -> frozenset[int]:
    """Places of a file that proved to be damaged: offsets in a journal, row groups of a part."""
    try:
        return frozenset(checked.read(_note(path))["places"])
    except (FileNotFoundError, ValueError, KeyError):
        return frozenset()


def mark(path: Path, places: Iterable[int]) -> None:
    """Note that places of a file are damaged."""
    marks = marked(path)
    if not marks.issuperset(places):
        checked.write(_note(path), {"places": sorted(marks.union(places))})


def clear(path: Path) -> None:
    """Forget what was noted of a file that was written again, or removed."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(path.name + ENDING)
