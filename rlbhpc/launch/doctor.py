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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from submitit.core.utils import FailedJobError

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch import cluster, container, slurm
from rlbhpc.launch.api import write_host
from rlbhpc.launch.cluster import Cluster, Resources, command
from rlbhpc.launch.host.claims import create_claim
from rlbhpc.launch.host.task import fields_of, seconds
from rlbhpc.launch.script import (
    SHARED,
    check_python,
    merge_options,
    resource_options,
    script_text,
    site_set_up,
)
from rlbhpc.launch.slurm import what_starts

Verdict = Literal["ok", "note", "bad"]
# What of `scontrol show config` a launch depends on.
SETTINGS: Final = (
    "MaxArraySize", "MaxJobCount", "KillWait", "JobRequeue", "PreemptType", "PreemptMode",
    "SlurmctldParameters", "AccountingStorageType", "MinJobAge",
)  # fmt: skip
FILES: Final = 200
OLDEST: Final = (3, 9)
# Clocks that are further apart than this make time stamps of attempts useless.
MOST_SKEW: Final = 5.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do about it where something is."""

    what: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""


def examine(folder: Path) -> list[Finding]:
    """Everything that can be known without a job; ``folder`` is where runs will be kept."""
    return [*of_slurm(), *of_python(), *of_containers(), *of_confinement(), *of_files(folder)]


def of_slurm() -> Iterator[Finding]:
    """Slurm's version, limits and preemption."""
    version = slurm.ask("sbatch", "--version")
    if version is None:
        yield Finding("Slurm", "no sbatch here", "bad", "run this on a login node")
        return
    yield Finding("Slurm", version.strip())
    config = settings()
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
    for name, partition in partitions().items():
        limits = ("MaxTime", "GraceTime", "PreemptMode", "QoS")
        text = ", ".join(f"{key} {partition[key]}" for key in limits if key in partition)
        yield Finding(f"partition {name}", text)
    for row in associations():
        text = f"submits {_up_to(row['MaxSubmit'])}, runs {_up_to(row['MaxJobs'])}"
        yield Finding(f"account {row['Account']}", f"qos {row['QOS'] or '-'}, {text}")


