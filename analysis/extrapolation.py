"""pass@k up to ten times the samples, with the band of three models and a held-out check.

Example: python analysis/extrapolation.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.beyond import beyond
from rlbhpc.report.figures.beyond import extrapolation_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = beyond(report)
    for set_name in dict.fromkeys(one.of.problem_set for one in found):
        shown = [one for one in found if one.of.problem_set == set_name]
        drawn = extrapolation_figure(shown, bases_of(report), colours_of(report))
        yield f"extrapolation-{set_name}", drawn


if __name__ == "__main__":
    main(__doc__, draw)
