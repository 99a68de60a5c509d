"""Perplexity over training: median per problem, mean over problems.

Example: python analysis/perplexity_over_steps.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.perplexity import perplexity_steps_figure
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.scored import evolutions, scored
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = evolutions(scored(report))
    for set_name in dict.fromkeys(one.problem_set for one in found):
        shown = [one for one in found if one.problem_set == set_name]
        drawn = perplexity_steps_figure(shown, colours_of(report))
        yield f"perplexity_over_steps-{set_name}", drawn


if __name__ == "__main__":
    main(__doc__, draw)
