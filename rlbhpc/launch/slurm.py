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

QUERY_TIMEOUT_SECONDS = 20.0
# Lines at the end of a log that an error shows.
LOG_LINES = 40
# At a site with several clusters this variable of the shell names those that commands ask.
CLUSTERS_VARIABLE = "SLURM_CLUSTERS"
# Lines of errors that leave a question about jobs open, or answer it. What is wrong with a line of
# slurm.conf says nothing of jobs.
ERRORS_ABOUT_JOBS = r"(?m)^.*(?:load_jobs|Invalid job id|cluster|ontact|onnect|Socket).*$"
# A script that waits for jobs asks Slurm no more often.
SECONDS_BETWEEN_QUESTIONS = 10.0
# How far back the accounting is asked for a job: 90 days.
ACCOUNTING_SECONDS = 90 * 24 * 3600
# Number of a job that is no task of an array.
NO_ARRAY = -1
# The state of a job that Slurm hides: whether it is still in the queue cannot be seen.
HIDDEN = "HIDDEN"


class QueueRow(NamedTuple):
    """One job, or one task of an array, as squeue or sacct prints it.

    ``task`` is `NO_ARRAY` for a job that is no array.
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


def query(*command: str) -> str | None:
    """Output of a command that only asks; None where there is no such command or it fails."""
    program, *words = command
    clusters = os.environ.get(CLUSTERS_VARIABLE)
    if clusters and program == "sacct":  # which alone does not read the variable
        words.insert(0, f"--clusters={clusters}")
    try:
        process = subprocess.run(
            [program, *words], capture_output=True, text=True, errors="replace",
            timeout=QUERY_TIMEOUT_SECONDS, check=False, env=query_environment(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("%s: %s", command, error)
        return None
    log.debug("%s: status %d %s", command, process.returncode, process.stderr.strip())
    if process.returncode == 0:
        return process.stdout
    # A single id that Slurm has forgotten is an error there, and no job to us. Where there are
    # several clusters, one has the job and the others complain beside its answer.
    errors = re.findall(ERRORS_ABOUT_JOBS, process.stderr)
    is_forgotten = bool(errors) and all("Invalid job id" in line for line in errors)
    return process.stdout if is_forgotten else None


def query_environment() -> dict[str, str]:
    """The shell's environment, less the variables that leave jobs out of what Slurm answers."""
    environment = {
        name: value for name, value in os.environ.items() if not task.is_query_filter(name)
    }
    # Without this, squeue cuts the tasks of an array off after 64 characters.
    environment["SLURM_BITSTR_LEN"] = "0"
    return environment


def read_queue(job_ids: Iterable[int]) -> list[QueueRow] | None:
    """Those of some jobs that are in the queue, whoever owns them; None without an answer."""
    words = ("--all", "--noheader", "--format=%i|%T|%r|%u")
    return _query_rows(job_ids, "squeue", *words)


def read_accounting(job_ids: Iterable[int], since: str) -> list[QueueRow] | None:
    """How jobs ended, by the accounting; None where there is no accounting.

    The start is always given: sacct would leave out what began before midnight.
    """
    words = ("--allocations", "--noheader", "--parsable2", "--format=JobID,State,ExitCode,User")
    return _query_rows(job_ids, "sacct", *words, f"--starttime={since}")


def _query_rows(job_ids: Iterable[int], *command: str) -> list[QueueRow] | None:
    id_list = ",".join(str(job_id) for job_id in sorted(set(job_ids)))
    if not id_list:
        return []
    answer = query(*command, f"--jobs={id_list}")
    return None if answer is None else parse_rows(answer)


def hides_jobs() -> bool:
    """Whether users do not see the jobs of others, as far as Slurm says."""
    return task.hides_jobs(query("scontrol", "show", "config") or "")


def find_job_by_name(job_name: str, user: str) -> str | None:
    """Id of a user's job by its name, which no other launch has; empty if there is none.

    None where Slurm does not say: that the accounting has no such job yet proves nothing. squeue
    knows the jobs in the queue, sacct also those that have ended; `query` gives None where one of
    them does not answer.
    """
    who = (f"--user={user}", "--noheader", f"--name={job_name}")
    # %F is the job's id; of a task, that of its array.
    queue_answer = query("squeue", *who, "--format=%F")
    queued_id = _last_id(queue_answer)
    if queued_id:
        return queued_id
    words = ("--allocations", "--parsable2", "--starttime=now-1days", "--format=JobID")
    ended_id = _last_id(query("sacct", *who, *words))
    if queue_answer is None and not ended_id:
        return None
    return ended_id


