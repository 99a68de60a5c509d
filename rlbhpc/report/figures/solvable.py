"""Which problems are solved by exactly which arms, for any number of arms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import BASE_COLOUR, DOUBLE, INK, Drawn, canvas
from rlbhpc.report.measured import Measured
from rlbhpc.stats import solvable_sets

#: Groups that are drawn, the largest ones; the numbers hold all.
_GROUPS = 24


def solvable_figure(shown: Sequence[Measured], colours: Colours) -> Drawn:
    """Draw the sizes of all groups as bars, with a dot below for each arm that solves the group.

    Parameters
    ----------
    shown
        Arms with samples of one problem set; problems that one has no samples of are left out,
        and all arms count with equal numbers of samples where those are known.
    """
    frame = solvable_frame(shown)
    sizes = frame.groupby("arms", sort=False).size().head(_GROUPS)
    labels = [one.label for one in shown]
    with canvas(DOUBLE, 1.7 + 0.2 * len(labels), 1, 2, (1.4, 0.22 * len(labels))) as (
        figure,
        (bars, dots),
    ):
        at = np.arange(len(sizes))
        drawn = bars.bar(at, sizes.to_numpy(), 0.62, facecolor=BASE_COLOUR)
        bars.bar_label(drawn, fontsize=6.5, padding=1)
        bars.set_ylabel("problems")
        bars.set_xticks([])
        bars.set_xlim(-0.6, max(len(sizes), 4) - 0.4)
        for place, members in enumerate(sizes.index):
            inside = [i for i, label in enumerate(labels) if label in members.split(" + ")]
            dots.plot([place] * len(labels), range(len(labels)), ".", color=INK, alpha=0.15)
            for i in inside:
                colour = colours[shown[i].arm]
                dots.plot(place, i, "o", color=colour, markersize=5)
            if len(inside) > 1:
                dots.plot([place] * 2, [inside[0], inside[-1]], color=INK, linewidth=0.7, zorder=0)
        dots.set_yticks(range(len(labels)), labels)
        dots.set_ylim(len(labels) - 0.5, -0.5)
        dots.set_xlim(*bars.get_xlim())
        dots.set_xticks([])
        dots.spines["left"].set_visible(False)
        dots.spines["bottom"].set_visible(False)
        dots.tick_params(length=0)
    return Drawn(figure, frame)


def solvable_frame(shown: Sequence[Measured]) -> pd.DataFrame:
    """One row per problem: the arms that solve it in equally many samples, ``" + "`` between."""
    known = [{p for p, s in zip(one.problems, one.sampled, strict=True) if s} for one in shown]
    kept = reduce(set[str].intersection, known) if known else set()
    problems = [p for p in shown[0].problems if p in kept]
    rows = [one.rows_of(problems) for one in shown]
    if not problems:
        return pd.DataFrame(columns=["problem_set", "problem", "arms", "samples"])
    reach = min(one.counts[at].reach for one, at in zip(shown, rows, strict=True))
    right = {}
    for one, at in zip(shown, rows, strict=True):
        first = one.right_in_first(reach, at)
        right[one.label] = one.counts[at].c if first is None else first
    found = [
        (shown[0].problem_set, problems[i], " + ".join(a for a in right if a in arms), reach)
        for arms, which in solvable_sets(right).items()
        for i in which.tolist()
    ]
    return pd.DataFrame(found, columns=["problem_set", "problem", "arms", "samples"])
