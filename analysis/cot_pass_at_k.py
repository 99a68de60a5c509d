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
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.pass_at_k import pass_at_k_chart
from rlbhpc.report.chart import Chart
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import arguments, draw_runs
from rlbhpc.stats import Counts, PassCurve, k_grid
from rlbhpc.stats.interval import mean_interval
from rlbhpc.stats.pass_at_k import pass_at_k


def cot_pass_at_k(
    n: ArrayLike,
    right: ArrayLike,
    valid: ArrayLike,
    k: ArrayLike,
    ppv: float = 1.0,
    npv: float = 1.0,
) -> NDArray[np.float64]:
    """pass@k per problem (rows) and k (columns), counting right answers with valid chains.

    ``n, right, valid``: samples, those with a right answer, and those of them whose chain was
    judged valid. ``ppv, npv``: shares of correct judgements among chains judged valid and judged
    invalid, from an audit of the judge. Evaluate at both ends of their intervals to get error bars.

    Wen et al. (2025), arXiv:2506.14245.

    >>> cot_pass_at_k(8, [4], [2], [1, 8])
    array([[0.25, 1.  ]])
    >>> cot_pass_at_k(8, [4], [2], [1, 8], ppv=0.5)
    array([[0.125, 0.75 ]])
    """
    for name, share in (("ppv", ppv), ("npv", npv)):
        if not 0 <= share <= 1:
            raise UserError(f"{name} of the judge is {share}; allowed is a share from 0 to 1")
    answers, chains = Counts.of(n, right), Counts.of(right, valid)
    if len(answers) != len(chains):
        raise UserError("right and valid counts are of different numbers of problems")
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    if ppv == npv == 1:
        return Counts.of(answers.n, chains.c).pass_at_k(sizes)
    rows = zip(answers.n.tolist(), chains.n.tolist(), chains.c.tolist(), strict=True)
    return np.stack([_expected(*row, sizes, ppv, npv) for row in rows])


def _expected(
    n: int, right: int, valid: int, k: NDArray[np.int64], ppv: float, npv: float
) -> NDArray[np.float64]:
    """Average pass@k over how many of the right answers truly have a valid chain."""
    chance = np.convolve(
        stats.binom.pmf(np.arange(valid + 1), valid, ppv),
        stats.binom.pmf(np.arange(right - valid + 1), right - valid, 1 - npv),
    )
    return np.asarray(chance @ pass_at_k(n, np.arange(right + 1)[:, None], k))


def refuse_stopped(counts: Counts) -> None:
    """Raise where sampling may stop at a right sample: chains need a fixed number of samples."""
    if (counts.stop_after > 0).any():
        problem = int(np.flatnonzero(counts.stop_after)[0])
        stop_after = counts.stop_after[problem]
        raise UserError(
            f"CoT-Pass@k needs a fixed number of samples, and those of problem {problem} end at "
            f"its right sample no. {stop_after}; take the first {stop_after} samples of each "
            "problem, which all have, or sample without `stop_after`"
        )


def draw(
    report: Report, judged: pd.DataFrame, ppv: float, npv: float
) -> Iterator[tuple[str, Chart]]:
    for set_name in report.problem_sets:
        arms = [arm for arm in report.compared_arms if arm.problem_set == set_name]
        judged_arms = [new for arm in arms if (new := with_chains(report, arm, judged, ppv, npv))]
        if judged_arms:
            chart = pass_at_k_chart({set_name: judged_arms}, report.colours)
            yield f"cot_pass_at_k-{set_name}", chart


def with_chains(
    report: Report, arm: MeasuredArm, judged: pd.DataFrame, ppv: float, npv: float
) -> MeasuredArm | None:
    """Give an arm the curve of its samples with valid chains; None where none was judged."""
    rows_of_arm = judged[(judged["arm"] == arm.arm) & (judged["step"] == arm.step)]
    valid = dict(zip(rows_of_arm["problem"], rows_of_arm["valid"], strict=True))
    rows = [
        i
        for i, problem in enumerate(arm.problems)
        if arm.has_samples[i] and (problem in valid or arm.counts.c[i] == 0)
    ]
    if rows_of_arm.empty or not rows:
        return None
    counts = arm.counts[np.array(rows, np.int64)]
    refuse_stopped(counts)
    chains = np.array([valid.get(arm.problems[i], 0) for i in rows])
    k = k_grid(counts.reach)
    values = cot_pass_at_k(counts.n, counts.c, chains, k, ppv, npv)
    weights = report.settings.weights(tuple(arm.problems[i] for i in rows))
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
