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

from . import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, USAGE
from .claims import CLAIMS, Claims, host_name, is_alive, is_own_file, start_tick
from .task import LocalTask, SlurmTask, run_command, say, this_task

WARNING_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
CAUGHT_SIGNALS = (*WARNING_SIGNALS, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
SECONDS_BETWEEN_LOOKS = 60.0
PR_SET_PDEATHSIG = 1
# Runs in a row that may end without anything new, preempted ones apart: a bug, or a limit shorter
# than the loading takes, does not go round for ever.
MAX_STALLS = 3
REQUEUE_TRIES = 6
# This file in a scratch folder on the node says which process owns the folder.
OWNER_FILE = ".owner"


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line of a job's parent, the program that starts and ends the job's work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--drain", type=float, required=True, help="seconds after USR1 or USR2")
    parser.add_argument("--last", type=float, required=True, help="seconds after TERM")
    parser.add_argument("--scratch", type=Path, help="folder of this job on the node; removed")
    parser.add_argument("--plan", default="", help="name of the plan that the shards are of")
    parser.add_argument("--shards", default="", help="shards to claim and work")
    parser.add_argument("--progress", action="append", default=[], help="files that grow")
    parser.add_argument("--needs", help="path without which there is nothing to do yet")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run one command as the work of this job; returns the exit code of the batch script.

    A claim is a file that says who works a shard, in words such as `slurm 101_3`, its holder, so
    that no two jobs work the same. Progress is whether a file of ``options.progress`` has grown in
    this run. A job that comes back is requeued where Slurm runs it; a local one is run again here,
    in the loop.
    """
    options = parse_arguments(words)
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT_SIGNALS)
    task = this_task()
    job_id = task.job_id if task is not None else str(os.getpid())
    record = FailureRecord(job_id)
    if isinstance(task, SlurmTask):
        holder = f"slurm {job_id}"
        say(f"job {job_id} on {socket.gethostname()}, restart {task.restarts}, {getpass.getuser()}")
    else:
        holder = f"local {host_name()} {job_id} {start_tick(job_id)}"
        say(f"job {job_id} on {socket.gethostname()}, {getpass.getuser()}")
    if Path("cancelled").exists():
        say("this launch was cancelled")
        return TRY_AGAIN
    if options.needs and not Path(options.needs).exists():
        say(f"{options.needs} is not there: what should make it has not ended well")
        record.add(INCOMPLETE, f"{options.needs} is not there", progress=False)
        return INCOMPLETE
    claims = Claims(CLAIMS, holder)
    command = claim_work(options, claims, task)
    if not command:
        return DONE
    while True:
        sizes_at_start = measure_files(options.progress)
        code, warning = run_work(options, command, claims)
        sizes_at_end = measure_files(options.progress)
        progress = any(size > sizes_at_start.get(path, 0) for path, size in sizes_at_end.items())
        code, comes_back = decide_end(task, record, code, warning, progress)
        if not comes_back:
            claims.release()
            return code
        if isinstance(task, SlurmTask):
            return code


def claim_work(
    options: argparse.Namespace, claims: Claims, task: SlurmTask | LocalTask | None
) -> list[str]:
    """Claim what this job works, and give its command; empty where others work all of it.

    Shards are numbered parts of a plan, given as text such as "1,2". `take` is False for a shard
    that another job works. In the command, "{}" stands for the shards that are left to this job,
    and "{head}" for the first node of several.
    """
    command: list[str] = options.command
    shards = [shard for shard in options.shards.split(",") if shard]
    if shards:
        claim_names = {shard: f"{options.plan}-{int(shard):05d}" for shard in shards}
        own_shards = [shard for shard in shards if claims.take(claim_names[shard])]
        if not own_shards:
            return []
        command = [",".join(own_shards) if word == "{}" else word for word in command]
        for shard in own_shards:
            # The worker of a shard appends its samples to files of this name, which therefore grow.
            options.progress.append(f"../../journals/*/*/{claim_names[shard]}-*")
    elif task is not None:
        # What works no shard shows signs of life, too: a training outlives its launcher.
        claims.take(f"job-{task.job_id}")
    if isinstance(task, SlurmTask) and any("{head}" in word for word in command):
        first_node = task.first_node()
        command = [word.replace("{head}", first_node) for word in command]
    return command


def run_work(options: argparse.Namespace, command: list[str], claims: Claims) -> tuple[int, str]:
    """Run the work to its end; its exit code, and the name of the last warning signal if any.

    After a warning the work has ``options.drain`` seconds to finish, after a TERM ``options.last``.
    ``options.scratch`` is a folder on the node, made before the work and removed after it.
    ``claims.show_life`` touches the job's claims, so that others see it is alive. 127 is a shell's
    exit code for a command that cannot be started.
    """
    try:
        if options.scratch:
            make_scratch(options.scratch)
        work = Work(command)
    except OSError as error:
        say(f"{error.filename or command[0]}: {error.strerror}")
        return 127, ""
    warning = wait_for_end(work, options.drain, options.last, claims.show_life)
    work.kill()
    if options.scratch:
        if work.is_on_several_nodes:
            # Each node has such a folder of its own.
            run_command("srun", "--ntasks-per-node=1", "rm", "-rf", str(options.scratch))
        shutil.rmtree(options.scratch, ignore_errors=True)
    return work.process.returncode, warning


def make_scratch(scratch: Path) -> None:
    """Make the job's folder on the node, and write down which process owns it."""
    remove_abandoned(scratch.parent)
    scratch.mkdir(parents=True, exist_ok=True)
    pid = str(os.getpid())
    (scratch / OWNER_FILE).write_text(f"local {host_name()} {pid} {start_tick(pid)}\n")


def remove_abandoned(folder: Path) -> None:
    """Remove scratch folders of this user's parents that were killed on this node.

    A parent is the program that starts a job's work. It writes into `OWNER_FILE` of its scratch
    folder which process it is. A folder whose owner lives, or of whose owner nothing is known,
    stays.
    """
    for owner_file in folder.glob(f"rlbhpc-*/{OWNER_FILE}"):
        scratch = owner_file.parent
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if not is_own_file(owner_file):
                continue
            if is_alive(owner_file.read_text().strip(), is_ours=True) is False:
                say(f"{scratch} is of a job that was killed, and is removed")
                shutil.rmtree(scratch, ignore_errors=True)


class Work:
    """The child process that does the work, and its process group."""

    def __init__(self, command: list[str]) -> None:
        """Start the command as a child process, which dies if this process is killed.

        The kernel sends the child KILL when its parent ends (PR_SET_PDEATHSIG). A parent that ended
        before that was set is not noticed, so the child looks once itself whether its parent is
        still the same.
        """
        self.is_on_several_nodes = command[0] == "srun"
        libc = ctypes.CDLL(None, use_errno=True)
        parent_pid = os.getpid()

        def prepare_child() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT_SIGNALS)
            # If the parent is killed the work must not go on without anybody to end it.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent_pid:
                os._exit(TRY_AGAIN)

        self.process = subprocess.Popen(
            command, start_new_session=True, preexec_fn=prepare_child, stdin=subprocess.DEVNULL
        )

    def warn(self) -> None:
        """Ask the work to finish: the one process, since its helpers are its own to end.

        On several nodes srun is the child. TERM would end srun itself, so Slurm sends URG to all
        processes of the work's step instead.
        """
        if self.process.poll() is not None:
            return
        if not self.is_on_several_nodes:
            self.process.terminate()
            return
        # The first step of the job is the work; host.node hands URG on as TERM on each node.
        first_step = f"{os.environ['SLURM_JOB_ID']}.0"
        code, answer = run_command("scancel", "--signal=URG", first_step)
        if code != 0:
            say(f"the work cannot be warned: scancel: {answer.strip() or code}")

    def kill(self) -> None:
        """End whatever is left of the process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def wait_for_end(
    work: Work, drain_seconds: float, last_seconds: float, show_life: Callable[[], None]
) -> str:
    """Wait for the end of the work; returns the name of the last warning signal, if one came.

    After a warning the work has ``drain_seconds``, after a TERM ``last_seconds``, and is then
    killed. The signals are blocked, so each waits until it is taken up here. SIGCHLD says that the
    work ended. At least once a minute ``show_life`` is called, which shows other jobs that this one
    is alive.
    """
    warning = ""
    deadline = float("inf")
    while work.process.poll() is None:
        now = time.monotonic()
        if now >= deadline:
            say("the time is over; what is left of the work is killed")
            work.kill()
            work.process.wait()
            break
        caught = signal.sigtimedwait(CAUGHT_SIGNALS, min(SECONDS_BETWEEN_LOOKS, deadline - now))
        show_life()
        if caught is None or caught.si_signo == signal.SIGCHLD:
            continue
        is_early = caught.si_signo in WARNING_SIGNALS
        allowed_seconds = drain_seconds if is_early else last_seconds
        say(f"signal {caught.si_signo}; the work has {allowed_seconds:g} s to finish")
        if not warning:
            work.warn()
        warning = signal.Signals(caught.si_signo).name
        deadline = min(deadline, time.monotonic() + allowed_seconds)
    return warning


def decide_end(
    task: SlurmTask | LocalTask | None, record: FailureRecord, code: int, warning: str,
    progress: bool,
) -> tuple[int, bool]:  # fmt: skip
    """Decide what becomes of the job: the exit code of the script, and whether it comes back.

    ``code`` is the exit code of the work, ``warning`` the signal that it was warned by, and
    ``progress`` says whether this run made anything new. ``task`` is what the job is to Slurm, or
    to a launch on this machine; None where somebody started the script by hand.

    Stalls are runs in a row that made nothing new: after `MAX_STALLS` of them a job stays away. The
    file `cancelled` marks a launch that somebody ended.
    """
    if code in (DONE, NOTHING_TO_DO):
        record.forget_stalls(ended=True)
        return DONE, False
    if code == INCOMPLETE and not warning:
        say("something is missing still; `rlbhpc launch` again makes it")
        return INCOMPLETE, False
    has_failed = code != TRY_AGAIN and not warning
    cause = describe_exit_code(code)
    if has_failed:
        say(f"the work {cause}")
        record.add(code, cause, progress)
    elif progress:
        record.forget_stalls(ended=False)
    # Nothing ends a local job but its launcher, which sends it TERM.
    end_cause = task.find_end_cause() if isinstance(task, SlurmTask) else ""
    if Path("cancelled").exists() or end_cause == "cancelled":
        say("cancelled; it stays away, and the same launch again goes on from here")
        return TRY_AGAIN, False
    if end_cause == "requeued":
        say("Slurm has requeued it")
        return TRY_AGAIN, True
    # A preemption is no fault of the job: it comes back however often it is preempted.
    if not has_failed and not progress and end_cause != "preempted":
        record.add(code, "warned before it had made anything new" if warning else cause, progress)
    if code == USAGE or record.stalls >= MAX_STALLS or task is None:
        say("it does not come back")
        # A negative code is a signal, for which a shell gives 128 and its number.
        return (code if code > 0 else 128 - code), False
    if isinstance(task, LocalTask):
        return TRY_AGAIN, has_failed
    return requeue(task, record)


def requeue(task: SlurmTask, record: FailureRecord) -> tuple[int, bool]:
    """Put the job back into Slurm's queue: its exit code, and whether it comes back.

    Where that is not possible the reason is written into the job's record of failures.
    """
    say(f"requeue {task.job_id}")
    try:
        task.requeue(REQUEUE_TRIES)
    except OSError as error:
        record.add(TRY_AGAIN, f"could not be requeued: {error}", progress=False)
        return TRY_AGAIN, False
    # Slurm ends this process. To return at once would say that the job is complete.
    signal.sigtimedwait((signal.SIGTERM,), SECONDS_BETWEEN_LOOKS)
    return TRY_AGAIN, True


def measure_files(patterns: list[str]) -> dict[Path, int]:
    """Size of each file that matches a pattern, by its path.

    The patterns name files that only grow, or appear, when something new was made, so two
    measurements show whether a run has got on.
    """
    sizes = {}
    for pattern in patterns:
        for path in Path().glob(pattern):
            with contextlib.suppress(OSError):
                sizes[path] = path.stat().st_size
    return sizes


class FailureRecord:
    """What went wrong with one job over its runs, in `failures/JOB.json`.

    ``stalls`` counts the runs in a row that made nothing new.
    """

    def __init__(self, job_id: str) -> None:
        """Read what earlier runs of the job wrote down, if the file is there and whole."""
        self.path = Path("failures") / f"{job_id}.json"
        try:
            stored = json.loads(self.path.read_text())
        except (OSError, ValueError):
            stored = {}
        self.runs: list[dict[str, Any]] = stored.get("runs", [])
        self.stalls: int = stored.get("stalls", 0)

    def add(self, code: int, cause: str, progress: bool) -> None:
        """Write down a run that ended badly, and whether it made anything new.

        ``code`` is its exit code and ``cause`` the reason in words.
        """
        self.stalls = 0 if progress else self.stalls + 1
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        run = {
            "time": time.time(), "host": node, "code": code, "cause": cause, "progress": progress,
        }  # fmt: skip
        self.runs.append(run)
        is_written = self._write(recovered=False)
        if not is_written and not progress:
            # The next run could not know of this one, and would come back for ever.
            self.stalls = MAX_STALLS

    def forget_stalls(self, ended: bool) -> None:
        """Note that the job made something new, or ``ended`` well, after all."""
        if self.runs or self.stalls:
            self.stalls = 0
            self._write(recovered=ended)

    def _write(self, recovered: bool) -> bool:
        """Replace the record's file; False where it cannot be written, as on a full disk.

        ``recovered`` says that the job has ended well after all, so that its failures no longer
        count.
        """
        record = {"stalls": self.stalls, "recovered": recovered, "runs": self.runs}
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(exist_ok=True)
            partial.write_text(json.dumps(record, indent=1))
            partial.replace(self.path)
        except OSError as error:
            say(f"{self.path}: {error.strerror}")
            return False
        return True


def describe_exit_code(code: int) -> str:
    """Say in words what the exit code of the work means; a negative one is the signal it died of.

    A shell gives 128 and the number of the signal instead, and 126, 127 or 255 where it could not
    start the command.
    """
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed, most likely for its memory"
    if code == USAGE:
        return "refused: the log says what to change"
    if code in (126, 127, 255):
        return "could not be started: the command, the container or a module is not there"
    return f"ended with exit code {code}" if code >= 0 else f"died of signal {-code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
