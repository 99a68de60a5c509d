"""What Slurm says of jobs, as far as it answers; jobs as submitit's; what states and logs mean."""

from __future__ import annotations

import getpass
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from submitit.core.core import InfoWatcher, Job
from submitit.core.utils import FailedJobError, JobPaths, UncompletedJobError
from submitit.slurm.slurm import read_job_id

from rlbhpc.launch.host import task

log = logging.getLogger(__name__)

TIMEOUT = 20.0
# Lines at the end of a log that an error shows.
LOG_LINES = 40
# Names the clusters of a site's commands that are given none.
CLUSTERS = "SLURM_CLUSTERS"
# Lines of errors that leave a question about jobs open, or answer it.
ABOUT_JOBS = r"(?m)^.*(?:load_jobs|Invalid job id|cluster|ontact|onnect|Socket).*$"
# An array of which squeue does not name every task that waits.
SOME = -2
# The state of a job that Slurm hides: whether it is still in the queue cannot be seen.
HIDDEN = "HIDDEN"


class Row(NamedTuple):
    """One job, or one task of an array.

    ``task`` is −1 for a job that is no array, and `SOME` for tasks that Slurm has left out.
    """

    job: int
    task: int
    state: str
    reason: str
    user: str = ""

    @property
    def name(self) -> str:
        """What Slurm calls it: 12, or 12_3."""
        return str(self.job) if self.task < 0 else f"{self.job}_{self.task}"


def ask(*command: str, clusters: str = "") -> str | None:
    """Answer of a command of Slurm; None where there is none or it fails.

    ``clusters`` are those of a site with several, as -M names them.
    """
    if clusters:
        command = (command[0], f"--clusters={clusters}", *command[1:])
    environment = {name: os.environ[name] for name in os.environ if not task.is_filter(name)}
    # Without this, squeue cuts the tasks of an array off after 64 characters.
    environment["SLURM_BITSTR_LEN"] = "0"
    if command[0] == "squeue":
        # A launch has written down where its jobs are.
        environment.pop(CLUSTERS, None)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
            check=False, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("%s: %s", command, error)
        return None
    log.debug("%s: status %d %s", command, done.returncode, done.stderr.strip())
    # A single id that Slurm has forgotten is an error there, and no job to us. Of several clusters
    # those that do not know it say so, beside the answer of the one that does.
    # What is wrong with a line of slurm.conf says nothing of jobs.
    errors = re.findall(ABOUT_JOBS, done.stderr)
    forgotten = bool(errors) and all("Invalid job id" in line for line in errors)
    return done.stdout if done.returncode == 0 or forgotten else None


def queue(jobs: Iterable[int], clusters: str = "") -> list[Row] | None:
    """Those of some jobs that are in the queue, whoever owns them; None without an answer."""
    words = ("--all", "--noheader", "--format=%i|%T|%r|%u")
    return _rows(jobs, clusters, "squeue", *words)


def hides_jobs(clusters: str = "") -> bool:
    """Whether users do not see the jobs of others, as far as Slurm says."""
    return task.hides_jobs(ask("scontrol", "show", "config", clusters=clusters) or "")


def account(jobs: Iterable[int], since: str, clusters: str = "") -> list[Row] | None:
    """How jobs ended, by the accounting; None where there is no accounting.

    The start is always given: sacct would leave out what began before midnight.
    """
    words = ("--allocations", "--noheader", "--parsable2", "--format=JobID,State,ExitCode,User")
    return _rows(jobs, clusters, "sacct", *words, f"--starttime={since}")


def _rows(jobs: Iterable[int], clusters: str, *command: str) -> list[Row] | None:
    ids = ",".join(str(job) for job in sorted(set(jobs)))
    if not ids:
        return []
    answer = ask(*command, f"--jobs={ids}", clusters=clusters)
    return None if answer is None else read_rows(answer)


def named(label: str, user: str, clusters: str = "") -> str | None:
    """Id of a user's job by its name, which no other launch has; empty if there is none.

    None where Slurm does not say: that the accounting has no such job yet proves nothing.
    """
    who = (f"--user={user}", "--noheader", f"--name={label}")
    queued = ask("squeue", *who, "--format=%F", clusters=clusters)
    if number := _last_id(queued):
        return number
    words = ("--allocations", "--parsable2", "--starttime=now-1days", "--format=JobID")
    number = _last_id(ask("sacct", *who, *words, clusters=clusters))
    return None if queued is None and not number else number


def _last_id(answer: str | None) -> str:
    ids = [line.strip().split("_")[0] for line in (answer or "").splitlines()]
    return next((word for word in reversed(ids) if word.isdigit()), "")


