"""What the best checkpoint of a training is worth: even samples choose it, odd samples report it.

The best of several noisy checkpoints is better than itself. The split costs nothing with large n
and is unbiased.

In the report of a study: `analysis: {aspects: [./analysis/best_checkpoint.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Lineage, Part, Report, once_each, tables_of
from rlbhpc.report.aspects.difference import count_even_and_odd
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm, powers_of_two
from rlbhpc.report.phrases import interval_columns, interval_text, points_text
from rlbhpc.stats import Counts, Interval, difference_curve


@dataclass(frozen=True)
class Selection:
    """A checkpoint chosen on even samples, with the counts to report it by.

    ``chosen``: position of the chosen checkpoint. ``scores``: mean pass@k of every checkpoint on
    the even samples. ``report``: counts of the odd samples of the chosen checkpoint.
    """

    chosen: int
    scores: NDArray[np.float64]
    report: Counts


def choose_checkpoint(halves: Sequence[tuple[Counts, Counts]], k: int) -> Selection:
    """Choose the checkpoint with the best mean pass@k on even samples.

    ``halves``: even and odd samples of each checkpoint, from :func:`even_odd`. ``k``: draw size of
    the choice, at most half of the samples.

    The result reports the chosen one by its odd samples, which had no part in the choice.
    """
    if not halves:
        raise UserError("a choice of checkpoint needs one checkpoint at least")
    scores = np.asarray([even.pass_at_k(k)[:, 0].mean() for even, _ in halves])
    if np.isnan(scores).all():
        raise UserError(f"no checkpoint has {k} even samples of every problem; choose a smaller k")
    chosen = int(np.nanargmax(scores))
    _, odd = halves[chosen]
    return Selection(chosen, scores, report=odd)


@dataclass(frozen=True)
class Chosen:
    """The checkpoint with the best pass@``k`` on even samples, as odd samples report it.

    The best of several noisy checkpoints looks better than it is. So even samples choose and odd
    samples report, of the base as well. ``on_even``: difference to the base on the samples that
    chose, which flatters the choice. ``on_odd``: the same on the other half, with its interval.
    ``problems``: problems that base and all checkpoints have samples of.
    """

    base: MeasuredArm
    chosen: MeasuredArm
    checkpoints: int
    k: int
    on_even: float
    on_odd: Interval
    problems: int


@once_each
def chosen_checkpoints(report: Report) -> Iterator[Chosen]:
    """Choose a checkpoint of each lineage with two or more, by pass@1 and by pass@K."""
    for lineage in report.lineages:
        arms = (lineage.base, *lineage.checkpoints)
        if len(lineage.checkpoints) > 1 and all(arm.verdicts is not None for arm in arms):
            yield from _choose(report, lineage)


def _choose(report: Report, lineage: Lineage) -> Iterator[Chosen]:
    """Choose the best checkpoint of a lineage by pass@1, and by pass@K for the largest K.

    A *lineage* is a base arm and its checkpoints on one problem set. Even samples choose, odd
    samples report, so that luck in the choice does not flatter the result. ``halves``: counts of
    even and odd samples of each arm, the base first. ``reach``: the largest k that all problems
    support. ``selection.report``: odd samples of the chosen one. ``depth``: samples that every
    problem has.
    """
    arms = (lineage.base, *lineage.checkpoints)
    problems = common_problems(arms)
    depth = min(arm.common_depth for arm in arms)
    if len(problems) < 2 or depth < 2:
        return
    halves = [count_even_and_odd(report, arm, problems, depth) for arm in arms]
    reach = min(counts.reach for even_and_odd in halves for counts in even_and_odd)
    if not reach:
        return
    (base_even, base_odd), *checkpoint_halves = halves
    weights = report.settings.weights(problems)
    for k in dict.fromkeys((1, powers_of_two(reach)[-1])):
        selection = choose_checkpoint(checkpoint_halves, k)
        best_score = selection.scores[selection.chosen]
        curve = difference_curve(base_odd, selection.report, weights, [k], report.settings.prob)
        yield Chosen(
            lineage.base,
            lineage.checkpoints[selection.chosen],
            len(lineage.checkpoints),
            k,
            on_even=float(best_score - base_even.pass_at_k(k).mean()),
            on_odd=curve.pointwise[0],
            problems=len(problems),
        )


def section(report: Report) -> Iterator[Node]:
    """Show what a checkpoint is worth on samples that did not choose it.

    Even samples choose the best checkpoint of each training, odd samples report its difference to
    the base. ``choice.k``: of the pass@k that chose.
    """
    choices = chosen_checkpoints(report)
    if not choices:
        return
    yield el("h3", "A checkpoint that the data chose")
    heads = ["arm", "set", "chosen by", "step", "of", "problems",
             "even: trained − base", "odd: trained − base"]  # fmt: skip
    rows = [
        [choice.chosen.arm, choice.base.problem_set, f"pass@{choice.k:,}", choice.chosen.step,
         choice.checkpoints, choice.problems, points_text(choice.on_even),
         interval_text(choice.on_odd, sign=True)]
        for choice in choices
    ]  # fmt: skip
    yield table("Best checkpoints, chosen by even samples, points", heads, rows, last=True)
    yield note(
        "The best of several checkpoints looks better than it is on the samples that chose "
        "it. So even samples choose, and odd samples report, of the base as well. The answer "
        "above is that of the last checkpoint, which nobody chose by its results."
    )


def chosen_frame(choices: Sequence[Chosen]) -> pd.DataFrame:
    """Checkpoints that even samples chose, one row per base, problem set, training and k.

    ``on_even``: difference to the base on the samples that chose. ``on_odd``: on the other half.
    """
    return pd.DataFrame(
        {
            "problem_set": choice.base.problem_set,
            "base": choice.base.arm,
            "trained": choice.chosen.arm,
            "step": choice.chosen.step,
            "checkpoints": choice.checkpoints,
            "k": choice.k,
            "problems": choice.problems,
            "difference_even": choice.on_even,
            **interval_columns("difference_odd", choice.on_odd, sound=True),
        }
        for choice in choices
    )


ASPECT = Aspect(
    Part.TRAINING,
    section,
    tables=tables_of(chosen_checkpoints, chosen_checkpoints=chosen_frame),
)
