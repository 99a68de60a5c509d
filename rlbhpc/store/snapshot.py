"""Everything that one arm and problem set has on disk at one moment, listed without its texts."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import journal, left_out, marks, parts, schema, writer
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.listing import Listing
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout

T = TypeVar("T")

_TRIES: Final = 5


class Sealed(NamedTuple):
    """A part, what its footer lists, and which of its row groups cannot be used.

    ``foreign`` are those whose samples belong to another arm or problem set than the folder.
    """

    path: Path
    listing: Listing
    damaged: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()

    @property
    def cells(self) -> list[Cell]:
        """Cells that the footer lists."""
        return self.listing.cells

    @property
    def unusable(self) -> frozenset[int]:
        """Row groups that nobody may read."""
        return self.damaged | self.foreign

    @property
    def rows(self) -> int:
        """Samples in the row groups that can be used."""
        groups = enumerate(self.listing.groups)
        return sum(len(group.samples) for i, group in groups if i not in self.unusable)


@dataclass(frozen=True)
class Snapshot:
    """Journals and parts of one arm and problem set; ``skipped`` says what could not be listed.

    ``strict``: whether a file that cannot be read is an error; else it is left out.
    """

    journals: tuple[Index, ...]
    parts: tuple[Sealed, ...]
    skipped: tuple[Skipped, ...]
    strict: bool = True


def take(
    layout: Layout, arm: str, set_name: str, *, verify: bool = False, strict: bool = True
) -> Snapshot:
    """List what is there; see :func:`listed`."""

    def attempt() -> Snapshot:
        skipped: list[Skipped] = []
        now = [*listed(layout, arm, set_name, skipped, verify=verify, strict=strict)]
        journals = tuple(file for file in now if isinstance(file, Index))
        sealed = tuple(file for file in now if isinstance(file, Sealed))
        return Snapshot(journals, sealed, tuple(skipped), strict)

    return steady(attempt)


def listed(
    layout: Layout,
    arm: str,
    set_name: str,
    skipped: list[Skipped],
    *,
    verify: bool = False,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Iterator[Index | Sealed]:
    """List the journals and then the parts of a group, one by one.

    Journals come first: a journal is removed only when its samples are in a part, so whoever
    misses the journal finds the part afterwards.

    ``skipped`` takes what cannot be used. ``verify``: read every sample, and leave out those that
    are damaged. ``strict``: raise what keeps a file from being read; else it is left out.
    ``passed_over``: says of a journal's name that none of its samples matter: it is not opened.
    """
    folder = layout.journals(arm, set_name)
    names = files.names(folder, "")
    noted = set(names)
    for name in names:
        if not name.endswith(writer.ENDING) or (passed_over and passed_over(name)):
            continue
        with left_out.unreadable(folder / name, skipped, strict=strict):
            index = journal.index(
                folder / name, verify=verify, noted=f"{name}{marks.ENDING}" in noted
            )
            index = own(index, arm, set_name)
            skipped.extend(index.skipped)
            yield index
    folder = layout.parts(arm, set_name)
    for name in files.names(folder, parts.ENDING):
        with left_out.unreadable(folder / name, skipped, strict=strict):
            part = part_of(folder / name, arm, set_name, skipped, verify=verify)
            if part is not None:
                yield part


def part_of(
    path: Path, arm: str, set_name: str, skipped: list[Skipped], *, verify: bool = False
) -> Sealed | None:
    """List a part of a group; None if it cannot be read, which ``skipped`` then says."""
    try:
        listed = parts.contents(path)
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
        return None
    damaged = marks.marked(path)
    if damaged:
        lost = sum(len(listed.groups[i].samples) for i in damaged)
        reason = f"{lost} samples that were found damaged before"
        skipped.append(Skipped(path, reason, samples=lost))
    if verify:
        every = range(len(listed.groups))
        read = parts.tables_of(path, listed, every, schema.ROWS, skipped)
        damaged |= frozenset(every).difference(*(groups for groups, _ in read))
    strange = _strange(listed.cells, arm, set_name)
    foreign = frozenset(i for i, group in enumerate(listed.groups) if strange[group.cell])
    if foreign:
        samples = sum(len(listed.groups[i].samples) for i in foreign)
        skipped.append(_foreign_note(path, listed.cells[strange.index(True)], samples))
    return Sealed(path, listed, damaged, foreign)


def own(index: Index, arm: str, set_name: str) -> Index:
    """Leave out the samples of a journal that belong to another arm or problem set."""
    strange = np.array(_strange(index.cells, arm, set_name), bool)
    if not strange.any():
        return index
    foreign = strange[index.records["cell"]]
    samples = int(foreign.sum())
    note = _foreign_note(index.path, index.cells[int(np.argmax(strange))], samples)
    return replace(
        index,
        records=index.records[~foreign],
        skipped=(*index.skipped, note),
        unused=index.unused + samples,
    )


def _strange(cells: list[Cell], arm: str, set_name: str) -> list[bool]:
    """Which cells belong to another arm or problem set."""
    return [cell.arm != arm or cell.problem.partition("/")[0] != set_name for cell in cells]


def _foreign_note(path: Path, cell: Cell, samples: int) -> Skipped:
    reason = (
        f"{samples} samples of another arm or problem set ({cell.arm}, {cell.problem}) than its "
        "folder's; move the file to the folder that it belongs to"
    )
    return Skipped(path, reason, left_out.FOREIGN, samples)


def steady(read: Callable[[], T]) -> T:
    """Give the result of a read that begins anew when a journal is removed under it."""
    gone = OSError()
    for attempt in range(_TRIES):
        try:
            return read()
        except FileNotFoundError as error:
            gone = error
            # Where it was not removed, a network file system may not show a new file yet.
            time.sleep(0.01 * 4**attempt)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            gone = error
            break
    path = Path(gone.filename)
    if path.is_symlink():
        raise UserError(
            f"{path}: a link to {path.readlink()}, which leads nowhere; bring its file back, or "
            "remove the link"
        )
    raise UserError(
        f"{gone.filename}: files keep vanishing while the store is read; "
        "give the command again when nobody cleans up",
        TRY_AGAIN,
    )