def read_rows(text: str) -> list[Row]:
    """Rows of ``id|state|reason|user`` lines; what is not one is passed over."""
    rows = []
    for line in text.splitlines():
        name, *parts = line.strip().split("|")
        if len(parts) != 3:
            continue
        state, reason, user = parts
        # "CANCELLED by 1000", and OUT_OF_ME+ where a column was too narrow.
        state = state.split(" ")[0].rstrip("+")
        state = "OUT_OF_MEMORY" if state.startswith("OUT_OF_ME") else state
        rows += [Row(job, task, state, reason, user) for job, task in ids_in(name)]
    return rows


def ids_in(name: str) -> list[tuple[int, int]]:
    """Jobs and tasks of 12, 12_3 or 12_[3,5-8%4]; nothing of what is none of these."""
    cut = name.replace(",...", "").replace("...", "")
    array, bracket, _ = cut.partition("_[")
    some = [(int(array), SOME)] if bracket and cut != name and array.isdigit() else []
    try:
        parts = read_job_id(cut)
    except ValueError:
        return some
    ids = []
    for job, *span in parts:
        if not job.isdigit():
            continue
        first = int(span[0]) if span else -1
        last = int(span[-1]) if span else -1
        ids += [(int(job), task) for task in range(first, last + 1)]
    return ids + some


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as a list such as 3,5-8."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


class StudyPaths(JobPaths):
    """Files of one job: its script and its log."""

    def __init__(self, folder: Path, job_id: str, script: str, prefix: str) -> None:
        super().__init__(folder, job_id=job_id)
        self._script = script
        self._prefix = prefix

    @property
    def submission_file(self) -> Path:
        """The script."""
        return self.folder / f"{self._script}.sbatch"

    @property
    def stdout(self) -> Path:
        """The log, into which both streams go."""
        return self.folder / "logs" / f"{self._prefix}-{self._script}-{self.job_id}.log"

    @property
    def stderr(self) -> Path:
        """The same log."""
        return self.stdout


