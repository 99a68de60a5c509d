"""Problems by the exact set of arms that solve them, with the ids in the CSV.

Example: python analysis/solvable_sets.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.beyond import compared
from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.solvable import solvable_figure
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        shown = [one for one in compared(report) if one.problem_set == set_name]
        if len(shown) > 1:
            yield f"solvable_sets-{set_name}", solvable_figure(shown, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
