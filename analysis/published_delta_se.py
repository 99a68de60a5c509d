"""Sampling-efficiency gaps worked out anew from the study's tables 3 and 4.

Example: python analysis/published_delta_se.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.aspect import Report
from rlbhpc.report.chart import Chart, Colours, Panel, linear_axis, row_axis
from rlbhpc.report.paper import main_published
from rlbhpc.stats import delta_se

TABLE = Path(__file__).parent / "published" / "algorithms.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Chart]]:
    """One panel per problem set, one row per algorithm and step."""
    table = pd.read_csv(TABLE)
    base = table[table["arm"] == "base"].set_index("benchmark")["pass_at_256"]
    rows = table[table["arm"] != "base"].copy()
    rows["delta_se"] = delta_se(base[rows["benchmark"]].to_numpy(), rows["pass_at_1"]).round(1)
    rows["label"] = [f"{r.arm}, step {r.step}" for r in rows.itertuples()]
    names = list(dict.fromkeys(rows["label"]))
    colours = Colours(dict.fromkeys(rows["arm"]), [])
    panels = []
    for benchmark in base.index:
        x = linear_axis([rows["delta_se"]], "base pass@256 − pass@1", zero=True)
        panel = Panel(x, row_axis(len(names)), benchmark, 34 * len(names))
        for row in rows[rows["benchmark"] == benchmark].itertuples():
            name = f"{row.label}: {row.delta_se:.1f}"
            middle = panel.row(names.index(row.label), name)
            panel.points(row.delta_se, middle, colours[row.arm], name=name)
        panels.append(panel)
    yield "published_delta_se", Chart(panels, rows)


if __name__ == "__main__":
    main_published(__doc__, draw)
