"""Sampling-efficiency gaps worked out anew from the study's tables 3 and 4.

Example: python analysis/published_delta_se.py -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main_published
from rlbhpc.stats import delta_se

TABLE = Path(__file__).parent / "published" / "algorithms.csv"


def draw(_: Sequence[Report]) -> Iterator[tuple[str, Drawn]]:
    """One panel per problem set, one row per algorithm and step."""
    table = pd.read_csv(TABLE)
    base = table[table["arm"] == "base"].set_index("benchmark")["pass_at_256"]
    rows = table[table["arm"] != "base"].copy()
    rows["delta_se"] = delta_se(base[rows["benchmark"]].to_numpy(), rows["pass_at_1"]).round(1)
    rows["label"] = [f"{r.arm}, step {r.step}" for r in rows.itertuples()]
    names = list(dict.fromkeys(rows["label"]))
    colours = Colours(dict.fromkeys(rows["arm"]), [])
    with canvas(DOUBLE, 2.2, 3) as (figure, axes):
        for place, (panel, benchmark) in enumerate(zip(axes, base.index, strict=True)):
            for row in rows[rows["benchmark"] == benchmark].itertuples():
                panel.plot(row.delta_se, -names.index(row.label), "o", color=colours[row.arm])
                panel.annotate(
                    f"{row.delta_se:.1f}", (row.delta_se, -names.index(row.label)),
                    xytext=(4, 0), textcoords="offset points", va="center", fontsize=6.5,
                )  # fmt: skip
            shown = names if place == 0 else [""] * len(names)
            panel.set_yticks([-i for i in range(len(names))], shown)
            panel.set_title(benchmark, loc="left")
            panel.margins(x=0.25)
            panel.set_xlabel("base pass@256 − pass@1")
    yield "published_delta_se", Drawn(figure, rows)


if __name__ == "__main__":
    main_published(__doc__, draw)
