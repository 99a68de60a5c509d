"""How long a process has waited for a processor that others had: the node's load, not its own."""

from __future__ import annotations

import os
from contextlib import suppress

from rlbhpc.verify.sandbox.job import CHUNK


class Waiting:
    """What the threads of one process have waited, those that ended between two looks among them.

    The kernel forgets a thread's count with the thread. A program that does its work in a thread
    and ends it would look, on a busy node, as if it had slept all that time.
    """

    def __init__(self, process: int | str, proc: int | None = None) -> None:
        """Begin with nothing seen.

        ``proc``: descriptor of the ``/proc`` that numbers it so; that of this process without it.
        """
        self._process = process
        self._proc = proc
        self._delays: dict[str, int] = {}

    def seconds(self) -> float | None:
        """Look, and sum what each thread ever seen was ready to run and had no processor.

        None where the kernel keeps no such count or hides it.
        """
        self._delays |= _delays(self._process, self._proc)
        return sum(self._delays.values()) / 1e9 if self._delays else None


def _delays(process: int | str, proc: int | None) -> dict[str, int]:
    """Nanoseconds by thread: the second field of ``/proc/PID/task/TID/schedstat``.

    See Documentation/scheduler/sched-stats.rst of the kernel.
    """
    delays: dict[str, int] = {}
    with suppress(OSError):
        tasks = f"/proc/{process}/task" if proc is None else f"{process}/task"
        folder = os.open(tasks, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
        try:
            for thread in os.scandir(folder):
                with suppress(OSError, IndexError):
                    delays[thread.name] = _delay(folder, thread.name)
        finally:
            os.close(folder)
    return delays


def _delay(folder: int, thread: str) -> int:
    descriptor = os.open(f"{thread}/schedstat", os.O_RDONLY, dir_fd=folder)
    try:
        return int(os.read(descriptor, CHUNK).split()[1])
    finally:
        os.close(descriptor)
