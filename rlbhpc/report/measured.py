"""The noun *Measured*: one arm at one step on one problem set, as counts, with nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.stats import Counts, PassCurve
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Tally:
    """What became of the samples that were asked for; None where a count was imported alone.

    ``judged`` samples are those of n. ``no_answer``, ``timeouts`` and ``truncated`` are among
    them; ``failed`` generations and ``verifier_errors`` are not: they say nothing about the model.
    """

    asked: int
    missing: int
    judged: int
    right: int
    no_answer: int | None = None
    timeouts: int | None = None
    truncated: int | None = None
    failed: int | None = None
    verifier_errors: int | None = None


@dataclass(frozen=True)
class Measured:
    """Counts of one arm at one step on one problem set.

    Attributes
    ----------
    arm, model, problem_set, step
        What was measured.
    problems
        Ids of all problems that were asked, in the order of the set.
    counts
        Samples and right ones per problem; n = 0 where nothing has come yet.
    depth
        Samples asked of each problem. Problems that a rule chose for more (top-ups) count with
        their first ``depth`` samples here, since a rule that looks at results makes the rest of
        them no fair sample.
    topped_up
        Problems that have more samples than ``depth``.
    tally
        What became of all samples.
    verdicts
        ``[problem, sample]`` verdict codes; None for imported counts.
    curve
        pass@k over problems that have samples; None where there is none.
    """

    arm: str
    model: str
    problem_set: str
    step: int
    problems: tuple[str, ...]
    counts: Counts
    depth: int
    topped_up: int
    tally: Tally
    verdicts: NDArray[np.int8] | None = field(repr=False)
    curve: PassCurve | None = None

    @property
    def label(self) -> str:
        """Arm and step in one name."""
        return self.arm if self.step == 0 else f"{self.arm}, step {self.step}"

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """Which problems have a judged sample."""
        return self.counts.n > 0

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Which samples were judged, ``[problem, sample]``; nothing of imported counts."""
        if self.verdicts is None:
            return np.zeros((len(self.problems), 0), bool)
        return (self.verdicts >= Status.WRONG) & (self.verdicts <= Status.TIMEOUT)

    def rows_of(self, problems: Sequence[str]) -> NDArray[np.int64]:
        """Positions of some problems."""
        return rows_at(problems, self.problems)

    def right_in_first(self, m: int, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Right samples among the first ``m`` judged ones of some problems.

        None where that cannot be known: imported counts of more than m samples.
        """
        counts = self.counts[rows]
        if (counts.n == m).all():
            return counts.c
        if self.verdicts is None:
            return None
        verdicts = self.verdicts[rows]
        judged = (verdicts >= Status.WRONG) & (verdicts <= Status.TIMEOUT)
        first = judged & (np.cumsum(judged, axis=1) <= m)
        return np.asarray(((verdicts == Status.RIGHT) & first).sum(axis=1), np.int64)


def measured(group: xr.Dataset, study: Study | None) -> Iterator[Measured]:
    """Read one group of a cube, step by step.

    Parameters
    ----------
    group
        A group ``<arm>/<problem set>`` of samples or counts.
    study
        What was asked for; without it, what the group has room for counts as asked.
    """
    arm, set_name = str(group["arm"].item()), str(group["problem_set"].item())
    planned = study is not None and arm in study.arms and set_name in study.sets(arm)
    ids = group["problem"].values.tolist()
    problems = study.problem_ids(set_name) if study and planned else tuple(ids)
    depth = study.n(arm, set_name) if study and planned else group.sizes.get("sample", 0)
    rows = rows_at(problems, ids)
    steps = group["step"].values.tolist()
    for j, step in enumerate(steps):
        if study and planned and step not in study.arms[arm].steps:
            continue
        cells = group.isel(step=j)
        names = (arm, str(group["model"].item()), set_name, int(step), problems)
        if "verdict" in group:
            yield _of_samples(cells, names, rows, depth)
        else:
            yield _of_counts(cells, names, rows)


_Names = tuple[str, str, str, int, tuple[str, ...]]


def _of_samples(cells: xr.Dataset, names: _Names, rows: NDArray[np.int64], depth: int) -> Measured:
    # Problems of the study that the group does not have yet are rows of missing samples.
    every = _rows(cells["verdict"].transpose("problem", "sample").values, rows)
    ends = _rows(cells["finish"].transpose("problem", "sample").values, rows)
    verdicts = every[:, :depth]
    judged = (verdicts >= Status.WRONG) & (verdicts <= Status.TIMEOUT)
    right = verdicts == Status.RIGHT

    def of(status: Status) -> int:
        return int((verdicts == status).sum())

    asked = len(rows) * depth
    stored = int((verdicts != Status.MISSING).sum())
    tally = Tally(
        asked,
        asked - stored,
        int(judged.sum()),
        int(right.sum()),
        of(Status.NO_ANSWER),
        of(Status.TIMEOUT),
        int((judged & (ends[:, :depth] == Finish.LENGTH)).sum()),
        of(Status.FAILED),
        of(Status.ERROR),
    )
    counts = Counts.of(judged.sum(axis=1), right.sum(axis=1))
    more = int((every[:, depth:] != Status.MISSING).any(axis=1).sum())
    return Measured(*names, counts, depth, more, tally, verdicts)


def _of_counts(cells: xr.Dataset, names: _Names, rows: NDArray[np.int64]) -> Measured:
    n, c = (np.maximum(_rows(cells[name].values, rows), 0) for name in ("n", "c"))
    counts = Counts.of(n, c)
    depth = int(n.max(initial=0))
    total = int(n.sum())
    tally = Tally(len(rows) * depth, len(rows) * depth - total, total, int(c.sum()))
    return Measured(*names, counts, depth, 0, tally, None)


def rows_at(problems: Sequence[str], stored: Sequence[str]) -> NDArray[np.int64]:
    """Where each problem stands among the stored ones; −1 for one that is not there."""
    at = {problem: i for i, problem in enumerate(stored)}
    return np.array([at.get(problem, -1) for problem in problems], np.int64)


def _rows(values: NDArray[np.int8], rows: NDArray[np.int64]) -> NDArray[np.int8]:
    """Take rows by position; −1 stands for a row of missing samples."""
    if len(rows) == len(values) and (rows == np.arange(len(rows))).all():
        return values
    padded = np.concatenate([values, np.full((1, *values.shape[1:]), -1, values.dtype)])
    return np.asarray(padded[rows])


def powers_of_two(reach: int) -> list[int]:
    """1, 2, 4, … up to ``reach``."""
    return [1 << i for i in range(reach.bit_length())] if reach else []


def by_line(found: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Group by arm and problem set, steps rising."""
    lines: dict[tuple[str, str], list[Measured]] = {}
    for one in sorted(found, key=lambda one: one.step):
        lines.setdefault((one.arm, one.problem_set), []).append(one)
    return lines
