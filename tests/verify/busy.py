"""A processor with many takers: programs that share it run at a small part of their speed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Ends with the process that started it, which may be killed before it can end its loops.
_LOOP = """
import os
parent = os.getppid()
os.write(1, b'!')
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, to one processor."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep the processors busy with endless loops, each in a session (so a share) of its own."""
    loops = []
    try:
        for _ in range(count):
            words = [sys.executable, "-S", "-c", _LOOP]
            loops.append(subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True))
        for loop in loops:
            assert loop.stdout is not None
            assert loop.stdout.read(1) == b"!"
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.communicate()
