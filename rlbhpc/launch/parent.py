"""The parent of one job's work, outside any container: signals, drain, requeue.

A copy of this file lies in the folder of every launch and runs there on the host's own Python, so
it needs nothing but the standard library of Python 3.9. Slurm belongs to the host, Python work to
the container: `scontrol` and the credentials that it needs do not exist in there.

    parent.py --drain 150 --last 22 --scratch DIR [--needs PATH] [--release PATH=JOB] -- COMMAND

The command runs in a session of its own. A warning (USR1 or USR2 some time before the end, TERM
shortly before it) is handed on to it as TERM, once; what is left of its process group after the
time is killed. Then the job is put back into the queue, unless it was cancelled.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

DONE, INCOMPLETE, NOTHING_TO_DO, USAGE, TRY_AGAIN = 0, 3, 4, 64, 75
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
CAUGHT = (*WARNINGS, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
# Runs that may fail by themselves before a job is given up: a node with a broken GPU is left
# behind, a bug in the work does not go round for ever.
FAILURES = 3
REQUEUE_TRIES = 6
LOOK = 60.0
PR_SET_PDEATHSIG = 1


class Job:
    """What Slurm calls this job; nothing of it where there is no Slurm."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.id = environment.get("SLURM_JOB_ID", "")
        array = environment.get("SLURM_ARRAY_JOB_ID", "")
        self.name = f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}" if array else self.id
        self.restarts = int(environment.get("SLURM_RESTART_COUNT") or 0)

    def cancelled(self) -> bool:
        """Whether somebody cancelled it: by `rlbhpc cancel`, or straight with scancel."""
        if Path("cancelled").exists():
            return True
        code, text = call("scontrol", "--oneliner", "show", "job", self.id)
        return code == 0 and "JobState=CANCELLED" in text

    def requeue(self) -> bool:
        """Put the job back into the queue. Slurm then ends this process."""
        for attempt in range(REQUEUE_TRIES):
            code, text = call("scontrol", "requeue", self.id)
            if code == 0:
                return True
            if "pending" in text:
                # Slurm has put it back itself, and a new run must not meet this one.
                sys.exit(TRY_AGAIN)
            say(f"scontrol requeue {self.id}: {text.strip() or code}")
            if "isabled" in text or "ermission" in text or "nvalid" in text:
                break
            time.sleep(min(2.0 * 2**attempt, 20.0))
        return False


class Work:
    """The child and its process group."""

    def __init__(self, command: list[str]) -> None:
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
        """Ask it to finish: the one process, since helpers of it are its own to end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End whatever is left of the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


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
    """One line for the job's log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%S"), "parent:", text, file=sys.stderr, flush=True)


def mind(work: Work, drain: float, last: float, releases: dict[str, str]) -> bool:
    """Wait for the end of the work. Returns whether it was warned."""
    end = None
    while work.process.poll() is None:
        now = time.monotonic()
        if end is not None and now >= end:
            say("the time is over; what is left of the work is killed")
            work.kill()
            work.process.wait()
            break
        left = LOOK if end is None else min(LOOK, end - now)
        caught = signal.sigtimedwait(CAUGHT, left)
        release(releases)
        if caught is None or caught.si_signo == signal.SIGCHLD:
            continue
        allowed = drain if caught.si_signo in WARNINGS else last
        say(f"signal {caught.si_signo}; the work has {allowed:g} s to finish")
        if end is None:
            work.drain()
        end = min(end or float("inf"), time.monotonic() + allowed)
    return end is not None


def release(waiting: dict[str, str]) -> None:
    """Let jobs start that wait for a checkpoint which is there now; else they wait for our end."""
    for path in [path for path in waiting if Path(path).exists()]:
        name = waiting.pop(path)
        for number in submitted().get(name, ()):
            code, text = call("scontrol", "update", f"JobId={number}", "Dependency=")
            say(f"{path} is there; job {number} may start" if code == 0 else text.strip())


def submitted() -> dict[str, list[str]]:
    """Job ids by the name of the script, from the file that submit.sh writes."""
    found: dict[str, list[str]] = {}
    try:
        lines = Path("submitted").read_text().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        name, _, number = line.partition(" ")
        found.setdefault(name, []).append(number)
    return found


def record_failure(job: Job, code: int, cause: str) -> int:
    """Write down a run that failed; returns how many of this job there are now."""
    path = Path("failures") / f"{job.name or os.getpid()}.json"
    try:
        runs = json.loads(path.read_text())["runs"]
    except (OSError, ValueError, KeyError):
        runs = []
    runs.append(
        {"time": time.time(), "host": socket.gethostname(), "code": code, "cause": cause,
         "restart": job.restarts, "job": job.id}
    )  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps({"job": job.name, "runs": runs}, indent=1))
    partial.replace(path)
    return len(runs)


def cause_of(code: int) -> str:
    """Say in words what an exit code means."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed, most likely for its memory"
    if code == USAGE:
        return "refused: the log says what to change"
    if code in (126, 127, 255):
        return "could not be started: the command, the container or a module is not there"
    return f"ended with exit code {code}" if code >= 0 else f"died of signal {-code}"


def outcome(job: Job, code: int, warned: bool) -> int:
    """Decide what becomes of the job; returns the exit code of the script."""
    if code in (DONE, NOTHING_TO_DO):
        return DONE
    if code == INCOMPLETE and not warned:
        say("something is missing still; `rlbhpc launch` again makes it")
        return INCOMPLETE
    if code != TRY_AGAIN and not warned:
        cause = cause_of(code)
        say(f"the work {cause}")
        if record_failure(job, code, cause) >= FAILURES or code == USAGE or not job.id:
            return code if code > 0 else 128 - code
    if not job.id or job.cancelled():
        say("stopped; the same launch again goes on from here")
        return TRY_AGAIN
    say(f"requeue {job.name}")
    if job.requeue():
        # Slurm ends this process now. To return would say that the job is complete.
        signal.sigtimedwait((signal.SIGTERM,), LOOK)
    else:
        record_failure(job, TRY_AGAIN, "could not be requeued")
    return TRY_AGAIN


def main(arguments: list[str]) -> int:
    """Run one command as the work of this job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--drain", type=float, required=True, help="seconds after USR1 or USR2")
    parser.add_argument("--last", type=float, required=True, help="seconds after TERM")
    parser.add_argument("--scratch", type=Path, help="folder of this job on the node; removed")
    parser.add_argument("--needs", help="path without which there is nothing to do yet")
    parser.add_argument("--release", action="append", default=[], help="PATH=JOB")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    job = Job(dict(os.environ))
    say(f"job {job.name or '-'} on {socket.gethostname()}, restart {job.restarts}")
    if Path("cancelled").exists():
        say("this launch was cancelled")
        return TRY_AGAIN
    if given.needs and not Path(given.needs).exists():
        say(f"{given.needs} is not there: what should make it has not ended well")
        record_failure(job, INCOMPLETE, f"{given.needs} is not there")
        return INCOMPLETE
    if given.scratch:
        given.scratch.mkdir(parents=True, exist_ok=True)
    try:
        work = Work(given.command)
    except OSError as error:
        say(f"{given.command[0]}: {error.strerror}")
        code, warned = 127, False
    else:
        pairs = (pair.rpartition("=") for pair in given.release)
        releases = {path: name for path, _, name in pairs}
        warned = mind(work, given.drain, given.last, releases)
        code = work.process.returncode
        work.kill()
        release(releases)
    if given.scratch:
        shutil.rmtree(given.scratch, ignore_errors=True)
    return outcome(job, code, warned)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
