"""The work of a job as a child process, and the wait for its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import TRY_AGAIN
from .task import call, dependency_of, say, submitted

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
CAUGHT = (*WARNINGS, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
LOOK = 60.0
PR_SET_PDEATHSIG = 1


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


def mind(
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
