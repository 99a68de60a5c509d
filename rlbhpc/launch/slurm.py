"""What Slurm says of jobs, where there is a Slurm and as far as it answers."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from submitit.slurm.slurm import read_job_id

from rlbhpc.launch.host import task

log = logging.getLogger(__name__)

TIMEOUT = 20.0
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
