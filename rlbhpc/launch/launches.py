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
from functools import cache
from pathlib import Path
from typing import Any

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.files import explain
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.host.claims import (
    SILENCE_LIMIT_SECONDS,
    Claims,
    create_claim,
    host_name,
    is_alive,
    is_held,
    is_own_file,
    list_generations,
    read_newest_claim,
    seconds_silent,
    start_tick,
)
from rlbhpc.launch.host.task import read_submissions, read_submitted_ids
from rlbhpc.launch.jobs import COMPACT, REPORT, SNAPSHOT, list_outdated_jobs
from rlbhpc.launch.slurm import QueueRow
from rlbhpc.store.tables import COUNTS
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import checkpoint_exists
from rlbhpc.study.load import load_study, stored_study, study_of
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Presence, Shard, read_presence

# Name of the claim of whoever submits or runs a launch of a study.
SENDING = "sending"
SECONDS_BETWEEN_SIGNS = 30.0
# The file in a launch's folder that says what was launched.
RECORD = "launch.json"


def describe_sender(layout: Layout) -> str:
    """Who submits or runs a launch, in words; empty if nobody but this process does.

    Whoever does holds the claim `SENDING`, a file with the holder's host, process and user. A claim
    counts while `is_held`, which is while its holder may be alive.
    """
    generation, holder = read_newest_claim(layout.launches, SENDING)
    path = layout.launches / f"{SENDING}.{generation}"
    if not holder or holder.startswith(f"{_this_process()} "):
        return ""
    if not is_held(path, holder, is_own_file(path)):
        return ""
    return _describe_holder(holder)


def describe_worker(layout: Layout) -> str:
    """Who submits or runs a launch, or which job on this machine outlived its launcher, in words.

    Empty if nobody does.
    """
    sender = describe_sender(layout)
    if sender:
        return sender
    for pid in local_workers(layout).values():
        return f"process {pid} on this machine works an earlier launch"
    return ""


def local_workers(layout: Layout) -> dict[str, str]:
    """Ids of the processes of this machine that work on a run, by the name of their claim.

    A claim is the file NAME.GENERATION that says who works it: here `local HOST PID START`.
    """
    pids = {}
    for name, generation in sorted(list_generations(layout.claims).items()):
        try:
            holder = (layout.claims / f"{name}.{generation}").read_text().strip()
        except (OSError, UnicodeDecodeError):  # given back meanwhile, or none of this machine's
            continue
        if holder.startswith(f"local {host_name()} ") and is_alive(holder, is_ours=False):
            pids[name] = holder.split()[2]
    return pids


@contextmanager
def claim_sending(folder: Path, activity: str) -> Iterator[None]:
    """Be the only one who submits or runs in the folder of all launches; refuse a second one.

    ``activity`` says in words what this process does. The claim is a file that names this process.
    It is touched from time to time, which shows that the process is alive, and removed at the end.
    """
    claims = Claims(folder.absolute(), f"{_this_process()} {getpass.getuser()} {activity}")
    try:
        other_holder = claims.claim(SENDING)
    except OSError as error:
        raise explain(error, folder / SENDING, "; nothing was submitted") from None
    if other_holder:
        raise UserError(
            f"{_describe_holder(other_holder)}; wait for its end, then run this again", TRY_AGAIN
        )
    with _showing_life(claims):
        yield


