"""The slow parts of a large report, worked out by a second process while this one reads samples."""

from __future__ import annotations

from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, Final

from rlbhpc.report.apart import answer_of
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.beyond import FORECASTS
from rlbhpc.report.gather import Report
from rlbhpc.report.memo import Errand

_ANSWERS: Final = Errand(
    answer_of, lambda report: [(pair.sides, report.settings) for pair in report.final]
)


def work_ahead(report: Report, pool: Executor | None) -> None:
    """Fill a report with its answers and its tables, with the other process where there is one.

    Afterwards the report is as without this, sooner. Errands may still run; who asks for them
    waits, while the executor is open.
    """
    if pool is None:
        return
    # In the order in which the page asks for them: the comparisons come first.
    aspects = aspects_of(report)
    first = [a.errand for a in aspects if a.errand is not None and a.comparison is not None]
    later = [a.errand for a in aspects if a.errand is not None and a.comparison is None]
    _send(report, pool, _ANSWERS, *first)
    for aspect in aspects:
        if not aspect.waits and aspect.errand is None:
            aspect.frames(report)
    for pair, (answer, crossing) in zip(report.final, _ANSWERS.results(report), strict=True):
        vars(pair).update(answer=answer, crossing=crossing)
    _send(report, pool, FORECASTS, *later)


def _send(report: Report, pool: Executor, *errands: Errand[Any]) -> None:
    with suppress(OSError, BrokenProcessPool):
        for errand in errands:
            errand.send(report, pool)
