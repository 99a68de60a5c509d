"""Memory that one training step frees and the next one needs."""

from __future__ import annotations

import ctypes
import os
from functools import cache

# Numbers of glibc's mallopt(3): from what size on an array is mapped by itself and given back when
# it is freed, and how much may lie free at the end of the heap.
MMAP_THRESHOLD, MOST_MAPPED = -3, 1 << 30
TRIM_THRESHOLD, MOST_FREE = -1, (1 << 31) - 1
# Where the user sets the same.
SET_BY_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> None:
    """Let the process keep what it frees, for arrays on processors.

    A step frees arrays of megabytes and asks for as many a moment later. Each time the kernel would
    give out tens of thousands of pages anew and clear them: a few hundredths of a step's time, more
    on virtual machines. Without glibc nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in SET_BY_USER):
        return
    mallopt(MMAP_THRESHOLD, MOST_MAPPED)
    mallopt(TRIM_THRESHOLD, MOST_FREE)
