"""The noun *Measured*: one arm at one step on one problem set, as counts, with nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.stats import Counts, Interval, PassCurve
from rlbhpc.stats.decision import problems_with_samples
from rlbhpc.stats.verifier_error import Errors
from rlbhpc.store import derive
from rlbhpc.store.cube_schema import DECIDES, provenance
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status

#: Each of the two verdicts of a sample, and the one that does not decide where it does.
COUNTERPARTS: Final = {"strict": "lenient", "lenient": "strict"}
# Plain integers: NumPy compares bytes with an enum as 64-bit integers, at a sixth of the speed.
_MISSING: Final = int(Status.MISSING)
_RIGHT: Final = int(Status.RIGHT)
_LAST_JUDGED: Final = int(Status.TIMEOUT)


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

    ``problems``: ids of all problems that were asked, in the order of the set. ``counts``: samples
    and right ones per problem; n = 0 where nothing has come yet. ``depth``: samples asked of each
    problem. Problems that looks asked more of count with their first ``depth`` samples here, since
    a rule that looks at results makes the rest of them no fair sample. ``topped_up``: problems that
    have more samples than ``depth``. ``tally``: what became of all samples. ``verdicts``:
    ``[problem, sample]`` verdict codes of the samples that every problem is asked for, whatever
    comes out: all, or the first ``stop_after``. None for imported counts. ``drawn``: the same of
    all samples. ``stop_after``: right samples at which a problem ends; 0 where none does.
    ``curve``: pass@k over problems that have samples; None where there is none. ``decided_by``:
    whether strict or lenient verdicts these are; empty where only one was stored. ``counterpart``:
    the same samples by the other verdict. ``errors``: what is known of the verifier's errors here.
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
    drawn: NDArray[np.int8] | None = field(repr=False)
    stop_after: int = 0
    curve: PassCurve | None = None
    decided_by: str = ""
    counterpart: Measured | None = field(default=None, repr=False)
    errors: Errors = None

    @property
    def key(self) -> dict[str, str | int]:
        """Columns that tell its rows in a table from those of others."""
        return {"problem_set": self.problem_set, "arm": self.arm, "step": self.step}

    @property
    def group(self) -> str:
        """Where its samples stand in the results."""
        return f"{self.arm}/{self.problem_set}"

    @property
    def label(self) -> str:
        """Arm and step in one name."""
        return self.arm if self.step == 0 else f"{self.arm}, step {self.step:,}"

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """Which problems have a judged sample."""
        return self.counts.n > 0

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Positions of the problems that have a judged sample."""
        return np.flatnonzero(self.sampled)

    @cached_property
    def curve_rows(self) -> NDArray[np.int64]:
        """Positions of the problems in its curve, without stragglers."""
        counts = self.counts[self.rows]
        return self.rows[problems_with_samples(counts, [counts])]

    @cached_property
    def curve_problems(self) -> tuple[str, ...]:
        """Ids of the problems in its curve."""
        return tuple(self.problems[i] for i in self.curve_rows.tolist())

    @cached_property
    def sampled_problems(self) -> tuple[str, ...]:
        """Ids of the problems that have a judged sample."""
        return tuple(self.problems[i] for i in self.rows.tolist())

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Which samples were judged, ``[problem, sample]``; nothing of imported counts."""
        if self.verdicts is None:
            return np.zeros((len(self.problems), 0), bool)
        return _is_judged(self.verdicts)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which samples are right, ``[problem, sample]``; nothing of imported counts."""
        if self.verdicts is None:
            return np.zeros((len(self.problems), 0), bool)
        return np.asarray(self.verdicts == _RIGHT)

    @property
    def width(self) -> int:
        """Samples that every problem is asked for, whatever comes out."""
        return min(self.depth, self.stop_after or self.depth)

    def pass_at(self, k: int) -> Interval:
        """Pass@k with its interval, or that of the largest k below that the curve has."""
        assert self.curve is not None
        return self.curve.interval[int(np.searchsorted(self.curve.k, k, "right")) - 1]

    def equal_counts(self, rows: NDArray[np.int64]) -> Counts:
        """Counts of samples that are exchangeable: of those that every problem is asked for."""
        if not self.stop_after or self.verdicts is None:
            return self.counts[rows]
        return Counts.of(self.judged[rows].sum(axis=1), self.right[rows].sum(axis=1))

    def rows_of(self, problems: Sequence[str]) -> NDArray[np.int64]:
        """Positions of some problems."""
        return rows_at(problems, self.problems)

    def counts_of(self, problems: Sequence[str]) -> Counts:
        """Counts of some problems."""
        return self.counts[self.rows_of(problems)]

    def right_in_first(self, m: int, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Right samples among the first ``m`` judged ones of some problems.

        None where that cannot be known: imported counts of more than m samples.
        """
        counts = self.counts[rows]
        if (counts.n == m).all():
            return counts.c
        if self.drawn is None:
            return None
        verdicts = self.drawn[rows]
        judged = _is_judged(verdicts)
        first = judged & (np.cumsum(judged, axis=1) <= m)
        return np.asarray(((verdicts == _RIGHT) & first).sum(axis=1), np.int64)


def measured(
    group: xr.Dataset, study: Study | None, *, regraded: bool = False
) -> Iterator[Measured]:
    """Read one group of a cube, step by step.

    ``group``: a group ``<arm>/<problem set>`` of samples or counts. ``study``: what was asked for;
    without it, what the group has room for counts as asked.
    """
    arm, set_name = str(group["arm"].item()), str(group["problem_set"].item())
    planned = study is not None and arm in study.arms and set_name in study.sets(arm)
    ids = group["problem"].values.tolist()
    problems = study.problem_ids(set_name) if study and planned else tuple(ids)
    depth = study.n(arm, set_name) if study and planned else group.sizes.get("sample", 0)
    stop_after = int(group["stop_after"]) if "stop_after" in group else 0
    if study and planned:
        stop_after = study.stop_after(arm, set_name)
    rows = rows_at(problems, ids)
    steps = group["step"].values.tolist()
    model = str(group["model"].item())
    sampled = "verdict" in group
    stored = [
        over_steps(group, name) for name in (("verdict", "finish") if sampled else ("n", "c"))
    ]
    decided_by = str(provenance(group.attrs).get(DECIDES, ""))
    by_counterpart = None
    if decided_by in COUNTERPARTS and COUNTERPARTS[decided_by] in group:
        by_counterpart = over_steps(group, COUNTERPARTS[decided_by])
    for j, step in enumerate(steps):
        if study and planned and step not in study.arms[arm].steps:
            continue
        names = (arm, model, set_name, int(step), problems)
        if sampled:
            verdicts, ends = (values[j] for values in stored)
            plan = depth, stop_after
            if regraded and _end_unfinished(verdicts[:, :depth], stop_after):
                plan = stop_after, 0
            counts = _of_samples(verdicts, ends, names, rows, plan)
            if by_counterpart is not None:
                again = _of_counterpart(verdicts, by_counterpart[j], ends, names, rows, plan)
                counts = replace(counts, decided_by=decided_by, counterpart=again)
            yield counts
        else:
            n, c = (values[j] for values in stored)
            yield _of_counts(n, c, names, rows)


def _of_counterpart(
    stored: NDArray[np.int8],
    by_counterpart: NDArray[np.int8],
    ends: NDArray[np.int8],
    names: _Names,
    rows: NDArray[np.int64],
    plan: tuple[int, int],
) -> Measured | None:
    """The samples of a step by the verdict that does not decide, if all of them have it."""
    if ((stored != _MISSING) & (by_counterpart == _MISSING)).any():
        return None
    depth, stop_after = plan
    if stop_after and _end_unfinished(by_counterpart[:, :depth], stop_after):
        # The deciding verdict ended problems earlier than this one would have.
        plan = stop_after, 0
    return _of_samples(by_counterpart, ends, names, rows, plan)


def over_steps(group: xr.Dataset, name: str) -> NDArray[Any]:
    """Read ``[step, problem, sample]`` of a variable of small values in one go.

    Step by step that takes half as long again, and twice as long beside another busy process.
    """
    variable = group.variables[name].isel(step=slice(None))
    axes = [
        variable.dims.index(dim) for dim in ("step", "problem", "sample") if dim in variable.dims
    ]
    return np.ascontiguousarray(variable.values.transpose(axes))


def at_step(group: xr.Dataset, name: str, position: int) -> NDArray[Any]:
    """Read ``[problem, sample]`` of a variable at one position along the steps.

    The bare variable is indexed: with its coordinates that takes longer than the reading.
    """
    values = group.variables[name].isel(step=position)
    if values.dims == ("sample", "problem"):
        values = values.transpose()
    return np.asarray(values.values)


_Names = tuple[str, str, str, int, tuple[str, ...]]


def _of_samples(
    stored: NDArray[np.int8],
    ends: NDArray[np.int8],
    names: _Names,
    rows: NDArray[np.int64],
    plan: tuple[int, int],
) -> Measured:
    depth, stop_after = plan
    # Problems of the study that the group does not have yet are rows of missing samples.
    every = take_rows(stored, rows)
    verdicts = every[:, :depth]
    judged = _is_judged(verdicts)
    n, c = derive.count_verdicts(derive.up_to_stop(verdicts, stop_after), axis=1)
    counts = Counts.of(n, c, stop_after, depth)
    cut = judged & (take_rows(ends, rows)[:, :depth] == int(Finish.LENGTH))
    requested = len(rows) * depth
    tally = Tally(
        requested,
        requested - (verdicts.size - _times(verdicts, Status.MISSING)),
        int(np.count_nonzero(judged)),
        _times(verdicts, Status.RIGHT),
        _times(verdicts, Status.NO_ANSWER),
        _times(verdicts, Status.TIMEOUT),
        int(np.count_nonzero(cut)),
        _times(verdicts, Status.FAILED),
        _times(verdicts, Status.ERROR),
    )
    if stop_after:
        # What is behind a problem's last right sample is not missing.
        missing = _times(verdicts[~counts.stopped], Status.MISSING)
        requested = verdicts.size - _times(verdicts, Status.MISSING) + missing
        tally = replace(tally, asked=requested, missing=missing)
    more = int((every[:, depth:] != _MISSING).any(axis=1).sum())
    first = verdicts[:, : stop_after or depth]
    return Measured(*names, counts, depth, more, tally, first, verdicts, stop_after)


def _end_unfinished(verdicts: NDArray[np.int8], stop_after: int) -> bool:
    """Whether some problem has neither all samples nor ``stop_after`` right ones."""
    too_few = (verdicts == _RIGHT).sum(axis=1) < stop_after
    return bool((too_few & (verdicts == _MISSING).any(axis=1)).any())


def _is_judged(verdicts: NDArray[np.int8]) -> NDArray[np.bool_]:
    # Codes 0 to 3: one unsigned comparison also drops −1.
    return verdicts.view(np.uint8) <= _LAST_JUDGED


def _times(verdicts: NDArray[np.int8], status: Status) -> int:
    return int(np.count_nonzero(verdicts == int(status)))


def _of_counts(
    n_stored: NDArray[np.int32],
    c_stored: NDArray[np.int32],
    names: _Names,
    rows: NDArray[np.int64],
) -> Measured:
    n = np.maximum(take_rows(n_stored, rows), 0)
    c = np.maximum(take_rows(c_stored, rows), 0)
    counts = Counts.of(n, c)
    depth = int(n.max(initial=0))
    total = int(n.sum())
    tally = Tally(len(rows) * depth, len(rows) * depth - total, total, int(c.sum()))
    return Measured(*names, counts, depth, 0, tally, None, None)


def rows_at(problems: Sequence[str], stored: Sequence[str]) -> NDArray[np.int64]:
    """Where each problem stands among the stored ones; −1 for one that is not there."""
    if tuple(problems) == tuple(stored):
        return np.arange(len(stored))
    position = {problem: i for i, problem in enumerate(stored)}
    return np.array([position.get(problem, -1) for problem in problems], np.int64)


def take_rows(values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Take rows by position; −1 stands for a row of missing samples."""
    if len(rows) == len(values) and (rows == np.arange(len(rows))).all():
        return values
    padded = np.concatenate([values, np.full((1, *values.shape[1:]), -1, values.dtype)])
    return np.asarray(padded[rows])


def powers_of_two(reach: int) -> list[int]:
    """1, 2, 4, … up to ``reach``."""
    return [1 << i for i in range(reach.bit_length())] if reach else []


def by_line(arms: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Group by arm and problem set, steps rising."""
    lines: dict[tuple[str, str], list[Measured]] = {}
    for arm in sorted(arms, key=lambda arm: arm.step):
        lines.setdefault((arm.arm, arm.problem_set), []).append(arm)
    return lines
