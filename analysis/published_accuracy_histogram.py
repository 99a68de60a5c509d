"""The study's problems by accuracy before and after training, from its figures 5 and 14.

Example: python analysis/published_accuracy_histogram.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main_published

TABLE = Path(__file__).parent / "published" / "accuracy_histogram.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Drawn]]:
    """Base hatched, one panel per benchmark."""
    table = pd.read_csv(TABLE)
    parts = [part for _, part in table.groupby("benchmark", sort=False)]
    colour = Colours(["trained"], [])["trained"]
    with canvas(DOUBLE, 1.9 * len(parts), 1, len(parts)) as (figure, axes):
        for panel, part in zip(axes, parts, strict=True):
            for side, shift in (("base", -0.21), ("trained", 0.21)):
                line = part[part["side"] == side]
                bars = panel.bar(
                    np.arange(len(line)) + shift, line["problems"], 0.4, edgecolor=colour,
                    facecolor="none" if side == "base" else colour, label=side,
                    hatch="/////" if side == "base" else None,
                )  # fmt: skip
                panel.bar_label(bars, fontsize=6.5, padding=1)
                panel.set_xticks(np.arange(len(line)), line["bin"])
            panel.set_title(part["benchmark"].iloc[0], loc="left")
            panel.set_ylabel("problems")
        axes[0].legend(fontsize=7)
        axes[-1].set_xlabel("accuracy of a problem")
    yield "published_accuracy_histogram", Drawn(figure, table)


if __name__ == "__main__":
    main_published(__doc__, draw)
