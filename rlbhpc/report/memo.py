"""Work something out once per report, whoever asks for it first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, TypeVar

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
    """Slow work of several calls that another process can do.

    ``work``: a pure function of :mod:`rlbhpc.stats` or :mod:`rlbhpc.report.apart`. ``arguments``:
    what it takes, one call after the other.
    """

    work: Callable[..., T]
    arguments: Callable[[Report], list[tuple[Any, ...]]]

    def send(self, report: Report, pool: Executor) -> None:
        """Let another process begin, call by call."""
        calls = self.arguments(report)
        report.memo[self, Future] = [pool.submit(self.work, *values) for values in calls]

    def results(self, report: Report) -> list[T]:
        """Give all results, worked out here where no other process delivers them."""
        if self not in report.memo:
            calls = self.arguments(report)
            jobs = report.memo.pop((self, Future), [None] * len(calls))
            report.memo[self] = [
                self._result(job, values) for job, values in zip(jobs, calls, strict=True)
            ]
        results: list[T] = report.memo[self]
        return results

    def _result(self, job: Future[T] | None, values: tuple[Any, ...]) -> T:
        # Waits, and never cancels: in Python 3.11 a process that dies after that may block the end.
        if job is not None:
            with suppress(OSError, BrokenExecutor):
                return job.result()
        return self.work(*values)