class QueueWatcher(InfoWatcher):
    """States of jobs from one squeue for all; from sacct, where it answers, once they are gone.

    ``clusters`` has those of each job where the site has several; ``users``, who launched it.
    """

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self.delay_s = delay_s
        self.clusters: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.known_since = time.time()
        self.looked_at = 0.0

    def register_job(self, job_id: str) -> None:
        """Look at the queue again when somebody asks for a job that is new here."""
        super().register_job(job_id)
        self.states.setdefault(job_id, "UNKNOWN")
        self.known_since = time.time()
        self.looked_at = 0.0

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """The state of a job, from a look at the queue that is seldom old, or new with "force".

        The longer no job was submitted, the longer a look counts.
        """
        now = time.time()
        patience = min(self.delay_s, max(2.0, (now - self.known_since) / 2))
        if mode == "force" or (mode == "standard" and now - self.looked_at > patience):
            self.update()
        return {"State": self.states.get(job_id, "UNKNOWN")}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The same as a word."""
        return self.get_info(job_id, mode)["State"]

    def update(self) -> None:
        """Ask once for all jobs that are not known to have ended."""
        self.looked_at = time.time()
        pending: dict[str, set[str]] = {}
        for name in self.states:
            if not self.is_done(name, mode="cache"):
                pending.setdefault(self.clusters.get(name, ""), set()).add(name)
        for clusters, names in pending.items():
            self._ask(names, clusters)

    def _ask(self, names: set[str], clusters: str) -> None:
        rows = queue({int(name.split("_")[0]) for name in names}, clusters)
        if rows is None:
            return
        queued = {row.name: row.state for row in rows}
        # Where Slurm leaves tasks out, the row has the name of the array.
        gone = {name for name in names if not queued.keys() & {name, name.split("_")[0]}}
        since = time.strftime("%Y-%m-%d", time.localtime(self.known_since - 90 * 24 * 3600))
        numbers = {int(name.split("_")[0]) for name in gone}
        ended = {row.name: row.state for row in account(numbers, since, clusters) or ()}
        for name in names:
            states = ended if name in gone else queued
            state = states.get(name) or states.get(name.split("_")[0])
            self.states[name] = state or self._state_unseen(name, clusters)

    def _state_unseen(self, name: str, clusters: str) -> str:
        """State of a job of which neither the queue nor the accounting has a row.

        One of this user's has ended, nobody knows how; one of another user's may be hidden.
        """
        is_ours = self.users.get(name, "") in ("", getpass.getuser())
        return "ENDED" if is_ours or not hides_jobs(clusters) else "UNKNOWN"


class StudyJob(Job[str]):
    """One job, or one task of an array, of a launch, as submitit's; made from folder and id alone.

    A study's jobs need no pickle: what each task calls stands in its script, and what it made is
    read from the samples. So a job is found again in any session.
    """

    watcher = QueueWatcher()

    def __init__(
        self, folder: Path, job_id: str, script: str = "", prefix: str = "", clusters: str = "",
        user: str = "", has_made: Callable[[str], bool] | None = None,
    ) -> None:  # fmt: skip
        self.watcher.clusters[job_id] = clusters
        self.watcher.users[job_id] = user
        self._has_made = has_made
        self._study_paths = StudyPaths(folder, job_id, script, prefix)
        super().__init__(folder, job_id)

    @property
    def paths(self) -> StudyPaths:
        """Its script and its log."""
        return self._study_paths

    def cancel(self, check: bool = True) -> None:
        """Cancel it, on the cluster that has it."""
        clusters = self.watcher.clusters[self.job_id]
        where = [f"--clusters={clusters}"] if clusters else []
        command = ["scancel", *where, self.job_id]
        subprocess.run(command, check=check, env=task.launching_environment())

    def results(self) -> list[str]:
        """Wait for its end and give the state it ended in; raises what `exception` gives."""
        error = self.exception()
        if error is not None:
            raise error
        return [self.state]

    def exception(self) -> UncompletedJobError | None:
        """Wait for its end; an error with the end of its log if it did not end well.

        Where no accounting says how it ended, what it was to make says so.
        """
        self.wait()
        state = self.state
        is_made = state == "ENDED" and self._has_made is not None and self._has_made(self.job_id)
        if is_made or state == "COMPLETED":
            return None
        lines = (self.stdout() or "no log").splitlines()[-LOG_LINES:]
        return UncompletedJobError("\n".join([f"job {self.job_id} is {state}", *lines]))


def sbatch(
    folder: Path, script: str, label: str, dependency: str = "",
    say: Callable[[str], None] = print,
) -> str:  # fmt: skip
    """Submit a script, once, and give the job's id, empty where the answer has none.

    Raises submitit's FailedJobError with the words of sbatch. What a site has to say of a job that
    it takes is handed to ``say``.
    """
    after = [f"--dependency={dependency}"] if dependency else []
    done = subprocess.run(
        ["sbatch", "--parsable", *after, f"{script}.sbatch"], cwd=folder, capture_output=True,
        text=True, errors="replace", check=False, env=task.launching_environment(),
    )  # fmt: skip
    words = done.stderr.strip()
    if done.returncode != 0:
        raise FailedJobError(words)
    if words:
        say(words)
    return task.id_in(done.stdout, label)


NO_ROOM: Final = "no room to write down why: the disk or a quota was full"
# What a state of Slurm means for whoever has to act on it.
ACTIONS: Final[Mapping[str, str]] = {
    "OUT_OF_MEMORY": "give jobs more memory (--mem), or the engine fewer rows at once",
    "TIMEOUT": "the job could not be requeued in time: raise `warning` or the time limit",
    "NODE_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "BOOT_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "DEADLINE": "launch again with a later --deadline, or none",
    "CANCELLED": "launch again when it shall go on",
    "FAILED": "read the end of its log (rlbhpc doctor RUN shows it), then launch again",
    "PREEMPTED": "launch again: the site does not requeue preempted jobs",
    NO_ROOM: "free space, then launch again",
}
# Why a job does not start by waiting for its turn alone, as squeue names the reason, and what would
# start it. The first that is found wins. What is in no row, such as Priority, passes by itself.
BLOCKED: Final = (
    ("held|JobH[eo]ld|ReservationDeleted", "scontrol release {jobs}; where Slurm denies that: "
     "rlbhpc cancel, then launch again"),
    ("^PartitionTimeLimit", "less time (-t) than the partition's MaxTime, or another partition "
     "(-p): rlbhpc cancel, then launch again; `rlbhpc doctor` shows MaxTime"),
    ("^Partition(?:Down|Inactive)", "nothing until the site opens the partition (sinfo -s), or "
     "another one (-p): rlbhpc cancel, then launch again"),
    ("^Partition(?:Config|NodeLimit|MaxNodes|MinNodes)|^MaxMemPerLimit|^BadConstraints",
     "a request that nodes of the partition meet (`nodes`, `cpus`, `memory`, `gpus`, `gpu_type`, "
     "constraint): rlbhpc cancel, then launch again; sinfo -o '%P %D %c %m %G %f' lists nodes"),
    ("^Invalid|NotAllowed$", "an account and a QOS that may use the partition (-A, -q): rlbhpc "
     "cancel, then launch again; sacctmgr show association user=$USER lists yours"),
    ("^DependencyNeverSatisfied", "nothing: rlbhpc cancel, then launch again without it"),
    ("^(?:Assoc|QOS)Grp(?!.*Run).*(?:Minutes|Wall)", "more budget of the account or QOS, or "
     "another one (-A, -q): rlbhpc cancel, then launch again"),
    ("^(?:Assoc|QOS)(?:Max|Min).*Per(?:Job|Node)|^QOSMinGRES", "less than the account or QOS "
     "allows one job (-t, -c, --gres, --mem), or another QOS (-q): rlbhpc cancel, then launch "
     "again"),
    ("^ReqNodeNotAvail|^Node(?:s required|Down)|UnavailableNodes", "the return of nodes that are "
     "down or reserved (sinfo -R); before a maintenance also less time (-t)"),
)  # fmt: skip
# What ordinary limits make a job wait for.
LIMITS: Final = (
    ("^Assoc|^QOS|PerAccount$", "the end of other jobs of the account or QOS; if "
     "none runs, the job asks for more than all of them may have: less of it (-c, --gres, --mem), "
     "or another one (-A, -q)"),
)  # fmt: skip
# What a log says, what that means, and what to do; {run} is the run's folder. The first that is
# found wins, so causes stand before what follows from them.
SIGNS: Final = (
    (r"CUDA (?:[Ee]rror: )?out of memory|OutOfMemoryError", "the GPU's memory is full",
     "smaller `rows` or `memory` under engine.options, for a training smaller `micro_tokens` under "
     "the recipe's options, or a shorter max_tokens; then launch again"),
    (r"No available memory for the cache blocks|larger than the available KV cache memory",
     "the GPU has no room for one response beside the model",
     "a shorter max_tokens, or a larger `memory` under engine.options; then launch again"),
    (r"uncorrectable ECC error", "a GPU of the node is broken",
     "launch again with --exclude and the node's name, and tell the site"),
    (r"oom.kill|Out Of Memory|[Ee]xceeded .*memory|memory limit|MemoryError|an.{1,2}t allocate mem",
     "the job's memory is full", ACTIONS["OUT_OF_MEMORY"]),
    (r"Bus error|/dev/shm/.*No space left", "memory that a file backs was gone",
     "see whether /dev/shm or the scratch disk of the node is full, then launch again"),
    (r"No space left on device|Disk quota exceeded", "the disk or a quota is full",
     "free space, or rlbhpc compact {run} --seal; then launch again"),
    (r"FATAL: .*(?:image|\.sif)|could not open image", "the image cannot be opened",
     "correct `container` in the cluster's file: rlbhpc image verify FILE"),
    (r"FATAL: +.*", "the container does not start",
     "correct `container` or `rlbhpc` in the cluster's file, then launch again"),
    (r"version `\w+_[\d.]+' not found", "the node's system is older than what is installed",
     "work in a container, or install on a machine like the nodes"),
    (r"ModuleNotFoundError: .*|No module named .*", "a module is missing where the work runs",
     "install it there, or correct `rlbhpc` in the cluster's file; then launch again"),
    (r"parent: .*: No such file or directory", "a program is missing on the node",
     "correct `rlbhpc`, `container` or `setup` in the cluster's file, then launch again"),
    (r"DUE TO TIME LIMIT", "the time limit came before the job could be requeued",
     ACTIONS["TIMEOUT"]),
    (r"parent: /.*: (?:Permission denied|Read-only file system)",
     "the node denies a folder or a program",
     "correct `scratch` or `rlbhpc` in the cluster's file, then launch again"),
    (r"parent: .* is not there: what should make it", "what it needs was not made",
     "see the job before it in this list, then launch again"),
    (r"Unsupported CPU attention|head_size.* not supported|head size .* not supported",
     "vLLM cannot run this model here", "`engine: hf` in the study, then launch again"),
    (r"^rlbhpc: .*", "rlbhpc refused", "do what the line says, then launch again"),
    (r"collective operation timeout", "a rank waited in vain for the others",
     "launch again; if one node does it again: --exclude"),
    # torch warns of a driver where work goes on without a GPU, too.
    (r"No CUDA GPUs are available|NVIDIA driver on your system is too old",
     "the work finds no GPU that it can use",
     "ask for one (`gpus`), give a container --nv (`flags`), or install for the node's driver"),
    # With what vLLM and its processes put before a line; what only points to another line is none.
    (r"^(?:\[rank\d+\]: |(?:\(\w+ pid=\d+\) )*(?:ERROR [^]]*\] )?)[\w.]*(?:Error|Exception): "
     r"(?!Engine core init|WorkerProc init).*", "the work failed", ACTIONS["FAILED"]),
)  # fmt: skip


def what_starts(reason: str) -> str:
    """What would start a job that its turn alone does not start; empty for any other reason."""
    return _advice(BLOCKED, reason)


def what_it_waits_for(reason: str) -> str:
    """What a job waits for that a limit holds back; empty for any other reason."""
    return "" if what_starts(reason) else _advice(LIMITS, reason)


def _advice(table: Sequence[tuple[str, str]], reason: str) -> str:
    return next((advice for pattern, advice in table if re.search(pattern, reason)), "")
