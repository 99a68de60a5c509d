"""The supervisor's side of one run: fork, watch clock, threads and scratch folder, kill, clean."""

from __future__ import annotations

import ctypes
import marshal
import os
import random
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final

from rlbhpc.verify.sandbox import scratch
from rlbhpc.verify.sandbox.job import CHUNK, Cause
from rlbhpc.verify.sandbox.program import Confinement, enter
from rlbhpc.verify.sandbox.sleep import Sleep

# Seconds between looks at a running program: often enough for a budget to be kept to a few
# hundredths, seldom enough to cost nothing.
_LOOK: Final = 0.02

_libc: Final = ctypes.PyDLL(None, use_errno=True)


def _fork() -> int:
    """Fork a process of one thread, without what :func:`os.fork` does about others.

    That touches some 50 pages, each of which the kernel must copy.
    """
    child = int(_libc.fork())
    if child < 0:
        raise OSError(ctypes.get_errno(), "no process for a program")
    return child


def _is_any_full(pipes: tuple[int, ...]) -> bool:
    """Whether a program that writes must wait for the verifier, which may have no processor."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLOUT)
    return len(poll.poll(0)) < len(pipes)


class Watch:
    """Runs programs one at a time."""

    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        """Remember what all runs share."""
        self._control = control
        self._confinement = confinement
        self._name = ""
        self._sleep = Sleep("")
        self._slept: float | None = None
        # What was preloaded may have started threads.
        self._fork = _fork if threading.active_count() == 1 else os.fork
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # For programs, which inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Without a handler of its own a signal wakes nobody.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer)

    def run(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run one program and report why it ended and what it used."""
        start = time.monotonic()
        ready, ready_writer = os.pipe2(os.O_CLOEXEC)
        child = self._fork()
        if child == 0:
            self._enter(request, descriptors, ready_writer)
        *inputs, out, err, result = descriptors
        for descriptor in (*inputs, ready_writer):
            os.close(descriptor)
        outputs = (out, err, result)  # kept, to see whether their reader keeps up
        try:
            # Waits until the child is confined, or dead.
            self._name = os.read(ready, CHUNK).decode()
            self._sleep = Sleep(self._name, self._confinement.proc)
            cause, status, usage = self._supervise(child, request, start, outputs)
            if not self._name:
                return {"run": request["run"], "failed": "the child could not be confined"}
        finally:
            for descriptor in (ready, *outputs):
                os.close(descriptor)
            if self._confinement.scratch != "/":
                scratch.empty(self._confinement.scratch)
        return {
            "run": request["run"],
            "cause": cause,
            "status": status,
            "cpu": usage.ru_utime + usage.ru_stime,
            "wall": time.monotonic() - start,
        }

    def _enter(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            # Which os.fork does by a hook of the module.
            random.seed()
            enter(self._confinement, descriptors, ready, request)
        finally:
            os._exit(os.EX_OSERR)

    def _supervise(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> tuple[Cause, int, Any]:
        """Wait for the child's end, and bring it about when a limit is passed."""
        killed: Cause | None = None
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                return self._ending(killed, status, usage, request)
            events = dict(poll.poll(_LOOK * 1000))
            if self._wake in events:
                with suppress(BlockingIOError):
                    os.read(self._wake, CHUNK)
                continue
            if self._control.fileno() in events:
                reason = self._told_to_stop(request["run"])
            else:
                reason = self._over_limit(child, request, start, outputs)
            if reason is not None and killed is None:
                killed = reason
                os.kill(child, signal.SIGKILL)

    def _ending(
        self, killed: Cause | None, status: int, usage: Any, request: dict[str, Any]
    ) -> tuple[Cause, int, Any]:
        if killed is None and usage.ru_utime + usage.ru_stime > request["cpu"]:
            killed = Cause.CPU
        if killed is Cause.WALL and self._slept is None:
            # Where a site hides processes from each other: what others push from the processor
            # loses it more often than it gives it up to sleep.
            killed = Cause.STARVED if usage.ru_nivcsw > usage.ru_nvcsw + 10 else Cause.WALL
        code = os.waitstatus_to_exitcode(status)
        if killed is not None:
            return killed, code, usage
        return (Cause.EXIT, code, usage) if code >= 0 else (Cause.SIGNAL, -code, usage)

    def _told_to_stop(self, run: int) -> Cause | None:
        """Read an order of the verifier; its silence for good means that it has gone."""
        message = self._control.recv(CHUNK)
        if not message:
            return Cause.WALL
        order = marshal.loads(message)
        return Cause(order["stop"]) if order["run"] == run else None

    def _over_limit(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> Cause | None:
        elapsed = time.monotonic() - start
        if elapsed > request["longest_wall"]:
            return Cause.STARVED
        self._slept = self._sleep.seconds(held_up=_is_any_full(outputs))
        if (elapsed if self._slept is None else self._slept) > request["wall"]:
            return Cause.WALL
        with suppress(OSError):
            # The clock of another process; see clock_getcpuclockid(3).
            if time.clock_gettime((~child << 3) | 2) > request["cpu"]:
                return Cause.CPU
        if self._threads() > request["threads"]:
            return Cause.THREADS
        if self._confinement.scratch != "/" and not scratch.fits(self._confinement.scratch):
            return Cause.SCRATCH
        return None

    def _threads(self) -> int:
        """Count the child's threads, 0 where they can't be seen."""
        with suppress(OSError):
            folder = f"{self._name}/task"
            # Besides itself and its parent, a folder is linked to by its sub-folders.
            return os.stat(folder, dir_fd=self._confinement.proc).st_nlink - 2
        return 0
