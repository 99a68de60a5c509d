"""How far a run is, and why its jobs ended: by its own files first, by Slurm where it answers."""

from __future__ import annotations

import getpass
import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rlbhpc.launch import slurm
from rlbhpc.launch.host import UNRECORDED
from rlbhpc.launch.jobs import outdated_jobs
from rlbhpc.launch.launches import (
    Gaps,
    LaunchFolder,
    at_work,
    claimed_here,
    find_launches,
    in_queue,
    is_made,
    launches,
)
from rlbhpc.launch.slurm import ACTIONS, NO_ROOM, SIGNS, what_it_waits_for, what_starts
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import stored_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan, Presence, Shard, read_presence

TAIL_BYTES: Final = 64_000
ENDED_WELL: Final = frozenset({"COMPLETED", "RUNNING", "PENDING", "REQUEUED", "COMPLETING"})
RUNS: Final = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "STOPPED", "SUSPENDED"})
# States of a shard, from the best to the worst.
ORDER: Final = ("done", "running", "waiting", "begun", "hidden", "stopped")


@dataclass(frozen=True)
class Failure:
    """Jobs that ended badly or cannot start, the cause, what to do, and the line that shows it."""

    cause: str
    jobs: tuple[str, ...]
    action: str
    evidence: str = ""


@dataclass(frozen=True)
class Status:
    """How far a run is.

    ``launches`` are those whose shards are shown: all that have jobs in the queue, and the newest.
    ``shards`` are counted by launch and state: ``done``, ``running``, ``waiting``, ``stopped``,
    ``hidden``: a job of somebody else may have it, which the site shows nobody; and, without an
    answer of Slurm, ``begun``: a worker took it and has not ended it. ``queue`` counts
    Slurm's jobs by state and by the reason why they wait; None without an answer. ``rate`` is in
    response tokens per second of one worker, ``left`` in seconds until all these shards are done.
    ``blocked`` are jobs in the queue that their turn alone does not start.
    ``behind`` is what follows the samples and is not up to date, once all samples are there.
    ``at_work`` says who submits or runs a launch right now, apart from the jobs in the queue.
    """

    blocks: list[Presence]
    launches: list[LaunchFolder]
    shards: dict[str, dict[str, list[int]]]
    queue: dict[str, int] | None
    rate: float | None
    left: float | None
    blocked: list[Failure]
    failures: list[Failure]
    at_work: str
    behind: list[str]

    @property
    def missing(self) -> int:
        """Samples that are still to be made."""
        return sum(block.missing for block in self.blocks)

    @property
    def stands_still(self) -> bool:
        """Whether all jobs that were submitted are over, and nobody works on the run."""
        submitted = bool(self.launches) and (self.launches[-1].path / "submitted").exists()
        return submitted and self.queue == {} and not self.at_work


def status(layout: Layout) -> Status:
    """Look at everything once; asks Slurm two questions at most."""
    study = stored_study(layout.study)
    folders = find_launches(layout)
    rows = in_queue(study, folders)
    holder = at_work(layout)
    claimed = claimed_here(layout)
    # After the question who works: whoever ended since has stored what it made.
    blocks = read_presence(layout, list(study.blocks()), strict=False)
    measure = Gaps(blocks)
    attempts = read_attempts(layout)
    listed = [f for f in folders if f is folders[-1] or f.own(rows or ())]
    works = [_work_of(folder, layout, measure) for folder in listed]
    shards = {
        work.folder.path.name: _shards_by_state(work, rows, attempts, holder, claimed)
        for work in works
    }
    missing = any(block.missing for block in blocks)
    trains = bool(study.file.recipes)
    return Status(
        blocks=blocks,
        launches=listed,
        shards=shards,
        queue=None if rows is None else dict(Counter(_in_words(row) for row in rows)),
        rate=_rate(attempts),
        left=_seconds_left(works, shards.values(), _rate(attempts)),
        blocked=_list_blocked_jobs(rows or ()),
        failures=[
            *_by_cause(_own_failures(study, folders, measure), trains),
            *_by_cause(_slurm_failures(listed, rows or (), not missing), trains),
        ],
        at_work=holder,
        behind=outdated_jobs(layout) if folders and not missing else [],
    )


@dataclass(frozen=True)
class _Work:
    """What a launch has to do: the shards of its plan, and how many samples each lacks."""

    folder: LaunchFolder
    shards: list[Shard]
    gaps: dict[int, int]


def _work_of(folder: LaunchFolder, layout: Layout, measure: Gaps) -> _Work:
    shards = list(Plan.load(layout.plans / f"{folder.plan}.json").shards)
    return _Work(folder, shards, {shard.number: measure.of(shard) for shard in shards})


