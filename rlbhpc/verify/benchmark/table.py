"""The benchmark's table: a grader and Math-Verify on the same cases, family by family."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from rlbhpc.verify.benchmark.cases import Case, cases
from rlbhpc.verify.registry import verify
from rlbhpc.verify.running.pool import shared_pool

_MATH_VERIFY: Final = "rlbhpc.verify.audit.second_reader:grade"
_SECONDS: Final = 1.0
# Questions to a served model under way at a time.
_JUDGES: Final = 16


@dataclass
class Score:
    """How often a grader agrees with the labels of one family."""

    cases: int = 0
    agrees: int = 0
    accepted_wrong: int = 0
    refused_right: int = 0

    def add(self, expected: bool, says: bool) -> None:
        """Count one case."""
        self.cases += 1
        self.agrees += expected == says
        self.accepted_wrong += says and not expected
        self.refused_right += expected and not says


@dataclass
class Row:
    """One family under both graders."""

    family: str
    ours: Score
    theirs: Score


def benchmark(kind: str = "math") -> tuple[list[Row], list[Case]]:
    """Return a row for each family and one for all, and the cases on which ``kind`` differs."""
    every = cases()
    with ThreadPoolExecutor(_JUDGES if kind == "judge" else 1) as threads:
        said = threads.map(lambda case: verify(kind, case.gold, case.response), every)
        ours = [verdict.right for verdict in said]
    theirs = _by_math_verify(every)
    rows: dict[str, Row] = {}
    for case, mine, other in zip(every, ours, theirs, strict=True):
        for name in (case.family, "all"):
            row = rows.setdefault(name, Row(name, Score(), Score()))
            row.ours.add(case.right, mine)
            row.theirs.add(case.right, other)
    rows["all"] = rows.pop("all")
    differing = [case for case, mine in zip(every, ours, strict=True) if mine != case.right]
    return list(rows.values()), differing


def _by_math_verify(every: Sequence[Case]) -> list[bool]:
    """Judge by Math-Verify, extraction and all, in killable workers; a hang accepts nothing."""
    payloads = [{"gold": case.gold, "response": case.response} for case in every]
    results = shared_pool(_MATH_VERIFY, seconds=_SECONDS).run(payloads)
    return [result.outcome == "done" and bool(result.value) for result in results]
