"""The slow parts of a large report, worked out by a second process while this one reads samples."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Final

from rlbhpc.report.apart import answers_and_forecasts, forecasts, predictions
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.gather import Report

# Fewer comparisons take less time than a process takes to start.
_LEAST: Final = 8


def work_ahead(report: Report) -> None:
    """Fill a report with its answers and its tables, on two processors where it is large.

    Afterwards the report is as without this, sooner: what the other process does not deliver is
    worked out when it is asked for.
    """
    if len(report.final) < _LEAST or (os.cpu_count() or 1) < 2:
        return
    # A fresh process: a copy of this one would copy the threads of its readers.
    context = multiprocessing.get_context("spawn")
    counts = [arm.counts[arm.rows] for arm in report.compared]
    sides = [pair.sides for pair in report.final]
    with suppress(OSError, BrokenProcessPool), ProcessPoolExecutor(1, mp_context=context) as pool:
        decided = pool.submit(answers_and_forecasts, sides, report.settings)
        predicted = pool.submit(predictions, counts, report.settings)
        for aspect in aspects_of(report):
            if not aspect.waits:
                aspect.frames(report)
        answers, chances = decided.result()
        for pair, answer in zip(report.final, answers, strict=True):
            vars(pair)["answer"] = answer
        report.memo[forecasts] = chances
        report.memo[predictions] = predicted.result()