def _shards_by_state(
    work: _Work, rows: Sequence[slurm.Row] | None, attempts: Sequence[Mapping[str, Any]],
    holder: str, claimed: Collection[str],
) -> dict[str, list[int]]:  # fmt: skip
    """Shards of a launch by what the queue, claims and attempts say of them."""
    plan = work.folder.plan
    begun = {a["shard"] for a in attempts if a["plan"] == plan and "ended" not in a}
    running = {number for number in work.gaps if f"{plan}-{number:05d}" in claimed}
    waiting: set[int] = set()
    hidden: set[int] = set()
    for row, numbers in work.folder.worked(rows or ()):
        if row.state == slurm.HIDDEN:
            hidden.update(numbers)
        else:
            waiting.update(numbers)
        if row.state in RUNS:
            # Of several shards a task may have begun some only.
            running |= begun.intersection(numbers) if len(numbers) > 1 else set(numbers)
    is_at_work = f" launch {work.folder.path.name} " in holder
    if is_at_work and not running:
        # In that process itself, or on a machine whose claims say nothing here.
        running = begun
    if is_at_work or rows is None or not (work.folder.path / "submitted").exists():
        waiting = set(work.gaps)
    if rows is not None:
        begun = set()
    seen = {"running": running, "begun": begun, "waiting": waiting, "hidden": hidden}
    return _by_state(work.gaps, seen)


def _seconds_left(
    works: Iterable[_Work], shards: Iterable[Mapping[str, Sequence[int]]], rate: float | None
) -> float | None:
    """Until all shards are done, at the rate of those that run now."""
    # A task works so many shards at once as its GPUs hold copies of the model.
    running = sum(len(states.get("running", ())) for states in shards)
    if not rate or not running:
        return None
    tokens = sum(
        shard.tokens * work.gaps[shard.number] / shard.samples
        for work in works
        for shard in work.shards
    )
    return tokens / (rate * running)


