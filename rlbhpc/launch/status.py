"""How far a run is: by its own files first, by Slurm where it answers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.launch import slurm
from rlbhpc.launch.run_folder import LaunchFolder, launches, study_of
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.plan import Plan, Shard
from rlbhpc.sweep.presence import Presence, presence

# What a state of Slurm means for whoever has to act on it.
ACTIONS: Final[Mapping[str, str]] = {
    "OUT_OF_MEMORY": "give jobs more memory (--mem), or the engine fewer rows at once",
    "TIMEOUT": "the job could not be requeued in time: raise `warning` or the time limit",
    "NODE_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "BOOT_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "DEADLINE": "launch again without --deadline",
    "CANCELLED": "launch again when it shall go on",
    "FAILED": "read the end of its log, then launch again",
    "PREEMPTED": "launch again: the site does not requeue preempted jobs",
}
ENDED_WELL: Final = frozenset({"COMPLETED", "RUNNING", "PENDING", "REQUEUED", "COMPLETING"})
SLURM_RUNS: Final = frozenset({"RUNNING", "COMPLETING", "STOPPED", "SUSPENDED"})


@dataclass(frozen=True)
class Failure:
    """Jobs that ended badly for the same cause, and what to do about it."""

    cause: str
    jobs: tuple[str, ...]
    action: str


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes
    ----------
    blocks
        What is there of each arm, problem set and step.
    shards
        Shards of the newest launch by state: ``done``, ``running``, ``waiting``, ``stopped`` and,
        without an answer of Slurm, ``begun``: a worker took it and has not ended it.
    queue
        Jobs in Slurm's queue by state and by the reason why they wait; None without an answer.
    rate
        Response tokens per second of one worker, by the attempts that have ended.
    left
        Seconds until all shards of the newest launch are done, as far as that can be told.
    """

    blocks: list[Presence]
    launch: LaunchFolder | None
    shards: dict[str, list[int]]
    queue: dict[str, int] | None
    rate: float | None
    left: float | None
    failures: list[Failure]

    @property
    def missing(self) -> int:
        """Samples that are still to be made."""
        return sum(block.missing for block in self.blocks)


def status(layout: Layout) -> Status:
    """Look at everything once; asks Slurm two questions at most."""
    study = study_of(layout)
    blocks = presence(layout, list(study.blocks()))
    folders = launches(layout)
    rows = slurm.queue() if any(one.submitted for one in folders) else []
    newest = folders[-1] if folders else None
    if newest is None:
        return Status(blocks, None, {}, None, None, None, [])
    plan = Plan.load(layout.plans / f"{newest.plan}.json")
    attempts = read_attempts(layout.attempts, newest.plan)
    measure = Gaps(blocks)
    gaps = {shard.number: measure.of(shard) for shard in plan.shards}
    shards = _shards(plan, gaps, newest, rows, attempts)
    rate = _rate(attempts)
    mine = [row for row in rows or () if row.job in set(newest.submitted.values())]
    working = sum(row.state == "RUNNING" for row in mine if (row.job, row.task) in newest.tasks)
    tokens = sum(shard.tokens * gaps[shard.number] / shard.samples for shard in plan.shards)
    left = tokens / (rate * working) if rate and working else None
    queue = None if rows is None else dict(Counter(_in_words(row) for row in mine))
    failures = [*_held(mine), *_own_failures(newest), *_slurm_failures(newest, mine)]
    return Status(blocks, newest, shards, queue, rate, left, failures)


def read_attempts(folder: Path, plan: str) -> list[dict[str, Any]]:
    """Records of the attempts at one plan's shards; one that is being written is passed over."""
    found = []
    for path in folder.glob(f"{plan}-*.json"):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return found


class Gaps:
    """How much of a shard is not there."""

    def __init__(self, blocks: Iterable[Presence]) -> None:
        self._blocks = {
            (p.block.arm, p.block.set_name, p.block.step): (
                p.there,
                {name: i for i, name in enumerate(p.block.problems)},
            )
            for p in blocks
        }

    def of(self, shard: Shard) -> int:
        """Samples of a shard that are not there; the study may ask for less by now."""
        count = 0
        for span in shard.spans:
            there, at = self._blocks.get((span.arm, span.set_name, span.step), (None, {}))
            if there is not None and span.problem in at:
                count += int((~there[at[span.problem], span.start : span.stop]).sum())
        return count


