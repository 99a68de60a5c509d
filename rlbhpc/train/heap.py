"""Memory that one training step frees and the next one needs."""

from __future__ import annotations

import ctypes
import os
from functools import cache

# Numbers of glibc's mallopt(3): from what size on an array is mapped by itself and given back when
# it is freed (glibc before 2.35 allows no more than the second), and how much may lie free at the
# end of the heap: any amount.
MMAP_THRESHOLD, LARGEST_KEPT = -3, (1 << 30, 32 << 20)
TRIM_THRESHOLD, ANY = -1, -1
# Where the user sets the same.
SET_BY_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_freed_memory() -> None:
    """Let the process keep what it frees, for arrays on processors of less than 1 GiB.

    A step frees arrays of megabytes and asks for as many a moment later. Each time the kernel would
    give out tens of thousands of pages anew and clear them: a few hundredths of a step's time, more
    on virtual machines. Without glibc nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    chosen = any(name in os.environ for name in SET_BY_USER)
    if mallopt is None or chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    # Either threshold alone would be worse than none: both stop glibc from adapting them.
    if any(mallopt(MMAP_THRESHOLD, size) for size in LARGEST_KEPT):
        mallopt(TRIM_THRESHOLD, ANY)
