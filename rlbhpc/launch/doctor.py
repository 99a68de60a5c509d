"""Probe the site that we are on: Slurm and its limits, containers, file systems, clocks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import yaml
from submitit.core.utils import FailedJobError

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.api import write_host
from rlbhpc.launch.cluster import Cluster, Resources, choose, parent_python, rlbhpc_command
from rlbhpc.launch.container import exec_lines, export_lines
from rlbhpc.launch.host.claims import create_claim
from rlbhpc.launch.host.task import parse_fields, span_seconds
from rlbhpc.launch.script import (
    SHARED_OPTIONS,
    merge_options,
    resource_options,
    script_text,
    site_setup_lines,
)
from rlbhpc.launch.slurm import advise_blocked, query

Verdict = Literal["ok", "note", "bad"]
# What of `scontrol show config` a launch depends on.
SETTINGS: Final = (
    "MaxArraySize", "MaxJobCount", "KillWait", "JobRequeue", "PreemptType", "PreemptMode",
    "SlurmctldParameters", "AccountingStorageType", "MinJobAge",
)  # fmt: skip
PARTITION_LIMITS: Final = ("MaxTime", "GraceTime", "PreemptMode", "QoS")
ASSOCIATION_COLUMNS: Final = ("Account", "QOS", "MaxSubmit", "MaxJobs")
OLDEST_PYTHON: Final = (3, 9)
# Clocks that are further apart than this make time stamps of attempts useless.
LARGEST_SKEW_SECONDS: Final = 5.0
BYTES_PER_GB: Final = 1e9
SECURITY_MODULES: Final = Path("/sys/kernel/security/lsm")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do about it where something is."""

    what: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""


def examine(folder: Path) -> list[Finding]:
    """All findings about this site that need no job; ``folder`` is where runs will be kept.

    A finding is one thing that was looked at, a verdict on it, and advice where something is wrong.
    """
    return [
        *examine_slurm(),
        *examine_python(),
        *examine_containers(),
        *examine_confinement(),
        *examine_files(folder),
    ]


def examine_slurm() -> Iterator[Finding]:
    """Findings on Slurm: its version, limits, and what it does to jobs that are preempted.

    `query` gives a command's output, None where it fails. `SETTINGS` are the names of the settings
    that a launch depends on. A finding's fields are: what was looked at, what was found, the
    verdict ("ok" unless given) and advice. An association is an account that the user may run jobs
    under, with its limits; an empty limit is none.
    """
    version = query("sbatch", "--version")
    if version is None:
        yield Finding("Slurm", "no sbatch here", "bad", "run this on a login node")
        return
    yield Finding("Slurm", version.strip())
    config = read_settings()
    if not config:
        yield Finding("Slurm's settings", "scontrol does not answer", "bad", "try again later")
        return
    for name in SETTINGS:
        if name in config:
            yield Finding(name, config[name])
    if "jobs" in config.get("PrivateData", ""):
        advice = "claims say which jobs of others are at work: docs/launch.md"
        yield Finding("PrivateData", config["PrivateData"], "note", advice)
    if config.get("JobRequeue") == "0":
        advice = "jobs can still requeue themselves if the site allows it: doctor --rehearse"
        yield Finding("requeue", "off by default", "note", advice)
    if "none" in config.get("AccountingStorageType", "none"):
        yield Finding("accounting", "off", "note", "status tells causes by our own records alone")
    if "preempt_send_user_signal" not in config.get("SlurmctldParameters", ""):
        advice = "a preempted job gets TERM and GraceTime only; keep in-flight responses short"
        yield Finding("warning before preemption", "none", "note", advice)
    for name, partition in read_partitions().items():
        limits = [f"{key} {partition[key]}" for key in PARTITION_LIMITS if key in partition]
        yield Finding(f"partition {name}", ", ".join(limits))
    for row in read_associations():
        limits = [f"qos {row['QOS'] or '-'}"]
        for verb, column in (("submits", "MaxSubmit"), ("runs", "MaxJobs")):
            limits.append(f"{verb} at most {row[column]}" if row[column] else f"{verb} any number")
        yield Finding(f"account {row['Account']}", ", ".join(limits))