def _shards(
    plan: Plan,
    gaps: Mapping[int, int],
    launch: LaunchFolder,
    rows: list[slurm.Row] | None,
    attempts: list[dict[str, Any]],
) -> dict[str, list[int]]:
    """Shards by state. Whether one is done is read from the samples alone."""
    begun = {one["shard"] for one in attempts if "ended" not in one}
    running: set[int] = set()
    waiting: set[int] = set()
    for row in rows or ():
        shards = set(launch.tasks.get((row.job, row.task), ()))
        # A task works its shards one after the other.
        now = shards & begun if len(shards) > 1 else shards
        running |= now if row.state in SLURM_RUNS else set()
        waiting |= shards
    found: dict[str, list[int]] = {}
    for shard in plan.shards:
        number = shard.number
        if not gaps[number]:
            state = "done"
        elif rows is None:
            state = "begun" if number in begun else "waiting"
        elif number in running:
            state = "running"
        elif number in waiting or not launch.submitted:
            state = "waiting"
        else:
            state = "stopped"
        found.setdefault(state, []).append(number)
    return found


def _rate(attempts: Iterable[Mapping[str, Any]]) -> float | None:
    """Response tokens per second of one worker, its start included."""
    ended = [one for one in attempts if "ended" in one and one.get("tokens")]
    seconds = sum(one["ended"] - one["started"] for one in ended)
    return sum(one["tokens"] for one in ended) / seconds if seconds > 0 else None


def _in_words(row: slurm.Row) -> str:
    """A job's state, with the reason if it waits."""
    state = row.state.lower().replace("_", " ")
    return f"{state} ({row.reason})" if row.state == "PENDING" else state


def _held(live: Iterable[slurm.Row]) -> list[Failure]:
    """Jobs that Slurm keeps back until somebody releases them."""
    jobs = tuple(dict.fromkeys(str(row.job) for row in live if "held" in row.reason.lower()))
    action = f"scontrol release {' '.join(jobs)}"
    return [Failure("held by Slurm after a failed start", jobs, action)] if jobs else []


def _own_failures(launch: LaunchFolder) -> list[Failure]:
    """Failures that the jobs' parents wrote down, by the cause of the last run of each job."""
    by_cause: dict[str, list[str]] = {}
    for path in sorted((launch.path / "failures").glob("*.json")):
        try:
            record = json.loads(path.read_text())
            by_cause.setdefault(record["runs"][-1]["cause"], []).append(record["job"])
        except (OSError, ValueError, LookupError):
            continue
    return [Failure(cause, tuple(jobs), _action(cause)) for cause, jobs in by_cause.items()]


def _action(cause: str) -> str:
    if "memory" in cause:
        return ACTIONS["OUT_OF_MEMORY"]
    if "is not there" in cause:
        return "see why the training before it ended, then launch again"
    if "started" in cause:
        return "check `rlbhpc`, `container` and `setup` in the cluster's file"
    if "requeued" in cause:
        return "launch again: the site does not let jobs requeue themselves"
    return ACTIONS["FAILED"]


def _slurm_failures(launch: LaunchFolder, live: Iterable[slurm.Row]) -> list[Failure]:
    """How jobs ended that are no longer in the queue, where there is an accounting."""
    if not launch.submitted:
        return []
    there = {(row.job, row.task) for row in live}
    since = time.strftime("%Y-%m-%d", time.localtime((launch.path / "launch.json").stat().st_mtime))
    by_state: dict[str, list[str]] = {}
    for row in slurm.account(launch.submitted.values(), since) or ():
        if (row.job, row.task) in there or row.state in ENDED_WELL:
            continue
        name = str(row.job) if row.task < 0 else f"{row.job}_{row.task}"
        by_state.setdefault(row.state, []).append(name)
    return [
        Failure(state, tuple(jobs), ACTIONS.get(state, ACTIONS["FAILED"]))
        for state, jobs in by_state.items()
    ]
