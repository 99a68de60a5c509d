"""Power sampling: what part of a trained model's lead it reaches without training, and its moves.

The base is the null model of "training only sharpens": sampled by p^α, it is sharper and has
learnt nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, read_variables
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text
from rlbhpc.stats import Interval
from rlbhpc.stats.interval import quotient_interval


@dataclass(frozen=True)
class Sharpening:
    """A base by power sampling, beside a comparison of that base with a trained model.

    ``share``: part of the trained model's lead in pass@1 that it reaches, over the problems that
    all three have samples of.
    """

    pair: Comparison
    sharpened: MeasuredArm
    share: Interval


def powered_arms(report: Report) -> list[MeasuredArm]:
    """The arms that were drawn by power sampling."""
    return [
        arm
        for arm in report.measured_arms
        if "power" in report.provenance.get(arm.group, {}).get("sampling", {})
    ]


@once_each
def sharpenings(report: Report) -> Iterator[Sharpening]:
    """Set each base that was also drawn by power sampling beside its last comparisons."""
    powered = powered_arms(report)
    for pair in report.last_comparisons:
        base_key = (pair.base.model, pair.base.step, pair.problem_set)
        if pair.base in powered or pair.trained in powered:
            continue
        for arm in powered:
            if (arm.model, arm.step, arm.problem_set) == base_key:
                yield Sharpening(pair, arm, _share_of_lead(report, pair, arm))


def _share_of_lead(report: Report, pair: Comparison, sharpened: MeasuredArm) -> Interval:
    """(sharpened − base) / (trained − base), each a mean of right shares over problems."""
    problems = common_problems((pair.base, sharpened, pair.trained))
    counts = [arm.counts_of(problems) for arm in (pair.base, sharpened, pair.trained)]
    base, powered, trained = (np.asarray(of_arm.c / of_arm.n) for of_arm in counts)
    weights = report.settings.weights(problems)
    return quotient_interval(powered - base, trained - base, weights, report.settings.prob)


def moves_frame(report: Report) -> pd.DataFrame:
    """What a sample of each arm by power sampling took on average, one row per arm and step."""
    names = ("n_tokens_drawn", "n_moves", "n_moves_accepted")
    rows = []
    for arm, values in read_variables(report, powered_arms(report), names):
        drawn, moves, accepted = (of_samples[arm.is_judged] for of_samples in values)
        rows.append({
            **arm.key,
            "tokens_drawn": drawn.mean(),
            "moves": moves.mean(),
            "accepted_share": accepted.sum() / moves.sum(),
            "unmoved_share": (accepted == 0).mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def sharpening_frame(report: Report) -> pd.DataFrame:
    """One row per comparison and sharpened base."""
    return pd.DataFrame(
        {**case.pair.key, "sharpened": case.sharpened.arm, **interval_columns("share", case.share)}
        for case in sharpenings(report)
    )


def section(report: Report) -> Iterator[Node]:
    """Show what part of each lead sharpening reaches, then the moves that it took."""
    moves = ASPECT.frames(report).get("moves")
    if moves is None:
        return
    yield el("h3", "Sharpening without training")
    for case in sharpenings(report):
        answer = f"{case.sharpened.label} reaches {interval_text(case.share)} % of it"
        if np.isnan(case.share.low):
            answer = "it may be none, so no part of it is given"
        yield el("p", f"{case.pair.title}: of the lead at k = 1, {answer}.")
    heads = [name.replace("_", " ") for name in moves.columns]
    yield table("Moves of power sampling, per sample", heads, moves.to_numpy().tolist())
    yield note("A sample that never moved is one of the model at temperature 1/α.")


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """Both tables by the name of their file."""
    return {"sharpening": sharpening_frame(report), "moves": moves_frame(report)}


ASPECT = Aspect(Part.RESPONSES, section, tables=tables)
