"""Answers of a large report, worked out by a second process while this one reads samples."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Final

from rlbhpc.report.aspects import ASPECTS
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report
from rlbhpc.stats import Answer, DifferenceCurve
from rlbhpc.stats.decision import decide

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
    with suppress(OSError), ProcessPoolExecutor(1, mp_context=context) as pool:
        answers = [(pair, _submit(pool, pair)) for pair in report.final]
        for aspect in ASPECTS:
            if not aspect.waits:
                aspect.frames(report)
        for pair, answer in answers:
            with suppress(BrokenProcessPool):
                vars(pair)["answer"] = answer.result()


def _submit(pool: ProcessPoolExecutor, pair: Comparison) -> Future[Answer]:
    return pool.submit(_answer, pair.curve, pair.margin, pair.comparisons)


def _answer(curve: DifferenceCurve, margin: float, comparisons: int) -> Answer:
    return decide(curve, margin, comparisons=comparisons)