def read_settings() -> dict[str, str]:
    """Slurm's settings by name, from `scontrol show config`; empty without an answer."""
    settings = {}
    for line in (query("scontrol", "show", "config") or "").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            settings[name.strip()] = value.strip()
    return settings


def read_partitions() -> dict[str, dict[str, str]]:
    """Settings of each partition, by its name; empty where Slurm does not answer.

    `parse_fields` reads the words NAME=VALUE of a line; scontrol prints one line per partition.
    """
    answer = query("scontrol", "--oneliner", "show", "partition") or ""
    partitions = {}
    for line in answer.splitlines():
        fields = parse_fields(line)
        if "PartitionName" in fields:
            partitions[fields["PartitionName"]] = fields
    return partitions


def read_associations() -> list[dict[str, str]]:
    """Accounts of the user with their limits, as far as Slurm's accounting tells.

    Each has a value, perhaps an empty one, for every name in `ASSOCIATION_COLUMNS`.
    """
    user = os.environ.get("USER", "") or os.getuid()
    answer = query(
        "sacctmgr", "--noheader", "--parsable2", "show", "association",
        f"user={user}", f"format={','.join(ASSOCIATION_COLUMNS)}",
    )  # fmt: skip
    associations = []
    for line in (answer or "").splitlines():
        values = line.split("|")
        if len(values) == len(ASSOCIATION_COLUMNS):
            associations.append(dict(zip(ASSOCIATION_COLUMNS, values, strict=True)))
    return associations


def examine_python() -> Iterator[Finding]:
    """A finding on the Python that runs the parents of jobs: the cluster's, or this one.

    The parent of a job is a small program outside any container that starts the work and ends it in
    time. It needs Python 3.9.
    """
    try:
        _, cluster = choose(None)
    except UserError as error:
        yield Finding("cluster", "its file has a mistake", "bad", str(error))
        return
    python = parent_python(cluster)
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = re.search(r"(\d+)\.(\d+)\s*$", query(python, "-c", code) or "")
    if version is None:
        found = "none"
        is_new = False
    else:
        found = version[0].strip()
        is_new = (int(version[1]), int(version[2])) >= OLDEST_PYTHON
    advice = "name a Python 3.9 or newer under `python` in the cluster's file"
    yield _judge("python of jobs", f"{found} at {python}", is_new, advice)


def examine_containers() -> Iterator[Finding]:
    """A finding on Apptainer or Singularity: which one is here."""
    for name in ("apptainer", "singularity"):
        path = shutil.which(name)
        if path is None:
            continue
        version = query(name, "--version") or "does not start"
        yield Finding(name, f"{version.strip()} at {path}")
        return
    advice = "load its module and look again; without one, use a virtual environment"
    yield Finding("apptainer", "not here", "note", advice)


def examine_confinement() -> Iterator[Finding]:
    """Findings on what the sandbox for programs that a model wrote may use on this machine.

    `unshare -Ur true` works only where users may make namespaces. The kernel lists its security
    modules, of which Landlock is one, in a file that is not always readable.
    """
    has_namespaces = query("unshare", "-Ur", "true") is not None
    advice = "verifying code falls back to a weaker sandbox, see docs/security.md"
    found = "yes" if has_namespaces else "no"
    yield _judge("user namespaces", found, has_namespaces, advice, "note")
    try:
        modules = SECURITY_MODULES.read_text()
    except OSError:
        modules = ""
    yield Finding("Landlock", "yes" if "landlock" in modules else "not listed")


