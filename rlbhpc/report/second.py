"""The second process of a large report; it starts before this one imports all that a report is."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from rlbhpc.study.layout import Layout

# Fewer arms on problem sets take less time than a process takes to start.
_LEAST: Final = 9


@contextmanager
def second_process(folder: Path) -> Iterator[Executor | None]:
    """Start another process for a large run, which gets ready while this one reads; else None."""
    if (os.cpu_count() or 1) < 2 or len(Layout(folder).groups()) < _LEAST:
        yield None
        return
    # A fresh process: a copy of this one would copy the threads of its readers.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_get_ready) as pool:
        with suppress(OSError, BrokenProcessPool):
            pool.submit(int)
        yield pool


def _get_ready() -> None:
    gc.disable()
    import_module("rlbhpc.report.apart")
