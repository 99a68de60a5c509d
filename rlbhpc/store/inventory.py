"""Take stock: which samples of an arm and problem set are there, and which are missing.

The answer comes from the data: the index blocks of journals and the footers of parts, or the bits
that were merged of them (:mod:`rlbhpc.store.bitmap`); never from a marker or an exit status. Every
verb that asks what is missing asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.store import files, journal, marks, parts, snapshot, writer
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
    return snapshot.steady(lambda: _Merge(layout, arm, set_name, wanted, passed_over).run())


class _Merge:
    """One look at the files of a group, beside the bits that were merged before."""

    def __init__(
        self,
        layout: Layout,
        arm: str,
        set_name: str,
        wanted: Callable[[int, str], bool] | None,
        passed_over: Callable[[str], bool] | None,
    ) -> None:
        self._layout = layout
        self._group = (arm, set_name)
        self._wanted = wanted
        self._passed_over = passed_over
        self._has_foreign = False
        self._folders = {
            writer.ENDING: layout.journals(arm, set_name),
            parts.ENDING: layout.parts(arm, set_name),
        }
        names = {ending: files.names(folder, "") for ending, folder in self._folders.items()}
        # Journals first: one that was sealed and removed meanwhile is found among the parts.
        self._files = {
            name: ending for ending, all_ in names.items() for name in all_ if name.endswith(ending)
        }
        self._marked = {
            name.removesuffix(marks.ENDING): ending
            for ending, all_ in names.items()
            for name in all_
            if name.endswith(marks.ENDING)
        }

    def run(self) -> Bitmap:
        path = self._layout.bitmap(*self._group)
        bitmap = Bitmap.load(path, self._wanted)
        sizes = self._grown(bitmap)
        if sizes is None:
            bitmap, sizes = Bitmap(), {}
        fresh = [name for name in self._files if name not in bitmap.sources or name in sizes]
        if self._passed_over is not None:
            fresh = [name for name in fresh if not self._passed_over(name)]
        for name in fresh:
            self._add(bitmap, name)
        if self._wanted is None and self._passed_over is None and len(fresh) >= _WORTH_KEEPING:
            # Bits are derived: where nobody may write, the next one who asks lists again.
            with suppress(UserError):
                bitmap.save(path)
        return bitmap

    def _grown(self, bitmap: Bitmap) -> dict[str, int] | None:
        """Merged journals that grew since; None where a merged file lost samples."""
        grown = {}
        for name, (size, growing, damaged) in bitmap.sources.items():
            if name not in self._files or damaged != self._damaged(name):
                return None
            if growing:
                now = (self._folders[self._files[name]] / name).stat().st_size
                if now < size:
                    return None
                if now > size:
                    grown[name] = now
        return grown

    def _damaged(self, name: str) -> int:
        if name not in self._marked:
            return 0
        return len(marks.marked(self._folders[self._marked[name]] / name))

    def _add(self, bitmap: Bitmap, name: str) -> None:
        path = self._folders[self._files[name]] / name
        notes: list[Skipped] = []
        if self._files[name] == writer.ENDING:
            index = journal.index(path, noted=name in self._marked)
            # A foreign file leaves its names among those that are known.
            if self._has_foreign or not bitmap.knows(index.cells):
                listed, index = index, snapshot.own(index, *self._group)
                self._has_foreign |= index is not listed
            bitmap.add(index)
            notes.extend(index.skipped)
            bitmap.sources[name] = (index.size, not index.closed, self._damaged(name))
        elif part := snapshot.part_of(path, *self._group, notes):
            bitmap.add(part)
            bitmap.sources[name] = (0, False, self._damaged(name))
        earlier = [note for note in bitmap.notes if not note.text.startswith(f"{path}:")]
        bitmap.notes = earlier + [skipped.note for skipped in notes]
