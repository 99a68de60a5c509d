"""Difference curves of several arms against one, in one panel: ablations and algorithms.

Example: python analysis/ablations.py runs/math -o figures --compare grpo:kl --compare grpo:n32
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.differences import differences_figure
from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    for set_name in dict.fromkeys(one.base.problem_set for one in report.final):
        shown = [one for one in report.final if one.base.problem_set == set_name]
        yield f"ablations-{set_name}", differences_figure(shown, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