def _last_id(answer: str | None) -> str:
    """The last job id of an answer whose lines are ids; empty without one."""
    last_id = ""
    for line in (answer or "").splitlines():
        job_id = line.strip().split("_")[0]
        if job_id.isdigit():
            last_id = job_id
    return last_id


def parse_rows(text: str) -> list[QueueRow]:
    """Rows of ``id|state|reason|user`` lines; what is not one is passed over.

    An id may stand for several tasks of an array, such as 12_[3,5-8]: each becomes a row.
    """
    rows = []
    for line in text.splitlines():
        name, *columns = line.strip().split("|")
        if len(columns) != 3:
            continue
        state, reason, user = columns
        state = state.split(" ")[0]  # "CANCELLED by 1000"
        for job, array_task in parse_ids(name):
            rows.append(QueueRow(job, array_task, state, reason, user))
    return rows


def parse_ids(name: str) -> list[tuple[int, int]]:
    """Pairs of job and task from an id such as 12, 12_3 or 12_[3,5-8%4]; none if it is no id.

    `read_job_id` gives, for each part, the job and up to two numbers: the first task and the last.
    A job that is no array has the task `NO_ARRAY`.
    """
    try:
        spans = read_job_id(name)
    except ValueError:
        return []
    ids = []
    for job, *bounds in spans:
        if not job.isdigit():
            continue
        first = int(bounds[0]) if bounds else NO_ARRAY
        last = int(bounds[-1]) if bounds else NO_ARRAY
        ids += [(int(job), array_task) for array_task in range(first, last + 1)]
    return ids


def format_ranges(numbers: Iterable[int]) -> str:
    """Numbers as a sorted list such as 3,5-8, where 5-8 stands for all from 5 to 8."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


class StudyPaths(JobPaths):
    """Files of one job of a launch: its script and its log, into which both streams go."""

    def __init__(self, folder: Path, job_id: str, script: str, log_prefix: str) -> None:
        super().__init__(folder, job_id=job_id)
        self._script = script
        self._log_name = f"{log_prefix}-{script}-{job_id}.log"

    @property
    def submission_file(self) -> Path:
        """The script."""
        return self.folder / f"{self._script}.sbatch"

    @property
    def stdout(self) -> Path:
        """The log."""
        return self.folder / "logs" / self._log_name

    @property
    def stderr(self) -> Path:
        """The same log."""
        return self.stdout


class QueueWatcher(InfoWatcher):
    """States of jobs: one squeue for all, then sacct, where a site has it, for those that left.

    submitit's own watcher needs the accounting, which many sites do not have.
    """

    def __init__(self) -> None:
        """Begin without jobs."""
        super().__init__()
        self._jobs: dict[str, StudyJob] = {}
        self._states: dict[str, str] = {}
        self._asked_at = 0.0

    def watch(self, job: StudyJob) -> None:
        """Take in a job, which the next question makes known."""
        self._jobs[job.job_id] = job
        self._asked_at = 0.0

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """State of a job, from Slurm if the last answer is too old.

        ``mode`` is submitit's: "force" always asks, "standard" where the answer is old, and "cache"
        never.
        """
        is_old = time.time() - self._asked_at > SECONDS_BETWEEN_QUESTIONS
        if mode == "force" or (mode == "standard" and is_old):
            self.update()
        return self._states.get(job_id, "UNKNOWN")

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """The same as submitit's record of a job."""
        return {"State": self.get_state(job_id, mode)}

    def update(self) -> None:
        """Ask once for the states of all jobs that are not known to have ended.

        squeue knows the jobs in the queue. For those that left it the accounting is asked. An id is
        12, or 12_3 for task 3 of array 12. Where Slurm does not answer, all states stay as they
        were.
        """
        self._asked_at = time.time()
        jobs = [job for job_id, job in self._jobs.items() if not self.is_done(job_id, "cache")]
        array_of = {job.job_id: job.job_id.split("_")[0] for job in jobs}
        rows = read_queue(map(int, array_of.values()))
        if rows is None:
            return
        queued_states = {row.name: row.state for row in rows}
        # Where Slurm leaves tasks out, the row has the name of the array.
        gone = {
            job_id: array
            for job_id, array in array_of.items()
            if job_id not in queued_states and array not in queued_states
        }
        since = time.strftime("%Y-%m-%d", time.localtime(time.time() - ACCOUNTING_SECONDS))
        ended_rows = read_accounting(map(int, gone.values()), since) or ()
        ended_states = {row.name: row.state for row in ended_rows}
        for job in jobs:
            states = ended_states if job.job_id in gone else queued_states
            state = states.get(job.job_id) or states.get(array_of[job.job_id])
            self._states[job.job_id] = state or _state_without_row(job)


