"""Work something out once per report, whoever asks for it first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, TypeVar

from rlbhpc.report.apart import each
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


@dataclass(frozen=True, eq=False)
class Errand(Generic[T]):
    """Slow work for several arms that another process can do while this one reads samples.

    ``work``: a pure function of :mod:`rlbhpc.stats` or :mod:`rlbhpc.report.apart`. ``arguments``:
    what it takes, one call after the other.
    """

    work: Callable[..., T]
    arguments: Callable[[Report], list[tuple[Any, ...]]]

    def results(self, report: Report) -> list[T]:
        """Give what comes back from the other process, or work it out here."""
        running = report.memo.get(self)
        if isinstance(running, Future):
            del report.memo[self]
            with suppress(OSError, BrokenExecutor):
                report.memo[self] = running.result()
        if self not in report.memo:
            report.memo[self] = each(self.work, self.arguments(report))
        results: list[T] = report.memo[self]
        return results
