"""Base and trained model at all temperatures, and each at its best one for every k.

Example: python analysis/temperature.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.figures.temperature import temperature_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main
from rlbhpc.report.temperatures import temperatures


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    for one in temperatures(report):
        name = f"temperature-{one.base}-{one.trained}-{one.problem_set}"
        yield name, temperature_figure(one, bases_of(report), colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
