"""Reward and entropy of the study's runs over training, from its figure 19.

Example: python analysis/published_training_dynamics.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, marker_of
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main_published

TABLE = Path(__file__).parent / "published" / "training_dynamics.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Drawn]]:
    """One panel per metric, one line per run."""
    table = pd.read_csv(TABLE)
    colours = Colours(dict.fromkeys(table["run"]), [])
    with canvas(DOUBLE, 2.5, 2) as (figure, axes):
        for panel, metric in zip(axes, ("reward", "entropy"), strict=True):
            part = table[table["metric"] == metric]
            for number, (run, line) in enumerate(part.groupby("run", sort=False)):
                panel.plot(
                    line["step"], line["value"], color=colours[str(run)], markersize=3.5,
                    marker=marker_of(number), label=run,
                )  # fmt: skip
            panel.set_xlabel("training step")
            panel.set_ylabel(metric)
        axes[0].legend(fontsize=6.5)
    yield "published_training_dynamics", Drawn(figure, table)


if __name__ == "__main__":
    main_published(__doc__, draw)