def settings() -> dict[str, str]:
    """Slurm's settings; empty without an answer."""
    answer = slurm.ask("scontrol", "show", "config") or ""
    pairs = (line.partition("=") for line in answer.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def partitions() -> dict[str, dict[str, str]]:
    """Settings of each partition."""
    answer = slurm.ask("scontrol", "--oneliner", "show", "partition") or ""
    lines = map(fields_of, answer.splitlines())
    return {fields["PartitionName"]: fields for fields in lines if "PartitionName" in fields}


def associations() -> list[dict[str, str]]:
    """Accounts of the user with their limits, as far as the accounting tells."""
    names = ("Account", "QOS", "MaxSubmit", "MaxJobs")
    answer = slurm.ask(
        "sacctmgr", "--noheader", "--parsable2", "show", "association",
        f"user={os.environ.get('USER', '') or os.getuid()}", f"format={','.join(names)}",
    )  # fmt: skip
    rows = [line.split("|") for line in (answer or "").splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def of_python() -> Iterator[Finding]:
    """The Python that will run the parents of jobs: the cluster's, or the one that launches."""
    try:
        python = cluster.parent_python(cluster.choose(None)[1])
    except UserError as error:
        yield Finding("cluster", "its file has a mistake", "bad", str(error))
        return
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    text = slurm.ask(python, "-c", code)
    version = re.search(r"(\d+)\.(\d+)\s*$", text or "")
    new = version is not None and tuple(map(int, version.groups())) >= OLDEST
    number = "none" if version is None else version[0].strip()
    advice = "name a Python 3.9 or newer under `python` in the cluster's file"
    yield _judged("python of jobs", f"{number} at {python}", new, advice)


def of_containers() -> Iterator[Finding]:
    """Apptainer, and by which means it mounts images."""
    for name in ("apptainer", "singularity"):
        path = shutil.which(name)
        if path is None:
            continue
        version = slurm.ask(name, "--version") or "does not start"
        yield Finding(name, f"{version.strip()} at {path}")
        suid = list(Path(path).resolve().parents[1].glob(f"lib*/**/{name}/bin/starter-suid"))
        yield Finding("images are mounted", "by the kernel (setuid)" if suid else "by FUSE, slower")
        return
    advice = "load its module and look again; without one, use a virtual environment"
    yield Finding("apptainer", "not here", "note", advice)


def of_confinement() -> Iterator[Finding]:
    """What the sandbox for programs that a model wrote may use."""
    works = slurm.ask("unshare", "-Ur", "true") is not None
    advice = "verifying code falls back to a weaker sandbox, see docs/security.md"
    yield _judged("user namespaces", "yes" if works else "no", works, advice, "note")
    try:
        modules = Path("/sys/kernel/security/lsm").read_text()
    except OSError:
        modules = ""
    yield Finding("Landlock", "yes" if "landlock" in modules else "not listed")


def of_files(folder: Path) -> Iterator[Finding]:
    """How the file system under a folder behaves where our writing depends on it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / f".rlbhpc-doctor-{socket.gethostname()}-{os.getpid()}"
        own.mkdir()
    except OSError as error:
        yield Finding(f"folder {folder}", str(error.strerror), "bad", "choose another one")
        return
    try:
        yield from _probes(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    space = os.statvfs(folder)
    files = f"{space.f_favail:,} files" if space.f_files else "no count of files"
    yield Finding("room", f"{space.f_bavail * space.f_frsize / 1e9:,.0f} GB, {files}")


def _probes(own: Path) -> Iterator[Finding]:
    def tried(what: str, work: Callable[[], bool], advice: str) -> Finding:
        try:
            good = work()
        except OSError as error:
            return Finding(what, str(error.strerror), "bad", advice)
        return _judged(what, "yes" if good else "no", good, advice)

    def exclusive() -> bool:
        return create_claim(own / "one.0", "first") and not create_claim(own / "one.0", "second")

    def renames() -> bool:
        (own / "old").write_text("old")
        (own / "new").write_text("new")
        with (own / "old").open() as reader:
            (own / "new").replace(own / "old")
            return (own / "old").read_text() == "new" and reader.read() == "old"

    def appends() -> bool:
        with (own / "log").open("ab", buffering=0) as out:
            out.write(b"a" * 8192)
            return (own / "log").stat().st_size == 8192

    advice = "keep runs on another file system"
    yield tried("exclusive create", exclusive, advice)
    yield tried("rename replaces whole files", renames, advice)
    yield tried("appends are seen at once", appends, "status lags behind on this file system")
    start = time.perf_counter()
    for number in range(FILES):
        (own / f"f{number}").touch()
    files_per_second = FILES / (time.perf_counter() - start)
    listed = len(list(own.glob("f*")))
    text = f"{listed} of {FILES} files, {files_per_second:,.0f} made per second"
    yield _judged("listing", text, listed == FILES, advice)
    (own / "clock").touch()
    skew = abs((own / "clock").stat().st_mtime - time.time())
    advice = "times of attempts from different hosts will disagree"
    is_small = skew < MOST_SKEW
    yield _judged("clock against the file server", f"{skew:.1f} s", is_small, advice, "note")


def _judged(what: str, text: str, good: bool, advice: str, verdict: Verdict = "bad") -> Finding:
    """What was looked at, with the verdict and the advice of one that is not good."""
    return Finding(what, text) if good else Finding(what, text, verdict, advice)


def _up_to(limit: str) -> str:
    return f"at most {limit}" if limit else "any number"


def first_entry() -> dict[str, Any]:
    """A table entry for this site, as far as Slurm tells; to be read and filled in."""
    config = settings()
    entry: dict[str, Any] = {"hosts": [re.sub(r"\d+", "*", socket.gethostname())]}
    accounts = associations()
    if len(accounts) == 1:
        entry["account"] = accounts[0]["Account"]
        if accounts[0]["MaxSubmit"].isdigit():
            entry["max_jobs"] = int(accounts[0]["MaxSubmit"])
    for name, key in (("MaxArraySize", "max_array_size"), ("KillWait", "kill_wait")):
        number = re.match(r"\d+", config.get(name, ""))
        if number and int(number[0]):
            entry[key] = int(number[0])
    by_name = partitions()
    default = [name for name in by_name if by_name[name].get("Default") == "YES"]
    with_gpus = [name for name in by_name if "gpu" in by_name[name].get("TRES", "")]
    # A partition tells its GPUs only where the site counts them.
    gpus = int(bool(with_gpus) or "gpu" in config.get("GresTypes", ""))
    for kind, names in (("sample", with_gpus or default), ("train", with_gpus or default)):
        for name in names[:1]:
            entry[kind] = _request(by_name[name], "04:00:00", 8 if gpus else 2) | {"gpus": gpus}
    for name in default[:1]:
        entry["light"] = _request(by_name[name], "01:00:00", 2)
    python = shutil.which("rlbhpc")
    entry["rlbhpc"] = [python] if python else [sys.executable, "-m", "rlbhpc"]
    return entry


def _request(partition: dict[str, str], time: str, cpus: int) -> dict[str, Any]:
    """Ask for what the partition has at most: a job that asks for more never starts."""
    limit = partition.get("MaxTime", "UNLIMITED")
    cpus_per_node = int(partition.get("TotalCPUs", cpus)) // int(partition.get("TotalNodes", 1))
    return {
        "partition": partition["PartitionName"],
        "time": limit if seconds(limit) < seconds(time) else time,
        "cpus": max(1, min(cpus, cpus_per_node)),
    }


def write_entry(path: Path) -> None:
    """Write the first entry; one that is there is never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(first_entry(), sort_keys=False)
    with path.open("x") as out:
        out.write(f"# Written by rlbhpc doctor; see docs/clusters.md for every key.\n{text}")


# A rehearsal of the worst minute: of two tasks one is warned and comes back, one is cancelled.


# The work of a task: rlbhpc must start; the first run waits to be ended, a second one says so.
WORK = """\
events=events.$SLURM_ARRAY_TASK_ID
if [ -e "$events" ]; then echo "resumed" >>"$events"; exit 0; fi
"$@" --version >>"$events" 2>&1 || { echo "broken" >>"$events"; exit 64; }
trap 'echo "drained" >>"$events"; exit 75' TERM
echo "started" >>"$events"
while :; do sleep 1; done
"""
# Seconds for a step once no task waits in the queue, and between two looks at the queue.
PATIENCE = 900.0
LOOK = 30.0
_STAYS = "The same command goes on with job {jobs}, and scancel {jobs} ends it"


class _CannotStartError(Exception):
    """A task waits for what its turn alone does not bring."""


def rehearse(
    folder: Path, cluster: Cluster, options: dict[str, str], say: Callable[[str], None]
) -> bool:
    """Run the rehearsal under ``folder``, or go on with one in the queue; whether all worked.

    What happened is read from the tasks' own files, so Slurm is asked to act twice and no more.
    """
    clusters = _options(folder, cluster, options).get("clusters", "")
    own = _in_queue(folder, clusters) or _submit(folder, cluster, options)
    number = (own / "job").read_text()
    say(f"job {number} is in the queue; its files are in {own}")
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("both tasks started, with rlbhpc in them", lambda: _has_logged(own, 0, 1, word="started")),
        ("the warned task drained", lambda: _has_logged(own, 0, word="drained")),
        ("it came back by itself, and ended", lambda: _has_logged(own, 0, word="resumed")),
        ("the cancelled task drained", lambda: _has_logged(own, 1, word="drained")),
        ("it stays away", lambda: slurm.queue([int(number)], clusters) == []),
    ]
    for step, (what, happened) in enumerate(steps):
        # A task waits for its turn before it starts, and before it comes back.
        queue = partial(slurm.queue, [int(number)] if step in (0, 2) else [], clusters)
        try:
            is_done = _wait(own, happened, queue, say)
        except KeyboardInterrupt:
            raise UserError(_STAYS.format(jobs=number), TRY_AGAIN) from None
        except _CannotStartError as reason:
            told = f"cannot start: {reason}; {what_starts(str(reason))}. {_STAYS}"
            raise UserError(told.format(jobs=number), TRY_AGAIN) from None
        if not is_done:
            say(f"not {what}: {_last_line(own)}; see {own}")
            slurm.ask("scancel", number, clusters=clusters)
            return False
        say(what)
        if step == 0 and not _has_logged(own, 0, word="drained"):
            slurm.ask("scancel", "--signal=USR1", "--batch", f"{number}_0", clusters=clusters)
        if step == 2:
            slurm.ask("scancel", f"{number}_1", clusters=clusters)
    if _has_logged(own, 1, word="resumed"):
        say(f"but it came back all the same; see {own}")
        return False
    shutil.rmtree(own, ignore_errors=True)
    return True


def _in_queue(folder: Path, clusters: str) -> Path | None:
    """Folder of a rehearsal whose job is in the queue still."""
    for path in folder.absolute().glob("rehearsal-*/job"):
        if slurm.queue([int(path.read_text())], clusters):
            return path.parent
    return None


def _submit(folder: Path, cluster: Cluster, options: dict[str, str]) -> Path:
    """Submit a rehearsal and give its folder, in which the file `job` has its id."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=folder.absolute()))
        write_host(own / "host")
        (own / "work.sh").write_text(WORK)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose another folder") from None
    head = "# A rehearsal, written by rlbhpc doctor."
    parameters = _options(own, cluster, options)
    text = script_text(head, parameters, _set_up(own, cluster), _call(own, cluster))
    (own / "rehearsal.sbatch").write_text(text)
    try:
        number = slurm.sbatch(own, "rehearsal", "rlbhpc-rehearsal")
    except (FailedJobError, OSError) as error:
        raise UserError(f"the rehearsal was not taken: {error}") from None
    (own / "job").write_text(number)
    return own


def _options(own: Path, cluster: Cluster, more: dict[str, str]) -> dict[str, str]:
    small = Resources(partition=cluster.light.partition, time="5", cpus=1)
    options = {
        "array": "0-1", "chdir": str(own), "job-name": "rlbhpc-rehearsal", "ntasks": "1",
        "open-mode": "append", "output": "log.%a", "requeue": "",
        **resource_options(cluster, small),
    }  # fmt: skip
    options = merge_options(options, cluster.light.options)
    return merge_options(options, {name: text for name, text in more.items() if name in SHARED})


def _set_up(own: Path, cluster: Cluster) -> list[str]:
    lines = site_set_up(cluster, own)
    if cluster.container is not None:
        lines.append(container.exports(cluster.environment))
    return [*lines, *check_python(cluster, 'echo broken >"events.$SLURM_ARRAY_TASK_ID"; ')]


def _call(own: Path, cluster: Cluster) -> str:
    lines = [
        'exec "$python" -m host --drain 20 --last 10 --scratch "$scratch" --',
        "bash work.sh",
        *container.runner(cluster.model_copy(update={"stage": None}), [own]),
        shlex.join(command(cluster)),
    ]
    return " \\\n    ".join(lines)


def _has_logged(own: Path, *tasks: int, word: str) -> bool:
    paths = [own / f"events.{task}" for task in tasks]
    return all(path.exists() and word in path.read_text().split() for path in paths)


def _last_line(own: Path) -> str:
    lines = [line for log in sorted(own.glob("log.*")) for line in log.read_text().splitlines()]
    return lines[-1] if lines else f"no log within {PATIENCE:.0f} s"


def _wait(
    own: Path,
    happened: Callable[[], bool],
    queue: Callable[[], Sequence[slurm.Row] | None],
    say: Callable[[str], None],
) -> bool:
    """Wait for a step: for as long as a task waits in the queue, then for ``PATIENCE``.

    A task in which rlbhpc does not start ends the waiting.
    """
    told = ""
    end = time.monotonic() + PATIENCE
    look = 0.0
    while (now := time.monotonic()) < end:
        if happened():
            return True
        if _has_logged(own, 0, word="broken") or _has_logged(own, 1, word="broken"):
            return False
        for row in (queue() or ()) if now >= look else ():
            look = now + LOOK
            if row.state == "PENDING":
                end = now + PATIENCE
                if what_starts(row.reason):
                    raise _CannotStartError(row.reason)
                if row.reason not in (told, "None"):
                    told = row.reason
                    say(f"in the queue: {told}")
        time.sleep(1)
    return False
