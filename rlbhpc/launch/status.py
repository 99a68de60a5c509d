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
from rlbhpc.launch.jobs import list_outdated_jobs
from rlbhpc.launch.launches import (
    RECORD,
    LaunchFolder,
    MissingSamples,
    describe_worker,
    find_live_jobs,
    is_made,
    list_launches,
    local_workers,
    recover_launches,
)
from rlbhpc.launch.prepare import measured_rates
from rlbhpc.launch.slurm import ACTIONS, SIGNS, QueueRow, advise_blocked, advise_limited
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import stored_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan, Presence, Shard, read_presence

# Bytes at the end of a log in which the cause of its end is looked for.
LOG_TAIL_BYTES: Final = 64_000
GOOD_STATES: Final = frozenset({"COMPLETED", "RUNNING", "PENDING", "REQUEUED", "COMPLETING"})
RUNNING_STATES: Final = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "STOPPED", "SUSPENDED"})
# States of a shard, from the best to the worst.
SHARD_STATES: Final = ("done", "running", "waiting", "begun", "hidden", "stopped")


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
        is_submitted = bool(self.launches) and (self.launches[-1].path / "submitted").exists()
        return is_submitted and self.queue == {} and not self.at_work


def status(layout: Layout) -> Status:
    """Look at everything once and say how far a run is; asks Slurm two questions at most.

    The rows are the jobs in the queue, None where Slurm does not answer. A block is the samples of
    one model's arm on one problem set, with those that are stored; ``missing`` counts those of a
    shard that are not. A worker is a process that submits or runs a launch here; a claim says which
    shard a local process works. Attempts are the records of the workers. Shown are the newest
    launch and those that have jobs in the queue.
    """
    study = stored_study(layout.study)
    launches = recover_launches(layout)
    rows = find_live_jobs(study, launches)
    worker = describe_worker(layout)
    local_claims = local_workers(layout)
    # After the question who works: whoever ended since has stored what it made.
    blocks = read_presence(layout, list(study.blocks()), strict=False)
    missing = MissingSamples(blocks)
    attempts = read_attempts(layout)
    rates = measured_rates(attempts)
    rate = None if rates is None else rates.tokens
    is_complete = not any(block.missing for block in blocks)
    works = []
    shards = {}
    for launch in launches:
        if launch is launches[-1] or launch.own_rows(rows or ()):
            work = _LaunchWork.of(launch, layout, missing)
            works.append(work)
            shards[launch.path.name] = _sort_shards(work, rows, attempts, worker, local_claims)
    shown_launches = [work.launch for work in works]
    queue = None if rows is None else dict(Counter(_describe_state(row) for row in rows))
    failed_jobs = [
        *_failures_by_records(study, launches, missing),
        *_failures_by_accounting(shown_launches, rows or (), is_complete),
    ]
    return Status(
        blocks=blocks,
        launches=shown_launches,
        shards=shards,
        queue=queue,
        rate=rate,
        left=_estimate_seconds_left(works, shards.values(), rate),
        blocked=_list_blocked_jobs(rows or ()),
        failures=_group_by_cause(failed_jobs, trains=bool(study.file.recipes)),
        at_work=worker,
        behind=_list_behind(study, layout) if launches and is_complete else [],
    )


def _list_behind(study: Study, layout: Layout) -> list[str]:
    """What comes after the samples that are there: the choice of prompts, or else other jobs."""
    return [f"search of {arm}" for arm in study.searching] or list_outdated_jobs(layout)


@dataclass(frozen=True)
class _LaunchWork:
    """What a launch has to do: the shards of its plan, and how many samples each lacks."""

    launch: LaunchFolder
    shards: list[Shard]
    missing_by_shard: dict[int, int]

    @classmethod
    def of(cls, launch: LaunchFolder, layout: Layout, missing: MissingSamples) -> _LaunchWork:
        """Read the plan of a launch."""
        shards = list(Plan.load(layout.plans / f"{launch.plan}.json").shards)
        return cls(launch, shards, {shard.number: missing.count_in(shard) for shard in shards})


