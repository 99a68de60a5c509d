"""Read what is stored of samples beside their verdicts, for the arms that a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc.report.aspect import Report, once
from rlbhpc.report.measured import Measured, at_step, rows_at, take_rows
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout

#: Response tokens of one arm that a report reads at most: about a second.
TOKENS: Final = 20_000_000


def cells(
    report: Report, arms: Sequence[Measured], names: tuple[str, ...]
) -> Iterator[tuple[Measured, list[NDArray[Any]]]]:
    """Read variables ``[problem, sample]`` of arms with samples, in the order of their problems."""
    stored = (arm for arm in arms if arm.verdicts is not None and arm.sampled.any())
    for path, steps_of_group in groupby(stored, lambda arm: arm.group):
        group = report.tree[path].to_dataset()
        steps, problems = group["step"].values.tolist(), group["problem"].values.tolist()
        for arm in steps_of_group:
            step, rows = steps.index(arm.step), rows_at(arm.problems, problems)
            arrays = (take_rows(at_step(group, name, step), rows) for name in names)
            yield arm, [values[:, : arm.width] for values in arrays]


@once
def stored_groups(report: Report) -> set[tuple[str, str]]:
    """Arms and problem sets with whole samples in files, and not just in the cube."""
    layout = Layout(report.folder)
    return {
        group
        for group in layout.groups()
        if any(
            folder.is_dir() and any(folder.iterdir())
            for folder in (layout.parts(*group), layout.journals(*group))
        )
    }


def has_samples(report: Report, arm: Measured) -> bool:
    """Whether whole samples of an arm are stored, and not just its counts or its cube."""
    return arm.verdicts is not None and (arm.arm, arm.problem_set) in stored_groups(report)


def frames(
    report: Report,
    costs: Iterable[tuple[Measured, NDArray[np.float64]]],
    columns: tuple[str, ...],
    tokens: int = TOKENS,
) -> Iterator[tuple[Measured, pd.DataFrame]]:
    """Read columns of as many problems of each arm as :func:`some_problems` says."""
    for arm, cost in costs:
        if has_samples(report, arm):
            rows = read(report, arm, some_problems(arm, cost, tokens), columns)
            if rows.num_rows:  # none in a cube whose samples are elsewhere
                yield arm, rows.to_pandas()


def some_problems(arm: Measured, cost: NDArray[np.float64], tokens: int) -> list[str]:
    """Sampled problems spread evenly over the set whose responses have so many tokens at most.

    ``cost`` is the mean length of a response of each sampled problem.
    """
    rows = arm.rows
    mean = max(1.0, float(np.nan_to_num(cost * arm.counts.n[rows]).mean()))
    number = int(np.clip(tokens // mean, 1, len(rows)))
    chosen = np.unique(np.linspace(0, len(rows) - 1, number).round().astype(int))
    return [arm.problems[rows[i]] for i in chosen.tolist()]


def read(report: Report, arm: Measured, problems: list[str], columns: tuple[str, ...]) -> pa.Table:
    """Read columns, ``sample`` among them, of the first ``width`` samples of some problems."""
    group = Group(arm.arm, arm.problem_set)
    table = samples.answering(Layout(report.folder), group, arm.step, problems, columns)
    return table.filter(pc.less(table["sample"], arm.width))
