"""Which samples are there, and which are missing: the question that every resume begins with.

The answer comes from the data alone: index blocks of journals and footers of parts, never from a
marker, an exit status or the existence of a file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import left_out, snapshot
from rlbhpc.store.frames import Cell
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import Index, Skipped
from rlbhpc.store.left_out import Note
from rlbhpc.store.listing import FAILED
from rlbhpc.store.snapshot import Sealed
from rlbhpc.store.view import Conflict, View
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Scan:
    """Outcome of a resume scan. Arrays have the shape (steps, problems[, n]) of the grid.

    Attributes
    ----------
    asked
        Which samples the grid asks for.
    verdicts
        Codes of :class:`~rlbhpc.verify.verdict.Status`; ``MISSING`` where there is no sample.
        A sample that did not fail counts before one that failed. Where two that did not fail
        contradict each other, either may stand here; :func:`rows` reports that.
    tokens, measured
        Response tokens of the samples of a problem, and of how many copies. A sample in two files
        enters both, so that their ratio is the mean length.
    strays
        Copies of samples that are not asked for: of an older request, or beyond n.
    skipped
        What could not be read.
    """

    asked: NDArray[np.bool_]
    verdicts: NDArray[np.int8]
    tokens: NDArray[np.int64]
    measured: NDArray[np.int64]
    strays: int
    skipped: tuple[Skipped, ...]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Samples that are asked for and not there, not even as a failure."""
        return self.asked & _is_any(self.verdicts, (Status.MISSING,))

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Samples of which there is nothing but a row that says they failed."""
        return _has_failed(self.verdicts)


def scan(layout: Layout, arm: str, set_name: str, grid: Grid, *, verify: bool = False) -> Scan:
    """Find out which of the samples that a grid asks for are there.

    Samples are not read whole, so that one with a flipped bit counts as there. Sealing and
    reading report it; with ``verify`` (minutes for 10⁶) it is missing here as well, and is drawn
    again.
    """
    now = snapshot.steady(lambda: snapshot.take(layout, arm, set_name, verify=verify))
    cells = [(step, problem) for step in grid.steps for problem in grid.problems]
    places = {
        Cell(arm, step, problem, grid.fingerprints[step, problem]): place
        for place, (step, problem) in enumerate(cells)
        if (step, problem) in grid.fingerprints
    }
    counts = np.array([grid.counts.get(cell, 0) for cell in cells], np.int64)
    verdicts = np.full(len(cells) * grid.n, Status.MISSING, np.int8)
    tokens, measured = np.zeros((2, len(cells)), np.int64)
    strays = 0
    files: list[Index | Sealed] = [*now.parts, *now.journals]
    for file in files:
        held = _held(file)
        # The last place is for what nobody asks for.
        place = np.array([*(places.get(cell, -1) for cell in held.cells), -1], np.int64)
        np.add.at(tokens, place[held.token_cells], held.tokens * (place[held.token_cells] >= 0))
        place = place[held.rows]
        known = (place >= 0) & (held.samples < grid.n)
        strays += len(known) - int(np.count_nonzero(known))
        measured += np.bincount(place[place >= 0], minlength=len(cells))
        _enter(verdicts, (place * grid.n + held.samples)[known], held.verdicts[known])
    shape = (len(grid.steps), len(grid.problems))
    return Scan(
        (np.arange(grid.n) < counts[:, None]).reshape(*shape, grid.n),
        verdicts.reshape(*shape, grid.n),
        tokens.reshape(shape),
        measured.reshape(shape),
        strays,
        now.skipped,
    )


class _Held(NamedTuple):
    """Samples of a file: their cells (as positions in ``cells``), indices, verdicts, lengths."""

    cells: list[Cell]
    rows: NDArray[np.int64]
    samples: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    token_cells: NDArray[np.int64]
    tokens: NDArray[np.int64]


def _held(file: Index | Sealed) -> _Held:
    if isinstance(file, Index):
        records = file.records
        rows, tokens = records["cell"].astype(np.int64), records["n_tokens"].astype(np.int64)
        return _Held(file.cells, rows, records["sample"], records["verdict"], rows, tokens)
    groups = [group for i, group in enumerate(file.listing.groups) if i not in file.unusable]
    cells = np.array([group.cell for group in groups], np.int64)
    return _Held(
        file.listing.cells,
        np.repeat(cells, [len(group.samples) for group in groups]),
        np.concatenate([np.empty(0, np.int32), *(group.samples for group in groups)]),
        np.concatenate([np.empty(0, np.int8), *(group.verdicts for group in groups)]),
        cells,
        np.array([group.tokens for group in groups], np.int64),
    )


def _enter(verdicts: NDArray[np.int8], at: NDArray[np.int64], found: NDArray[np.int8]) -> None:
    """Enter the verdicts of some samples; a failure never replaces a success."""
    failed = _has_failed(found)
    some = (at, found)
    if failed.any():
        _replace(verdicts, at[failed], found[failed], (Status.MISSING,))
        some = (at[~failed], found[~failed])
    _replace(verdicts, *some, (Status.MISSING, *FAILED))


def _replace(
    verdicts: NDArray[np.int8],
    at: NDArray[np.int64],
    found: NDArray[np.int8],
    replaced: Sequence[int],
) -> None:
    open_ = _is_any(verdicts[at], replaced)
    if not open_.all():
        at, found = at[open_], found[open_]
    verdicts[at] = found


def _has_failed(verdicts: NDArray[np.int8]) -> NDArray[np.bool_]:
    return _is_any(verdicts, FAILED)


def _is_any(verdicts: NDArray[np.int8], codes: Sequence[int]) -> NDArray[np.bool_]:
    """Test for a few codes; ten times faster than numpy's own test for many."""
    found = np.zeros(verdicts.shape, np.bool_)
    for code in codes:
        found |= verdicts == code
    return found


def rows(
    layout: Layout,
    arm: str,
    set_name: str,
    columns: Sequence[str] | None = None,
    *,
    problems: Collection[str] | None = None,
    steps: Collection[int] | None = None,
    below: int | None = None,
) -> Rows:
    """Read rows over parts and live journals, each sample once; only indices ``below`` a number.

    Where a key is there twice, a sample that did not fail counts before one that failed, then
    the smaller digest; where the chosen copy is damaged, another one. Samples of an older
    request have a fingerprint of their own and stay in.

    Returns
    -------
    Rows
        Sorted by step, problem, fingerprint and sample, whichever files they come from.
    """

    def read() -> Rows:
        now = snapshot.take(layout, arm, set_name)
        view = View(now, columns, problems=problems, steps=steps)
        which = np.arange(view.count)
        if below is not None:
            which = which[view.keys["sample"].to_numpy() < below]
        table = view.read(which, columns)
        notes[:] = [*(skipped.note for skipped in now.skipped), *view.notes]
        return Rows(table, tuple(view.skipped), tuple(view.conflicts))

    notes: list[Note] = []
    result = snapshot.steady(read)
    left_out.tell(layout.root, notes)
    return result


@dataclass(frozen=True)
class Rows:
    """Rows of an arm and problem set.

    ``conflicts`` are keys with two different samples, of which one was chosen as :func:`rows`
    says; ``skipped`` is what could not be read.
    """

    table: pa.Table
    skipped: tuple[Skipped, ...]
    conflicts: tuple[Conflict, ...]
