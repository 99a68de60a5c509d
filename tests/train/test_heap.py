"""What is freed is kept, unless the user has asked for something else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from rlbhpc.train.heap import keep_freed_memory
keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages would hide the small
def use(arrays, mib):
    held = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(mib << 20))) for _ in range(arrays)]
    libc.memset(held[0], 1, ctypes.c_size_t(24 << 20))
    for array in held:
        libc.free(array)
use({arrays}, {mib})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use({arrays}, {mib})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(arrays: int, mib: int, **variables: str) -> int:
    """Pages that the kernel gives out for 24 MiB that were in use a moment before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arrays=arrays, mib=mib)],
        capture_output=True, text=True, check=True, env={**os.environ, **variables},
    )  # fmt: skip
    return int(done.stdout)


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")


@on_linux
def test_freed_memory_is_used_again() -> None:
    assert page_faults(1, 24) < 100


@on_linux
def test_any_amount_is_kept() -> None:
    assert page_faults(100, 31) < 100


@on_linux
def test_the_user_has_the_last_word() -> None:
    assert page_faults(1, 24, MALLOC_TRIM_THRESHOLD_="131072") > 5000
    assert page_faults(1, 24, GLIBC_TUNABLES="glibc.malloc.trim_threshold=131072") > 5000
    assert page_faults(1, 24, GLIBC_TUNABLES="glibc.rtld.nns=5") < 100
