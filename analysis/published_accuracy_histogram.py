"""The study's problems by accuracy before and after training, from its figures 5 and 14.

Example: python analysis/published_accuracy_histogram.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.coverage import bars_panel
from rlbhpc.report.chart import Chart, Colours
from rlbhpc.report.paper import main_published

TABLE = Path(__file__).parent / "published" / "accuracy_histogram.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Chart]]:
    """Base outlined, trained filled, one panel per benchmark."""
    table = pd.read_csv(TABLE)
    colour = Colours(["trained"], [])["trained"]
    panels = [
        bars_panel(part, colour, colour, str(benchmark))
        for benchmark, part in table.groupby("benchmark", sort=False)
    ]
    yield "published_accuracy_histogram", Chart(panels, table)


if __name__ == "__main__":
    main_published(__doc__, draw)
