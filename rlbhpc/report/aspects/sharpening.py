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
from rlbhpc.report.phrases import FloatArray, interval_columns, interval_text, percent_text
from rlbhpc.stats import Interval
from rlbhpc.stats.interval import quotient_interval


@dataclass(frozen=True)
class Sharpening:
    """A base by power sampling, beside a comparison of that base with a trained model.

    ``share``: part of the trained model's lead in pass@1 that it reaches, over the problems that
    all three have samples of. ``base_rate, sharpened_rate, trained_rate``: pass@1 on these.
    """

    pair: Comparison
    sharpened: MeasuredArm
    share: Interval
    base_rate: float
    sharpened_rate: float
    trained_rate: float


@dataclass(frozen=True)
class Moves:
    """What the samples of one arm took, on average, and how many of the moves were accepted."""

    measured: MeasuredArm
    tokens_drawn: float
    moves: float
    accepted_share: float
    unmoved_share: float


def is_powered(report: Report, arm: MeasuredArm) -> bool:
    """Whether an arm was drawn by power sampling."""
    return "power" in report.provenance.get(arm.group, {}).get("sampling", {})


@once_each
def sharpenings(report: Report) -> Iterator[Sharpening]:
    """Set each base that was also drawn by power sampling beside its last comparisons."""
    powered = [arm for arm in report.measured_arms if is_powered(report, arm)]
    for pair in report.last_comparisons:
        if is_powered(report, pair.base) or is_powered(report, pair.trained):
            continue
        base_key = (pair.base.model, pair.base.step, pair.problem_set)
        for arm in powered:
            if (arm.model, arm.step, arm.problem_set) == base_key:
                yield _sharpening(report, pair, arm)


def _sharpening(report: Report, pair: Comparison, sharpened: MeasuredArm) -> Sharpening:
    problems = common_problems((pair.base, sharpened, pair.trained))
    base, powered, trained = (
        _right_shares(arm, problems) for arm in (pair.base, sharpened, pair.trained)
    )
    share = quotient_interval(
        powered - base, trained - base, report.settings.weights(problems), report.settings.prob
    )
    return Sharpening(
        pair, sharpened, share, float(base.mean()), float(powered.mean()), float(trained.mean())
    )


def _right_shares(arm: MeasuredArm, problems: tuple[str, ...]) -> FloatArray:
    """Share of right samples of each problem."""
    counts = arm.counts_of(problems)
    return np.asarray(counts.c / counts.n)


@once_each
def moves(report: Report) -> Iterator[Moves]:
    """Sum up the moves of each arm that was drawn by power sampling."""
    powered = [arm for arm in report.measured_arms if is_powered(report, arm)]
    names = ("n_tokens_drawn", "n_moves", "n_moves_accepted")
    for arm, (drawn, tried, accepted) in read_variables(report, powered, names):
        is_drawn = arm.is_judged & (tried > 0)
        yield Moves(
            arm,
            tokens_drawn=float(drawn[is_drawn].mean()),
            moves=float(tried[is_drawn].mean()),
            accepted_share=float(accepted[is_drawn].sum() / tried[is_drawn].sum()),
            unmoved_share=float((accepted[is_drawn] == 0).mean()),
        )


def section(report: Report) -> Iterator[Node]:
    """Show what part of each lead sharpening reaches, then the moves that it took."""
    if sharpenings(report):
        yield el("h3", "Sharpening without training")
    for found in sharpenings(report):
        yield el("p", share_sentence(found))
    rows = [
        [measure.measured.label, measure.measured.problem_set, round(measure.tokens_drawn, 1),
         round(measure.moves, 1), percent_text(measure.accepted_share),
         percent_text(measure.unmoved_share)]
        for measure in moves(report)
    ]  # fmt: skip
    if rows:
        heads = ["arm", "set", "tokens drawn", "moves", "accepted, %", "never moved, %"]
        yield table("Moves of power sampling, per sample", heads, rows)
        yield note("A sample that never moved is one of the model at temperature 1/α.")


def share_sentence(found: Sharpening) -> str:
    """Say what part of a lead the sharpened base reaches, or that there is no lead to share."""
    rates = (
        f"{found.pair.title}, pass@1: base {percent_text(found.base_rate)} %, "
        f"{found.sharpened.label} {percent_text(found.sharpened_rate)} %, "
        f"{found.pair.trained.label} {percent_text(found.trained_rate)} %."
    )
    if np.isnan(found.share.low):
        return f"{rates} The trained model has no sure lead, so there is no share of it to give."
    return f"{rates} Sharpening alone reaches {interval_text(found.share)} % of the lead."


def sharpening_frame(found: list[Sharpening]) -> pd.DataFrame:
    """One row per comparison and sharpened base."""
    return pd.DataFrame(
        {
            **case.pair.key,
            "sharpened": case.sharpened.arm,
            "base_rate": case.base_rate,
            "sharpened_rate": case.sharpened_rate,
            "trained_rate": case.trained_rate,
            **interval_columns("share", case.share),
        }
        for case in found
    )


def moves_frame(measures: list[Moves]) -> pd.DataFrame:
    """One row per arm and step that was drawn by power sampling."""
    return pd.DataFrame(
        {
            **measure.measured.key,
            "tokens_drawn": measure.tokens_drawn,
            "moves": measure.moves,
            "accepted_share": measure.accepted_share,
            "unmoved_share": measure.unmoved_share,
        }
        for measure in measures
    )


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """Both tables by the name of their file."""
    return {
        "sharpening": sharpening_frame(sharpenings(report)),
        "moves": moves_frame(moves(report)),
    }


ASPECT = Aspect(Part.RESPONSES, section, tables=tables)
