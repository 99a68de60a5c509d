"""Read columns of stored samples for a report: whole problems, as many as there is time for."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.responses import Responses
from rlbhpc.store import samples
from rlbhpc.study.layout import Layout

#: Response tokens of one arm that a report reads at most: about a second.
TOKENS: Final = 20_000_000


def has_samples(report: Report, one: Measured) -> bool:
    """Whether whole samples of an arm are stored, and not just its counts or its cube."""
    groups = Layout(report.folder).groups()
    return one.verdicts is not None and (one.arm, one.problem_set) in groups


def some_problems(written: Responses, tokens: int = TOKENS) -> list[str]:
    """Sampled problems spread evenly over the set whose responses have so many tokens at most."""
    one = written.of
    rows = np.flatnonzero(one.sampled)
    mean = max(1.0, float(np.nan_to_num(written.cost * one.counts.n[rows]).mean()))
    number = int(np.clip(tokens // mean, 1, len(rows)))
    chosen = np.unique(np.linspace(0, len(rows) - 1, number).round().astype(int))
    return [one.problems[rows[i]] for i in chosen.tolist()]


def read(report: Report, one: Measured, problems: list[str], columns: tuple[str, ...]) -> pa.Table:
    """Read columns, ``sample`` among them, of the first ``depth`` samples of some problems."""
    table = samples.columns(
        Layout(report.folder), one.arm, one.problem_set, one.step, problems, columns
    )
    return table.filter(pc.less(table["sample"], one.depth))
