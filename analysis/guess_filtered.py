"""pass@k without the problems that the base answers now and then without reasoning.

The run needs an arm whose prompt forbids reasoning (`prompt: no-think`); a problem that it answers
rarely but not never is guessed at large k, and is left out of all curves.

Example: python analysis/guess_filtered.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.curves import pass_at_k_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.guesses import unguessed
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    for one in unguessed(report):
        drawn = pass_at_k_figure(one.kept, bases_of(report), colours_of(report))
        yield f"guess_filtered-{one.problem_set}", drawn


if __name__ == "__main__":
    main(__doc__, draw)
