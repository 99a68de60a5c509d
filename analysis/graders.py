"""Two graders of the same samples, sample by sample: `rlbhpc report RUN --regraded NEW`.

In the report of a study: `analysis: {aspects: [./analysis/graders.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    has_texts,
    once_each,
    read_columns,
    tables_of,
)
from rlbhpc.report.aspects.robustness import regraded_report
from rlbhpc.report.chart import DOTTED, Chart, Colours, Panel, k_axis, percent_axis, points_axis
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import (
    FloatArray,
    IntArray,
    count_text,
    interval_columns,
    interval_text,
    percent_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, difference_curve


@dataclass(frozen=True)
class Regraded:
    """One arm under the grader of the run and under another, sample by sample.

    ``own_grader, other_grader``: fingerprints; empty where no sample says. ``gained, lost``:
    samples that only the other grader calls right, and that only the run's does. ``own_rates,
    other_rates``: mean pass@k under each grader. ``difference``: other minus own, paired over
    problems. ``own_solved, other_solved``: problems that only this grader calls solved.
    """

    measured: MeasuredArm
    own_grader: str
    other_grader: str
    gained: int
    lost: int
    k: IntArray
    own_rates: FloatArray
    other_rates: FloatArray
    difference: Interval
    own_solved: int
    other_solved: int


@once_each
def regraded_arms(report: Report) -> Iterator[Regraded]:
    """Compare the verdicts of both graders on each compared arm; none without a second grader."""
    other = regraded_report(report)
    if other is None:
        return
    other_arms = {(arm.arm, arm.problem_set, arm.step): arm for arm in other.measured_arms}
    for arm in report.compared_arms:
        other_arm = other_arms.get((arm.arm, arm.problem_set, arm.step))
        if other_arm is not None:
            yield from _regrade(report, other, arm, other_arm)


def _regrade(
    report: Report, other_report: Report, arm: MeasuredArm, other_arm: MeasuredArm
) -> Iterator[Regraded]:
    """Compare two graders' verdicts on the samples of an arm that both could judge."""
    if arm.verdicts is None or other_arm.verdicts is None:
        return
    if arm.verdicts.shape != other_arm.verdicts.shape:
        return
    judged = arm.is_judged & other_arm.is_judged
    own_right, other_right = arm.is_right & judged, other_arm.is_right & judged
    rows = np.flatnonzero(judged.any(axis=1))
    if len(rows) < 2:
        return
    samples = judged.sum(axis=1)[rows]
    own = Counts.of(samples, own_right.sum(axis=1)[rows])
    other = Counts.of(samples, other_right.sum(axis=1)[rows])
    weights = report.settings.weights(arm.ids_at(rows))
    curve = difference_curve(own, other, weights, prob=report.settings.prob)
    yield Regraded(
        arm,
        _grader_of(report, arm),
        _grader_of(other_report, other_arm),
        gained=int((other_right & ~own_right).sum()),
        lost=int((own_right & ~other_right).sum()),
        k=curve.k,
        own_rates=own.pass_at_k(curve.k).mean(axis=0),
        other_rates=other.pass_at_k(curve.k).mean(axis=0),
        difference=curve.pointwise,
        own_solved=int((own.solved & ~other.solved).sum()),
        other_solved=int((other.solved & ~own.solved).sum()),
    )


def _grader_of(report: Report, arm: MeasuredArm) -> str:
    """Graders of the first sampled problem's samples."""
    if not has_texts(report, arm):
        return ""
    table = read_columns(report, arm, [arm.sampled_problems[0]], ("sample", "grader"))
    return ", ".join(sorted(filter(None, table["grader"].unique().to_pylist())))


def section(report: Report) -> Iterator[Node]:
    """Compare two graders, sample by sample; nothing without a second."""
    regraded = regraded_arms(report)
    if not regraded:
        return
    yield el("h3", "Another grader")
    yield el("p", _graders_sentence(regraded))
    changed = [arm for arm in regraded if arm.gained or arm.lost]
    unchanged = [arm.measured.label for arm in regraded if not (arm.gained or arm.lost)]
    if unchanged:
        yield note(f"Of {', '.join(unchanged)} they judge every sample alike.")
    for set_name, arms in report.by_set(changed):
        yield figure(
            "Left: pass@k of the same samples under the run's grader (solid) and the other "
            "(dotted). Right: other minus own, paired over problems, with intervals. What a "
            "lenient grader accepts by mistake grows with k.",
            regraded_chart(arms, report.colours),
        )
        heads = ["arm", "k", "own, %", "other, %", "other − own, points", "samples gained", "lost",
                 "problems gained", "lost"]  # fmt: skip
        rows = [row for arm in arms for row in _regraded_rows(arm)]
        yield table(f"The same samples of {set_name} under two graders", heads, rows)


def _regraded_rows(arm: Regraded) -> Iterator[list[Cell]]:
    """Rows at the largest k, a quarter of it and 1; the first one has the counts."""
    last = len(arm.k) - 1
    quarter = int(np.searchsorted(arm.k, arm.k[-1] // 4))
    for i in sorted({0, quarter, last}, reverse=True):
        counts: list[Cell] = [None, None, None, None]
        if i == last:
            counts = [arm.gained, arm.lost, arm.other_solved, arm.own_solved]
        own, other = (percent_text(float(r[i])) for r in (arm.own_rates, arm.other_rates))
        difference = interval_text(arm.difference, i, sign=True)
        yield [arm.measured.label, int(arm.k[i]), own, other, difference, *counts]


def regraded_chart(arms: Sequence[Regraded], colours: Colours) -> Chart:
    """Draw both curves of each arm on the left, and other minus own grader on the right."""
    x = k_axis(max(int(arm.k[-1]) for arm in arms))
    curves = Panel(x, percent_axis("pass@k, % (dotted: other grader)"))
    y = points_axis([arm.difference for arm in arms], "other − own grader, points")
    differences = Panel(x, y)
    differences.level(0)
    for arm in arms:
        name, colour = arm.measured.arm, colours[arm.measured.arm]
        own, other = 100 * arm.own_rates, 100 * arm.other_rates
        curves.line(arm.k, own, colour, name=name)
        curves.line(arm.k, other, colour, name=f"{name}, other grader", dash=DOTTED)
        curves.end(own, name, colour)
        differences.named_curve(arm.k, arm.difference, colour, name)
    return Chart([curves, differences], lambda: regraded_frame(arms))


def regraded_frame(arms: Sequence[Regraded]) -> pd.DataFrame:
    """pass@k under both graders and their difference, one row per arm and k."""
    return stack_rows(
        {
            **arm.measured.key,
            "k": arm.k,
            "own": arm.own_rates,
            "other": arm.other_rates,
            **interval_columns("difference", arm.difference),
            "own_grader": arm.own_grader,
            "other_grader": arm.other_grader,
        }
        for arm in arms
    )


def _graders_sentence(arms: Sequence[Regraded]) -> str:
    own = dict.fromkeys(arm.own_grader for arm in arms if arm.own_grader)
    other = dict.fromkeys(arm.other_grader for arm in arms if arm.other_grader)
    changed = sum(arm.gained + arm.lost for arm in arms)
    return (
        f"Grader of the run: {' / '.join(own) or '(not stored)'}; the other: "
        f"{' / '.join(other) or '(not stored)'}. They differ on "
        f"{count_text(changed, 'sample')} of the compared arms."
    )


ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=tables_of(regraded_arms, regraded=regraded_frame),
)
