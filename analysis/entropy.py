"""Entropy and length of responses over training steps, and pass@K against entropy.

Example: python analysis/entropy.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.entropy import entropy_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.responses import responses
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = responses(report)
    for set_name in dict.fromkeys(one.of.problem_set for one in found):
        shown = [one for one in found if one.of.problem_set == set_name]
        drawn = entropy_figure(shown, bases_of(report), colours_of(report))
        yield f"entropy-{set_name}", drawn


if __name__ == "__main__":
    main(__doc__, draw)
