"""What this job is to Slurm, or to the local launcher: its name, why it ends, its requeue."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import TRY_AGAIN

# Set by whoever launches on this machine.
LOCAL = "RLBHPC_LOCAL_JOB"

# Variables of a shell that would win over the scripts, or leak from a job that launches; but not
# those that say where Slurm itself is configured.
LEAKING = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SUBMITIT_")
RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")
# A task gives up before it has failed on more nodes than these.
MOST_AVOIDED = 3


class LocalTask:
    """The job as a process of this machine, whose end its launcher waits for."""

    def __init__(self) -> None:
        self.job_id = str(os.getpid())


class SlurmTask:
    """The job as Slurm knows it; ``job_id`` names one task of an array, and no other.

    ``restarts`` is how often Slurm had started it before.
    """

    def __init__(self) -> None:
        array = os.environ.get("SLURM_ARRAY_JOB_ID", "")
        self.array_task = os.environ.get("SLURM_ARRAY_TASK_ID", "") if array else ""
        self.job_id = f"{array}_{self.array_task}" if array else os.environ["SLURM_JOB_ID"]
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def first_node(self) -> str:
        """Name of the first of its nodes."""
        nodes = os.environ.get("SLURM_JOB_NODELIST", "")
        code, text = call("scontrol", "show", "hostnames", nodes) if nodes else (1, "")
        return text.split()[0] if code == 0 else socket.gethostname()

    def came_to_its_end(self) -> str:
        """Why Slurm ends this job: cancelled, requeued, preempted, limit; empty if it does not.

        While the batch step lives, Slurm prints COMPLETING for every cause. A restart that is
        counted already was Slurm's own; a preemption has its time beside it, from its warning on,
        while the job still runs; the limit can be calculated. What is left was somebody with
        scancel.
        """
        code, text = call("scontrol", "--oneliner", "show", "job", self.job_id)
        fields = fields_of(text)
        state = fields.get("JobState", "")
        preempted = fields.get("PreemptTime", "")
        # Times of day begin with a digit; that of an earlier run is no cause of this end.
        is_preempted = preempted[:1].isdigit() and preempted >= fields.get("StartTime", "")
        if code != 0 or state in ("RUNNING", "SUSPENDED", ""):
            return "preempted" if is_preempted else ""
        if fields.get("Restarts", "").isdigit() and int(fields["Restarts"]) > self.restarts:
            return "requeued"
        if state == "PENDING":
            return "requeued"
        if is_preempted:
            return "preempted"
        if seconds(fields.get("RunTime", "")) >= seconds(fields.get("TimeLimit", "")):
            return "limit"
        return "cancelled"

    def requeue(self, tries: int) -> None:
        """Put this one task back; raises OSError with Slurm's words where that is not possible."""
        text = ""
        for attempt in range(tries):
            code, text = call("scontrol", "requeue", self.job_id)
            if code == 0:
                return
            if "pending" in text:
                # Slurm has put it back itself, and a new run must not meet this one.
                sys.exit(TRY_AGAIN)
            say(f"scontrol requeue {self.job_id}: {text.strip() or code}")
            if re.search("isabled|ermission|nvalid|No such file", text):
                break
            time.sleep(min(2.0 * 2**attempt, 20.0))
        raise OSError(text.strip() or "no answer")

    def avoid(self, node: str) -> None:
        """Keep this task, which is back in the queue, off a node while the partition has others."""
        partition = os.environ.get("SLURM_JOB_PARTITION", "")
        _, text = call("scontrol", "--oneliner", "show", "partition", partition)
        nodes = fields_of(text).get("TotalNodes", "")
        _, text = call("scontrol", "--oneliner", "show", "job", self.job_id)
        excluded = fields_of(text).get("ExcNodeList", "(null)").replace("(null)", "")
        needed = int(os.environ.get("SLURM_JOB_NUM_NODES") or 1)
        if nodes.isdigit() and int(nodes) > needed + MOST_AVOIDED:
            avoided = ",".join(filter(None, (excluded, node)))
            code, text = call(
                "scontrol", "update", f"JobId={self.job_id}", f"ExcNodeList={avoided}"
            )
            say(f"it keeps off {avoided}" if code == 0 else text.strip())

    def resubmit(self) -> str:
        """Submit this one task anew where no job may requeue itself; its new id, if there is one.

        What waits for this job waits for the new one as well.
        """
        label = os.environ.get("SLURM_JOB_NAME", "")
        scripts = [path for path in Path().glob("*.sbatch") if label.endswith(f"-{path.stem}")]
        if not scripts:
            return ""
        script = max(scripts, key=lambda path: len(path.stem))
        array = [f"--array={self.array_task}"] if self.array_task else []
        environment = launching_environment()
        code, text = call("sbatch", "--parsable", *array, script.name, environment=environment)
        number = id_in(text, label) if code == 0 else ""
        if not number:
            say(f"sbatch {script.name}: {text.strip() or code}")
            return ""
        line = f"{script.stem} {number} {self.array_task}".rstrip()
        try:
            with Path("submitted").open("a") as out:
                out.write(line + "\n")
        except OSError as error:
            say(f"submitted: {error.strerror}; it does not say `{line}`")
        for other in waiting_for(script.stem):
            before = dependency_of(other)
            if before is None:
                continue
            after = ",".join(filter(None, (before, f"afterany:{number}")))
            code, text = call("scontrol", "update", f"JobId={other}", f"Dependency={after}")
            say(f"job {other} waits for {number} as well" if code == 0 else text.strip())
        return f"{number}_{self.array_task}" if self.array_task else number


