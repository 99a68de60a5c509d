"""Which problems are solved by exactly which arms, for any number of arms.

In the report of a study: `analysis: {aspects: [./analysis/solvable_sets.py]}`.
Example: python analysis/solvable_sets.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.chart import BASE_COLOUR, Chart, Panel, linear_axis, row_axis
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Node, el
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import count_text
from rlbhpc.report.svg import figure

#: Groups that are drawn, the largest ones; the numbers hold all.
_GROUPS: Final = 12


def solvable_sets(c: Mapping[str, ArrayLike]) -> dict[frozenset[str], NDArray[np.int64]]:
    """Split the problems by the exact set of arms that solve them at least once.

    ``c``: right samples per problem of each arm, the same problems in the same order. Maps the set
    of arms to positions of problems; only sets that occur, the largest groups first. The empty set
    holds what no arm solves. The groups are disjoint and complete.

    >>> groups = solvable_sets({"base": [1, 2, 0], "grpo": [4, 0, 0], "ppo": [1, 0, 0]})
    >>> {tuple(sorted(arms)): problems.tolist() for arms, problems in groups.items()}
    {('base', 'grpo', 'ppo'): [0], ('base',): [1], (): [2]}
    """
    if not c:
        raise UserError("solvable sets need at least one arm")
    solved = {arm: np.asarray(right) > 0 for arm, right in c.items()}
    for (first, a), (second, b) in pairwise(solved.items()):
        if a.shape != b.shape or a.ndim != 1:
            raise UserError(
                f"arms {first!r} and {second!r} have {a.shape} and {b.shape} problems; "
                "give one entry per problem for the same problems"
            )
    arms = list(solved)
    matrix = np.stack([solved[arm] for arm in arms], axis=1)
    patterns, group = np.unique(matrix, axis=0, return_inverse=True)
    by_problem = {
        frozenset(arm for arm, member in zip(arms, pattern, strict=True) if member): np.flatnonzero(
            group.ravel() == i
        )
        for i, pattern in enumerate(patterns)
    }
    order = sorted(by_problem, key=lambda members: (-len(by_problem[members]), -len(members)))
    return {members: by_problem[members] for members in order}


def section(report: Report) -> Iterator[Node]:
    """The groups of each problem set with several arms."""
    for set_name, arms in _several(report):
        chart = solvable_chart(arms)
        reach = int(chart.frame["samples"].iloc[0]) if len(chart.frame) else 0
        caption = (
            f"Problems of {set_name} by the exact set of arms that solve them at least once in "
            f"{count_text(reach, 'sample')}, the largest groups; the ids are in solvable.csv."
        )
        yield el("h3", f"{set_name}: who solves what")
        yield figure(caption, chart)


def _several(report: Report) -> list[tuple[str, list[MeasuredArm]]]:
    """The compared arms of each problem set that has more than one."""
    return [(name, arms) for name, arms in report.by_set(report.compared_arms) if len(arms) > 1]


def solvable_chart(arms: Sequence[MeasuredArm]) -> Chart:
    """Draw the sizes of the largest groups as bars, each named by the arms that solve it.

    ``arms``: arms with samples of one problem set; problems that one has no samples of are left
    out, and all arms count with equal numbers of samples where those are known.
    """
    frame = solvable_frame(arms)
    sizes = frame.groupby("arms", sort=False).size().sort_values(ascending=False, kind="stable")
    largest = sizes.head(_GROUPS)
    x = linear_axis([[0, *largest.tolist()]], "problems", zero=True)
    panel = Panel(x, row_axis(max(len(largest), 1)), height=32 * max(len(largest), 1))
    for number, (group, size) in enumerate(largest.items()):
        middle = panel.row(number, f"{_group_name(str(group), arms)}: {size:,}")
        panel.bar((0, int(size)), (middle - 0.18, middle + 0.2), BASE_COLOUR, hint=f"{size:,}")
    return Chart([panel], frame)


def _group_name(group: str, arms: Sequence[MeasuredArm]) -> str:
    """Name a group by the arms in it, or by those that are not where they are fewer."""
    labels = set(group.split(" + "))
    members = [arm.arm for arm in arms if arm.label in labels]
    others = [arm.arm for arm in arms if arm.label not in labels]
    if not members or not others:
        return "all" if members else "none"
    if len(others) < len(members):
        return f"all but {', '.join(others)}"
    return " + ".join(members)


def solvable_frame(arms: Sequence[MeasuredArm]) -> pd.DataFrame:
    """One row per problem: the arms that solve it in equally many samples, ``" + "`` between."""
    problems = common_problems(arms)
    rows = [arm.rows_of(problems) for arm in arms]
    if not problems:
        return pd.DataFrame(columns=["problem_set", "problem", "arms", "samples"])
    reach = min(arm.counts[row].reach for arm, row in zip(arms, rows, strict=True))
    right = {}
    for arm, row in zip(arms, rows, strict=True):
        first = arm.right_in_first(reach, row)
        right[arm.label] = arm.counts[row].c if first is None else first
    groups = [
        (arms[0].problem_set, problems[i], " + ".join(a for a in right if a in members), reach)
        for members, which in solvable_sets(right).items()
        for i in which.tolist()
    ]
    return pd.DataFrame(groups, columns=["problem_set", "problem", "arms", "samples"])


def _tables(report: Report) -> dict[str, pd.DataFrame]:
    frames = [solvable_frame(arms) for _, arms in _several(report)]
    return {"solvable": pd.concat(frames, ignore_index=True)} if frames else {}


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a problem set."""
    for set_name, arms in _several(report):
        yield f"solvable_sets-{set_name}", solvable_chart(arms)


ASPECT = Aspect(Part.RESPONSES, section, tables=_tables)

if __name__ == "__main__":
    main(__doc__, charts)
