"""The slow parts of a large report, worked out by a second process while this one reads samples."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Final

from rlbhpc.report.apart import answer_of
from rlbhpc.report.aspect import Errand, Helper, Report
from rlbhpc.report.aspects import aspects_of

_ANSWERS: Final = Errand(
    answer_of, lambda report: [(pair.sides, report.settings) for pair in report.final]
)


def work_ahead(report: Report, pool: Executor | None) -> None:
    """Fill a report with its answers and its tables, with the other process where there is one.

    Afterwards the report is as without this, sooner. Errands may still run, while the executor is
    open; who asks for them does what has not begun.
    """
    if pool is None:
        return
    # In the order in which the page asks for them: the comparisons come first.
    helper = Helper(pool)
    aspects = aspects_of(report)
    first = [a.errand for a in aspects if a.errand is not None and a.comparison is not None]
    later = [a.errand for a in aspects if a.errand is not None and a.comparison is None]
    for errand in (_ANSWERS, *first, *later):
        errand.send(report, helper)
    for aspect in aspects:
        if not aspect.waits and aspect.errand is None:
            aspect.frames(report)
    for pair, (answer, crossing) in zip(report.final, _ANSWERS.results(report), strict=True):
        vars(pair).update(answer=answer, crossing=crossing)
