"""Take stock: which samples of an arm and problem set are there, one bit a key.

The answer comes from the data, the index blocks of journals and the footers of parts; never from a
marker or an exit status. Every verb that asks what is missing asks here. Nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Row and sample of each."""
        return zip(self.rows.tolist(), self.samples.tolist(), strict=True)


def _no_bits() -> NDArray[np.uint8]:
    return np.zeros((0, 0), np.uint8)


@dataclass
class Bitmap:
    """One bit for each sample of an arm on a problem set, a row for each cell.

    ``right_bits``: the right ones among them. ``tokens``: response tokens of each row. ``failed``:
    rows and samples of which there is nothing but a failure.
    """

    arm: str
    bits: NDArray[np.uint8] = field(default_factory=_no_bits)
    right_bits: NDArray[np.uint8] = field(default_factory=_no_bits)
    tokens: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    failed: set[tuple[int, int]] = field(default_factory=set)
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
            empty = np.zeros((len(fresh), self.bits.shape[1]), np.uint8)
            self.bits = np.concatenate([self.bits, empty])
            self.right_bits = np.concatenate([self.right_bits, empty])
        return np.array(list(map(self._rows.__getitem__, cells)), np.int64)

    def _gather(self, entries: _Entries) -> None:
        """Enter samples of many small files together: each call costs as much as a thousand."""
        self._waiting.append(entries)
        self._gathered += len(entries.rows)
        if self._gathered >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Enter what was gathered."""
        if self._waiting:
            gathered = _Entries(*map(np.concatenate, zip(*self._waiting, strict=True)))
            self._waiting.clear()
            self._gathered = 0
            self._enter(gathered)

    def _enter(self, entries: _Entries) -> None:
        """Set bits; a failure never replaces a success."""
        if not len(entries.rows):
            return
        width = -(-(int(entries.samples.max()) + 1) // 64) * 8
        if width > self.bits.shape[1]:
            more = ((0, 0), (0, width - self.bits.shape[1]))
            self.bits, self.right_bits = np.pad(self.bits, more), np.pad(self.right_bits, more)
        failed = (entries.verdicts == FAILED[0]) | (entries.verdicts == FAILED[1])
        if failed.any():
            lost = entries.where(failed)
            lost = lost.where(~self._has(lost.rows, lost.samples))
            self.failed.update(lost.pairs())
            places, masks = self._place(lost.rows, lost.samples)
            np.bitwise_or.at(self.bits.ravel(), places, masks)
            entries = entries.where(~failed)
        if self.failed:
            self._forget_failures(entries)
        entries = entries.where(~self._has(entries.rows, entries.samples))
        if len(entries.rows):
            self._enter_fresh(entries)

    def _enter_fresh(self, entries: _Entries) -> None:
        """Set bits that are clear: to add them takes a sixth of what an ``or`` takes."""
        first = int(entries.rows.min())
        touched = slice(first, int(entries.rows.max()) + 1)
        before = self.bits[touched].copy()
        places, masks = self._place(entries.rows, entries.samples)
        np.add.at(self.bits.ravel(), places, masks)
        if _ones(self.bits[touched]) - _ones(before) < len(entries.rows):
            # A carry: one of them is there twice. Counting bits is cheaper than sorting keys, and
            # most files have no sample twice.
            self.bits[touched] = before
            keys = (entries.rows << 32) | entries.samples
            self._enter_fresh(entries.where(np.unique(keys, return_index=True)[1]))
            return
        right = entries.verdicts == _RIGHT
        np.add.at(self.right_bits.ravel(), places[right], masks[right])
        self.tokens[touched] += np.bincount(entries.rows - first, entries.tokens)

    def _forget_failures(self, entries: _Entries) -> None:
        mended = np.fromiter(
            (key in self.failed for key in entries.pairs()), bool, len(entries.rows)
        )
        replaced = entries.where(mended)
        self.failed.difference_update(replaced.pairs())
        places, masks = self._place(replaced.rows, replaced.samples)
        np.bitwise_and.at(self.bits.ravel(), places, ~masks)

    def _has(self, rows: NDArray[np.int64], samples: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether samples of some rows are there."""
        places, masks = self._place(rows, samples)
        is_set: NDArray[np.bool_] = self.bits.ravel()[places] & masks != 0
        return is_set

    def _place(
        self, rows: NDArray[np.int64], samples: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Byte of each sample among all rows, and its bit in it."""
        return rows * self.bits.shape[1] + (samples >> 3), np.uint8(1) << (samples & 7).astype("u1")

    # --- asking --------------------------------------------------------------------------------

    def of(self, step: int, problems: Sequence[str], fingerprints: NDArray[np.int64]) -> Holding:
        """What there is of some problems at one step, asked in one way each."""
        self._settle()
        keys = zip(problems, fingerprints.tolist(), strict=True)
        rows = np.array([self._rows.get(Cell(self.arm, step, p, f), -1) for p, f in keys], np.int64)
        has_row = rows >= 0
        own_rows = rows[has_row]
        bits = np.zeros((len(problems), self.bits.shape[1]), np.uint8)
        right_bits = np.zeros_like(bits)
        bits[has_row], right_bits[has_row] = self.bits[own_rows], self.right_bits[own_rows]
        tokens = np.zeros(len(problems))
        tokens[has_row] = self.tokens[own_rows]
        place = {row: i for i, row in enumerate(rows.tolist()) if row >= 0}
        failed = np.array(
            [(place[row], sample) for row, sample in self.failed if row in place], np.int64
        ).reshape(-1, 2)
        measured = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        measured -= np.bincount(failed[:, 0], minlength=len(problems))
        requested = set(problems)
        stale = [
            row
            for cell, row in self._rows.items()
            if cell.step == step and cell.problem in requested and row not in place
        ]
        return Holding(
            bits,
            right_bits,
            failed,
            np.bitwise_count(right_bits).sum(axis=1, dtype=np.int64),
            tokens,
            measured,
            int(np.bitwise_count(self.bits[stale]).sum()),
        )


def _ones(bits: NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits.ravel().view(np.uint64)).sum())
