"""What is mapped of the libraries that a supervisor has loaded."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from pathlib import Path
import numpy
from rlbhpc.verify.sandbox.library import join_mappings

def count():
    return sum("numpy" in line for line in Path("/proc/self/maps").read_text().splitlines())

def written():
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "numpy" in line]
    spans = [line.split()[0].split("-") for line in lines if " rw-p " in line]
    return sum(int(end, 16) - int(start, 16) for start, end in spans)

before, data = count(), written()
join_mappings()
assert numpy.linalg.det(numpy.eye(3)) == 1
assert written() > data, "what is relocated lies beside variables"
print(before, count())
"""


def test_libraries_take_fewer_mappings() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 0 < after <= before * 2 // 3
