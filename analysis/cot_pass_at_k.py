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

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.pass_at_k import pass_at_k_chart
from rlbhpc.report.draw.chart import Chart
from rlbhpc.report.measured import Measured
from rlbhpc.report.paper import arguments, draw_runs
from rlbhpc.stats import PassCurve, k_grid
from rlbhpc.stats.interval import mean_interval
from rlbhpc.stats.verifier_error import cot_pass_at_k


def draw(
    report: Report, judged: pd.DataFrame, ppv: float, npv: float
) -> Iterator[tuple[str, Chart]]:
    for set_name in report.problem_sets:
        arms = [arm for arm in report.compared if arm.problem_set == set_name]
        judged_arms = [new for arm in arms if (new := with_chains(report, arm, judged, ppv, npv))]
        if judged_arms:
            chart = pass_at_k_chart({set_name: judged_arms}, report.colours)
            yield f"cot_pass_at_k-{set_name}", chart


def with_chains(
    report: Report, arm: Measured, judged: pd.DataFrame, ppv: float, npv: float
) -> Measured | None:
    """Give an arm the curve of its samples with valid chains; None where none was judged."""
    rows_of_arm = judged[(judged["arm"] == arm.arm) & (judged["step"] == arm.step)]
    valid = dict(zip(rows_of_arm["problem"], rows_of_arm["valid"], strict=True))
    rows = [
        i
        for i, problem in enumerate(arm.problems)
        if arm.sampled[i] and (problem in valid or arm.counts.c[i] == 0)
    ]
    if rows_of_arm.empty or not rows:
        return None
    counts = arm.counts[np.array(rows, np.int64)]
    counts.refuse_stopped("CoT-Pass@k")
    chains = np.array([valid.get(arm.problems[i], 0) for i in rows])
    k = k_grid(counts.reach)
    values = cot_pass_at_k(counts.n, counts.c, chains, k, ppv, npv)
    weights = report.weights(tuple(arm.problems[i] for i in rows))
    interval = mean_interval(values, weights, report.settings.prob, "problem bootstrap")
    curve = PassCurve(k, interval, counts.support(k), 4 * k <= counts.reach)
    return replace(arm, curve=curve)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--judged", type=Path, required=True, help="CSV: arm, step, problem, valid")
    parser.add_argument("--ppv", type=float, default=1.0, help="confirmed share of valid chains")
    parser.add_argument("--npv", type=float, default=1.0, help="confirmed share of invalid ones")
    options = parser.parse_args()
    table = pd.read_csv(options.judged)
    ppv, npv = options.ppv, options.npv
    draw_runs(options, partial(draw, judged=table, ppv=ppv, npv=npv))
