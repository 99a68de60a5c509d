"""pass@k curves of every line of checkpoints, and its pass@1 and pass@K over steps.

Example: python analysis/checkpoints.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.checkpoints import checkpoints_figure
from rlbhpc.report.figures.palette import colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    for line, last in zip(report.lines, report.final, strict=True):
        if len(line.steps) > 1:
            yield f"checkpoints-{last.slug}", checkpoints_figure(line, colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
