"""The curves of a run without the problems that are solved by guessing at large k.

The run needs an arm whose prompt forbids reasoning (`prompt: no-think`); a problem that it answers
rarely but not never is guessed at large k, and is left out of all curves.

In the report of a study: `analysis: {aspects: [./analysis/guess_filtered.py]}`.
Example: python analysis/guess_filtered.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.aspects.pass_at_k import curves_frame, pass_at_k_table, set_chart
from rlbhpc.report.markup import Node, el
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import count_text
from rlbhpc.report.svg import figure
from rlbhpc.stats import k_grid, pass_curve
from rlbhpc.store.reader import guessable

#: The prompt that asks for an answer and no reasoning.
NO_REASONING: Final = "no-think"


@dataclass(frozen=True)
class Unguessed:
    """Arms of one problem set on the problems that are not guessable.

    ``arms`` are those of the last comparisons, with curves anew; ``guessed`` the ids left out.
    """

    problem_set: str
    by: str
    arms: tuple[MeasuredArm, ...]
    guessed: tuple[str, ...]


@once_each
def unguessed(report: Report) -> Iterator[Unguessed]:
    """Filter each problem set by the arm that answered it without reasoning, if there is one."""
    for guesser in report.measured_arms:
        arm = report.study_arms.get(guesser.arm)
        if arm is None or arm.prompt != NO_REASONING or guesser.step:
            continue
        marked = guessable(*guesser.counts.exchangeable)
        guessed = tuple(guesser.problems[i] for i in np.flatnonzero(marked))
        arms = tuple(
            without
            for other in report.compared_arms
            if other.problem_set == guesser.problem_set and other.arm != guesser.arm
            for without in _without(report, other, set(guessed))
        )
        if guessed and arms:
            yield Unguessed(guesser.problem_set, guesser.arm, arms, guessed)


def _without(report: Report, arm: MeasuredArm, guessed: set[str]) -> Iterator[MeasuredArm]:
    """Draw the curve of an arm anew on the problems that remain, if any do."""
    remains = np.array([problem not in guessed for problem in arm.problems])
    rows = np.flatnonzero(arm.has_samples & remains)
    if len(rows):
        counts = arm.counts[rows]
        weights = report.settings.weights(tuple(arm.problems[i] for i in rows))
        curve = pass_curve(counts, weights, k_grid(counts.reach), report.settings.prob)
        yield replace(arm, curve=curve)


def section(report: Report) -> Iterator[Node]:
    """Curves without the problems that are answered now and then without reasoning."""
    for filtered in unguessed(report):
        yield el("h3", f"{filtered.problem_set}: without guessable problems")
        caption = (
            f"pass@k without the {count_text(len(filtered.guessed), 'problem')} that "
            f"{filtered.by} answers at a rate above 0 and below 5 % without reasoning: at "
            "large k these are guessed."
        )
        words = f"pass@k on {filtered.problem_set} without guessable problems, percent"
        yield figure(caption, set_chart(filtered.arms, report.colours))
        yield pass_at_k_table(report, words, filtered.arms)


def _arms(report: Report) -> list[MeasuredArm]:
    return [arm for filtered in unguessed(report) for arm in filtered.arms]


charts = charts_by_set("guess_filtered", _arms, set_chart)

ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=tables_of(_arms, without_guessable=curves_frame),
)

if __name__ == "__main__":
    main(__doc__, charts)
