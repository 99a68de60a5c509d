"""The slow parts of a large report, worked out by a second process while this one reads samples."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rlbhpc.report.apart import answers_and_forecasts, each, forecasts, studies_of_each
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.gather import Report
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
    with ProcessPoolExecutor(1, mp_context=context, initializer=gc.disable) as pool:
        with suppress(OSError, BrokenProcessPool):
            pool.submit(studies_of_each, 1)
        yield pool


def work_ahead(report: Report, pool: Executor | None) -> None:
    """Fill a report with its answers and its tables, with the other process where there is one.

    Afterwards the report is as without this, sooner: what the other process does not deliver is
    worked out when it is asked for. Errands may still run; who asks for them waits, while the
    executor is open.
    """
    if pool is None:
        return
    sides = [pair.sides for pair in report.final]
    with suppress(OSError, BrokenProcessPool):
        decided = pool.submit(answers_and_forecasts, sides, report.settings)
        errands = [aspect.errand for aspect in aspects_of(report) if aspect.errand is not None]
        for errand in errands:
            report.memo[errand] = pool.submit(each, errand.work, errand.arguments(report))
        for aspect in aspects_of(report):
            if not aspect.waits and aspect.errand is None:
                aspect.frames(report)
        answers, chances = decided.result()
        for pair, answer in zip(report.final, answers, strict=True):
            vars(pair)["answer"] = answer
        report.memo[forecasts] = chances