def examine_files(folder: Path) -> Iterator[Finding]:
    """Findings on how the file system under a folder behaves where our writing depends on it.

    The probes write into a folder of their own, which is removed. Some file systems keep no count
    of files, and then report zero.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe_folder = folder / f".rlbhpc-doctor-{socket.gethostname()}-{os.getpid()}"
        probe_folder.mkdir()
    except OSError as error:
        yield Finding(f"folder {folder}", str(error.strerror), "bad", "choose another one")
        return
    try:
        yield _probe_exclusive_create(probe_folder)
        yield _probe_clock(probe_folder)
    except OSError as error:
        yield Finding("writing", str(error.strerror), "bad", "keep runs on another file system")
    finally:
        shutil.rmtree(probe_folder, ignore_errors=True)
    space = os.statvfs(folder)
    free_gb = space.f_bavail * space.f_frsize / BYTES_PER_GB
    free_files = f"{space.f_favail:,} files" if space.f_files else "no count of files"
    yield Finding("room", f"{free_gb:,.0f} GB, {free_files}")


def _probe_exclusive_create(folder: Path) -> Finding:
    """Whether a file that must not exist can be made only once: a job claims its work by that."""
    claim = folder / "claim.0"
    works = create_claim(claim, "first") and not create_claim(claim, "second")
    advice = "keep runs on another file system"
    return _judge("exclusive create", "yes" if works else "no", works, advice)


def _probe_clock(folder: Path) -> Finding:
    """How far the clock of the file server is from that of this host."""
    clock = folder / "clock"
    clock.touch()
    skew = abs(clock.stat().st_mtime - time.time())
    advice = "times of attempts from different hosts will disagree"
    is_small = skew < LARGEST_SKEW_SECONDS
    return _judge("clock against the file server", f"{skew:.1f} s", is_small, advice, "note")


def _judge(what: str, found: str, is_good: bool, advice: str, verdict: Verdict = "bad") -> Finding:
    """What was looked at, with the verdict and the advice of one that is not good."""
    return Finding(what, found) if is_good else Finding(what, found, verdict, advice)


def first_entry() -> dict[str, Any]:
    """A first entry of the cluster table for this site, to be read and filled in by a person.

    The keys are those of a cluster's file, filled in as far as Slurm tells: the account and its
    limit where the user has one account only, limits of the site, and what the three kinds of job
    ask for (`sample`, `train`, `light`).
    """
    config = read_settings()
    # login3 and login7 are hosts of one site, so numbers become `*`.
    entry: dict[str, Any] = {"hosts": [re.sub(r"\d+", "*", socket.gethostname())]}
    associations = read_associations()
    if len(associations) == 1:
        entry["account"] = associations[0]["Account"]
        if associations[0]["MaxSubmit"].isdigit():
            entry["max_jobs"] = int(associations[0]["MaxSubmit"])
    for setting, key in (("MaxArraySize", "max_array_size"), ("KillWait", "kill_wait")):
        number = re.match(r"\d+", config.get(setting, ""))
        if number and int(number[0]):
            entry[key] = int(number[0])
    partitions = list(read_partitions().values())
    default_partitions = [one for one in partitions if one.get("Default") == "YES"]
    gpu_partitions = [one for one in partitions if "gpu" in one.get("TRES", "")]
    # A partition tells its GPUs only where the site counts them.
    has_gpus = bool(gpu_partitions) or "gpu" in config.get("GresTypes", "")
    work_partitions = gpu_partitions or default_partitions
    if work_partitions:
        request = _request(work_partitions[0], "04:00:00", cpus=8 if has_gpus else 2)
        request["gpus"] = int(has_gpus)
        entry["sample"] = request
        entry["train"] = dict(request)
    if default_partitions:
        entry["light"] = _request(default_partitions[0], "01:00:00", cpus=2)
    program = shutil.which("rlbhpc")
    entry["rlbhpc"] = [program] if program else [sys.executable, "-m", "rlbhpc"]
    return entry


def _request(partition: dict[str, str], time_limit: str, cpus: int) -> dict[str, Any]:
    """What a kind of job asks for, as keys of a cluster's file, within what the partition has.

    ``partition`` has the settings that scontrol prints. A job that asks for more than the partition
    has never starts, so ``time_limit`` and ``cpus`` are lowered to its MaxTime and to the cores of
    one node. `span_seconds` is infinite for UNLIMITED.
    """
    longest = partition.get("MaxTime", "UNLIMITED")
    cpus_per_node = int(partition.get("TotalCPUs", cpus)) // int(partition.get("TotalNodes", 1))
    return {
        "partition": partition["PartitionName"],
        "time": longest if span_seconds(longest) < span_seconds(time_limit) else time_limit,
        "cpus": max(1, min(cpus, cpus_per_node)),
    }


def write_entry(path: Path) -> None:
    """Write the first entry; one that is there is never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(first_entry(), sort_keys=False)
    with path.open("x") as out:
        out.write(f"# Written by rlbhpc doctor; see docs/clusters.md for every key.\n{text}")


