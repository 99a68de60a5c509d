"""Read samples as rows, each once, over all the files that hold copies of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import inventory, left_out, snapshot
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.view import Conflict, View
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class Scan:
    """What of a grid is there. Arrays have the shape (steps, problems[, n]) of the grid.

    Attributes
    ----------
    asked, there, failed
        Which samples the grid asks for, which exist, and which of those are but a row that says
        they failed.
    tokens, measured
        Response tokens of the samples of a problem, and of how many.
    stale
        Samples of another request than the grid's.
    """

    asked: NDArray[np.bool_]
    there: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    tokens: NDArray[np.float64]
    measured: NDArray[np.float64]
    stale: int

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Samples that are asked for and not there, not even as a failure."""
        return self.asked & ~self.there


def scan(layout: Layout, arm: str, set_name: str, grid: Grid, *, verify: bool = False) -> Scan:
    """Find out which of the samples that a grid asks for are there; see :mod:`.inventory`."""
    bitmap = inventory.take(layout, arm, set_name, verify=verify)
    shape = (len(grid.steps), len(grid.problems), grid.n)
    present, failed = np.zeros((2, *shape), np.bool_)
    counts = np.zeros(shape[:2], np.int64)
    tokens, measured = np.zeros((2, *shape[:2]))
    stale = 0
    for i, step in enumerate(grid.steps):
        cells = [(step, problem) for problem in grid.problems]
        required = np.array([grid.fingerprints.get(cell, -1) for cell in cells], np.int64)
        counts[i] = [grid.counts.get(cell, 0) for cell in cells]
        held = bitmap.of(step, grid.problems, required)
        bits = np.unpackbits(held.bits, axis=1, bitorder="little")[:, : grid.n]
        present[i, :, : bits.shape[1]] = bits
        problem, sample = held.failed[held.failed[:, 1] < grid.n].T
        failed[i, problem, sample] = True
        tokens[i], measured[i] = held.tokens, held.measured
        stale += held.stale
    wanted = np.arange(grid.n) < counts[..., None]
    return Scan(wanted, present, failed, tokens, measured, stale)


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
