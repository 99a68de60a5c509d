"""What a model knows by heart: the probes of contamination, per set and per problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.problems.probe import ANSWERED, BOTH
from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounds, stacked
from rlbhpc.report.stored import cells
from rlbhpc.stats import Interval
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.sweep.remember import PROBE

# Ids that the page names; all of them stand in the table of the export.
NAMED: Final = 8


@dataclass(frozen=True)
class Memorised:
    """One arm on one probe.

    ``share`` of each question was shown; ``completed`` and ``answered`` are shares of samples, per
    problem of ``of.sampled_problems``, with intervals of their means over problems.
    """

    of: Measured
    share: float
    completed: NDArray[np.float64]
    answered: NDArray[np.float64]
    completion: Interval
    answer: Interval

    @property
    def known(self) -> list[str]:
        """Problems whose question was completed word for word at least once."""
        ids = self.of.sampled_problems
        return [ids[i] for i in np.flatnonzero(self.completed > 0)]


@once_each
def memorised(report: Report) -> Iterator[Memorised]:
    """Read every probe of a run."""
    probes = [arm for arm in report.measured if PROBE in report.provenance.get(arm.group, {})]
    for arm, (ids,) in cells(report, probes, ("answer",)):
        # Of the samples that every problem is asked for: up to its last right one, right ones
        # abound.
        counts, problems = arm.equal_counts(arm.rows), arm.sampled_problems
        right_answers = np.isin(ids[arm.rows], [answer_id(BOTH), answer_id(ANSWERED)])
        completed, answered = counts.c / counts.n, right_answers.sum(axis=1) / counts.n
        share = float(report.provenance[arm.group][PROBE])
        means = report.mean(completed, problems), report.mean(answered, problems)
        yield Memorised(arm, share, completed, answered, *means)


def section(report: Report) -> Iterator[Node]:
    """Show how much of each probed set a model completes, and which problems."""
    results = memorised(report)
    if not results:
        return
    rows: list[list[Cell]] = [
        [
            result.of.problem_set,
            result.of.label,
            f"{100 * result.share:g} %",
            len(result.completed),
            bounds(result.completion),
            bounds(result.answer),
            ", ".join(result.known[:NAMED]) + (" …" if len(result.known) > NAMED else ""),
        ]
        for result in results
    ]
    heads = ["set", "arm", "shown", "problems", "completed, %", "answered, %", "completed problems"]
    yield el("h3", "Contamination")
    yield table("Partial-prompt probes", heads, rows, wide=(6,))
    yield note(
        "A probe shows the beginning of a question. Completed: the response goes on as the "
        "question does, word for word, which a model that has never read the set hardly ever "
        "does. Answered: it also gives the right answer, though part of the question is "
        "missing. `rlbhpc select RUN ARM SET 0-0` lists the problems that were never "
        "completed, for the key `ids` of a problem set."
    )


def memorised_frame(results: list[Memorised]) -> pd.DataFrame:
    """One row per arm, probe and problem."""
    return stacked(
        {
            **result.of.key,
            "shown": result.share,
            "problem": result.of.sampled_problems,
            "completed": result.completed,
            "answered": result.answered,
        }
        for result in results
    )


ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=tables_of(memorised, contamination=memorised_frame),
)
