"""The noun *Aspect*: one thing that a report shows, from its numbers to its place on the page.

An aspect is one file: what it reads, its figure, its table and its words stand together. The
registry in :mod:`rlbhpc.report.aspects` lists all of them in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node
from rlbhpc.report.memo import Errand


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
    section: Callable[[Report], list[Node]] | None = None
    comparison: Callable[[Report, Comparison], list[Node]] | None = None
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