# A rehearsal of the worst minute: a task is warned and comes back, is cancelled and stays away.


JOB_NAME: Final = "rlbhpc-rehearsal"
# The work of the task: rlbhpc must start; then it waits to be ended.
WORK: Final = """\
"$@" --version >>events 2>&1 || { echo "broken" >>events; exit 64; }
trap 'echo "drained" >>events; exit 75' TERM
echo "started" >>events
while :; do sleep 1; done
"""
EVENTS: Final = ("started", "drained", "broken")
# Seconds for a step once the task does not wait in the queue.
STEP_SECONDS = 900.0
SECONDS_BETWEEN_LOOKS = 10.0


class Step(NamedTuple):
    """One step of a rehearsal: what is awaited, and the signal that is then sent to the task.

    It has come once the task has written so many ``events``. A step that begins a run ``may_queue``
    first. The ``signal`` is options of scancel; None sends nothing.
    """

    awaited: str
    events: int
    may_queue: bool
    signal: tuple[str, ...] | None


STEPS: Final = (
    Step("it started, with rlbhpc in it", 1, True, ("--signal=USR1", "--batch")),
    Step("it was warned, and drained", 2, False, None),
    Step("it came back by itself", 3, True, ()),
    Step("it was cancelled, and drained", 4, False, None),
)


def rehearse(
    folder: Path, cluster: Cluster, options: dict[str, str], say: Callable[[str], None]
) -> bool:
    """Run a rehearsal under ``folder``; whether all its steps came.

    A rehearsal is a small job of one task, which is warned and must come back by itself, and then
    is cancelled and must stay away. ``options`` are those of sbatch. Of one that failed the files
    are kept.
    """
    job_folder, job_id = _submit_rehearsal(folder, cluster, options)
    say(f"job {job_id} is in the queue; its files are in {job_folder}")
    rehearsal = _Rehearsal(job_folder, job_id, say)
    keeps_files = False
    try:
        works = rehearsal.run()
        keeps_files = not works
        return works
    finally:
        query("scancel", job_id)
        if not keeps_files:
            shutil.rmtree(job_folder, ignore_errors=True)


