"""The noun *Aspect*: one thing that a report shows, from its numbers to its place on the page.

An aspect is one file: what it reads, its figure, its table and its words stand together. The
registry in :mod:`rlbhpc.report.aspects` lists all of them in the order of the page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, wraps
from threading import RLock
from typing import Any, Final, Generic, TypeVar

import pandas as pd

from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.chart import Chart, Colours
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node

T = TypeVar("T")
#: From a report to its figures, each with a name for its files.
Draw = Callable[[Report], Iterator[tuple[str, Chart]]]

# One that it works on, and one that it finds when that is done.
_AT_ONCE: Final = 2


def once(work: Callable[[Report], T]) -> Callable[[Report], T]:
    """Keep the result of ``work`` with the report that it was made from."""

    @wraps(work)
    def remembered(report: Report) -> T:
        if work not in report.memo:
            report.memo[work] = work(report)
        result: T = report.memo[work]
        return result

    return remembered


@dataclass(eq=False)
class _Call(Generic[T]):
    """One call of an errand. ``job`` is there once another process may have begun it."""

    work: Callable[..., T]
    values: tuple[Any, ...]
    job: Future[T] | None = None

    @cached_property
    def result(self) -> T:
        # Waits, and never cancels: in Python 3.11 a process that dies after that may block the end.
        if self.job is not None:
            with suppress(OSError, BrokenExecutor):
                return self.job.result()
        return self.work(*self.values)


class Helper:
    """Another process, which gets calls two at a time: what it has not begun can be taken back."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._waiting: deque[_Call[Any]] = deque()
        self._given = 0
        self._lock = RLock()

    def send(self, calls: Sequence[_Call[Any]]) -> None:
        """Let the other process begin, call by call."""
        self._waiting.extend(calls)
        self._give()

    def take_back(self, calls: Sequence[_Call[T]]) -> _Call[T] | None:
        """Take the last of some calls that the other has not begun; None once it has all."""
        with self._lock:
            for call in reversed(calls):
                if call in self._waiting:
                    self._waiting.remove(call)
                    return call
        return None

    def _give(self) -> None:
        with self._lock, suppress(OSError, RuntimeError):  # the other process died, or all is over
            while self._waiting and self._given < _AT_ONCE:
                call = self._waiting[0]
                job = self._pool.submit(call.work, *call.values)
                call.job = job
                self._waiting.popleft()
                self._given += 1
                job.add_done_callback(self._give_next)

    def _give_next(self, job: Future[Any]) -> None:
        # The executor may hold a lock while it tells that its process died.
        if not isinstance(job.exception(), BrokenExecutor):
            with self._lock:
                self._given -= 1
            self._give()


@dataclass(frozen=True, eq=False)
class Errand(Generic[T]):
    """Slow work of several calls that another process can do.

    ``work``: a pure function of :mod:`rlbhpc.stats` or :mod:`rlbhpc.report.apart`. ``arguments``:
    what it takes, one call after the other.
    """

    work: Callable[..., T]
    arguments: Callable[[Report], list[tuple[Any, ...]]]

    def send(self, report: Report, helper: Helper) -> None:
        """Let another process begin."""
        calls = [_Call(self.work, values) for values in self.arguments(report)]
        report.memo[self, Helper] = helper, calls
        helper.send(calls)

    def results(self, report: Report) -> list[T]:
        """Give all results; what another process has not begun is worked out here, from the end."""
        if self not in report.memo:
            if (self, Helper) in report.memo:
                helper, calls = report.memo.pop((self, Helper))
                while (call := helper.take_back(calls)) is not None:
                    _ = call.result
            else:
                calls = [_Call(self.work, values) for values in self.arguments(report)]
            report.memo[self] = [call.result for call in calls]
        results: list[T] = report.memo[self]
        return results


class Part(StrEnum):
    """Parts of the page, in their order; the value is the heading."""

    COMPARISONS = "Comparisons"
    CURVES = "Curves in numbers"
    MORE = "More samples"
    TRAINING = "Over training"
    RESPONSES = "Responses"
    SAMPLES = "Samples"
    EVIDENCE = "Evidence"
    METHODS = "Methods"


def charts_by_set(
    name: str,
    gathered: Callable[[Report], Sequence[T]],
    draw: Callable[[Sequence[T], Colours], Chart],
) -> Draw:
    """What a script of ``analysis/`` draws: one chart a problem set."""

    def charts(report: Report) -> Iterator[tuple[str, Chart]]:
        for set_name, parts in report.by_set(gathered(report)):
            yield f"{name}-{set_name}", draw(parts, report.colours)

    return charts


def _no_tables(_: Report) -> dict[str, pd.DataFrame]:
    return {}


@dataclass(frozen=True, eq=False)
class Aspect:
    """One thing that a report shows.

    ``part``: where it stands on the page. ``section``: its nodes; none where the run has nothing of
    it. ``comparison``: its nodes for one comparison at its last step, shown inside of that
    comparison. ``tables``: its numbers by the name of their file. ``metrics``: names in the
    registry of metrics, described under Methods where there are tables. ``waits``: whether the
    tables need the answers of the comparisons, which take a while. ``errand``: what of its work
    another process can do.
    """

    part: Part
    section: Callable[[Report], Iterable[Node]] | None = None
    comparison: Callable[[Report, Comparison], Iterable[Node]] | None = None
    tables: Callable[[Report], dict[str, pd.DataFrame]] = _no_tables
    metrics: tuple[str, ...] = ()
    waits: bool = False
    errand: Errand[Any] | None = None

    def frames(self, report: Report) -> dict[str, pd.DataFrame]:
        """Give the tables that have rows, worked out once per report."""
        if self.tables not in report.memo:
            tables = self.tables(report)
            report.memo[self.tables] = {n: frame for n, frame in tables.items() if len(frame)}
        frames: dict[str, pd.DataFrame] = report.memo[self.tables]
        return frames
