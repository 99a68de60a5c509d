"""Run one command as the work of this job; see the package."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, UNRECORDED, USAGE
from .claims import CLAIMS, Claims, host_name, is_alive, is_own_file, start_tick
from .task import LocalTask, SlurmTask, call, dependency_of, say, submitted, this_task

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
CAUGHT = (*WARNINGS, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
LOOK = 60.0
PR_SET_PDEATHSIG = 1
# Runs in a row that may end without anything new, preempted ones apart: a node with a broken GPU
# is left behind, and a bug, or a limit shorter than the loading takes, does not go round for ever.
STALLS = 3
REQUEUE_TRIES = 6
# Says in a folder on the node whose it is.
OWNER = ".owner"


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--drain", type=float, required=True, help="seconds after USR1 or USR2")
    parser.add_argument("--last", type=float, required=True, help="seconds after TERM")
    parser.add_argument("--scratch", type=Path, help="folder of this job on the node; removed")
    parser.add_argument("--plan", default="", help="name of the plan that the shards are of")
    parser.add_argument("--shards", default="", help="shards to claim and work")
    parser.add_argument("--progress", action="append", default=[], help="files that grow")
    parser.add_argument("--needs", help="path without which there is nothing to do yet")
    parser.add_argument("--release", action="append", default=[], help="PATH=JOB")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run one command as the work of this job."""
    options = arguments_of(words)
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    task = this_task()
    host = socket.gethostname()
    name = task.job_id if task is not None else str(os.getpid())
    restarts = 0
    holder = f"local {host_name()} {name} {start_tick(name)}"
    if isinstance(task, SlurmTask):
        restarts = task.restarts
        holder = f"slurm {name}"
    say(f"job {name} on {host}, restart {restarts}, {getpass.getuser()}")
    record = Record(name)
    if Path("cancelled").exists():
        say("this launch was cancelled")
        return TRY_AGAIN
    if options.needs and not Path(options.needs).exists():
        say(f"{options.needs} is not there: what should make it has not ended well")
        record.add(INCOMPLETE, f"{options.needs} is not there", progress=False)
        return INCOMPLETE
    claims = Claims(CLAIMS, holder)
    command = options.command
    shards = {s: f"{options.plan}-{int(s):05d}" for s in options.shards.split(",") if s}
    if shards:
        ours = [shard for shard in shards if claims.take(shards[shard])]
        if not ours:
            return DONE
        command = [",".join(ours) if word == "{}" else word for word in command]
        options.progress += [f"../../journals/*/*/{shards[shard]}-*" for shard in ours]
    elif task is not None:
        # What works no shard shows signs of life, too: a training outlives its launcher.
        claims.take(f"job-{name}")
    if isinstance(task, SlurmTask) and any("{head}" in word for word in command):
        command = [word.replace("{head}", task.first_node()) for word in command]
    while True:
        before = sizes(options.progress)
        code, warned = run(options, command, claims)
        after = sizes(options.progress)
        progress = any(size > before.get(path, 0) for path, size in after.items())
        code, comes_back = outcome(task, record, claims, code, warned, progress)
        if not comes_back:
            claims.release()
            return code
        if isinstance(task, SlurmTask):
            return code


def run(options: argparse.Namespace, command: list[str], claims: Claims) -> tuple[int, str]:
    """Run the work to its end; its exit code, and the signal that ended it if one did."""
    try:
        if options.scratch:
            remove_abandoned(options.scratch.parent)
            options.scratch.mkdir(parents=True, exist_ok=True)
            pid = str(os.getpid())
            (options.scratch / OWNER).write_text(f"local {host_name()} {pid} {start_tick(pid)}\n")
        work = Work(command)
    except OSError as error:
        say(f"{error.filename or command[0]}: {error.strerror}")
        return 127, ""
    pairs = (pair.rpartition("=") for pair in options.release)
    releases = {path: name for path, _, name in pairs}
    warned = wait_for_end(work, options.drain, options.last, releases, claims.beat)
    work.kill()
    release(releases)
    if options.scratch:
        if int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) > 1:
            call("srun", "--ntasks-per-node=1", "rm", "-rf", str(options.scratch))
        shutil.rmtree(options.scratch, ignore_errors=True)
    return work.process.returncode, warned