def this_task() -> SlurmTask | LocalTask | None:
    """What this job is; None where somebody has started the script by hand."""
    if LOCAL in os.environ:
        return LocalTask()
    return SlurmTask() if "SLURM_JOB_ID" in os.environ else None


def fields_of(text: str) -> dict[str, str]:
    """Fields of one line of ``scontrol --oneliner show``."""
    return dict(word.partition("=")[::2] for word in text.split())


def hides_jobs(config: str) -> bool:
    """Whether `scontrol show config` says that users do not see the jobs of others.

    Slurm then says of them what it says of a job that it has forgotten: "Invalid job id".
    """
    private = re.search(r"(?m)^PrivateData\s*=(.*)$", config)
    return private is None or "jobs" in private[1]


def is_filter(name: str) -> bool:
    """Whether a variable of a shell leaves jobs out of what is asked of Slurm."""
    filters = name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))
    return filters and not name.endswith("_FEDERATION")  # which takes in jobs of other clusters


def launching_environment() -> dict[str, str]:
    """The shell's environment without what would win over the scripts."""
    return {
        name: text
        for name, text in os.environ.items()
        if name in KEPT or not (name.startswith(LEAKING) or name in RANKS or is_filter(name))
    }


def id_in(answer: str, label: str) -> str:
    """The id in an answer of ``sbatch --parsable``, whatever else a site prints with it.

    Where several lines are numbers, Slurm knows one as a job of this name.
    """
    ids = [line.strip().partition(";")[0] for line in answer.splitlines()]
    numbers = [word for word in ids if word.isdigit()]
    if len(numbers) > 1:
        names = {n: call("squeue", "--noheader", f"--jobs={n}", "--format=%j")[1] for n in numbers}
        numbers = [n for n in numbers if label in names[n].split()]
    return numbers[-1] if numbers else ""


def dependency_of(number: int, without: str = "") -> str | None:
    """What a job still waits for, but for one job; None where Slurm does not say."""
    code, text = call("scontrol", "--oneliner", "show", "job", str(number))
    if code != 0:
        say(f"scontrol show job {number}: {text.strip() or code}")
        return None
    # Tasks of an array that ended, or were cancelled, are records of their own.
    records = [fields_of(line) for line in text.splitlines()]
    waiting = [record for record in records if record.get("JobState") == "PENDING"]
    named = re.sub(r"_\*|\([^)]*\)", "", waiting[0].get("Dependency", "") if waiting else "")
    conditions = []
    for kind, *ids in (condition.split(":") for condition in filter(None, named.split(","))):
        others = [other for other in ids if other != without]
        if others or not ids:
            conditions.append(":".join((kind, *others)))
    return ",".join(conditions)


def submissions(folder: Path) -> list[list[str]]:
    """Words of the file `submitted`: a script, its id or `?` before there is one, and the task.

    The task stands where of an array only this one was submitted.
    """
    try:
        lines = (folder / "submitted").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.split() for line in lines]


def submitted(folder: Path) -> dict[str, list[int]]:
    """Ids of a launch's jobs by the name of the script, the newest last."""
    ids: dict[str, list[int]] = {}
    for name, number, *_ in submissions(folder):
        if number.isdigit():
            ids.setdefault(name, []).append(int(number))
    return ids


def waiting_for(script: str) -> list[int]:
    """Ids of the jobs of this launch that wait for those of a script."""
    try:
        jobs = json.loads(Path("launch.json").read_text())["jobs"]
        ids = submitted(Path())
    except (OSError, ValueError, LookupError):
        return []
    names = [name for name, job in jobs.items() if script in job["after"]]
    return [number for name in names for number in ids.get(name, ())]


def call(*command: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and text of a short command; 127 where there is no such command."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False,
            env=environment,
        )  # fmt: skip
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def say(text: str) -> None:
    """One line for the job's log, which may be on a full disk."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%dT%H:%M:%S"), "parent:", text, file=sys.stderr, flush=True)


def seconds(span: str) -> float:
    """Seconds of a time as sbatch takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    What is no time, such as UNLIMITED, is never reached.
    """
    days, dash, clock = span.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (*parts, days or "0")):
        return float("inf")
    if not dash and len(parts) < 3:
        parts = ["0", *parts]
    hours, minutes, rest = (int(part) for part in (*parts, "0", "0")[:3])
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest)
