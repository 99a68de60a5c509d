"""What this job is to Slurm, or to the local launcher: its name, why it ends, its requeue."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import TRY_AGAIN

# This variable is set by whoever launches on this machine.
LOCAL = "RLBHPC_LOCAL_JOB"
# Variables with these prefixes would win over the scripts, or leak from a job that launches.
LEAKING_PREFIXES = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SUBMITIT_")
RANK_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
)  # fmt: skip
# These two say where Slurm itself is configured, so they stay.
SLURM_CONFIGURATION = ("SLURM_CONF", "SLURM_CONF_SERVER")
COMMAND_TIMEOUT_SECONDS = 30
NO_SUCH_COMMAND = 127
LONGEST_PAUSE_SECONDS = 20.0
SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86_400


class LocalTask:
    """The job as a process of this machine, whose end its launcher waits for."""

    def __init__(self) -> None:
        self.job_id = str(os.getpid())


class SlurmTask:
    """The job as Slurm knows it; ``job_id`` names one task of an array, and no other.

    ``restarts`` is how often Slurm had started it before.
    """

    def __init__(self) -> None:
        """Read the job's id and its number of restarts from the variables that Slurm sets."""
        array_id = os.environ.get("SLURM_ARRAY_JOB_ID")
        if array_id:
            self.job_id = f"{array_id}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        else:
            self.job_id = os.environ["SLURM_JOB_ID"]
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def first_node(self) -> str:
        """Name of the first of the job's nodes, or of this host where Slurm does not answer.

        Slurm gives the nodes as a short list such as gpu[01-04], which scontrol spells out.
        """
        node_list = os.environ.get("SLURM_JOB_NODELIST")
        if node_list:
            code, names = run_command("scontrol", "show", "hostnames", node_list)
            if code == 0:
                return names.split()[0]
        return socket.gethostname()

    def find_end_cause(self) -> str:
        """Why Slurm ends this job: cancelled, requeued, preempted, limit; empty if it does not.

        While the batch step, the script itself, lives, Slurm prints COMPLETING for every cause. A
        restart that is counted already was Slurm's own. A preemption has its time beside it, from
        its warning on, while the job still runs. The limit can be calculated. What is left was
        somebody with scancel.

        ``self.restarts`` is how often the job had been started when this run began. `parse_fields`
        reads the words NAME=VALUE that scontrol prints.
        """
        code, answer = run_command("scontrol", "--oneliner", "show", "job", self.job_id)
        fields = parse_fields(answer)
        state = fields.get("JobState", "")
        preempt_time = fields.get("PreemptTime", "")
        # The time of a preemption in an earlier run is before the start of this one.
        has_time = preempt_time[:1].isdigit()
        is_preempted = has_time and preempt_time >= fields.get("StartTime", "")
        if code != 0 or state in ("RUNNING", "SUSPENDED", ""):
            return "preempted" if is_preempted else ""
        counted_restarts = fields.get("Restarts", "")
        is_restarted = counted_restarts.isdigit() and int(counted_restarts) > self.restarts
        if is_restarted or state == "PENDING":
            return "requeued"
        if is_preempted:
            return "preempted"
        run_seconds = span_seconds(fields.get("RunTime", ""))
        if run_seconds >= span_seconds(fields.get("TimeLimit", "")):
            return "limit"
        return "cancelled"

    def requeue(self, tries: int) -> None:
        """Put this one task back into the queue; raises OSError with Slurm's words if it cannot be.

        ``tries`` is how often Slurm is asked, with growing pauses, where it does not answer.
        """
        answer = ""
        for attempt in range(tries):
            code, answer = run_command("scontrol", "requeue", self.job_id)
            if code == 0:
                return
            if "pending" in answer:
                # Slurm has put it back itself, and a new run must not meet this one.
                sys.exit(TRY_AGAIN)
            say(f"scontrol requeue {self.job_id}: {answer.strip() or code}")
            if re.search("isabled|ermission|nvalid|No such file", answer):
                break  # another try would be refused as well
            time.sleep(min(2.0 * 2**attempt, LONGEST_PAUSE_SECONDS))
        raise OSError(answer.strip() or "no answer")


def this_task() -> SlurmTask | LocalTask | None:
    """What this job is; None where somebody has started the script by hand."""
    if LOCAL in os.environ:
        return LocalTask()
    if "SLURM_JOB_ID" in os.environ:
        return SlurmTask()
    return None


