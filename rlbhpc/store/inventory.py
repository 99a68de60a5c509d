"""Take stock: which samples of an arm and problem set are there, one bit a key.

The answer comes from the data, the index blocks of journals and the footers of parts; never from a
marker or an exit status. Every verb that asks what is missing asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc.store import snapshot
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import FAILED
from rlbhpc.store.snapshot import Sealed
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

_RIGHT: Final = int(Status.RIGHT)
# Samples that are entered at a time.
_TOGETHER: Final = 1 << 16


def take(
    layout: Layout,
    arm: str,
    set_name: str,
    *,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Bitmap:
    """Find out which samples a group has.

    Samples are not read whole, so that one with a flipped bit counts as there until sealing has
    marked it. ``strict, passed_over``: see :func:`snapshot.listed`.
    """

    def attempt() -> Bitmap:
        bitmap = Bitmap(arm)
        skipped: list[Skipped] = []
        for file in snapshot.listed(
            layout, arm, set_name, skipped, strict=strict, passed_over=passed_over
        ):
            bitmap.add(file)
        bitmap.notes = [line.note for line in skipped]
        return bitmap

    return snapshot.steady(attempt)


class Holding(NamedTuple):
    """What a group has of some cells.

    ``bits, right_bits``: a row of packed bits per cell: its samples, and the right ones.
    ``failed``: rows and samples of which there is nothing but a row that says they failed. ``right,
    tokens, measured``: right samples per cell, response tokens, and of how many samples: all that
    did not fail. ``stale``: samples of the group's steps under another request than the cells'.
    """

    bits: NDArray[np.uint8]
    right_bits: NDArray[np.uint8]
    failed: NDArray[np.int64]
    right: NDArray[np.int64]
    tokens: NDArray[np.float64]
    measured: NDArray[np.int64]
    stale: int


class _Entries(NamedTuple):
    """Samples of a file: their rows here, indices, verdicts and lengths."""

    rows: NDArray[np.int64]
    samples: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    tokens: NDArray[Any]

    def where(self, chosen: NDArray[Any]) -> _Entries:
        """Some of them."""
        return _Entries(*(column[chosen] for column in self))


# Planes of a bitmap: samples that did not fail, the right ones among them, and those of which some
# file has a failure.
_DONE, _CORRECT, _FAILED = range(3)


def _no_bits() -> NDArray[np.uint8]:
    return np.zeros((3, 0, 0), np.uint8)


@dataclass
class Bitmap:
    """Bits for each sample of an arm on a problem set, a row for each cell.

    ``planes``: what is known of each sample, see above. ``tokens``: response tokens of each row.
    """

    arm: str
    planes: NDArray[np.uint8] = field(default_factory=_no_bits)
    tokens: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    notes: list[Note] = field(default_factory=list)
    _rows: dict[Cell, int] = field(default_factory=dict)
    _waiting: list[_Entries] = field(default_factory=list)
    _gathered: int = 0

    # --- adding files --------------------------------------------------------------------------

    def add(self, file: Index | Sealed) -> None:
        """Take in the samples of a file. One that is there already counts once."""
        if isinstance(file, Index):
            records = file.records
            rows = self._row_of(file.cells)[records["cell"]]
            names = ("sample", "verdict", "n_tokens")
            self._gather(_Entries(rows, *(records[name] for name in names)))
            return
        groups = [g for i, g in enumerate(file.listing.groups) if i not in file.unusable]
        if groups:
            sizes = [len(group.samples) for group in groups]
            row = self._row_of([file.listing.cells[group.cell] for group in groups])
            # A part lists the tokens of a row group; each of its samples gets an equal share.
            tokens = np.array([group.tokens for group in groups]) / sizes
            self._gather(
                _Entries(
                    np.repeat(row, sizes),
                    np.concatenate([group.samples for group in groups]),
                    np.concatenate([group.verdicts for group in groups]),
                    np.repeat(tokens, sizes),
                )
            )

    def _row_of(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Row of each cell; new cells get new rows."""
        fresh = dict.fromkeys(cell for cell in cells if cell not in self._rows)
        if fresh:
            self._rows |= zip(fresh, count(len(self._rows)), strict=False)
            self.tokens = np.append(self.tokens, np.zeros(len(fresh)))
            self.planes = np.pad(self.planes, ((0, 0), (0, len(fresh)), (0, 0)))
        return np.array(list(map(self._rows.__getitem__, cells)), np.int64)

    def _gather(self, entries: _Entries) -> None:
        """Enter samples of many small files together: each call costs as much as a thousand."""
        self._waiting.append(entries)
        self._gathered += len(entries.rows)
        if self._gathered >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Enter what was gathered."""
        if self._gathered:
            entries = _Entries(*map(np.concatenate, zip(*self._waiting, strict=True)))
            self._enter(entries)
        self._waiting.clear()
        self._gathered = 0

    def _enter(self, entries: _Entries) -> None:
        """Set bits. A sample counts once, and where there is one no failure of it counts."""
        width = -(-(int(entries.samples.max()) + 1) // 64) * 8
        if width > self.planes.shape[2]:
            self.planes = np.pad(self.planes, ((0, 0), (0, 0), (0, width - self.planes.shape[2])))
        failed = (entries.verdicts == FAILED[0]) | (entries.verdicts == FAILED[1])
        self._set(_FAILED, self._new(_FAILED, entries.where(failed)))
        done = self._new(_DONE, entries.where(~failed))
        self._set(_DONE, done)
        self._set(_CORRECT, done.where(done.verdicts == _RIGHT))
        self.tokens += np.bincount(done.rows, done.tokens, len(self.tokens))

    def _new(self, plane: int, entries: _Entries) -> _Entries:
        """Each sample once, of those whose bit is clear."""
        keys = (entries.rows << 32) | entries.samples
        _, first = np.unique(keys, return_index=True)
        entries = entries.where(first)
        places, masks = self._place(entries)
        return entries.where(self.planes[plane].ravel()[places] & masks == 0)

    def _set(self, plane: int, entries: _Entries) -> None:
        """Set bits that are clear, each once: to add them takes a sixth of what an ``or`` takes."""
        places, masks = self._place(entries)
        np.add.at(self.planes[plane].ravel(), places, masks)

    def _place(self, entries: _Entries) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Byte of each sample among all rows, and its bit in it."""
        places = entries.rows * self.planes.shape[2] + (entries.samples >> 3)
        return places, np.uint8(1) << (entries.samples & 7).astype(np.uint8)

    # --- asking --------------------------------------------------------------------------------

    def of(self, step: int, problems: Sequence[str], fingerprints: NDArray[np.int64]) -> Holding:
        """What there is of some problems at one step, asked in one way each."""
        self._settle()
        keys = zip(problems, fingerprints.tolist(), strict=True)
        rows = np.array([self._rows.get(Cell(self.arm, step, p, f), -1) for p, f in keys], np.int64)
        has_row = rows >= 0
        planes = np.zeros((3, len(problems), self.planes.shape[2]), np.uint8)
        planes[:, has_row] = self.planes[:, rows[has_row]]
        tokens = np.zeros(len(problems))
        tokens[has_row] = self.tokens[rows[has_row]]
        done, right, failed = planes
        only_failed = failed & ~done
        failures = np.argwhere(np.unpackbits(only_failed, axis=1, bitorder="little"))
        requested, found = set(problems), set(rows.tolist())
        stale = [
            row
            for cell, row in self._rows.items()
            if cell.step == step and cell.problem in requested and row not in found
        ]
        return Holding(
            done | failed,
            right,
            failures,
            np.bitwise_count(right).sum(axis=1, dtype=np.int64),
            tokens,
            np.bitwise_count(done).sum(axis=1, dtype=np.int64),
            int(np.bitwise_count(self.planes[_DONE, stale] | self.planes[_FAILED, stale]).sum()),
        )