@contextmanager
def announce(folder: Path, verb: str) -> Iterator[list[str]]:
    """Say in a folder that this process runs a verb; gives who else says so, in words.

    The announcement is a file that names this process, and keeps nobody from anything. It is there
    before the others are read, so of two who begin at once one sees the other. What a killed
    process left is removed: `is_held` says whether the process that a file names may be alive.
    """
    claims = Claims(folder.absolute(), f"{_this_process()} {getpass.getuser()} `rlbhpc {verb}`")
    own_path = claims.folder / f"{verb}-{secrets.token_hex(4)}"
    with suppress(OSError):  # a folder of somebody else, who sees nothing of this
        create_claim(own_path, claims.holder)
        claims.own_paths.append(own_path)
    others = []
    for path in sorted(claims.folder.glob(f"{verb}-{'[0-9a-f]' * 8}")):
        if path == own_path:
            continue
        with suppress(OSError):  # it ended meanwhile
            holder = path.read_text().strip()
            if is_held(path, holder, is_own_file(path)):
                others.append(_describe_holder(holder))
            else:
                path.unlink()
    with _showing_life(claims):
        yield others


@contextmanager
def _showing_life(claims: Claims) -> Iterator[None]:
    """Touch claims from time to time, and give them back at the end.

    Other hosts cannot see this process, and take a claim that is not touched for that of a dead
    one.
    """
    ended = threading.Event()

    def touch_claims() -> None:
        while not ended.wait(SECONDS_BETWEEN_SIGNS):
            claims.show_life()

    threading.Thread(target=touch_claims, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        claims.release()


def _describe_holder(holder: str) -> str:
    """Who holds a claim: `local HOST PID START USER ACTIVITY`, or what is known of it."""
    words = holder.split(maxsplit=5)
    if words[0] != "local" or len(words) < 6:
        return holder
    _, host, pid, _, user, activity = words
    return f"{user} {activity} (process {pid} on {host})"


def _this_process() -> str:
    """The holder of a claim that is this process."""
    pid = str(os.getpid())
    return f"local {host_name()} {pid} {start_tick(pid) or 0}"


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
    def user(self) -> str:
        """Who wrote it."""
        return str(self.record["user"])

    @property
    def job_ids(self) -> set[int]:
        """Ids of all jobs that were submitted."""
        return {job_id for job_ids in self.submitted.values() for job_id in job_ids}

    @property
    def submitted_scripts(self) -> set[str]:
        """Scripts that were submitted, each as LAUNCH/NAME."""
        return {f"{self.path.name}/{name}" for name in self.submitted}

    @property
    def shards_by_task(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Shards of the plan that each array task works, by job id and number of the task.

        ``tasks`` in the record has the shards of each task of an array. A script that was submitted
        again has several job ids.
        """
        shards_by_task = {}
        for name, job in self.jobs.items():
            for job_id in self.submitted.get(name, ()):
                for task, shards in enumerate(job["tasks"]):
                    shards_by_task[job_id, task] = tuple(shards)
        return shards_by_task

    def own_rows(self, rows: Iterable[QueueRow]) -> list[QueueRow]:
        """Its own jobs among those of the queue."""
        job_ids = self.job_ids
        return [row for row in rows if row.job in job_ids]

    def pair_shards(self, rows: Iterable[QueueRow]) -> Iterator[tuple[QueueRow, tuple[int, ...]]]:
        """Rows of the queue, each with the shards of a task that it stands for."""
        shards_by_task = self.shards_by_task
        for row in rows:
            shards = shards_by_task.get((row.job, row.task))
            if shards is not None:
                yield row, shards

    def find_script(self, job_id: str) -> tuple[str, int]:
        """Script and array task of one of its jobs; an empty name for a job of another launch.

        ``job_id`` is 12, or 12_3 for a task of an array. A job on this machine is a process, and is
        known by the name of its log.
        """
        for log in self.path.glob(f"logs/*/{job_id}_0_log.out"):
            script, _, task = log.parent.name.rpartition("-")
            return script, int(task)
        number, _, task = job_id.partition("_")
        for script, job_ids in self.submitted.items():
            if int(number) in job_ids:
                return script, int(task or 0)
        return "", 0

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

    def reject_other_clusters(self) -> None:
        """Refuse to ask other clusters of a site than those that its jobs went to."""
        clusters = self.record.get("clusters", "")
        asked_clusters = os.environ.get(slurm.CLUSTERS_VARIABLE, "")
        if self.submitted and clusters != asked_clusters:
            raise UserError(
                f"jobs of launch {self.path.name} went to clusters {clusters!r} and this shell asks"
                f" {asked_clusters!r}; give the same command after export"
                f" {slurm.CLUSTERS_VARIABLE}={clusters}"
            )

    @property
    def attempted_scripts(self) -> set[str]:
        """Scripts for which sbatch was called, and may be at work still."""
        return {script for script, _ in read_submissions(self.path)}

    def find_lost_job(self, script: str, user: str) -> str | None:
        """Id of a user's job that Slurm has although its answer was lost; empty without one.

        None where Slurm does not say.
        """
        return slurm.find_job_by_name(f"{self.record['prefix']}-{script}", user)

    def record_submission(self, script: str, job_id: str) -> None:
        """Write into `submitted`: `SCRIPT ?` before a call of sbatch, `SCRIPT ID` after it.

        The line is forced to disk, so that whoever comes after a crash knows that Slurm may have
        the job.
        """
        if job_id.isdigit():
            self.submitted.setdefault(script, []).append(int(job_id))
        with (self.path / "submitted").open("a") as out:
            out.write(f"{script} {job_id}\n")
            out.flush()
            os.fsync(out.fileno())

    def submitted_jobs(self) -> dict[str, list[slurm.StudyJob]]:
        """What was submitted, as submitit's jobs, by script: one, or each task of an array.

        Only the newest submission of a script counts. A script whose record has no ``tasks`` is no
        array.
        """
        jobs = {}
        for script, job_ids in self.submitted.items():
            newest_id = job_ids[-1]
            task_count = len(self.jobs[script]["tasks"])
            names = [f"{newest_id}_{task}" for task in range(task_count)] or [str(newest_id)]
            jobs[script] = [
                slurm.StudyJob(
                    self.path, name, script, self.record["prefix"],
                    user=self.user, has_made_its_part=self._has_made,
                )
                for name in names
            ]  # fmt: skip
        return jobs

    def _has_made(self, job_id: str) -> bool:
        """Whether what one of its jobs was to make is there, whoever made it."""
        study = stored_study(self.path / SNAPSHOT)
        missing = MissingSamples(read_presence(study.layout, list(study.blocks())))
        return is_made(study, self, job_id, missing)


def layout_of(run: Path) -> Layout:
    """Paths of the results of a study file or of a run's folder; refuses what holds no run.

    `Layout` gives every path below the folder of results. ``layout.study`` is the study as it was
    last run; imported results have none.
    """
    if not run.exists():
        raise UserError(f"{run}: no such file or folder; give a study file or the folder of a run")
    layout = Layout(run)
    if run.is_file():
        study = load_study(run)
        layout = study.layout
        reject_namesake(study)
    if layout.study.is_file():
        return layout
    if layout.groups() or layout.tables(COUNTS).is_dir():
        raise UserError(
            f"{layout.root}: only results that were imported, which no study asks for; "
            "`rlbhpc show` and `rlbhpc report` look at them"
        )
    raise UserError(f"{layout.root}: no run in it; give a study file or the folder of a run")


def reject_namesake(study: Study) -> None:
    """Refuse a study whose folder has the results of another one of the same name.

    ``stored`` is the study that the folder was made by. The two are taken for the same while an arm
    (a model as it is sampled) of the same name has the same model in both.
    """
    try:
        stored = study_of(study.layout)
    except UserError:  # it is damaged, which whoever needs it says
        return
    if stored is None:
        return
    common_arms = stored.arms.keys() & study.arms.keys()
    if any(_have_same_model(stored, study, arm) for arm in common_arms):
        return
    raise UserError(
        f"{study.layout.root}: found the results of another study named {study.name}, with the"
        f" arms {', '.join(stored.arms)}; no arm of this one has their model. Give this study a"
        " `name` or an `output` of its own, or name the folder to look at that one"
    )


def _have_same_model(stored: Study, study: Study, arm: str) -> bool:
    """Whether an arm has the same model in two studies, or one that both train.

    Digests are of the model's files at each step; one that is common to both is enough.
    """
    stored_model = stored.arms[arm].model
    model = study.arms[arm].model
    if stored.models[stored_model].train is not None and study.models[model].train is not None:
        return True
    stored_digests = set(stored.digests[stored_model].values())
    return not stored_digests.isdisjoint(study.digests[model].values())


def list_launches(layout: Layout) -> list[LaunchFolder]:
    """All launches of a run, oldest first; what a kill left half-written is passed over.

    A launch is a numbered folder of scripts. Its record, `RECORD`, is written last.
    """
    launches = []
    for path in sorted(layout.launches.glob("[0-9]*")):
        with suppress(OSError, ValueError, KeyError):
            record = json.loads((path / RECORD).read_text())
            launches.append(LaunchFolder(path, record, read_submitted_ids(path)))
    return launches


def open_launch(folder: Path) -> LaunchFolder:
    """The launch of one folder."""
    return _find_launch(list_launches(Layout(folder.resolve().parents[1])), folder)


def _find_launch(launches: Iterable[LaunchFolder], folder: Path) -> LaunchFolder:
    for launch in launches:
        if launch.path.samefile(folder):
            return launch
    raise UserError(f"{folder}: no launch in it, or one that was not written to its end ({RECORD})")


class MissingSamples:
    """Counts how many samples of a shard are not there."""

    def __init__(self, blocks: Iterable[Presence]) -> None:
        """Index the blocks by arm, problem set and step, and each block's problems by row.

        A block is the samples of one arm on one problem set at one step. A `Presence` says which of
        them are stored, in a table with a row for each problem.
        """
        self._blocks: dict[tuple[str, str, int], Presence] = {}
        self._row_of_problem: dict[tuple[str, str, int], dict[str, int]] = {}
        for block_presence in blocks:
            block = block_presence.block
            key = (block.arm, block.set_name, block.step)
            self._blocks[key] = block_presence
            self._row_of_problem[key] = {name: row for row, name in enumerate(block.problems)}

    def count_in(self, shard: Shard) -> int:
        """Samples of a shard that are not there.

        A shard is a list of spans: samples ``start`` to before ``stop`` of one problem. What the
        study no longer asks for does not count.
        """
        count = 0
        for span in shard.spans:
            key = (span.arm, span.set_name, span.step)
            row = self._row_of_problem.get(key, {}).get(span.problem)
            if row is not None:
                count += self._blocks[key].count_missing(row, span.start, span.stop)
        return count


@cache
def _load_shards(plan: Path) -> tuple[Shard, ...]:
    """Shards of a plan, which never changes; each of many jobs asks for them."""
    return tuple(Plan.load(plan).shards)


def is_made(study: Study, launch: LaunchFolder, job_id: str, missing: MissingSamples) -> bool:
    """Whether what a job was to make is there by now, whoever made it.

    A job samples the shards of its array task, trains a model (its script is train-MODEL), or
    compacts or reports. ``missing`` counts the samples of a shard that are not stored.
    """
    script, task = launch.find_script(job_id)
    tasks = launch.jobs.get(script, {}).get("tasks")
    if tasks:
        try:
            shards = _load_shards(study.layout.plans / f"{launch.plan}.json")
        except UserError:  # somebody has removed the plan of an older launch
            return False
        return not any(missing.count_in(shards[number]) for number in tasks[task])
    if script.startswith("train-"):
        model = script.removeprefix("train-")
        return all(
            checkpoint_exists(study, model, step) for step in study.models[model].steps or ()
        )
    return script in (COMPACT, REPORT) and script not in list_outdated_jobs(study.layout)


@contextmanager
def only_sender(folder: Path, verb: str) -> Iterator[LaunchFolder]:
    """Submit or run a launch as the only one of its study; gives it as it is from then on.

    It was planned before it came to this. Jobs that were not counted then may make the same
    samples, so it is refused while something of it is still to be submitted.
    ``folder`` is RUN/launches/NUMBER; ``verb`` is "submits" or "runs".
    """
    layout = Layout(folder.resolve().parents[1])
    with claim_sending(layout.launches, f"{verb} launch {folder.resolve().name}"):
        launches = recover_launches(layout)
        launch = _find_launch(launches, folder)
        launch.reject_cancelled()
        if launch.jobs.keys() - launch.submitted.keys():
            _reject_uncounted_jobs(launch, launches)
        yield launch


def _reject_uncounted_jobs(launch: LaunchFolder, launches: Iterable[LaunchFolder]) -> None:
    """Refuse a launch where jobs were submitted since that its plan has not counted.

    The plan left out what the jobs in the queue were making when it was written. The scripts of all
    that was submitted then, as LAUNCH/NAME, are in the record under "counted".
    """
    counted = set(launch.record.get("counted", ()))
    for other in launches:
        if other.path != launch.path and other.submitted_scripts - counted:
            raise UserError(
                f"launch {other.path.name} of {other.user} has jobs that were not counted when"
                f" launch {launch.path.name} was written, so samples may be drawn twice; run"
                " `rlbhpc launch` again, which plans what is left; if its cluster is gone, move"
                f" {other.path} away",
                TRY_AGAIN,
            )


def recover_launches(layout: Layout) -> list[LaunchFolder]:
    """All launches of a run, with the job ids that a kill in the middle of sbatch left unwritten.

    The name of a script is written down before sbatch is called, and the job's id after it. Where
    the id is missing, Slurm is asked for the job by its name, unless somebody is submitting right
    now.
    """
    launches = list_launches(layout)
    if describe_sender(layout):
        return launches
    for launch in launches:
        for script in launch.attempted_scripts - set(launch.submitted):
            job_id = launch.find_lost_job(script, launch.user)
            if job_id:
                # A launch of somebody else's can perhaps only be read.
                with suppress(PermissionError):
                    launch.record_submission(script, job_id)
    return launches


def read_queue_of(launches: Iterable[LaunchFolder]) -> list[QueueRow] | None:
    """Jobs of some launches that are in the queue; None if Slurm does not answer."""
    job_ids: set[int] = set()
    for launch in launches:
        launch.reject_other_clusters()
        job_ids |= launch.job_ids
    return slurm.read_queue(job_ids)


def hidden_launches(
    launches: Iterable[LaunchFolder], rows: Sequence[QueueRow]
) -> list[LaunchFolder]:
    """Launches of other users whose jobs may be in the queue although Slurm shows none of them.

    ``rows`` are the jobs that Slurm shows. Some sites hide the jobs of other users; there, the
    lack of a row proves nothing. `slurm.hides_jobs` tells whether a site does.
    """
    unseen_launches = []
    for launch in launches:
        is_foreign = launch.user != getpass.getuser()
        if is_foreign and launch.job_ids and not launch.own_rows(rows):
            unseen_launches.append(launch)
    return unseen_launches if unseen_launches and slurm.hides_jobs() else []


def find_live_jobs(study: Study, launches: Sequence[LaunchFolder]) -> list[QueueRow] | None:
    """Jobs of a study's launches that are in the queue, or may be; None if Slurm does not answer.

    Jobs that Slurm may hide count as long as something that they make is not there. They are added
    to the rows that Slurm shows. A claim with a recent sign of life says that its job runs. Of the
    others nobody can say whether they wait, run or are gone: their state is `HIDDEN`, unless their
    launch was cancelled, whose jobs end as soon as they start.
    """
    rows = read_queue_of(launches)
    hidden = hidden_launches(launches, rows or ())
    if rows is None or not hidden:
        return rows
    missing = MissingSamples(read_presence(study.layout, list(study.blocks())))
    live_claims = _list_live_claims(study.layout.claims)
    for launch in hidden:
        for row, claim_names in _submitted_work(launch):
            if is_made(study, launch, row.name, missing):
                continue
            if not live_claims.isdisjoint(claim_names):
                rows.append(row._replace(state="RUNNING"))
            elif not launch.is_cancelled:
                rows.append(row)
    return rows


def _list_live_claims(folder: Path) -> set[str]:
    """Names of the claims whose holders have lately shown that they live."""
    return {
        name
        for name, generation in list_generations(folder).items()
        if seconds_silent(folder / f"{name}.{generation}") < SILENCE_LIMIT_SECONDS
    }


def _submitted_work(launch: LaunchFolder) -> Iterator[tuple[QueueRow, list[str]]]:
    """Rows of a queue, in the state HIDDEN, for all jobs of a launch that train or sample.

    They stand for jobs that Slurm may hide. Each task of an array has a row; a training is one job.
    Beside each row stand the names of the claims that its work takes: of each shard, or of the job.
    """
    for script, job_ids in launch.submitted.items():
        if script.startswith("train-"):
            row = QueueRow(job_ids[-1], slurm.NO_ARRAY, slurm.HIDDEN, "PrivateData", launch.user)
            yield row, [f"job-{row.name}"]
        for task, shards in enumerate(launch.jobs[script]["tasks"]):
            row = QueueRow(job_ids[-1], task, slurm.HIDDEN, "PrivateData", launch.user)
            yield row, [f"{launch.plan}-{shard:05d}" for shard in shards]


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled: ``rows`` of the queue, None where Slurm does not answer.

    ``complaint`` is what scancel said if it failed. ``at_work`` says who submits or runs a launch
    at this moment, which is no job to be ended.
    """

    rows: list[QueueRow] | None
    complaint: str
    at_work: str


def cancel(layout: Layout) -> Cancelled:
    """Mark every launch of a run as cancelled, then end its jobs, whoever owns them.

    The mark comes first: a parent, the program that runs a job's work, looks for it before it
    requeues the job. Jobs get TERM, keep what is finished and end within the site's KillWait.

    ``rows`` are the jobs in the queue, None where Slurm does not answer; where it may hide jobs of
    a launch, that is among the ``hidden``. A worker is a process that submits or runs a launch. A
    launch without live jobs that nobody works on is not marked.
    """
    launches = recover_launches(layout)
    rows = read_queue_of(launches)
    worker = describe_worker(layout)
    hidden = hidden_launches(launches, rows or ())
    job_ids: set[int] = set()
    for launch in launches:
        own_rows = launch.own_rows(rows or ())
        # The words name the launch, as in `ada submits launch 0003 (process 12 on login1)`.
        is_being_sent = f" launch {launch.path.name} " in worker
        is_local_work = bool(worker) and launch.record["cluster"] == HERE
        may_have_jobs = rows is None or bool(own_rows) or launch in hidden
        if may_have_jobs or is_being_sent or is_local_work:
            # A launch of somebody else's may not be written to; scancel alone ends it as well.
            with suppress(PermissionError):
                (launch.path / "cancelled").touch()
        job_ids |= {row.job for row in own_rows}
    complaint = _run_scancel(job_ids) if job_ids else ""
    return Cancelled(rows, complaint, worker)


def _run_scancel(job_ids: Iterable[int]) -> str:
    """End jobs with one request, since every request counts on a busy controller.

    Returns what scancel said if it failed.
    """
    process = subprocess.run(
        ["scancel", *map(str, sorted(job_ids))],
        capture_output=True, text=True, check=False, env=slurm.query_environment(),
    )  # fmt: skip
    return process.stderr.strip() if process.returncode else ""