def _by_state(gaps: Mapping[int, int], seen: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    """Shards by state. Whether one is done is read from the samples alone."""
    by_state: dict[str, list[int]] = {}
    for number, gap in gaps.items():
        states = [state for state, numbers in seen.items() if number in numbers]
        state = "done" if not gap else [*states, "stopped"][0]
        by_state.setdefault(state, []).append(number)
    return {state: by_state[state] for state in ORDER if state in by_state}


def _rate(attempts: Iterable[Mapping[str, Any]]) -> float | None:
    """Response tokens per second of one worker, its start included."""
    ended = [attempt for attempt in attempts if "ended" in attempt and attempt.get("tokens")]
    seconds = sum(attempt["ended"] - attempt["started"] for attempt in ended)
    return sum(attempt["tokens"] for attempt in ended) / seconds if seconds > 0 else None


def _in_words(row: slurm.Row) -> str:
    """A job's state, with the reason if it waits."""
    state = row.state.lower().replace("_", " ")
    return f"{state} ({row.reason})" if row.state in ("PENDING", slurm.HIDDEN) else state


def _list_blocked_jobs(rows: Iterable[slurm.Row]) -> list[Failure]:
    """Jobs that wait for more than their turn, and what would start them."""
    jobs: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        is_held_back = what_starts(row.reason) or what_it_waits_for(row.reason)
        if is_held_back and row.state not in RUNS:
            jobs.setdefault((row.reason, row.user), {})[str(row.job)] = None
    failures = []
    for (reason, owner), names in jobs.items():
        waits_for = what_it_waits_for(reason)
        cause = f"waits: {reason}" if waits_for else f"cannot start: {reason}"
        advice = waits_for or what_starts(reason).format(jobs=" ".join(names))
        if owner not in ("", getpass.getuser()):
            advice = f"they are jobs of {owner}, who can act: {advice}"
        failures.append(Failure(cause, tuple(names), advice))
    return failures


def _by_cause(failures: Iterable[tuple[str, str]], trains: bool) -> list[Failure]:
    by_cause: dict[str, list[str]] = {}
    for cause, job in failures:
        by_cause.setdefault(cause, []).append(job)
    return [Failure(cause, tuple(jobs), _action(cause, trains)) for cause, jobs in by_cause.items()]


def _own_failures(
    study: Study, folders: Iterable[LaunchFolder], measure: Gaps
) -> Iterator[tuple[str, str]]:
    """Failures that the jobs' parents wrote down: the cause of the last run of each job.

    What went on and ended well, or what another job has made since, is no failure any more.
    """
    for folder in folders:
        names = (path.stem for path in folder.path.glob(f"{UNRECORDED}*"))
        for job in sorted({name.removeprefix(UNRECORDED) for name in names}):
            with suppress(LookupError):
                if not is_made(study, folder, job, measure):
                    yield NO_ROOM, job
        paths: list[Path] = []
        with suppress(OSError):
            paths = sorted((folder.path / "failures").glob("*.json"))
        for path in paths:
            # One of somebody else's may be unreadable, or half written.
            with suppress(OSError, ValueError, LookupError):
                record = json.loads(path.read_text())
                if not record["recovered"] and not is_made(study, folder, path.stem, measure):
                    yield record["runs"][-1]["cause"], path.stem


def _action(cause: str, trains: bool) -> str:
    """What to do about a failure, by a state of Slurm or by what a parent wrote down."""
    if "memory" in cause:
        return ACTIONS["OUT_OF_MEMORY"]
    if "started" in cause:
        return "check `rlbhpc`, `container` and `setup` in the cluster's file"
    if "is not there" in cause:
        before = "see why the training before it ended" if trains else "restore the model's folder"
        return f"{before}, then launch again"
    if "No such file" in cause:
        return "let `setup` in the cluster's file leave Slurm's commands in PATH, then launch again"
    if "requeued" in cause:
        return "launch again: the site lets jobs neither requeue themselves nor call sbatch"
    if "warned before" in cause:
        return "give more time (-t), a smaller `warning`, or `stage` so that models load faster"
    return ACTIONS.get(cause, ACTIONS["FAILED"])


def _slurm_failures(
    folders: Iterable[LaunchFolder], rows: Iterable[slurm.Row], complete: bool
) -> Iterator[tuple[str, str]]:
    """How jobs ended that are no longer in the queue, where there is an accounting."""
    queued = {(row.job, row.task) for row in rows if row.state != slurm.HIDDEN}
    for folder in folders:
        written = (folder.path / "launch.json").stat().st_mtime
        since = time.strftime("%Y-%m-%d", time.localtime(written))
        sampling = {job for job, _ in folder.tasks}
        for row in _by_task(slurm.account(folder.ids, since, folder.clusters) or [], folder.tasks):
            is_over = (row.job, row.task) not in queued and row.state not in ENDED_WELL
            if is_over and not (complete and row.job in sampling):
                yield row.state, row.name


def _by_task(rows: Sequence[slurm.Row], tasks: Collection[tuple[int, int]]) -> Iterator[slurm.Row]:
    """Rows of the accounting, where one of a whole array stands for what no other row names.

    Of a task that ended at once, sacct may have the array's id alone.
    """
    named = {(row.job, row.task) for row in rows}
    for row in rows:
        unnamed = [task for job, task in tasks if job == row.job and (job, task) not in named]
        if row.task < 0 and unnamed:
            yield from (row._replace(task=task) for task in unnamed)
        else:
            yield row


def diagnose(layout: Layout) -> tuple[list[Failure], Status]:
    """Every cause that keeps jobs of a run from starting or ended them, and the run's status."""
    now = status(layout)
    folders = launches(layout)
    by_cause: dict[str, Failure] = {}
    for failure in now.failures:
        for job in failure.jobs:
            cause = _of_job(folders, layout, job, failure)
            before = by_cause.setdefault(cause.cause, cause)
            if job not in before.jobs:
                by_cause[cause.cause] = replace(before, jobs=(*before.jobs, job))
    return [*now.blocked, *by_cause.values()], now


def _of_job(folders: Iterable[LaunchFolder], layout: Layout, job: str, failure: Failure) -> Failure:
    """What ended one job: what its log shows, else what its parent or Slurm said."""
    last_line = ""
    for log in _logs(folders, job):
        text = _tail(log)
        for pattern, cause, action in SIGNS:
            # The last run is the one that counts.
            lines = [line for line in text.splitlines() if re.search(pattern, line)]
            if lines:
                evidence = f"{_place(log)}: {lines[-1].strip()}"
                return Failure(cause, (job,), action.format(run=layout.root), evidence)
        of_the_work = [line for line in text.splitlines() if " parent: " not in line]
        if of_the_work:
            last_line = f"{_place(log)}: {of_the_work[-1].strip()}"
    return Failure(failure.cause, (job,), failure.action, last_line)


def _logs(folders: Iterable[LaunchFolder], job: str) -> list[Path]:
    paths: list[Path] = []
    for launch in folders:
        logs = launch.path / "logs"
        # As Slurm names them, and as submitit names those of this machine.
        paths += [*logs.glob(f"*-{job}.log"), *logs.glob(f"*/{job}_*_log.out")]
    return paths


def _place(log: Path) -> str:
    return f"{log.parent.name}/{log.name}" if log.suffix == ".out" else log.name


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""
