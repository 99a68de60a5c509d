"""How long a process has waited for a processor that others had: the node's load, not its own."""

from __future__ import annotations

import os
from contextlib import suppress


def waited(process: int | str, proc: int | None = None) -> float | None:
    """Seconds that the living threads of a process were ready to run and had no processor.

    The second field of ``/proc/PID/task/TID/schedstat`` (Documentation/scheduler/sched-stats.rst
    of the kernel), summed over threads; None where the kernel keeps no such count or hides it.

    Parameters
    ----------
    process
        Its number.
    proc
        Descriptor of the ``/proc`` that numbers it so; that of this process without it.
    """
    delays: list[int] = []
    with suppress(OSError):
        tasks = f"/proc/{process}/task" if proc is None else f"{process}/task"
        folder = os.open(tasks, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
        try:
            for thread in os.scandir(folder):
                delays += _delay(folder, thread.name)
        finally:
            os.close(folder)
    return sum(delays) / 1e9 if delays else None


def _delay(folder: int, thread: str) -> list[int]:
    with suppress(OSError, IndexError):
        descriptor = os.open(f"{thread}/schedstat", os.O_RDONLY, dir_fd=folder)
        try:
            return [int(os.read(descriptor, 200).split()[1])]
        finally:
            os.close(descriptor)
    return []
