"""Work something out once per report, whoever asks for it first."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from rlbhpc.report.gather import Report

T = TypeVar("T")


def once(work: Callable[[Report], T]) -> Callable[[Report], T]:
    """Keep the result of ``work`` with the report that it was made from."""

    @wraps(work)
    def remembered(report: Report) -> T:
        if work not in report.memo:
            report.memo[work] = work(report)
        result: T = report.memo[work]
        return result

    return remembered
