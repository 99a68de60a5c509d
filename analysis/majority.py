"""maj@k beside pass@k: what a majority vote finds of what is there to be found.

Example: python analysis/majority.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.beyond import compared
from rlbhpc.report.figures.majority import majority_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.responses import votes
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = votes(report, compared(report))
    for set_name in dict.fromkeys(one.of.problem_set for one in found):
        shown = [one for one in found if one.of.problem_set == set_name]
        drawn = majority_figure(shown, bases_of(report), colours_of(report))
        yield f"majority-{set_name}", drawn


if __name__ == "__main__":
    main(__doc__, draw)
