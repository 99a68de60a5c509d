"""Algorithms side by side: pass@1, pass@K and sampling-efficiency gap of every trained arm.

Example: python analysis/algorithms.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.algorithms import algorithms_figure
from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    if report.final:
        yield "algorithms", algorithms_figure(report.final, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
