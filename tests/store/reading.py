"""What tests read of a store: which samples are there, and whole files by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import journal, parts, sample_rows, snapshot
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.snapshot import COMPLETED_FLAG, FAILED_FLAG, Conflict, DistinctSamples, Inventory
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class Scan:
    """What of a grid is there. Arrays have the shape (steps, problems[, n]) of the grid.

    Attributes
    ----------
    missing, there, failed
        Which samples of the grid do not exist, which do, and which of those are but a row that
        says they failed.
    mean_tokens
        Response tokens of the samples of a problem.
    stale
        Samples of another request than the grid's.
    """

    missing: NDArray[np.bool_]
    there: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    mean_tokens: NDArray[np.float64]
    stale: int


def scan(layout: Layout, arm: str, set_name: str, grid: Grid, *, verify: bool = False) -> Scan:
    """Find out which of the samples that a grid asks for are there.

    With ``verify`` every sample is read whole.
    """
    if verify:
        stock = Inventory(arm)
        now = snapshot.retry_while_changing(
            lambda: snapshot.take_snapshot(layout, arm, set_name, verify=True)
        )
        for file in (*now.parts, *now.journals):
            stock.add_file(file)
    else:
        stock = snapshot.take_inventory(layout, arm, set_name)
    shape = (len(grid.steps), len(grid.problems), grid.n)
    present, failed = np.zeros((2, *shape), np.bool_)
    counts = np.zeros(shape[:2], np.int64)
    tokens, measured = np.zeros((2, *shape[:2]))
    stale = 0
    for i, step in enumerate(grid.steps):
        cells = [(step, problem) for problem in grid.problems]
        required = np.array([grid.fingerprints.get(cell, -1) for cell in cells], np.int64)
        counts[i] = [grid.counts.get(cell, 0) for cell in cells]
        held = stock.flags_of(step, grid.problems, required)
        flags = held.flags[:, : grid.n]
        present[i, :, : flags.shape[1]] = flags != 0
        failed[i, :, : flags.shape[1]] = flags == FAILED_FLAG
        tokens[i] = held.tokens
        measured[i] = np.count_nonzero(held.flags & COMPLETED_FLAG, axis=1)
        stale += held.outdated
    missing = (np.arange(grid.n) < counts[..., None]) & ~present
    with np.errstate(invalid="ignore"):
        mean_tokens = tokens / measured
    return Scan(missing, present, failed, mean_tokens, stale)


class Read(NamedTuple):
    """Rows of a file, and what was skipped."""

    table: pa.Table
    skipped: tuple[Skipped, ...]


class Rows(NamedTuple):
    """Rows of an arm and problem set, each once, and what the choice left out."""

    table: pa.Table
    skipped: list[Skipped]
    conflicts: list[Conflict]


def rows(
    layout: Layout, arm: str, set_name: str, columns: Sequence[str] | None = None, **some: Any
) -> Rows:
    def read() -> Rows:
        view = DistinctSamples(snapshot.take_snapshot(layout, arm, set_name), columns, **some)
        table = view.read(np.arange(view.count), columns)
        return Rows(table, view.skipped, view.conflicts)

    # As the readers of the package: a journal may be sealed and removed in between.
    return snapshot.retry_while_changing(read)


def read_journal(path: Path, columns: Sequence[str] | None = None) -> Read:
    """Rows of a journal in the order they were appended; duplicates are kept."""
    listed = journal.read_index(path)
    skipped = [*listed.skipped]
    names = sample_rows.select_columns(columns).names
    _, table = journal.whole_rows(listed, np.arange(len(listed.records)), names, skipped)
    return Read(table.unify_dictionaries(), tuple(skipped))


def read_index(path: Path, columns: Sequence[str]) -> pa.Table:
    """The same from the index blocks alone."""
    index = journal.read_index(path)
    schema = sample_rows.select_columns(columns)
    return journal.indexed_rows(index, schema, np.arange(index.sample_count))


def read_part(
    path: Path, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
) -> Read:
    """Rows of a part, or of some of its row groups; damaged row groups are left out and named."""
    wanted = sample_rows.select_columns(columns)
    skipped: list[Skipped] = []
    tables = []
    try:
        listed = parts.read_listing(path)
        chosen = range(len(listed.groups)) if groups is None else groups
        read = parts.read_groups(path, listed, chosen, wanted, skipped)
        tables = [table for _, table in read]
    except DamagedError as error:
        skipped.append(Skipped(path, f"unreadable part: {error}"))
    whole = pa.concat_tables([wanted.empty_table(), *tables]).unify_dictionaries()
    return Read(whole, tuple(skipped))
