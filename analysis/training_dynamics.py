"""Reward, length, entropy, KL, clipping and gradient norm over training, all models.

Example: python analysis/training_dynamics.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.figures.training import training_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main
from rlbhpc.report.training import training


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    shown = training(report)
    if shown:
        yield "training_dynamics", training_figure(shown, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