def remove_abandoned(folder: Path) -> None:
    """Remove what parents of this user left on this node that were killed, and no other folder.

    The owner's process and its start are in a file, so one that lives or of which nothing is known
    keeps its folder. No later run has the folder of an earlier one.
    """
    for owner in folder.glob(f"rlbhpc-*/{OWNER}"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if is_own_file(owner) and is_alive(owner.read_text().strip(), is_ours=True) is False:
                say(f"{owner.parent} is of a job that was killed, and is removed")
                shutil.rmtree(owner.parent, ignore_errors=True)


class Work:
    """The child and its process group."""

    def __init__(self, command: list[str]) -> None:
        # Where srun starts it, what the shell on each node looks for to warn what it has started.
        several = command[0] == "srun"
        self.notice = Path(f"warned-{os.environ.get('SLURM_JOB_ID')}") if several else None
        self.take_notice_away()
        libc = ctypes.CDLL(None, use_errno=True)
        parent = os.getpid()

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
            # If the parent is killed the work must not go on without anybody to end it.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(TRY_AGAIN)

        self.process = subprocess.Popen(
            command, start_new_session=True, preexec_fn=prepare, stdin=subprocess.DEVNULL
        )

    def drain(self) -> None:
        """Ask it to finish: the one process, since helpers of it are its own to end.

        srun would end its step at once if it got TERM, and hands other signals to every process of
        the step: an image that is mounted by one of them would be gone below the work. So the
        nodes of srun are warned by a file.
        """
        if self.process.poll() is not None:
            return
        if self.notice is None:
            self.process.send_signal(signal.SIGTERM)
            return
        try:
            self.notice.touch()
        except OSError as error:
            say(f"{self.notice}: {error.strerror}; the work cannot be warned")

    def take_notice_away(self) -> None:
        """What an earlier run of this job was told is over."""
        if self.notice is not None:
            with contextlib.suppress(OSError):
                self.notice.unlink(missing_ok=True)

    def kill(self) -> None:
        """End whatever is left of the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def wait_for_end(
    work: Work, drain: float, last: float, releases: dict[str, str], beat: Callable[[], None]
) -> str:
    """Wait for the end of the work. Returns the signal that ended it, if one did."""
    warned = ""
    end = float("inf")
    while work.process.poll() is None:
        now = time.monotonic()
        if now >= end:
            say("the time is over; what is left of the work is killed")
            work.kill()
            work.process.wait()
            break
        caught = signal.sigtimedwait(CAUGHT, min(LOOK, end - now))
        release(releases)
        beat()
        if caught is None or caught.si_signo == signal.SIGCHLD:
            continue
        allowed = drain if caught.si_signo in WARNINGS else last
        say(f"signal {caught.si_signo}; the work has {allowed:g} s to finish")
        if not warned:
            work.drain()
        warned = signal.Signals(caught.si_signo).name
        end = min(end, time.monotonic() + allowed)
    work.take_notice_away()
    return warned


def release(waiting: dict[str, str]) -> None:
    """Let jobs wait no longer for our end that wait for a checkpoint which is there now."""
    own = os.environ.get("SLURM_JOB_ID", "")
    for path in [path for path in waiting if Path(path).exists()]:
        name = waiting.pop(path)
        try:
            numbers = submitted(Path()).get(name, [])
        except OSError as error:
            say(f"submitted: {error.strerror}")
            continue
        for number in numbers:
            dependency = dependency_of(number, without=own)
            if dependency is None:  # it waits for our end, then
                continue
            code, text = call("scontrol", "update", f"JobId={number}", f"Dependency={dependency}")
            say(f"{path} is there; job {number} may start" if code == 0 else text.strip())


def outcome(
    task: SlurmTask | LocalTask | None, record: Record, claims: Claims, code: int,
    warned: str, progress: bool,
) -> tuple[int, bool]:  # fmt: skip
    """Decide what becomes of the job: the exit code of the script, and whether it comes back."""
    if code in (DONE, NOTHING_TO_DO):
        record.went_on(ended=True)
        return DONE, False
    if code == INCOMPLETE and not warned:
        say("something is missing still; `rlbhpc launch` again makes it")
        return INCOMPLETE, False
    failed = code != TRY_AGAIN and not warned
    cause = cause_of(code)
    if failed:
        say(f"the work {cause}")
        record.add(code, cause, progress)
    elif progress:
        record.went_on(ended=False)
    # Nothing ends a local job but its launcher, which sends it TERM.
    ended_by = task.came_to_its_end() if isinstance(task, SlurmTask) else ""
    if Path("cancelled").exists() or ended_by == "cancelled":
        say("cancelled; it stays away, and the same launch again goes on from here")
        return TRY_AGAIN, False
    if ended_by == "requeued":
        say("Slurm has requeued it")
        return TRY_AGAIN, True
    # A preemption is no fault of the job: it comes back however often it is preempted.
    if not failed and not progress and ended_by != "preempted":
        early = "warned before it had made anything new"
        record.add(code, early if warned else cause, progress)
    if code == USAGE or record.stalls >= STALLS or task is None:
        say("it does not come back")
        return (code if code > 0 else 128 - code), False
    if not isinstance(task, SlurmTask):
        return TRY_AGAIN, failed
    return requeue(task, record, claims, failed)


def requeue(task: SlurmTask, record: Record, claims: Claims, failed: bool) -> tuple[int, bool]:
    """Put the job back into the queue, away from a node where it failed. Slurm then ends us."""
    say(f"requeue {task.job_id}")
    try:
        task.requeue(REQUEUE_TRIES)
    except OSError as error:
        # The new job may start at once, and would leave the shards to this one.
        claims.release()
        number = task.resubmit()
        if number:
            say(f"it goes on as job {number}")
            record.move(number)
        else:
            record.add(TRY_AGAIN, f"could not be requeued: {error}", progress=False)
        return TRY_AGAIN, False
    if failed:
        task.avoid(node())
    # To return at once would say that the job is complete.
    signal.sigtimedwait((signal.SIGTERM,), LOOK)
    return TRY_AGAIN, True


def sizes(patterns: list[str]) -> dict[Path, int]:
    """Sizes of the files that only grow, or appear, when something new was made."""
    bytes_of = {}
    for path in [path for pattern in patterns for path in Path().glob(pattern)]:
        with contextlib.suppress(OSError):
            bytes_of[path] = path.stat().st_size
    return bytes_of


class Record:
    """What went wrong with one job over its runs, in `failures/JOB.json`.

    A full disk has no room for it. So each run that could not be added leaves an empty file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path("failures") / f"{name}.json"
        try:
            record = json.loads(self.path.read_text())
        except (OSError, ValueError):
            record = {}
        self.runs: list[dict[str, Any]] = record.get("runs", [])
        self.stalls: int = record.get("stalls", 0) + len(self._unrecorded())

    def add(self, code: int, cause: str, progress: bool) -> None:
        """Write down a run that ended badly, and whether it made anything new."""
        self.stalls = 0 if progress else self.stalls + 1
        self.runs.append(
            {"time": time.time(), "host": node(), "code": code, "cause": cause,
             "progress": progress}
        )  # fmt: skip
        written = self._write(False)
        if written or progress:
            self._settle()
            return
        with contextlib.suppress(OSError):
            Path(f"{UNRECORDED}{self.name}.{os.getpid()}").touch()

    def move(self, name: str) -> None:
        """Hand the record on to the job that takes over."""
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_name(f"{name}.json"))
        for path in self._unrecorded():
            path.rename(f"{UNRECORDED}{name}{path.suffix}")

    def went_on(self, ended: bool) -> None:
        """Say that the job made something new, or ended well, after all."""
        if self.runs or self.stalls:
            self.stalls = 0
            self._write(ended)
            self._settle()

    def _settle(self) -> None:
        for path in self._unrecorded():
            path.unlink()

    def _unrecorded(self) -> list[Path]:
        return list(Path().glob(f"{UNRECORDED}{self.name}.*"))

    def _write(self, recovered: bool) -> bool:
        record = {"stalls": self.stalls, "recovered": recovered, "runs": self.runs}
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(exist_ok=True)
            partial.write_text(json.dumps(record, indent=1))
            partial.replace(self.path)
        except OSError as error:
            # A full disk: the job must be requeued all the same.
            say(f"{self.path}: {error.strerror}")
            return False
        return True


def node() -> str:
    """Name of the node, as Slurm calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def cause_of(code: int) -> str:
    """Say in words what an exit code means."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed, most likely for its memory"
    if code == USAGE:
        return "refused: the log says what to change"
    if code in (126, 127, 255):
        return "could not be started: the command, the container or a module is not there"
    return f"ended with exit code {code}" if code >= 0 else f"died of signal {-code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
