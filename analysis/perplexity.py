"""Perplexity of stored texts under the models that scored them: the study's conditions.

Example: python analysis/perplexity.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.perplexity import perplexity_figure
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.scored import scored
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = scored(report)
    for set_name in dict.fromkeys(one.problem_set for one in found):
        shown = [one for one in found if one.problem_set == set_name]
        yield f"perplexity-{set_name}", perplexity_figure(shown, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
