"""How long a process has slept: that is its own doing, and what else holds it up is the node's."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from rlbhpc.verify.sandbox.job import CHUNK


class Sleep:
    """What one process has slept, by looks at what all its threads are doing.

    It sleeps while none of them runs, is ready to run or waits for a disk (``proc_pid_stat(5)``).
    What keeps a thread that is ready from its work (others that have the processor, a throttled
    group, a processor that the host took away) is never the program's. The kernel counts only some
    of that, so the sleep is counted instead: from one look to the next, if it slept at both.
    """

    def __init__(self, process: int | str, proc: int | None = None) -> None:
        """Begin with nothing seen.

        ``proc``: descriptor of the ``/proc`` that numbers it so; that of this process without it.
        """
        self._process = process
        self._proc = proc
        self._total = 0.0
        self._last_look: float | None = None

    def seconds(self, held_up: bool = False) -> float | None:
        """Look, and sum what it has slept; ``held_up``: it may wait for somebody else's work.

        None where the node hides it.
        """
        states = _states(self._process, self._proc)
        if not states:
            return None
        now = time.monotonic()
        asleep = not held_up and states.isdisjoint("RD")
        if asleep and self._last_look is not None:
            self._total += now - self._last_look
        self._last_look = now if asleep else None
        return self._total


def _states(process: int | str, proc: int | None) -> set[str]:
    """Letters of what the threads are doing: the third field of ``/proc/PID/task/TID/stat``."""
    states = set()
    with suppress(OSError):
        tasks = f"/proc/{process}/task" if proc is None else f"{process}/task"
        folder = os.open(tasks, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
        try:
            for thread in os.scandir(folder):
                with suppress(OSError, IndexError):
                    states.add(_state(folder, thread.name))
        finally:
            os.close(folder)
    return states


def _state(folder: int, thread: str) -> str:
    descriptor = os.open(f"{thread}/stat", os.O_RDONLY, dir_fd=folder)
    try:
        # The name before it may hold anything.
        return os.read(descriptor, CHUNK).decode("ascii", "replace").rpartition(")")[2].split()[0]
    finally:
        os.close(descriptor)
