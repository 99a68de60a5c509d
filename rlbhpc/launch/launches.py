"""The launches of a study: found again, submitted by one at a time, cancelled."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.files import explain
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.host.claims import (
    SILENT,
    Claims,
    create_claim,
    generations,
    host_name,
    is_alive,
    is_held,
    is_own_file,
    newest_claim,
    seconds_silent,
    start_tick,
)
from rlbhpc.launch.host.task import launching_environment, submissions, submitted
from rlbhpc.launch.jobs import COMPACT, LAST, SEAL, SNAPSHOT, outdated_jobs
from rlbhpc.store.tables import COUNTS
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import checkpoint_exists
from rlbhpc.study.load import load_study, stored_study, study_of
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Presence, Shard, read_presence

SENDING = "sending"
# Seconds between two signs of life.
BEAT = 30.0


def sender(layout: Layout) -> str:
    """Who submits or runs a launch, in words; empty if nobody but this process does."""
    generation, holder = newest_claim(layout.launches, SENDING)
    path = layout.launches / f"{SENDING}.{generation}"
    if not holder or holder.startswith(f"{_this_process()} "):
        return ""
    return _in_words(holder) if is_held(path, holder, is_own_file(path)) else ""


def at_work(layout: Layout) -> str:
    """The same, or a job on this machine that outlived whoever launched it."""
    if holder := sender(layout):
        return holder
    for pid in claimed_here(layout).values():
        return f"process {pid} on this machine works an earlier launch"
    return ""


def claimed_here(layout: Layout) -> dict[str, str]:
    """Processes of this machine that work a shard, by the name of the claim: PLAN-SHARD."""
    pids = {}
    for name, generation in sorted(generations(layout.claims).items()):
        try:
            claim = (layout.claims / f"{name}.{generation}").read_text().strip()
        except (OSError, UnicodeDecodeError):  # given back meanwhile, or none of this machine's
            continue
        if claim.startswith(f"local {host_name()} ") and is_alive(claim, is_ours=False):
            pids[name] = claim.split()[2]
    return pids


@contextmanager
def claim_sending(folder: Path, what: str) -> Iterator[None]:
    """Be the only one who does ``what`` in the folder of all launches; refuse if somebody does."""
    claims = Claims(folder.absolute(), f"{_this_process()} {getpass.getuser()} {what}")
    try:
        holder = claims.claim(SENDING)
    except OSError as error:
        raise explain(error, folder / SENDING, "; nothing was submitted") from None
    if holder:
        raise UserError(f"{_in_words(holder)}; wait for its end, then run this again", TRY_AGAIN)
    with _beating(claims):
        yield


@contextmanager
def note(folder: Path, verb: str) -> Iterator[list[str]]:
    """Say in a folder that this process runs a verb; who else says so, in words.

    A note keeps nobody from anything: those who see each other share the work as they can. It is
    there before the others are read, so that of two who begin at once one sees the other. What a
    killed process left is removed.
    """
    claims = Claims(folder.absolute(), f"{_this_process()} {getpass.getuser()} `rlbhpc {verb}`")
    path = claims.folder / f"{verb}-{secrets.token_hex(4)}"
    with suppress(OSError):  # a folder of somebody else, who sees nothing of this
        create_claim(path, claims.holder)
        claims.own.append(path)
    others = []
    for other in sorted(claims.folder.glob(f"{verb}-{'[0-9a-f]' * 8}")):
        if other != path:
            with suppress(OSError):  # it ended meanwhile
                holder = other.read_text().strip()
                if is_held(other, holder, is_own_file(other)):
                    others.append(_in_words(holder))
                else:
                    other.unlink()
    with _beating(claims):
        yield others


@contextmanager
def _beating(claims: Claims) -> Iterator[None]:
    """Show signs of life of some claims, and give them back at the end."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            claims.beat()

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        claims.release()


