"""How reliably an arm solves what it solves, and what is certain of these very problems.

In the report of a study: `analysis: {aspects: [./analysis/reliability.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once, tables_of
from rlbhpc.report.aspects.pass_at_k import spread_evenly
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text, interval_texts, percent_text
from rlbhpc.stats import (
    Interval,
    bayes_at_n,
    detection_threshold,
    g_pass_at_k,
    mg_pass_at_k,
    pass_hat_k,
)
from rlbhpc.stats.extrapolation import FixedCurve, fixed_curve
from rlbhpc.stats.priors import carries_rates

#: Draws of the metrics that ask for all or most of them to be right.
DRAWS: Final = 8


def fitted(report: Report) -> list[MeasuredArm]:
    """The compared arms that have problems and samples enough for a distribution of rates."""
    return [arm for arm in report.compared_arms if carries_rates(arm.counts)]


@dataclass(frozen=True)
class Reliability:
    """Metrics of one arm at one step.

    ``k``: draws of the metrics, at most ``DRAWS``. ``values``: by name: pass@1, pass^k, G-Pass@k at
    τ = .5 and mG-Pass@k, with intervals for problems like these; and Bayes@N of exactly these,
    where samples are known by themselves and of all problems equally many. ``fixed``: pass@k of
    exactly these problems, with the noise of sampling alone. ``threshold``: success rates below
    this may look unsolvable in as many samples as there are.
    """

    measured: MeasuredArm
    k: int
    values: dict[str, Interval]
    fixed: FixedCurve
    threshold: float


@once
def reliability(report: Report) -> list[Reliability]:
    """Work out the metrics of the compared arms, at the same k for all arms of a problem set."""
    arms = fitted(report)
    draws = dict.fromkeys((arm.problem_set for arm in arms), DRAWS)
    for arm in arms:
        least = arm.equal_counts(arm.sampled_rows).reach
        draws[arm.problem_set] = min(draws[arm.problem_set], least)
    return [_of(report, arm, draws[arm.problem_set]) for arm in arms]


def _of(report: Report, arm: MeasuredArm, k: int) -> Reliability:
    prob = report.settings.prob
    counts = arm.counts[arm.sampled_rows]
    equal = arm.equal_counts(arm.sampled_rows)
    alike, row, _ = equal.distinct_rows()
    n, c = alike.n, alike.c
    means = {
        "pass@1": counts.pass_at_k(1)[:, 0],
        f"pass^{k}": pass_hat_k(n, c, k)[row],
        f"G-Pass@{k}, τ = .5": g_pass_at_k(n, c, k, 0.5)[row],
        f"mG-Pass@{k}": mg_pass_at_k(n, c, k)[row],
    }
    values = {name: report.mean(each, arm.sampled_problems) for name, each in means.items()}
    # Every sample of every problem has to be known, and of all problems equally many.
    if arm.verdicts is not None and len({*equal.n.tolist()}) == 1:
        right = arm.is_right[arm.sampled_rows][arm.is_judged[arm.sampled_rows]].reshape(
            len(arm.sampled_rows), -1
        )
        values["Bayes@N"] = bayes_at_n(right.astype(np.int64)).interval(prob=prob)
    fixed = fixed_curve(counts, None, prob)
    threshold = float(detection_threshold([counts.reach], prob)[0])
    return Reliability(arm, k, values, fixed, threshold)


def section(report: Report) -> Iterator[Node]:
    """Metrics, then pass@k of exactly these problems, set by set."""
    for set_name, arms in report.by_set(reliability(report)):
        names = list(dict.fromkeys(name for arm in arms for name in arm.values))
        rows: list[list[Cell]] = [
            [
                arm.measured.label,
                *(interval_text(arm.values[n]) if n in arm.values else None for n in names),
            ]
            for arm in arms
        ]
        yield el("h3", f"{set_name}: reliability")
        yield table(f"Reliability on {set_name}, percent", ["arm", *names], rows)
        sizes = spread_evenly(report.k(max(int(arm.fixed.k[-1]) for arm in arms)))
        rows = []
        for arm in arms:
            fitted = arm.fixed.k[arm.fixed.model_based].tolist()
            cells = interval_texts(sizes, arm.fixed.k, arm.fixed.interval)
            starred = [c + "*" if k in fitted else c for k, c in zip(sizes, cells, strict=True)]
            rows.append([arm.measured.label, percent_text(arm.threshold), *starred])
        heads = ["arm", "hidden below", *(f"k = {k:,}" for k in sizes)]
        caption = f"pass@k of exactly these problems of {set_name}, percent"
        yield table(caption, heads, rows, last=True)
    if reliability(report):
        yield note(
            "pass^k: all of k right. G-Pass: at least half of them. mG-Pass: the mean over shares "
            "above a half. Bayes@N: pass@1 of exactly these problems under a flat prior on each "
            "rate. Intervals of exactly these problems hold the noise of sampling alone, not the "
            "choice of problems. *: from fitted distributions, since no unbiased variance exists "
            "for k above n/2. Problems with a success rate below the one under “hidden below” may "
            "look unsolvable."
        )


def reliability_frame(arms: Sequence[Reliability]) -> pd.DataFrame:
    """Reliability metrics with intervals, one row per arm, step, set and metric."""
    return pd.DataFrame(
        {
            **arm.measured.key,
            "metric": name,
            **interval_columns("value", value, sound=True),
        }
        for arm in arms
        for name, value in arm.values.items()
    )


ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(reliability, reliability=reliability_frame),
    metrics=(
        "pass^k", "G-Pass@k", "mG-Pass@k", "Bayes@N", "detection threshold",
    ),
)  # fmt: skip
