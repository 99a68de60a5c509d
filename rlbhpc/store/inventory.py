"""Take stock: which samples of an arm and problem set are there, and which are missing.

The answer comes from the data: the index blocks of journals and the footers of parts, or the bits
that were merged of them (:mod:`rlbhpc.store.bitmap`); never from a marker or an exit status. Every
verb that asks what is missing asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store import journal, marks, parts, snapshot, writer
from rlbhpc.store.bitmap import Bitmap
from rlbhpc.store.left_out import Skipped
from rlbhpc.study.layout import Layout

# Files that are listed anew each time before their bits are kept.
_WORTH_KEEPING: Final = 16


def take(
    layout: Layout,
    arm: str,
    set_name: str,
    *,
    wanted: Callable[[int, str], bool] | None = None,
    passed_over: Callable[[str], bool] | None = None,
) -> Bitmap:
    """Find out which samples a group has.

    Samples are not read whole, so that one with a flipped bit counts as there until sealing has
    marked it.

    ``wanted``: says of a step and a problem whether its samples matter; the bits of others are not
    read. ``passed_over``: says of a journal's name that none of its samples matter: it is not
    opened.
    """
    return snapshot.steady(lambda: _merged(layout, (arm, set_name), wanted, passed_over))


def _merged(
    layout: Layout,
    group: tuple[str, str],
    wanted: Callable[[int, str], bool] | None,
    passed_over: Callable[[str], bool] | None,
) -> Bitmap:
    """Look once at the files of a group, beside the bits that were merged before."""
    folders: dict[str, Path] = {}
    damaged: dict[str, int] = {}
    # Journals first: one that was sealed and removed meanwhile is found among the parts.
    for folder, ending in (
        (layout.journals(*group), writer.ENDING),
        (layout.parts(*group), parts.ENDING),
    ):
        names = files.names(folder, "")
        folders |= {name: folder for name in names if name.endswith(ending)}
        noted = [name.removesuffix(marks.ENDING) for name in names if name.endswith(marks.ENDING)]
        damaged |= {name: len(marks.marked(folder / name)) for name in noted}
    merge = layout.bitmap(*group)
    bitmap = Bitmap.load(merge, wanted)
    grown = _grown(bitmap, folders, damaged)
    if grown is None:
        bitmap, grown = Bitmap(), set()
    fresh = [name for name in folders if name not in bitmap.sources or name in grown]
    if passed_over is not None:
        fresh = [name for name in fresh if not passed_over(name)]
    has_foreign = False
    for name in fresh:
        path = folders[name] / name
        notes: list[Skipped] = []
        if name.endswith(writer.ENDING):
            index = journal.index(path, noted=name in damaged)
            # A foreign file leaves its names among those that are known.
            if has_foreign or not bitmap.knows(index.cells):
                listed, index = index, snapshot.own(index, *group)
                has_foreign |= index is not listed
            bitmap.add(index)
            notes.extend(index.skipped)
            bitmap.sources[name] = (index.size, not index.closed, damaged.get(name, 0))
        elif part := snapshot.part_of(path, *group, notes):
            bitmap.add(part)
            bitmap.sources[name] = (0, False, damaged.get(name, 0))
        earlier = [note for note in bitmap.notes if not note.text.startswith(f"{path}:")]
        bitmap.notes = earlier + [skipped.note for skipped in notes]
    if wanted is None and passed_over is None and len(fresh) >= _WORTH_KEEPING:
        # Bits are derived: where nobody may write, the next one who asks lists again.
        with suppress(UserError):
            bitmap.save(merge)
    return bitmap


def _grown(bitmap: Bitmap, folders: dict[str, Path], damaged: dict[str, int]) -> set[str] | None:
    """Merged journals that grew since; None where a merged file lost samples."""
    grown = set()
    for name, (size, growing, places) in bitmap.sources.items():
        if name not in folders or places != damaged.get(name, 0):
            return None
        if growing:
            now = (folders[name] / name).stat().st_size
            if now < size:
                return None
            if now > size:
                grown.add(name)
    return grown