def parse_fields(line: str) -> dict[str, str]:
    """Fields of one line of ``scontrol --oneliner show``, which has words such as NAME=VALUE."""
    fields = {}
    for word in line.split():
        name, _, value = word.partition("=")
        fields[name] = value
    return fields


def hides_jobs(config: str) -> bool:
    """Whether `scontrol show config` says that users do not see the jobs of others.

    Slurm then says of them what it says of a job that it has forgotten: "Invalid job id".
    """
    private_data = re.search(r"(?m)^PrivateData\s*=(.*)$", config)
    return private_data is None or "jobs" in private_data[1]


def is_query_filter(name: str) -> bool:
    """Whether a variable of a shell leaves jobs out of what is asked of Slurm."""
    if name.endswith("_FEDERATION"):  # which takes in jobs of other clusters
        return False
    return name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))


def launching_environment() -> dict[str, str]:
    """The shell's environment without what would win over the scripts.

    Left out are variables of Slurm and torchrun that an outer job has set, and those that filter
    what Slurm answers. Two variables say where Slurm itself is configured, and stay.
    """
    environment = {}
    for name, value in os.environ.items():
        is_leaking = name.startswith(LEAKING_PREFIXES) or name in RANK_VARIABLES
        if name in SLURM_CONFIGURATION or not (is_leaking or is_query_filter(name)):
            environment[name] = value
    return environment


def find_job_id(answer: str, job_name: str) -> str:
    """The id in an answer of ``sbatch --parsable``, whatever else a site prints with it.

    An answer has lines such as ``12`` or ``12;CLUSTER``. Where several lines are numbers, Slurm
    knows one of them as a job of this name.
    """
    first_words = [line.strip().partition(";")[0] for line in answer.splitlines()]
    numbers = [word for word in first_words if word.isdigit()]
    if len(numbers) > 1:
        numbers = [number for number in numbers if _has_name(number, job_name)]
    return numbers[-1] if numbers else ""


def _has_name(job_id: str, job_name: str) -> bool:
    _, answer = run_command("squeue", "--noheader", f"--jobs={job_id}", "--format=%j")
    return job_name in answer.split()


def read_submissions(folder: Path) -> list[tuple[str, str]]:
    """Lines of a launch's file `submitted`: a script, and its job id or `?` before there is one.

    A line with `?` is written before sbatch is called, so a script that has no other line may have
    been submitted all the same.
    """
    try:
        lines = (folder / "submitted").read_text().splitlines()
    except FileNotFoundError:
        return []
    submissions = []
    for line in lines:
        script, job_id, *_ = line.split()
        submissions.append((script, job_id))
    return submissions


def read_submitted_ids(folder: Path) -> dict[str, list[int]]:
    """Ids of a launch's jobs by the name of the script, the newest last."""
    ids_by_script: dict[str, list[int]] = {}
    for script, job_id in read_submissions(folder):
        if job_id.isdigit():
            ids_by_script.setdefault(script, []).append(int(job_id))
    return ids_by_script


def run_command(*command: str) -> tuple[int, str]:
    """Exit code and output of a short command; 127 where it cannot run or takes too long."""
    try:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=COMMAND_TIMEOUT_SECONDS,
        )  # fmt: skip
    except OSError as error:
        return NO_SUCH_COMMAND, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired as error:
        return NO_SUCH_COMMAND, str(error)
    return process.returncode, process.stdout.decode(errors="replace")


def say(text: str) -> None:
    """Print one line into the job's log, which may be on a full disk."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%dT%H:%M:%S"), "parent:", text, file=sys.stderr, flush=True)


def span_seconds(span: str) -> float:
    """Seconds of a time as sbatch takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    The letters stand for days, hours, minutes and seconds. What is no time, such as UNLIMITED, is
    never reached: infinity.
    """
    days, dash, clock = span.rpartition("-")
    clock_parts = clock.split(":")
    if not all(part.isdigit() for part in (*clock_parts, days or "0")):
        return float("inf")
    if not dash and len(clock_parts) < 3:
        clock_parts.insert(0, "0")  # without days and hours, the first number is of minutes
    clock_parts += ["0", "0"]
    hours, minutes, seconds = (int(part) for part in clock_parts[:3])
    return float(
        int(days or 0) * SECONDS_PER_DAY
        + hours * SECONDS_PER_HOUR
        + minutes * SECONDS_PER_MINUTE
        + seconds
    )