def _in_words(holder: str) -> str:
    """Who holds a claim: `local HOST PID START USER WHAT`, or what is known of it."""
    words = holder.split(maxsplit=5)
    if words[0] != "local" or len(words) < 6:
        return holder
    _, host, pid, _, user, what = words
    return f"{user} {what} (process {pid} on {host})"


def _this_process() -> str:
    pid = str(os.getpid())
    return f"local {host_name()} {pid} {start_tick(pid) or 0}"


RECORD = "launch.json"


@dataclass(frozen=True)
class LaunchFolder:
    """One launch that was written: its record, and the ids of what of it was submitted.

    ``submitted`` has the ids of each script, the newest last.
    """

    path: Path
    record: dict[str, Any]
    submitted: dict[str, list[int]]

    @property
    def plan(self) -> str:
        """Name of the plan that it works."""
        return str(self.record["plan"])

    @property
    def jobs(self) -> dict[str, Any]:
        """What was written of each job, by name, in the order of submission."""
        return dict(self.record["jobs"])

    @property
    def ids(self) -> set[int]:
        """All job ids."""
        return {number for numbers in self.submitted.values() for number in numbers}

    @property
    def by_script(self) -> dict[str, list[int]]:
        """Job ids by launch and script, which stay when a job goes on under another id."""
        return {f"{self.path.name}/{name}": ids for name, ids in self.submitted.items()}

    @property
    def tasks(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Shards by job id and array task."""
        return {
            (number, task): tuple(shards)
            for name, job in self.jobs.items()
            for number in self.submitted.get(name, ())
            for task, shards in enumerate(job["tasks"])
        }

    def own(self, rows: Iterable[slurm.Row]) -> list[slurm.Row]:
        """Its own jobs among those of the queue."""
        ids = self.ids
        return [row for row in rows if row.job in ids]

    def worked(self, rows: Iterable[slurm.Row]) -> Iterator[tuple[slurm.Row, tuple[int, ...]]]:
        """Rows of the queue, each with the shards of a task that it stands for."""
        tasks = self.tasks
        for row in rows:
            # Where Slurm leaves tasks out, any of the array may wait.
            is_some = row.task == slurm.SOME
            keys = [key for key in tasks if key[0] == row.job] if is_some else [(row.job, row.task)]
            yield from ((row, tasks[key]) for key in keys if key in tasks)

    def place_of(self, job: str) -> tuple[str, int]:
        """Script and array task of one of its jobs; a local one is known by its log."""
        for log in self.path.glob(f"logs/*/{job}_0_log.out"):
            name, _, task = log.parent.name.rpartition("-")
            return name, int(task)
        number, _, task = job.partition("_")
        name = next((name for name, ids in self.submitted.items() if int(number) in ids), "")
        return name, int(task or 0)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled it: whatever starts of it ends at once."""
        return (self.path / "cancelled").exists()

    def reject_cancelled(self) -> None:
        """Refuse to submit or run what somebody cancelled."""
        if self.is_cancelled:
            raise UserError(
                f"launch {self.path.name} was cancelled; run `rlbhpc launch` again, which plans"
                " what is left"
            )

    @property
    def clusters(self) -> str:
        """Where a site has several: those that its jobs went to."""
        return str(self.record.get("clusters", ""))

    @property
    def tried(self) -> set[str]:
        """Scripts for which sbatch was called, and may be at work still."""
        return {name for name, *_ in submissions(self.path)}

    def look(self, name: str, user: str) -> str | None:
        """Id of a user's job that Slurm has although its answer was lost; empty without one.

        None where Slurm does not say.
        """
        return slurm.named(f"{self.record['prefix']}-{name}", user, self.clusters)

    def note(self, name: str, number: str) -> None:
        """Write into `submitted`: `NAME ?` before a call of sbatch, `NAME ID` after it."""
        if number.isdigit():
            self.submitted.setdefault(name, []).append(int(number))
        with (self.path / "submitted").open("a") as out:
            out.write(f"{name} {number}\n")
            out.flush()
            os.fsync(out.fileno())

    def submitted_jobs(self) -> dict[str, list[slurm.StudyJob]]:
        """What was submitted, as submitit's jobs, by name: one, or each task of an array."""
        has_made = Made(self)
        jobs: dict[str, list[slurm.StudyJob]] = {}
        for name, number, *resubmitted in submissions(self.path):
            if not number.isdigit():
                continue
            tasks = len(self.jobs[name]["tasks"]) if name in self.jobs else 0
            names = [f"{number}_{task}" for task in range(tasks)] or [number]
            place = (name, self.record["prefix"], self.clusters, self.record["user"], has_made)
            of_number = [slurm.StudyJob(self.path, job, *place) for job in names]
            if resubmitted:
                # This task alone was submitted anew.
                jobs[name][int(resubmitted[0])] = of_number[int(resubmitted[0])]
            else:
                jobs[name] = of_number
        return jobs


class Made:
    """Whether what a job of a launch was to make is there, whoever made it.

    Samples stay, so an earlier measure that finds them is enough.
    """

    def __init__(self, folder: LaunchFolder) -> None:
        self.folder = folder
        self._measure: Gaps | None = None

    def __call__(self, job: str) -> bool:
        """Look at what was measured before, then measure again."""
        if self._measure is not None and is_made(self._study, self.folder, job, self._measure):
            return True
        self._measure = Gaps(read_presence(self._study.layout, list(self._study.blocks())))
        return is_made(self._study, self.folder, job, self._measure)

    @cached_property
    def _study(self) -> Study:
        return stored_study(self.folder.path / SNAPSHOT)


def layout_of(run: Path) -> Layout:
    """The results folder of a study file, or the folder itself."""
    layout = Layout(run)
    if run.is_file():
        study = load_study(run)
        layout = study.layout
        reject_namesake(study)
    if not layout.study.is_file():
        if layout.attempts.is_dir() or layout.tables(COUNTS).is_dir():
            raise UserError(
                f"{layout.root}: only results that were imported, which no study asks for; "
                "`rlbhpc show` and `rlbhpc report` look at them"
            )
        raise UserError(f"{layout.root}: no run in it; give a study file or the folder of a run")
    return layout


def reject_namesake(study: Study) -> None:
    """Refuse a study whose folder has the results of another one of the same name."""
    try:
        stored = study_of(study.layout)
    except UserError:  # it is damaged, which whoever needs it says
        return
    if stored is None:
        return
    same_arms = stored.arms.keys() & study.arms.keys()
    if not any(_has_same_model(stored, study, arm) for arm in same_arms):
        raise UserError(
            f"{study.layout.root}: found the results of another study named {study.name}, with the"
            f" arms {', '.join(stored.arms)}; no arm of this one has their model. Give this study a"
            " `name` or an `output` of its own, or name the folder to look at that one"
        )


def _has_same_model(stored: Study, study: Study, arm: str) -> bool:
    """Whether two studies have an arm of one model, or of one that both train."""
    models = stored.arms[arm].model, study.arms[arm].model
    if stored.models[models[0]].train is not None and study.models[models[1]].train is not None:
        return True
    digests = set(stored.digests[models[0]].values())
    return not digests.isdisjoint(study.digests[models[1]].values())


def launches(layout: Layout) -> list[LaunchFolder]:
    """All launches of a run, oldest first; what a kill left half-written is passed over."""
    folders = []
    for path in sorted(layout.launches.glob("[0-9]*")):
        try:
            record = json.loads((path / RECORD).read_text())
            folders.append(LaunchFolder(path, record, submitted(path)))
        except (OSError, ValueError, KeyError):
            continue
    return folders


def launch_in(folder: Path) -> LaunchFolder:
    """The launch of one folder."""
    return _launch_at(launches(Layout(folder.resolve().parents[1])), folder)


def _launch_at(folders: Iterable[LaunchFolder], folder: Path) -> LaunchFolder:
    for launch in folders:
        if launch.path.samefile(folder):
            return launch
    raise UserError(f"{folder}: no launch in it, or one that was not written to its end ({RECORD})")


class Gaps:
    """How much of a shard is not there."""

    def __init__(self, blocks: Iterable[Presence]) -> None:
        self._blocks = {
            (p.block.arm, p.block.set_name, p.block.step): (
                p,
                {name: i for i, name in enumerate(p.block.problems)},
            )
            for p in blocks
        }

    def of(self, shard: Shard) -> int:
        """Samples of a shard that are not there; the study may ask for less by now."""
        count = 0
        for span in shard.spans:
            present, row_of = self._blocks.get((span.arm, span.set_name, span.step), (None, {}))
            if present is not None and span.problem in row_of:
                count += present.count_missing(row_of[span.problem], span.start, span.stop)
        return count


@cache
def _shards_of(plan: Path) -> tuple[Shard, ...]:
    """Shards of a plan, which never changes; each of many jobs asks for them."""
    return tuple(Plan.load(plan).shards)


def is_made(study: Study, folder: LaunchFolder, job: str, measure: Gaps) -> bool:
    """Whether what a job was to make is there by now, whoever made it."""
    name, task = folder.place_of(job)
    tasks = folder.jobs.get(name, {}).get("tasks")
    if tasks:
        try:
            shards = _shards_of(study.layout.plans / f"{folder.plan}.json")
        except UserError:  # somebody has removed the plan of an older launch
            return False
        return not any(measure.of(shards[shard]) for shard in tasks[task])
    if name.startswith("train-"):
        model = name.removeprefix("train-")
        return all(
            checkpoint_exists(study, model, step) for step in study.models[model].steps or ()
        )
    name = COMPACT if name.startswith(SEAL) else name
    return name in (COMPACT, LAST) and name not in outdated_jobs(study.layout)


@contextmanager
def only_sender(folder: Path, verb: str) -> Iterator[LaunchFolder]:
    """Submit or run a launch as the only one of its study; gives it as it is from then on.

    It was planned before it came to this. Jobs in the queue that were not counted then may make the
    same samples.
    """
    layout = Layout(folder.resolve().parents[1])
    with claim_sending(layout.launches, f"{verb} launch {folder.resolve().name}"):
        folders = find_launches(layout)
        launch = _launch_at(folders, folder)
        launch.reject_cancelled()
        if launch.jobs.keys() - launch.submitted.keys():
            _reject_newer(launch, [other for other in folders if other is not launch])
        yield launch


def _reject_newer(launch: LaunchFolder, others: Sequence[LaunchFolder]) -> None:
    counted = launch.record.get("counted", ())
    late = {
        number
        for other in others
        for script, numbers in other.by_script.items()
        if script not in counted
        for number in numbers
    }
    sent_late = [other for other in others if other.ids & late]
    rows = queued_jobs(sent_late)
    newer = [row for row in rows or () if row.job in late]
    if newer or rows is None or hidden_launches(sent_late, rows):
        what = (
            f"job {newer[0].job} of {newer[0].user} is in the queue and was not"
            if newer
            else "Slurm does not say whether jobs are in the queue that were not"
        )
        unknown = ", ".join(str(other.path) for other in sent_late)
        gone = "" if newer else f"; if their cluster is gone, move these away: {unknown}"
        raise UserError(
            f"{what} when launch {launch.path.name} was written, so samples may be drawn twice;"
            f" run `rlbhpc launch` again, which plans what is left{gone}",
            TRY_AGAIN,
        )


def find_launches(layout: Layout) -> list[LaunchFolder]:
    """All launches, with the ids of jobs of which a kill during sbatch left the name alone."""
    folders = launches(layout)
    for folder in folders if not sender(layout) else ():
        for name in folder.tried - set(folder.submitted):
            if number := folder.look(name, folder.record["user"]):
                # That of somebody else may be read alone.
                with suppress(PermissionError):
                    folder.note(name, number)
    return folders


def queued_jobs(folders: Iterable[LaunchFolder]) -> list[slurm.Row] | None:
    """Jobs of some launches that are in the queue; None if Slurm does not answer."""
    ids: dict[str, set[int]] = {}
    for folder in folders:
        ids.setdefault(folder.clusters, set()).update(folder.ids)
    answers = [slurm.queue(numbers, clusters) for clusters, numbers in ids.items()]
    return None if None in answers else [row for rows in answers for row in rows or ()]


def hidden_launches(
    folders: Iterable[LaunchFolder], rows: Sequence[slurm.Row]
) -> list[LaunchFolder]:
    """Launches of others of which Slurm shows no job, and would show none if there were some."""
    unseen = [
        folder
        for folder in folders
        if folder.ids and folder.record["user"] != getpass.getuser() and not folder.own(rows)
    ]
    hiding = {clusters for clusters in {f.clusters for f in unseen} if slurm.hides_jobs(clusters)}
    return [folder for folder in unseen if folder.clusters in hiding]


def in_queue(study: Study, folders: Sequence[LaunchFolder]) -> list[slurm.Row] | None:
    """Jobs of a study's launches that are in the queue, or may be; None if Slurm does not answer.

    Jobs that Slurm may hide count as long as something that they make is not there. A claim with a
    sign of life says that its job runs. Of the others nobody can say whether they wait or are gone,
    but those of a launch that was cancelled end as soon as they start.
    """
    rows = queued_jobs(folders)
    unseen = hidden_launches(folders, rows or ())
    if rows is None or not unseen:
        return rows
    measure = Gaps(read_presence(study.layout, list(study.blocks())))
    claims = study.layout.claims
    fresh = {
        name
        for name, generation in generations(claims).items()
        if seconds_silent(claims / f"{name}.{generation}") < SILENT
    }
    for folder in unseen:
        for name, numbers in folder.submitted.items():
            tasks = folder.jobs[name]["tasks"]
            for task, shards in enumerate(tasks) if tasks else [(-1, ())]:
                job = slurm.Row(
                    numbers[-1], task, slurm.HIDDEN, "PrivateData", folder.record["user"]
                )
                names = [f"{folder.plan}-{shard:05d}" for shard in shards] or [f"job-{job.name}"]
                if is_made(study, folder, job.name, measure):
                    continue
                if not fresh.isdisjoint(names):
                    rows.append(job._replace(state="RUNNING"))
                elif (tasks or name.startswith("train-")) and not folder.is_cancelled:
                    rows.append(job)
    return rows


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled: ``rows`` of the queue, None where Slurm does not answer.

    ``at_work`` says who submits or runs a launch at this moment, which is no job to be ended.
    """

    rows: list[slurm.Row] | None
    complaint: str
    at_work: str


def cancel(layout: Layout) -> Cancelled:
    """Mark every launch of a run as cancelled, then end its jobs, whoever owns them.

    The mark comes first: a parent that is told to end looks for it before it requeues. Jobs get
    TERM, keep what is finished and end within the site's KillWait.
    """
    folders = find_launches(layout)
    rows = queued_jobs(folders)
    holder = at_work(layout)
    unseen = hidden_launches(folders, rows or ())
    for folder in folders:
        is_at_work = f" launch {folder.path.name} " in holder
        is_here = bool(holder) and folder.record["cluster"] == HERE
        if rows is None or is_at_work or is_here or folder.own(rows) or folder in unseen:
            # A launch of somebody else's may not be written to; scancel alone ends it as well.
            with suppress(PermissionError):
                (folder.path / "cancelled").touch()
    complaint = ""
    jobs_on: dict[str, set[int]] = {}
    for folder in folders:
        for row in folder.own(rows or ()):
            jobs_on.setdefault(folder.clusters, set()).add(row.job)
    for clusters, ids in sorted(jobs_on.items()):
        # One request for all: every request counts on a busy controller.
        where = [f"--clusters={clusters}"] if clusters else []
        command = ["scancel", *where, *map(str, sorted(ids))]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=launching_environment()
        )
        complaint += done.stderr.strip() if done.returncode else ""
    return Cancelled(rows, complaint, holder)
