"""Iterators that run ahead of their reader."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlbhpc.engines.engine import Ahead

HANGING = """
import threading
from rlbhpc.engines.engine import Ahead

def source():
    yield 1
    threading.Event().wait()

print(next(Ahead([source()], 1)))
"""


def test_a_source_that_hangs_does_not_keep_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "1\n"


def test_everything_arrives_and_an_error_is_raised_in_the_reader() -> None:
    assert sorted(Ahead([iter(range(5)), iter(range(5, 9))], 1)) == list(range(9))

    def broken():
        yield 1
        raise ValueError("no more")

    ahead = Ahead([broken()], 1)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
