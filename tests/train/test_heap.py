"""What is freed is kept, unless the user has asked for something else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages would hide the small
from rlbhpc.train.heap import keep_freed_memory
keep_freed_memory()
held = bytearray(40 << 20)
del held
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
held = bytearray(40 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**variables: str) -> int:
    """Pages that the kernel gives out for 40 MiB that were freed a moment before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, check=True, env={**os.environ, **variables},
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_used_again() -> None:
    assert page_faults() < 100
    assert page_faults(MALLOC_TRIM_THRESHOLD_="131072") > 5000
