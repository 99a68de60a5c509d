"""Which samples a group has: one bit a key, merged over all its parts and journals.

The bits are derived and may be deleted at any time. They are kept in one file per arm and problem
set, so that a resume opens one file instead of ten thousand journals, and reads no more of it than
the problems that concern it::

    magic "rlbhpcB3", length of the head u32, crc32 of the head u32
    head   JSON: the files that were merged, the problems, the width of a row in bytes
    cells  one CELL per (step, problem, fingerprint) with samples; then their crc32
    rows   of each cell ``width`` bytes, a bit per sample, least first; as many for the right ones

A file that was merged and is not there any more, or was cut short, or of which more was marked as
damaged since, makes the whole merge void: then all files are listed anew. New files and those that
grew are added. Nothing is sorted anywhere.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.store.journal import Index
from rlbhpc.store.left_out import Note
from rlbhpc.store.listing import FAILED
from rlbhpc.store.snapshot import Sealed
from rlbhpc.study.keys import Cell
from rlbhpc.verify.verdict import Status

_MAGIC: Final = b"rlbhpcB3"
_START: Final = struct.Struct("<8sII")
#: What is known of a cell beside its bits; ``check`` is the crc32 of these.
CELL: Final = np.dtype(
    [
        ("fingerprint", "<i8"),
        ("tokens", "<f8"),
        ("step", "<i4"),
        ("problem", "<u4"),
        ("check", "<u4"),
    ]
)
_RIGHT: Final = int(Status.RIGHT)
# Samples that are entered at a time.
_TOGETHER: Final = 1 << 16
#: Size of a file when it was merged, whether it can still grow, its places marked as damaged.
Source = tuple[int, bool, int]


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


@dataclass
class Bitmap:
    """The merged bits of one arm and problem set."""

    sources: dict[str, Source] = field(default_factory=dict)
    problems: dict[str, int] = field(default_factory=dict)
    cells: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, CELL))
    bits: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    right_bits: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    failed: set[tuple[int, int]] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    _rows: dict[tuple[int, str, int], int] = field(default_factory=dict)
    _known: dict[Cell, int] = field(default_factory=dict)
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

    def knows(self, cells: Iterable[Cell]) -> bool:
        """Whether a file that was taken in has samples of all of them."""
        return all(map(self._known.__contains__, cells))

    def _row_of(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Row of each cell; new cells get new rows."""
        fresh = []
        for cell in cells if not self.knows(cells) else ():
            key = (cell.step, cell.problem, cell.fingerprint)
            if key not in self._rows:
                problem = self.problems.setdefault(cell.problem, len(self.problems))
                self._rows[key] = len(self._rows)
                fresh.append((cell.step, problem, cell.fingerprint))
            self._known[cell] = self._rows[key]
        if fresh:
            more = np.zeros(len(fresh), CELL)
            more["step"], more["problem"], more["fingerprint"] = zip(*fresh, strict=True)
            self.cells = np.concatenate([self.cells, more])
            empty = np.zeros((len(fresh), self.bits.shape[1]), np.uint8)
            self.bits = np.concatenate([self.bits, empty])
            self.right_bits = np.concatenate([self.right_bits, empty])
        return np.array(list(map(self._known.__getitem__, cells)), np.int64)

    def _gather(self, entries: _Entries) -> None:
        """Enter samples of many small files together: each call costs as much as a thousand."""
        self._waiting.append(entries)
        self._gathered += len(entries.rows)
        if self._gathered >= _TOGETHER:
            self.settle()

    def settle(self) -> None:
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
            lost = lost.where(~self.has(lost.rows, lost.samples))
            self.failed.update(lost.pairs())
            places, masks = self._place(lost.rows, lost.samples)
            np.bitwise_or.at(self.bits.ravel(), places, masks)
            entries = entries.where(~failed)
        if self.failed:
            self._forget_failures(entries)
        entries = entries.where(~self.has(entries.rows, entries.samples))
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
        self.cells["tokens"][touched] += np.bincount(entries.rows - first, entries.tokens)

    def _forget_failures(self, entries: _Entries) -> None:
        mended = np.fromiter(
            (key in self.failed for key in entries.pairs()), bool, len(entries.rows)
        )
        replaced = entries.where(mended)
        self.failed.difference_update(replaced.pairs())
        places, masks = self._place(replaced.rows, replaced.samples)
        np.bitwise_and.at(self.bits.ravel(), places, ~masks)

    def has(self, rows: NDArray[np.int64], samples: NDArray[np.int32]) -> NDArray[np.bool_]:
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
        self.settle()
        keys = zip(problems, fingerprints.tolist(), strict=True)
        rows = np.array([self._rows.get((step, p, f), -1) for p, f in keys], np.int64)
        has_row = rows >= 0
        own_rows = rows[has_row]
        bits = np.zeros((len(problems), self.bits.shape[1]), np.uint8)
        right_bits = np.zeros_like(bits)
        bits[has_row], right_bits[has_row] = self.bits[own_rows], self.right_bits[own_rows]
        tokens = np.zeros(len(problems))
        tokens[has_row] = self.cells["tokens"][own_rows]
        place = {row: i for i, row in enumerate(rows.tolist()) if row >= 0}
        failed = np.array(
            [(place[row], sample) for row, sample in self.failed if row in place], np.int64
        ).reshape(-1, 2)
        measured = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        measured -= np.bincount(failed[:, 0], minlength=len(problems))
        at_step = np.flatnonzero(self.cells["step"] == step)
        others = at_step[~np.isin(at_step, own_rows)]
        numbers = [self.problems[problem] for problem in problems if problem in self.problems]
        stale = others[np.isin(self.cells["problem"][others], numbers)]
        return Holding(
            bits,
            right_bits,
            failed,
            np.bitwise_count(right_bits).sum(axis=1, dtype=np.int64),
            tokens,
            measured,
            int(np.bitwise_count(self.bits[stale]).sum()),
        )

    # --- on disk -------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the merged bits, replacing an older merge in one step."""
        self.settle()
        rows = np.hstack([self.bits, self.right_bits])
        self.cells["check"] = [zlib.crc32(row) for row in rows]
        cells = self.cells.tobytes()
        head = json.dumps(
            {
                "sources": self.sources,
                "problems": list(self.problems),
                "cells": len(self.cells),
                "width": self.bits.shape[1],
                "failed": sorted(self.failed),
                "notes": self.notes,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
        with files.writing(path) as sink:
            sink.write(_START.pack(_MAGIC, len(head), zlib.crc32(head)))
            sink.write(head)
            sink.write(cells)
            sink.write(struct.pack("<I", zlib.crc32(cells)))
            sink.write(rows.ravel().data)

    @classmethod
    def load(cls, path: Path, wanted: Callable[[int, str], bool] | None = None) -> Bitmap:
        """Read merged bits; an empty bitmap where there are none or they are damaged.

        ``wanted``: says of a step and a problem whether its bits matter; others are not read.
        """
        try:
            with files.reading(path) as fd:
                return _read(fd, wanted)
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return cls()


def _read(fd: int, wanted: Callable[[int, str], bool] | None) -> Bitmap:
    magic, length, check = _START.unpack(files.read_at(fd, _START.size, 0))
    data = files.read_at(fd, length, _START.size)
    if magic != _MAGIC or zlib.crc32(data) != check:
        raise ValueError("its head fails its checksum")
    head = json.loads(data)
    count, width = head["cells"], head["width"]
    start = _START.size + length
    data = files.read_at(fd, count * CELL.itemsize + 4, start)
    if struct.unpack("<I", data[-4:])[0] != zlib.crc32(data[:-4]):
        raise ValueError("its cells fail their checksum")
    cells = np.frombuffer(data[:-4], CELL).copy()
    problems: list[str] = head["problems"]
    start += len(data)
    chosen = np.arange(count)
    if wanted is not None:
        names = zip(cells["step"].tolist(), cells["problem"].tolist(), strict=True)
        chosen = np.flatnonzero([wanted(step, problems[p]) for step, p in names])
    both = np.empty((len(chosen), 2 * width), np.uint8)
    for first, stop in _runs(chosen):
        data = files.read_at(fd, (stop - first) * 2 * width, start + int(chosen[first]) * 2 * width)
        both[first:stop] = np.frombuffer(data, np.uint8).reshape(stop - first, 2 * width)
    checks = zip(both, cells["check"][chosen].tolist(), strict=True)
    if any(zlib.crc32(row) != check for row, check in checks):
        raise ValueError("its rows fail their checksum")
    place = {int(row): i for i, row in enumerate(chosen)}
    cells = cells[chosen]
    rows = {
        (step, problems[p], fingerprint): i
        for i, (step, p, fingerprint) in enumerate(
            cells[["step", "problem", "fingerprint"]].tolist()
        )
    }
    return Bitmap(
        {name: tuple(source) for name, source in head["sources"].items()},
        {name: i for i, name in enumerate(problems)},
        cells,
        both[:, :width].copy(),
        both[:, width:].copy(),
        {(place[row], sample) for row, sample in head["failed"] if row in place},
        [Note(*note) for note in head["notes"]],
        rows,
    )


def _ones(bits: NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits.ravel().view(np.uint64)).sum())


def _runs(rows: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Stretches of consecutive rows, as positions in ``rows``."""
    edges = np.flatnonzero(np.diff(rows) != 1) + 1
    bounds = [0, *edges.tolist(), len(rows)]
    return [(a, b) for a, b in pairwise(bounds) if a < b]
