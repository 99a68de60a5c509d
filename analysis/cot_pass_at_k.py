"""CoT-pass@k: only samples count whose answer and whose chain of reasoning were judged right.

The judgements come as a CSV file with the columns arm, step, problem, valid: of the right answers
of that arm to that problem, how many have a valid chain. Problems that it leaves out count as
having none if nothing was right, and are left out otherwise. The judge errs too: give the share of
its "valid" that an audit confirmed with --ppv and of its "invalid" with --npv.

Example: python analysis/cot_pass_at_k.py runs/math -o figures --judged chains.csv --ppv 0.9
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from rlbhpc.report.beyond import compared
from rlbhpc.report.figures.curves import pass_at_k_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.script import arguments, draw_runs
from rlbhpc.stats import PassCurve, k_grid
from rlbhpc.stats.cot import cot_pass_at_k
from rlbhpc.stats.mean_interval import mean_interval


def draw(
    report: Report, judged: pd.DataFrame, ppv: float, npv: float
) -> Iterator[tuple[str, Drawn]]:
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        every = [one for one in compared(report) if one.problem_set == set_name]
        shown = [new for one in every if (new := with_chains(report, one, judged, ppv, npv))]
        if shown:
            yield (
                f"cot_pass_at_k-{set_name}",
                pass_at_k_figure(shown, bases_of(report), colours_of(report)),
            )


def with_chains(
    report: Report, one: Measured, judged: pd.DataFrame, ppv: float, npv: float
) -> Measured | None:
    """Give an arm the curve of its samples with valid chains; None where none was judged."""
    mine = judged[(judged["arm"] == one.arm) & (judged["step"] == one.step)]
    valid = dict(zip(mine["problem"], mine["valid"], strict=True))
    rows = [
        i
        for i, problem in enumerate(one.problems)
        if one.sampled[i] and (problem in valid or one.counts.c[i] == 0)
    ]
    if mine.empty or not rows:
        return None
    counts = one.counts[np.array(rows, np.int64)]
    chains = np.array([valid.get(one.problems[i], 0) for i in rows])
    k = k_grid(counts.reach)
    values = cot_pass_at_k(counts.n, counts.c, chains, k, ppv, npv)
    weights = report.draws.of(tuple(one.problems[i] for i in rows))
    interval = mean_interval(values, weights, report.settings.prob, "problem bootstrap")
    curve = PassCurve(k, interval, counts.support(k), 4 * k <= counts.reach)
    return replace(one, curve=curve)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--judged", type=Path, required=True, help="CSV: arm, step, problem, valid")
    parser.add_argument("--ppv", type=float, default=1.0, help="confirmed share of valid chains")
    parser.add_argument("--npv", type=float, default=1.0, help="confirmed share of invalid ones")
    asked = parser.parse_args()
    table = pd.read_csv(asked.judged)
    draw_runs(asked, partial(draw, judged=table, ppv=asked.ppv, npv=asked.npv))
