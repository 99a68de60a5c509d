"""The same samples under another grader."""

from __future__ import annotations

import numpy as np

from rlbhpc.report.figures.regraded import regraded_figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds, percent, several
from rlbhpc.report.regraded import Regraded, Verdicts
from rlbhpc.report.sections.parts import Pen


def regraded(verdicts: Verdicts | None, pen: Pen) -> list[Node]:
    """Compare two graders, sample by sample and in what they say; nothing without a second one."""
    if verdicts is None or not verdicts.arms:
        return []
    nodes: list[Node] = [
        el("h3", "Another grader"),
        el("p", _graders(verdicts.arms)),
        *(el("p", _said(verdicts, i)) for i in range(len(verdicts.answers))),
    ]
    changed = [one for one in verdicts.arms if one.gained or one.lost]
    if len(changed) < len(verdicts.arms):
        same = ", ".join(one.of.label for one in verdicts.arms if not (one.gained or one.lost))
        nodes.append(el("p", f"Of {same} they judge every sample alike.", class_="soft"))
    for set_name in dict.fromkeys(one.of.problem_set for one in changed):
        here = [one for one in changed if one.of.problem_set == set_name]
        caption = (
            "Left: pass@k of the same samples under the run's grader (solid) and the other "
            "(dotted). Right: other minus own, paired over problems, with intervals. What a "
            "lenient grader accepts by mistake grows with k."
        )
        nodes += [
            pen.figure(f"regraded-{set_name}", caption, regraded_figure, here, pen.colours),
            _table(here, set_name),
        ]
    return nodes


def _graders(arms: tuple[Regraded, ...]) -> str:
    names = [dict.fromkeys(one.graders[i] for one in arms if one.graders[i]) for i in (0, 1)]
    own, other = (" / ".join(found) or "(not stored)" for found in names)
    changed = sum(one.gained + one.lost for one in arms)
    return (
        f"Grader of the run: {own}; the other: {other}. They differ on "
        f"{several(changed, 'sample')} of the compared arms."
    )


def _said(verdicts: Verdicts, at: int) -> str:
    """Say whether the answer hangs on the grader."""
    own, other = verdicts.answers[at]
    first, second = own.conclusion, other.conclusion
    ends = (
        f"{bounds(first.at_reach, sign=True)} points at k = {own.reach:,}, and "
        f"{bounds(second.at_reach, sign=True)} at k = {other.reach:,} under the other grader"
    )
    if first.headline is second.headline:
        return f"{own.title}: {first.headline} under both graders; {ends}."
    return (
        f"{own.title}: the answer hangs on the grader. It is {first.headline}, and "
        f"{second.headline} under the other; {ends}."
    )


def _table(here: list[Regraded], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for one in here:
        for i in sorted({0, int(np.searchsorted(one.k, one.k[-1] // 4)), len(one.k) - 1}):
            first = i == 0
            rows.append(
                [one.of.label, int(one.k[i]), percent(float(one.rates[0][i])),
                 percent(float(one.rates[1][i])), bounds(one.difference, i, sign=True),
                 one.gained if first else None, one.lost if first else None,
                 one.solved[1] if first else None, one.solved[0] if first else None]
            )  # fmt: skip
    heads = ["arm", "k", "own, %", "other, %", "other − own, points", "samples gained", "lost",
             "problems gained", "lost"]  # fmt: skip
    return table(f"The same samples of {set_name} under two graders", heads, rows)