def _sort_shards(
    work: _LaunchWork, rows: Sequence[QueueRow] | None, attempts: Sequence[Mapping[str, Any]],
    worker: str, local_claims: Collection[str],
) -> dict[str, list[int]]:  # fmt: skip
    """Numbers of a launch's shards by their state, by samples, queue, claims and attempts.

    The states are those of `SHARD_STATES`. ``work`` has the number of samples that each shard
    lacks. ``rows`` are the jobs in the queue, None where Slurm does not answer. An attempt is the
    record of one worker, which began a shard and may have ended it. ``worker`` says who runs a
    launch on this machine, ``local_claims`` which shards its jobs have, as PLAN-NUMBER.
    """
    plan = work.launch.plan
    begun = set()
    for attempt in attempts:
        if attempt["plan"] == plan and "ended" not in attempt:
            begun.add(attempt["shard"])
    running = {number for number in work.missing_by_shard if f"{plan}-{number:05d}" in local_claims}
    waiting: set[int] = set()
    hidden: set[int] = set()
    for row, numbers in work.launch.pair_shards(rows or ()):
        if row.state == slurm.HIDDEN:
            hidden.update(numbers)
            continue
        waiting.update(numbers)
        if row.state in RUNNING_STATES:
            # Of several shards a task may have begun some only.
            running |= begun.intersection(numbers) if len(numbers) > 1 else set(numbers)
    runs_here = f" launch {work.launch.path.name} " in worker
    if runs_here and not running:
        # In that process itself, or on a machine whose claims say nothing here.
        running = begun
    is_submitted = (work.launch.path / "submitted").exists()
    if runs_here or rows is None or not is_submitted:
        waiting = set(work.missing_by_shard)
    by_state: dict[str, list[int]] = {state: [] for state in SHARD_STATES}
    for number, missing_samples in work.missing_by_shard.items():
        # Whether a shard is done is read from the samples alone.
        if not missing_samples:
            state = "done"
        elif number in running:
            state = "running"
        elif rows is None and number in begun:
            state = "begun"
        elif number in waiting:
            state = "waiting"
        elif number in hidden:
            state = "hidden"
        else:
            state = "stopped"
        by_state[state].append(number)
    return {state: numbers for state, numbers in by_state.items() if numbers}


def _estimate_seconds_left(
    works: Iterable[_LaunchWork],
    shards: Iterable[Mapping[str, Sequence[int]]],
    rate: float | None,
) -> float | None:
    """Seconds until all shards are done, with as many workers as run now; None if none runs.

    ``rate`` is in tokens per second of one worker, which works one shard. ``shards`` has, for each
    launch, the numbers of its shards by state. A shard's ``tokens`` are those expected for all its
    samples, of which only the missing ones are left to make.
    """
    workers = sum(len(by_state.get("running", ())) for by_state in shards)
    if not rate or not workers:
        return None
    tokens_left = 0.0
    for work in works:
        for shard in work.shards:
            missing_share = work.missing_by_shard[shard.number] / shard.samples
            tokens_left += shard.tokens * missing_share
    return tokens_left / (rate * workers)


def _describe_state(row: QueueRow) -> str:
    """A job's state, with the reason if it waits."""
    state = row.state.lower().replace("_", " ")
    return f"{state} ({row.reason})" if row.state in ("PENDING", slurm.HIDDEN) else state


def _list_blocked_jobs(rows: Iterable[QueueRow]) -> list[Failure]:
    """Jobs that wait for more than their turn, as failures with what would start them.

    Slurm gives a reason for each job that waits. `advise_limited` knows those where the end of
    other jobs is waited for, `advise_blocked` those where somebody must act; both are empty for any
    other. Jobs of one reason and user make one failure.
    """
    jobs_by_reason: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        is_blocked = advise_blocked(row.reason) or advise_limited(row.reason)
        if not is_blocked or row.state in RUNNING_STATES:
            continue
        jobs = jobs_by_reason.setdefault((row.reason, row.user), [])
        if str(row.job) not in jobs:
            jobs.append(str(row.job))
    failures = []
    for (reason, owner), jobs in jobs_by_reason.items():
        advice = advise_limited(reason)
        cause = f"waits: {reason}"
        if not advice:
            advice = advise_blocked(reason).format(jobs=" ".join(jobs))
            cause = f"cannot start: {reason}"
        if owner not in ("", getpass.getuser()):
            advice = f"they are jobs of {owner}, who can act: {advice}"
        failures.append(Failure(cause, tuple(jobs), advice))
    return failures


def _group_by_cause(failed_jobs: Iterable[tuple[str, str]], trains: bool) -> list[Failure]:
    """One failure for each cause, from pairs of a cause and a job.

    ``trains`` says whether the study trains models, which changes the advice.
    """
    jobs_by_cause: dict[str, list[str]] = {}
    for cause, job in failed_jobs:
        jobs_by_cause.setdefault(cause, []).append(job)
    return [
        Failure(cause, tuple(jobs), _advise_action(cause, trains))
        for cause, jobs in jobs_by_cause.items()
    ]


def _failures_by_records(
    study: Study, launches: Iterable[LaunchFolder], missing: MissingSamples
) -> Iterator[tuple[str, str]]:
    """Cause and job of the failures that the jobs' parents wrote down.

    The parent of a job is the program that starts its work; it writes failures/JOB.json. What went
    on and ended well ("recovered"), or what another job has made since, is no failure any more.
    ``missing`` counts samples that are not stored.
    """
    for launch in launches:
        paths: list[Path] = []
        with suppress(OSError):
            paths = sorted((launch.path / "failures").glob("*.json"))
        for path in paths:
            # One of somebody else's may be unreadable, or half written.
            with suppress(OSError, ValueError, LookupError):
                record = json.loads(path.read_text())
                if not record["recovered"] and not is_made(study, launch, path.stem, missing):
                    yield record["runs"][-1]["cause"], path.stem


