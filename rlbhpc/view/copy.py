"""A copy of some problems as files: to put on the web, or to open from the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.store.samples import Found
from rlbhpc.verify.verdict import Status
from rlbhpc.view.pages import Site, problem_page, table_page
from rlbhpc.view.run import OpenRun, Side

#: Responses of each verdict that a page shows of a side.
EACH: Final = 3


def write_copy(run: OpenRun, folder: Path, chosen: Sequence[str] = ()) -> list[Path]:
    """Write the table and a page of each chosen problem; those lost and gained by default."""
    pair = run.pair
    problems = run.by_difference(pair)
    if unknown := [name for name in chosen if name not in run.strata]:
        raise UserError(f"--problem {unknown[0]!r}: not in this run; such as {problems[0]!r}")
    if not chosen:
        chosen = [p for p in problems if {"lost", "gained"} & {*run.marks(p, pair)}]
    kept = [problem for problem in problems if problem in set(chosen)]
    site = Site(run.folder.resolve().name, is_copy=True)
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.html": table_page(site, run, pair, kept)}
    for problem in kept:
        responses = [_examples(run, problem, side) for side in pair]
        pages[site.problem(problem, pair)] = problem_page(site, run, pair, problem, responses)
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    return [folder / name for name in pages]


def _examples(run: OpenRun, problem: str, side: Side) -> list[Found]:
    """The first right responses and the first others of a side."""
    verdicts = run.verdicts(problem, side)
    is_right = verdicts == Status.RIGHT
    is_other = ~is_right & (verdicts != Status.MISSING)
    numbers = [*np.flatnonzero(is_right)[:EACH], *np.flatnonzero(is_other)[:EACH]]
    if not numbers:
        return []
    responses = run.read(problem, side, {int(number) for number in numbers})
    return sorted(responses, key=lambda found: found.sample.verdict != Status.RIGHT)
