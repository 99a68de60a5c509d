"""Reward and entropy of the study's runs over training, from its figure 19.

Example: python analysis/published_training_dynamics.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.aspect import Report
from rlbhpc.report.chart import Chart, Colours, Key, Panel, linear_axis
from rlbhpc.report.paper import main_published

TABLE = Path(__file__).parent / "published" / "training_dynamics.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Chart]]:
    """One panel per metric, one line per run."""
    table = pd.read_csv(TABLE)
    colours = Colours(dict.fromkeys(table["run"]), [])
    panels = []
    for metric in ("reward", "entropy"):
        part = table[table["metric"] == metric]
        x = linear_axis([part["step"]], "training step")
        panel = Panel(x, linear_axis([part["value"]], metric))
        for run, line in part.groupby("run", sort=False):
            panel.line(line["step"], line["value"], colours[str(run)])
            panel.points(line["step"], line["value"], colours[str(run)], name=str(run))
        panels.append(panel)
    legend = tuple(Key(run, colours[run]) for run in dict.fromkeys(table["run"]))
    yield "published_training_dynamics", Chart(panels, table, legend)


if __name__ == "__main__":
    main_published(__doc__, draw)