def _advise_action(cause: str, trains: bool) -> str:
    """What to do about a failure, by a state of Slurm or by what a job's parent wrote down.

    ``trains`` says whether the study trains models.
    """
    if "memory" in cause:
        return ACTIONS["OUT_OF_MEMORY"]
    if "started" in cause:
        return "check `rlbhpc`, `container` and `setup` in the cluster's file"
    if "is not there" in cause:
        if trains:
            return "see why the training before it ended, then launch again"
        return "restore the model's folder, then launch again"
    if "No such file" in cause:
        return "let `setup` in the cluster's file leave Slurm's commands in PATH, then launch again"
    if "requeued" in cause:
        return "launch again: the site lets jobs not requeue themselves"
    if "warned before" in cause:
        return "give more time (-t), a smaller `warning`, or `stage` so that models load faster"
    return ACTIONS.get(cause, ACTIONS["FAILED"])


def _failures_by_accounting(
    launches: Iterable[LaunchFolder], rows: Iterable[QueueRow], is_complete: bool
) -> Iterator[tuple[str, str]]:
    """State and job of what ended badly and is no longer in the queue, by the accounting.

    ``rows`` are the jobs in the queue. Where the samples are complete (``is_complete``), it does
    not matter how the jobs ended that made them.
    """
    queued = {(row.job, row.task) for row in rows if row.state != slurm.HIDDEN}
    for launch in launches:
        written = (launch.path / RECORD).stat().st_mtime
        since = time.strftime("%Y-%m-%d", time.localtime(written))
        tasks = launch.shards_by_task
        sampling_jobs = {job for job, _ in tasks}
        ended_rows = slurm.read_accounting(launch.job_ids, since) or []
        for row in _expand_arrays(ended_rows, tasks):
            is_over = (row.job, row.task) not in queued and row.state not in GOOD_STATES
            if is_over and not (is_complete and row.job in sampling_jobs):
                yield row.state, row.name


def _expand_arrays(
    rows: Sequence[QueueRow], tasks: Collection[tuple[int, int]]
) -> Iterator[QueueRow]:
    """Rows of the accounting, where one of a whole array stands for what no other row names.

    Of a task that ended at once, sacct may have the array's id alone. ``tasks`` are all pairs of
    job and task that were submitted; a row of a whole array has a negative task.
    """
    named_tasks = {(row.job, row.task) for row in rows}
    for row in rows:
        unnamed = [task for job, task in tasks if job == row.job and (job, task) not in named_tasks]
        if row.task < 0 and unnamed:
            yield from (row._replace(task=task) for task in unnamed)
        else:
            yield row


def diagnose(layout: Layout) -> tuple[list[Failure], Status]:
    """Every cause that keeps jobs of a run from starting or ended them, and the run's status.

    A failure is a cause with the jobs that it ended. Each job's log is read, which may show a
    better cause, and the jobs are grouped anew by what was found.
    """
    run_status = status(layout)
    launches = list_launches(layout)
    failures: dict[str, Failure] = {}
    for failure in run_status.failures:
        for job in failure.jobs:
            explained = _explain_by_log(launches, layout, job, failure)
            known = failures.setdefault(explained.cause, explained)
            if job not in known.jobs:
                failures[explained.cause] = replace(known, jobs=(*known.jobs, job))
    return [*run_status.blocked, *failures.values()], run_status


def _explain_by_log(
    launches: Iterable[LaunchFolder], layout: Layout, job: str, failure: Failure
) -> Failure:
    """What ended one job: what its log shows, else what its parent or Slurm said.

    `SIGNS` lists what a log may say, as a pattern, with what that means and what to do; the first
    that matches wins. Lines with " parent: " are of the program that starts the work, not of the
    work.
    """
    last_line = ""
    for log in _find_logs(launches, job):
        lines = _read_tail(log).splitlines()
        # A log of a job on this machine lies in a folder that is named after the job.
        log_name = f"{log.parent.name}/{log.name}" if log.suffix == ".out" else log.name
        for pattern, cause, action in SIGNS:
            matches = [line for line in lines if re.search(pattern, line)]
            if matches:
                # The last run is the one that counts.
                evidence = f"{log_name}: {matches[-1].strip()}"
                return Failure(cause, (job,), action.format(run=layout.root), evidence)
        lines_of_work = [line for line in lines if " parent: " not in line]
        if lines_of_work:
            last_line = f"{log_name}: {lines_of_work[-1].strip()}"
    return Failure(failure.cause, (job,), failure.action, last_line)


def _find_logs(launches: Iterable[LaunchFolder], job: str) -> list[Path]:
    """Logs of a job, as Slurm names them, and as submitit names those of this machine."""
    paths: list[Path] = []
    for launch in launches:
        logs = launch.path / "logs"
        paths += [*logs.glob(f"*-{job}.log"), *logs.glob(f"*/{job}_*_log.out")]
    return paths


def _read_tail(path: Path) -> str:
    """The last `LOG_TAIL_BYTES` of a log as text; empty where it cannot be read."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""
