"""What this job is to Slurm, or to the local launcher: its name, why it ends, its requeue."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

from submitit.local.local import LocalJobEnvironment
from submitit.slurm.slurm import SlurmJobEnvironment

from . import TRY_AGAIN


class SlurmTask(SlurmJobEnvironment):
    """The job as Slurm knows it; ``job_id`` names one task of an array, and no other."""

    @property
    def restarts(self) -> int:
        """How often Slurm had started it before."""
        return int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def came_to_its_end(self) -> str:
        """Why Slurm ends this job: cancelled, requeued, preempted, limit; empty if it does not.

        While the batch step lives, Slurm prints COMPLETING for every cause. A restart that is
        counted already was Slurm's own; a preemption has its time beside it; the limit can be
        calculated. What is left was somebody with scancel.
        """
        code, text = call("scontrol", "--oneliner", "show", "job", self.job_id)
        fields = dict(word.partition("=")[::2] for word in text.split())
        state = fields.get("JobState", "")
        if code != 0 or state in ("RUNNING", "SUSPENDED", ""):
            return ""
        if fields.get("Restarts", "").isdigit() and int(fields["Restarts"]) > self.restarts:
            return "requeued"
        if state == "PENDING":
            return "requeued"
        if fields.get("PreemptTime", "None") not in ("None", "N/A", "Unknown"):
            return "preempted"
        if seconds(fields.get("RunTime", "")) >= seconds(fields.get("TimeLimit", "")):
            return "limit"
        return "cancelled"

    def _requeue(self, countdown: int) -> None:
        """Put this one task back; raises OSError with Slurm's words where that is not possible."""
        text = ""
        for attempt in range(countdown):
            code, text = call("scontrol", "requeue", self.job_id)
            if code == 0:
                return
            if "pending" in text:
                # Slurm has put it back itself, and a new run must not meet this one.
                sys.exit(TRY_AGAIN)
            say(f"scontrol requeue {self.job_id}: {text.strip() or code}")
            if "isabled" in text or "ermission" in text or "nvalid" in text:
                break
            time.sleep(min(2.0 * 2**attempt, 20.0))
        raise OSError(text.strip() or "no answer")


class LocalTask(LocalJobEnvironment):
    """The job as a process of this host."""

    restarts = 0

    def came_to_its_end(self) -> str:
        """Nothing ends a local job but its launcher, which sends it TERM."""
        return ""


def this_task() -> SlurmTask | LocalTask | None:
    """What this job is; None where the script was started by hand."""
    if "SUBMITIT_LOCAL_JOB_ID" in os.environ:
        return LocalTask()
    return SlurmTask() if "SLURM_JOB_ID" in os.environ else None


def call(*command: str) -> tuple[int, str]:
    """Exit code and text of a short command; 127 where there is no such command."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def say(text: str) -> None:
    """One line for the job's log, which may be on a full disk."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%dT%H:%M:%S"), "parent:", text, file=sys.stderr, flush=True)


def seconds(span: str) -> float:
    """Seconds of D-HH:MM:SS; what is no time, such as UNLIMITED, is never reached."""
    days, _, clock = span.rpartition("-")
    parts = clock.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in (*parts, days or "0")):
        return float("inf")
    hours, minutes, rest = (int(part) for part in parts)
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest)