def _state_without_row(job: StudyJob) -> str:
    """State of a job that neither queue nor accounting names.

    One of this user's has ended, nobody knows how; one of another user's may be hidden.
    """
    is_ours = job.user == getpass.getuser()
    return "ENDED" if is_ours or not hides_jobs() else "UNKNOWN"


class StudyJob(Job[str]):
    """One job, or one task of an array, of a launch, as submitit's.

    A study's jobs need no pickle: what each task calls stands in its script, and what it made is
    read from the samples. So a job is found again in any session, by folder and id.
    ``has_made_its_part`` tells, where no accounting does, whether a job ended well.
    """

    watcher = QueueWatcher()

    def __init__(
        self, folder: Path, job_id: str, script: str, log_prefix: str, *, user: str,
        has_made_its_part: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """Describe a job that was submitted before, and have its state watched.

        ``job_id`` is 12, or 12_3 for a task of an array; ``script`` is its script's name without
        .sbatch, and ``log_prefix`` what the name of its log begins with.
        """
        self.user = user
        self._has_made_its_part = has_made_its_part
        self._study_paths = StudyPaths(folder, job_id, script, log_prefix)
        super().__init__(folder, job_id)
        self.watcher.watch(self)

    @property
    def paths(self) -> StudyPaths:
        """Its script and its log."""
        return self._study_paths

    def cancel(self, check: bool = True) -> None:
        """Cancel it."""
        subprocess.run(["scancel", self.job_id], check=check, env=query_environment())

    def results(self) -> list[str]:
        """Wait for its end and give the state it ended in; raises what `exception` gives."""
        error = self.exception()
        if error is not None:
            raise error
        return [self.state]

    def exception(self) -> UncompletedJobError | None:
        """Wait for the job's end; an error with the end of its log if it did not end well.

        ENDED is the state of a job that left the queue at a site without accounting: whether it
        ended well is then told by what it made.
        """
        self.wait()
        state = self.state
        if state == "COMPLETED" or (state == "ENDED" and self._has_made_its_part(self.job_id)):
            return None
        log_lines = (self.stdout() or "no log").splitlines()[-LOG_LINES:]
        return UncompletedJobError("\n".join([f"job {self.job_id} is {state}", *log_lines]))


def submit_script(
    folder: Path, script: str, job_name: str, dependency: str = "",
    say: Callable[[str], None] = print,
) -> str:  # fmt: skip
    """Submit a script, once, and give the job's id, empty where the answer has none.

    Raises submitit's FailedJobError with the words of sbatch. What a site has to say of a job that
    it takes is handed to ``say``. ``script`` is the file's name without .sbatch, ``dependency`` the
    value of that option of sbatch.
    """
    command = ["sbatch", "--parsable", f"{script}.sbatch"]
    if dependency:
        command.insert(2, f"--dependency={dependency}")
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False,
        env=task.launching_environment(),
    )  # fmt: skip
    complaint = process.stderr.strip()
    if process.returncode != 0:
        raise FailedJobError(complaint)
    if complaint:
        say(complaint)
    return task.find_job_id(process.stdout, job_name)


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
    (r"exec: .*python.*(?:[Nn]ot found|No such file)|future feature annotations is not defined",
     "the node has no Python 3.9 or newer at that place",
     "name one of the nodes under `python` in the cluster's file, then launch again"),
    (r"FATAL: .*(?:image|\.sif)|could not open image", "the image cannot be opened",
     "correct `container` in the cluster's file: apptainer inspect FILE"),
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


def advise_blocked(reason: str) -> str:
    """What would start a job that its turn alone does not start; empty for any other reason."""
    return _first_advice(BLOCKED, reason)


def advise_limited(reason: str) -> str:
    """What a job waits for that a limit holds back; empty for any other reason."""
    return "" if advise_blocked(reason) else _first_advice(LIMITS, reason)


def _first_advice(table: Sequence[tuple[str, str]], reason: str) -> str:
    for pattern, advice in table:
        if re.search(pattern, reason):
            return advice
    return ""