@dataclass(frozen=True)
class _Rehearsal:
    """A rehearsal in the queue; what happened is read from the file ``events`` of its task."""

    folder: Path
    job_id: str
    say: Callable[[str], None]

    def run(self) -> bool:
        """Wait for each step and send the signal that follows it; whether all steps came."""
        for step in STEPS:
            if not self._await(step):
                return False
            if step.signal is not None:
                query("scancel", *step.signal, f"{self.job_id}_0")
        return self._await(Step("it stays away", len(STEPS), False, None), is_gone=True)

    def _await(self, step: Step, is_gone: bool = False) -> bool:
        """Wait until a step has come, and say so; False if it does not come in time.

        With ``is_gone`` the job must also have left the queue, without another run. While the task
        waits in the queue, where it may, the `STEP_SECONDS` do not count.
        """
        reason_said = ""
        deadline = time.monotonic() + STEP_SECONDS
        while True:
            rows = slurm.read_queue([int(self.job_id)])  # None is no answer
            events = self._read_events()
            is_lost = "broken" in events or (is_gone and len(events) > step.events)
            if not is_lost and len(events) >= step.events and (rows == [] or not is_gone):
                self.say(step.awaited)
                return True
            if is_lost or time.monotonic() >= deadline:
                self.say(f"not: {step.awaited}: {self._last_log_line()}; see {self.folder}")
                return False
            if rows == []:
                deadline = 0.0  # its task is over: one more look at its files
            for row in rows or ():
                if row.state == "PENDING" and step.may_queue:
                    deadline = time.monotonic() + STEP_SECONDS
                    reason_said = self._say_reason(row.reason, reason_said)
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _say_reason(self, reason: str, reason_said: str) -> str:
        """Say why the task waits, unless that was said already; gives the reason for the next call.

        ``reason`` is Slurm's word for it. Where it is one that waiting for its turn does not mend,
        such as a limit of the partition, that is an error with advice.
        """
        advice = advise_blocked(reason)
        if advice:
            raise UserError(f"cannot start: {reason}; {advice}", TRY_AGAIN)
        if reason not in (reason_said, "None"):
            self.say(f"in the queue: {reason}")
        return reason

    def _read_events(self) -> list[str]:
        """What the task has written of its runs, in order."""
        path = self.folder / "events"
        words = path.read_text().split() if path.exists() else []
        return [word for word in words if word in EVENTS]

    def _last_log_line(self) -> str:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return lines[-1] if lines else "no log of its task"


def _submit_rehearsal(folder: Path, cluster: Cluster, options: dict[str, str]) -> tuple[Path, str]:
    """Submit a rehearsal and give its folder and the job's id.

    The script is like that of a launch: set-up lines of the site, then the parent (`host`), which
    runs the work, `work.sh`, with the command of rlbhpc as its arguments, in the container if there
    is one. The parent gives the work ``--drain`` seconds after a warning and ``--last`` after a
    TERM.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own_folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=folder.absolute()))
        write_host(own_folder / "host")
        (own_folder / "work.sh").write_text(WORK)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose another folder") from None
    setup = site_setup_lines(cluster, own_folder)
    if cluster.container is not None:
        setup.append(export_lines(cluster.environment))
    setup.append(f"python={shlex.quote(parent_python(cluster))}")
    # The study's staging folder is not there.
    unstaged_cluster = cluster.model_copy(update={"stage": None})
    command = [
        'exec "$python" -m host --drain 20 --last 10 --scratch "$scratch" --',
        "bash work.sh",
        *exec_lines(unstaged_cluster, [own_folder]),
        shlex.join(rlbhpc_command(cluster)),
    ]
    text = script_text(
        "# A rehearsal, written by rlbhpc doctor.",
        _rehearsal_options(own_folder, cluster, options),
        setup,
        " \\\n    ".join(command),
    )
    (own_folder / "rehearsal.sbatch").write_text(text)
    try:
        job_id = slurm.submit_script(own_folder, "rehearsal", JOB_NAME)
    except (FailedJobError, OSError) as error:
        raise UserError(f"the rehearsal was not taken: {error}") from None
    return own_folder, job_id


def _rehearsal_options(
    folder: Path, cluster: Cluster, command_line_options: dict[str, str]
) -> dict[str, str]:
    """Options of sbatch, by long name, for a small job that is like the site's light ones.

    Light jobs are those without a GPU. `merge_options` lets later options replace earlier ones. Of
    the options of the command line only `SHARED_OPTIONS`, such as account and partition, are taken
    over: others size work that is not done here.
    """
    resources = Resources(partition=cluster.light.partition, time="5", cpus=1)
    options = {
        "array": "0",
        "chdir": str(folder),
        "job-name": JOB_NAME,
        "ntasks": "1",
        "open-mode": "append",
        "output": "log",
        "requeue": "",
        **resource_options(cluster, resources),
    }
    options = merge_options(options, cluster.light.options)
    shared_options = {
        name: value for name, value in command_line_options.items() if name in SHARED_OPTIONS
    }
    return merge_options(options, shared_options)
