"""The first call of a vector function gives what every later one gives, in any number of starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Forked from a process that has computed nothing, so that each child's first call is a first call;
# several at a time and with more threads than cores, as on a busy node.
CASE = """
import os, sys
import torch
from rlbhpc.engines.distribution import settle_vector_math

counts = {}
for _ in range(150):
    children = []
    for _ in range(4):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(32)
            x = torch.linspace(0, 200, 200_000)
            settle_vector_math()
            first, second = x.cos(), x.cos()
            os.write(into, b"same" if torch.equal(first, second) else b"different")
            os._exit(0)
        os.close(into)
        children.append((pid, out))
    for pid, out in children:
        told = os.read(out, 16).decode()
        counts[told] = counts.get(told, 0) + 1
        os.close(out)
        os.waitpid(pid, 0)
print(counts)
"""


@pytest.mark.engine
def test_the_first_call_is_as_exact_as_the_second() -> None:
    # Without the settling about one child in a hundred differs: all 600 agree once in 400 runs.
    done = subprocess.run([sys.executable, "-c", CASE], capture_output=True, text=True, check=False)
    assert done.stdout == "{'same': 600}\n", done.stderr
