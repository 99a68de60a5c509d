"""Which samples of an arm and problem set are stored: one byte of flags for each.

The answer comes from the data, the index blocks of journals and the footers of parts; never from a
marker or an exit status. Every verb that asks what is missing asks here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc.store import snapshot
from rlbhpc.store.journal import JournalIndex
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.parts import FAILED
from rlbhpc.store.snapshot import SealedPart
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: Flags of a stored sample. Completed: it was generated, and its verifier gave a verdict. Right:
#: completed, and the verdict is right. Failed: some file has a row that says generation or
#: verification failed; such a row alone is stored, but not completed.
COMPLETED_FLAG: Final = np.uint8(1)
RIGHT_FLAG: Final = np.uint8(2)
FAILED_FLAG: Final = np.uint8(4)


class StoredFlags(NamedTuple):
    """What is stored of some problems at one step.

    ``flags``: a row for each problem, a column for each sample index; 0 where nothing is stored.
    ``tokens``: response tokens of the completed samples of each problem. ``outdated``: stored
    samples of these problems that answer another request than the one asked about.
    """

    flags: NDArray[np.uint8]
    tokens: NDArray[np.float64]
    outdated: int


class Inventory:
    """Flags of every stored sample of an arm on a problem set.

    ``notes``: what could not be read.
    """

    def __init__(self, arm: str) -> None:
        self.notes: list[Note] = []
        self._arm = arm
        self._row_of_cell: dict[Cell, int] = {}
        self._cells_at_step: defaultdict[int, list[Cell]] = defaultdict(list)
        self._flags = np.zeros((0, 0), np.uint8)
        self._tokens = np.zeros(0)

    def add_file(self, file: JournalIndex | SealedPart) -> None:
        """Enter the samples of a file; one that another file has too counts once."""
        if isinstance(file, JournalIndex):
            records = file.records
            rows = self._rows_of_cells(file.cells)[records["cell"]]
            self._enter(rows, records["sample"], records["verdict"], records["n_tokens"])
            return
        groups = file.usable_groups
        if not groups:
            return
        sizes = [len(group.samples) for group in groups]
        rows = self._rows_of_cells([file.listing.cells[group.cell] for group in groups])
        # A part lists the tokens of a whole row group: each sample gets an equal share.
        mean_tokens = np.array([group.tokens for group in groups]) / sizes
        self._enter(
            np.repeat(rows, sizes),
            np.concatenate([group.samples for group in groups]),
            np.concatenate([group.verdicts for group in groups]),
            np.repeat(mean_tokens, sizes),
        )

    def flags_of(
        self, step: int, problems: Sequence[str], fingerprints: NDArray[np.int64]
    ) -> StoredFlags:
        """Look up problems at one step, each with the fingerprint of the request asked about."""
        requested_cells = {
            Cell(self._arm, step, problem, fingerprint)
            for problem, fingerprint in zip(problems, fingerprints.tolist(), strict=True)
        }
        flags = np.zeros((len(problems), self._flags.shape[1]), np.uint8)
        tokens = np.zeros(len(problems))
        outdated = 0
        index_of_problem = {problem: index for index, problem in enumerate(problems)}
        for cell in self._cells_at_step[step]:
            if cell.problem not in index_of_problem:
                continue
            row = self._row_of_cell[cell]
            if cell in requested_cells:
                index = index_of_problem[cell.problem]
                flags[index] = self._flags[row]
                tokens[index] = self._tokens[row]
            else:
                outdated += int(np.count_nonzero(self._flags[row]))
        return StoredFlags(flags, tokens, outdated)

    def _rows_of_cells(self, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Table row of each cell; a new cell gets the next free row."""
        for cell in cells:
            if cell not in self._row_of_cell:
                self._row_of_cell[cell] = len(self._row_of_cell)
                self._cells_at_step[cell.step].append(cell)
        return np.array([self._row_of_cell[cell] for cell in cells], np.int64)

    def _enter(
        self,
        rows: NDArray[np.int64],
        samples: NDArray[np.int32],
        verdicts: NDArray[np.int8],
        tokens: NDArray[Any],
    ) -> None:
        """Set the flags of the samples of one file, and count the tokens of new ones."""
        self._make_room(int(samples.max(initial=-1)) + 1)
        failed = np.isin(verdicts, FAILED)
        flags = np.where(verdicts == int(Status.RIGHT), COMPLETED_FLAG | RIGHT_FLAG, COMPLETED_FLAG)
        flags[failed] = FAILED_FLAG
        table = self._flags.reshape(-1)
        places = rows * self._flags.shape[1] + samples
        known = table[places] & COMPLETED_FLAG != 0
        # The first completed copy counts; the copies are the same sample.
        flags[known & ~failed] = 0
        np.bitwise_or.at(table, places, flags)
        new = np.flatnonzero(~known & ~failed)
        _, first_copies = np.unique(places[new], return_index=True)
        new = new[first_copies]
        self._tokens += np.bincount(rows[new], tokens[new], len(self._tokens))

    def _make_room(self, samples: int) -> None:
        """Grow the table; rows double, so that thousands of small files don't copy it each time."""
        rows, width = self._flags.shape
        needed_rows = len(self._row_of_cell)
        if needed_rows <= rows and samples <= width:
            return
        if needed_rows > rows:
            needed_rows = max(needed_rows, 2 * rows)
        table = np.zeros((max(rows, needed_rows), max(width, samples)), np.uint8)
        table[:rows, :width] = self._flags
        self._flags = table
        self._tokens = np.append(self._tokens, np.zeros(len(table) - rows))


def take_inventory(
    layout: Layout,
    arm: str,
    set_name: str,
    *,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> Inventory:
    """Find out which samples an arm has on a problem set.

    Samples are not read whole, so one with a flipped bit counts as stored until sealing has marked
    it. ``strict, passed_over``: see :func:`rlbhpc.store.snapshot.list_files`.
    """

    def read_files() -> Inventory:
        inventory = Inventory(arm)
        skipped: list[Skipped] = []
        for file in snapshot.list_files(
            layout, arm, set_name, skipped, strict=strict, passed_over=passed_over
        ):
            inventory.add_file(file)
        inventory.notes = [entry.note for entry in skipped]
        return inventory

    return snapshot.retry_while_changing(read_files)
