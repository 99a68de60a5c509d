"""One arm at one step on one problem set: how many samples it has and how many are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.report.phrases import BoolArray, IntArray
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

#: Verdict codes of :class:`Status`, or codes of how responses ended, ``[problem, sample]``.
Codes = NDArray[np.int8]


@dataclass(frozen=True)
class Tally:
    """How many samples were requested, came, and were judged in which way.

    ``judged`` samples are those of n. ``no_answer``, ``timeouts`` and ``truncated`` are among them.
    ``failed`` generations and ``verifier_errors`` are not, since they say nothing about the model.
    A value is None where only counts were imported.
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
class MeasuredArm:
    """Counts of one arm at one step on one problem set.

    ``problems``: ids of all requested problems, in the order of the set. ``counts``: samples and
    right ones of each problem; n = 0 where no sample has come yet. ``depth``: samples requested of
    each problem. Looks may ask for more samples of some problems. These do not count here: a rule
    that looks at results makes them no fair sample. ``topped_up``: problems with more samples than
    ``depth``. ``verdicts``: verdict codes of the first ``common_depth`` samples; None for imported
    counts. ``all_verdicts``: verdict codes of the first ``depth`` samples. ``stop_after``: right
    samples at which the sampling of a problem ends; 0 where it never ends early. ``curve``: pass@k
    over the problems with samples; None where there is none. ``decided_by``: ``strict`` or
    ``lenient``, whichever verdicts these are; empty where only one was stored. ``counterpart``: the
    same samples by the other verdict. ``errors``: what is known of the verifier's errors.
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
    verdicts: Codes | None = field(repr=False)
    all_verdicts: Codes | None = field(repr=False)
    stop_after: int = 0
    curve: PassCurve | None = None
    decided_by: str = ""
    counterpart: MeasuredArm | None = field(default=None, repr=False)
    errors: Errors = None

    @property
    def key(self) -> dict[str, str | int]:
        """The table columns that name this arm, step and problem set."""
        return {"problem_set": self.problem_set, "arm": self.arm, "step": self.step}

    @property
    def group(self) -> str:
        """Path of its samples in the cube."""
        return f"{self.arm}/{self.problem_set}"

    @property
    def label(self) -> str:
        """Arm and step in one name."""
        return self.arm if self.step == 0 else f"{self.arm}, step {self.step:,}"

    @property
    def has_samples(self) -> BoolArray:
        """Whether each problem has a judged sample."""
        return self.counts.n > 0

    @cached_property
    def sampled_rows(self) -> IntArray:
        """Positions of the problems that have a judged sample."""
        return np.flatnonzero(self.has_samples)

    @cached_property
    def sampled_problems(self) -> tuple[str, ...]:
        """Ids of the problems that have a judged sample."""
        return self.ids_at(self.sampled_rows)

    @cached_property
    def curve_rows(self) -> IntArray:
        """Positions of the problems in the pass@k curve; stragglers are left out."""
        counts = self.counts[self.sampled_rows]
        return self.sampled_rows[problems_with_samples(counts, [counts])]

    @cached_property
    def curve_problems(self) -> tuple[str, ...]:
        """Ids of the problems in the pass@k curve."""
        return self.ids_at(self.curve_rows)

    def ids_at(self, rows: IntArray) -> tuple[str, ...]:
        """Ids of the problems at these positions."""
        return tuple(self.problems[row] for row in rows.tolist())

    @property
    def is_judged(self) -> BoolArray:
        """Which samples were judged, ``[problem, sample]``; no columns for imported counts."""
        if self.verdicts is None:
            return np.zeros((len(self.problems), 0), bool)
        return _is_judged(self.verdicts)

    @property
    def is_right(self) -> BoolArray:
        """Which samples are right, ``[problem, sample]``; no columns for imported counts."""
        if self.verdicts is None:
            return np.zeros((len(self.problems), 0), bool)
        return np.asarray(self.verdicts == _RIGHT)

    @property
    def common_depth(self) -> int:
        """Samples that every problem has, even where sampling ends early at right ones."""
        return min(self.depth, self.stop_after or self.depth)

    def pass_at(self, k: int) -> Interval:
        """Pass@k with its interval, at the largest k of the curve that is not above ``k``."""
        assert self.curve is not None
        return self.curve.at(k)

    def equal_counts(self, rows: IntArray) -> Counts:
        """Counts of the samples that every problem has, which are exchangeable.

        Where sampling ends at the r-th right sample, problems have unequal numbers, and the last
        one is always right. Their first r samples are no such choice.
        """
        if not self.stop_after or self.verdicts is None:
            return self.counts[rows]
        return Counts.of(self.is_judged[rows].sum(axis=1), self.is_right[rows].sum(axis=1))

    def rows_of(self, problems: Sequence[str]) -> IntArray:
        """Positions of some problems."""
        return positions_of(problems, self.problems)

    def counts_of(self, problems: Sequence[str]) -> Counts:
        """Counts of some problems."""
        return self.counts[self.rows_of(problems)]

    def right_in_first(self, samples: int, rows: IntArray) -> IntArray | None:
        """Count the right samples among the first ``samples`` judged ones of each of some problems.

        ``rows``: positions of the problems. Samples that are missing, or whose generation or check
        failed, are not judged and do not count. None for imported counts of more samples, which do
        not say which ones were first.
        """
        counts = self.counts[rows]
        if (counts.n == samples).all():
            return counts.c
        if self.all_verdicts is None:
            return None
        verdicts = self.all_verdicts[rows]
        judged = _is_judged(verdicts)
        is_first = judged & (np.cumsum(judged, axis=1) <= samples)
        return np.asarray(((verdicts == _RIGHT) & is_first).sum(axis=1), np.int64)


@dataclass(frozen=True)
class _Request:
    """What was asked of one arm on one problem set.

    ``stored_rows``: the cube's row of each problem; −1 for a problem that it does not have yet.
    """

    arm: str
    model: str
    problem_set: str
    problems: tuple[str, ...]
    stored_rows: IntArray
    depth: int
    stop_after: int

    def ends_early(self, verdicts: Codes) -> bool:
        """Whether a problem ended before it had all samples or ``stop_after`` right ones.

        ``verdicts``: codes ``[problem, sample]``. Such a problem was ended by another grader's
        verdicts.
        """
        verdicts = verdicts[:, : self.depth]
        too_few_right = (verdicts == _RIGHT).sum(axis=1) < self.stop_after
        has_missing = (verdicts == _MISSING).any(axis=1)
        return bool((too_few_right & has_missing).any())

    def without_ends(self) -> _Request:
        """The request for the samples that every problem has, as verdicts of another grader need.

        That grader's verdicts decided when a problem ended.
        """
        return replace(self, depth=self.stop_after, stop_after=0)


def read_arms(
    group: xr.Dataset, study: Study | None, *, regraded: bool = False
) -> Iterator[MeasuredArm]:
    """Read one group ``<arm>/<problem set>`` of a cube, step by step.

    Without a study, everything that the group has room for counts as requested. ``regraded``: the
    verdicts are of another grader than the one that ended the sampling.

    Imported counts have ``n`` samples and ``c`` right ones of each problem and no verdicts. Else a
    sample has the verdict that decides, and may have the other of strict and lenient; the arm by
    that one is the *counterpart*. ``finishes``: codes of how responses ended.
    """
    request, steps = _read_request(group, study)
    if "verdict" not in group:
        samples, right = read_all_steps(group, "n"), read_all_steps(group, "c")
        for position, step in steps:
            yield _arm_of_counts(request, step, samples[position], right[position])
        return
    verdicts, finishes = read_all_steps(group, "verdict"), read_all_steps(group, "finish")
    decided_by = str(provenance(group.attrs).get(DECIDES, ""))
    other_name = COUNTERPARTS.get(decided_by, "")
    other_verdicts = read_all_steps(group, other_name) if other_name in group else None
    for position, step in steps:
        deciding, ends = verdicts[position], finishes[position]
        step_request = request
        if regraded and request.ends_early(deciding):
            step_request = request.without_ends()
        arm = _arm_of_samples(step_request, step, deciding, ends)
        if other_verdicts is not None:
            counterpart = _counterpart(step_request, step, deciding, other_verdicts[position], ends)
            arm = replace(arm, decided_by=decided_by, counterpart=counterpart)
        yield arm


def _counterpart(
    request: _Request, step: int, deciding: Codes, other: Codes, finishes: Codes
) -> MeasuredArm | None:
    """The same samples as an arm by the other verdict; None unless all of them have it.

    Verdicts are strict or lenient. ``deciding``: codes of the one that counts. ``other``: of the
    other one, ``[problem, sample]`` like ``finishes``, the codes of how responses ended. Sampling
    ended by the deciding verdicts; where the other ones would have gone on, only the samples that
    every problem has are kept.
    """
    lacks_other = (deciding != _MISSING) & (other == _MISSING)
    if lacks_other.any():
        return None
    if request.ends_early(other):
        request = request.without_ends()
    return _arm_of_samples(request, step, other, finishes)


def _read_request(group: xr.Dataset, study: Study | None) -> tuple[_Request, list[tuple[int, int]]]:
    """What was asked of a group, and the position and number of each step that was asked for.

    A *group* is an arm on a problem set, as it is stored. ``depth``: samples of each problem.
    ``stop_after``: right samples at which the sampling of a problem ends; 0 where it never does.
    All are the study's if it has the arm; else all that is stored was asked for.
    """
    arm, problem_set = str(group["arm"].item()), str(group["problem_set"].item())
    stored_ids = group["problem"].values.tolist()
    steps = list(enumerate(group["step"].values.tolist()))
    problems = tuple(stored_ids)
    depth = group.sizes.get("sample", 0)
    stop_after = int(group["stop_after"]) if "stop_after" in group else 0
    if study is not None and arm in study.arms and problem_set in study.sets(arm):
        problems = study.asked_problems(arm, problem_set)
        depth = study.n(arm, problem_set)
        stop_after = study.stop_after(arm, problem_set)
        steps = [(position, step) for position, step in steps if step in study.arms[arm].steps]
    request = _Request(
        arm,
        str(group["model"].item()),
        problem_set,
        problems,
        positions_of(problems, stored_ids),
        depth,
        stop_after,
    )
    return request, steps


def read_all_steps(group: xr.Dataset, name: str) -> NDArray[Any]:
    """Read ``[step, problem, sample]`` of a variable of small values in one go.

    Step by step that takes half as long again, and twice as long beside another busy process.
    """
    variable = group.variables[name].isel(step=slice(None))
    order = ("step", "problem", "sample")
    axes = [variable.dims.index(dimension) for dimension in order if dimension in variable.dims]
    return np.ascontiguousarray(variable.values.transpose(axes))


def read_step(group: xr.Dataset, name: str, position: int) -> NDArray[Any]:
    """Read ``[problem, sample]`` of a variable at one position along the steps."""
    return np.asarray(read_all_steps(group.isel(step=[position]), name)[0])


def _arm_of_samples(request: _Request, step: int, stored: Codes, finishes: Codes) -> MeasuredArm:
    """Make an arm at one step of stored verdicts.

    ``request``: what was asked of the arm. ``stored, finishes``: codes of the verdicts and of how
    responses ended, ``[problem, sample]``, in the rows of the cube. ``stored_rows`` brings them
    into the order of the request. Columns from ``depth`` on are samples that someone asked for
    later; they are counted in ``topped_up`` only. ``up_to_stop``: drops what comes after the last
    right sample that was asked for.
    """
    # A problem that the cube does not have yet is a row of missing samples.
    all_samples = take_rows(stored, request.stored_rows)
    verdicts = all_samples[:, : request.depth]
    finishes = take_rows(finishes, request.stored_rows)[:, : request.depth]
    until_stop = derive.up_to_stop(verdicts, request.stop_after)
    samples, right = derive.count_verdicts(until_stop, axis=1)
    counts = Counts.of(samples, right, request.stop_after, request.depth)
    extra_samples = all_samples[:, request.depth :] != _MISSING
    return MeasuredArm(
        request.arm,
        request.model,
        request.problem_set,
        step,
        request.problems,
        counts,
        request.depth,
        topped_up=int(extra_samples.any(axis=1).sum()),
        tally=_tally(request, verdicts, finishes, counts),
        verdicts=verdicts[:, : request.stop_after or request.depth],
        all_verdicts=verdicts,
        stop_after=request.stop_after,
    )


def _tally(request: _Request, verdicts: Codes, finishes: Codes, counts: Counts) -> Tally:
    """Count what became of the samples of an arm at one step.

    ``verdicts, finishes``: codes of the verdicts and of how responses ended, ``[problem, sample]``.
    A sample is *judged* if its verdict says something of the model: right, wrong, no answer or
    timeout. ``counts.stopped``: whether a problem's sampling ended early, at enough right samples.
    """

    def count(status: Status) -> int:
        return int(np.count_nonzero(verdicts == int(status)))

    stored = verdicts.size - count(Status.MISSING)
    judged = _is_judged(verdicts)
    requested = len(request.problems) * request.depth
    missing = requested - stored
    if request.stop_after:
        # What comes after a problem's last right sample is not missing.
        missing = int(np.count_nonzero(verdicts[~counts.stopped] == _MISSING))
        requested = stored + missing
    return Tally(
        asked=requested,
        missing=missing,
        judged=int(np.count_nonzero(judged)),
        right=count(Status.RIGHT),
        no_answer=count(Status.NO_ANSWER),
        timeouts=count(Status.TIMEOUT),
        truncated=int(np.count_nonzero(judged & (finishes == int(Finish.LENGTH)))),
        failed=count(Status.FAILED),
        verifier_errors=count(Status.ERROR),
    )


def _is_judged(verdicts: Codes) -> BoolArray:
    # Codes 0 to 3: one unsigned comparison also drops −1.
    return verdicts.view(np.uint8) <= _LAST_JUDGED


def _arm_of_counts(
    request: _Request, step: int, samples: NDArray[np.int32], right: NDArray[np.int32]
) -> MeasuredArm:
    """Make an arm of imported counts, which have no single samples.

    ``samples, right``: of each problem, in the rows of the cube; a negative count stands for a
    missing problem. ``stored_rows`` brings them into the order of the request. ``depth``: the most
    samples of any problem.
    """
    samples = np.maximum(take_rows(samples, request.stored_rows), 0)
    right = np.maximum(take_rows(right, request.stored_rows), 0)
    depth = int(samples.max(initial=0))
    requested, judged = len(samples) * depth, int(samples.sum())
    return MeasuredArm(
        request.arm,
        request.model,
        request.problem_set,
        step,
        request.problems,
        Counts.of(samples, right),
        depth,
        topped_up=0,
        tally=Tally(requested, requested - judged, judged, int(right.sum())),
        verdicts=None,
        all_verdicts=None,
    )


def positions_of(problems: Sequence[str], stored: Sequence[str]) -> IntArray:
    """Position of each problem among the stored ones; −1 for one that is not there."""
    if tuple(problems) == tuple(stored):
        return np.arange(len(stored))
    position = {problem: row for row, problem in enumerate(stored)}
    return np.array([position.get(problem, -1) for problem in problems], np.int64)


def take_rows(values: NDArray[Any], rows: IntArray) -> NDArray[Any]:
    """Take rows by position; −1 stands for a row of missing samples, which are −1 themselves."""
    if len(rows) == len(values) and (rows == np.arange(len(rows))).all():
        return values
    missing = np.full((1, *values.shape[1:]), -1, values.dtype)
    return np.asarray(np.concatenate([values, missing])[rows])


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, … up to ``largest``."""
    return [1 << exponent for exponent in range(largest.bit_length())] if largest else []


def short_names(arms: Sequence[MeasuredArm]) -> list[str]:
    """Names that tell these arms apart, with steps only if one arm is there at several."""
    if len({arm.arm for arm in arms}) < len(arms):
        return [arm.label for arm in arms]
    return [arm.arm for arm in arms]


def by_arm_and_set(arms: Sequence[MeasuredArm]) -> dict[tuple[str, str], list[MeasuredArm]]:
    """Group by arm and problem set, steps rising."""
    groups: dict[tuple[str, str], list[MeasuredArm]] = {}
    for arm in sorted(arms, key=lambda arm: arm.step):
        groups.setdefault((arm.arm, arm.problem_set), []).append(arm)
    return groups
