"""pass@(k, T) of arms whose samples are episodes of turns: what at most T turns solve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    once,
    once_each,
    read_variables,
)
from rlbhpc.report.aspects.answer import finding_columns
from rlbhpc.report.aspects.pass_at_k import spread_evenly
from rlbhpc.report.aspects.responses import Budget, budget_aspect, budget_curves
from rlbhpc.report.chart import Chart, Colours, Panel, k_axis, percent_axis, step_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm, powers_of_two
from rlbhpc.report.phrases import (
    IntArray,
    interval_columns,
    interval_text,
    interval_texts,
    percent_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Answer, Counts, PassCurve, difference_curve, pass_curve
from rlbhpc.stats.curve import counts_within_turns
from rlbhpc.stats.decision import decide
from rlbhpc.stats.joint import Finding

# How many k a figure shows pass@(k, T) at, and the rate whose k it shows.
_SHOWN_SIZES: Final = 3
_CONTOUR: Final = 0.5


class Episodes(NamedTuple):
    """Turns and tool calls of every episode of an arm, ``[problem, sample]``."""

    turns: IntArray
    calls: IntArray


@dataclass(frozen=True)
class TurnLimit:
    """An arm under a limit of turns: ``curve`` is pass@(k, limit) over k."""

    measured: MeasuredArm
    limit: int
    curve: PassCurve


@dataclass(frozen=True)
class LimitedAnswer:
    """The answer of a comparison if both arms had at most ``limit`` turns."""

    pair: Comparison
    limit: int
    answer: Answer


@once
def episodes(report: Report) -> dict[int, Episodes]:
    """Episodes of the compared arms that have turns, by the ``id`` of the arm."""
    arms = [arm for arm in report.compared_arms if "n_turns" in report.tree[arm.group].to_dataset()]
    variables = ("n_turns", "n_tool_calls")
    return {id(arm): Episodes(*read) for arm, read in read_variables(report, arms, variables)}


def _limits(report: Report, arms: Sequence[MeasuredArm]) -> list[int]:
    """Limits of turns to show of some arms: powers of two, and the most turns of any episode.

    None where their samples are no episodes. Only the last where a model is told its limit: under
    a smaller one it would behave otherwise.
    """
    of_arm = episodes(report)
    longest = max(
        (int(of_arm[id(arm)].turns.max()) for arm in arms if id(arm) in of_arm), default=0
    )
    limits = sorted({*powers_of_two(longest), longest} - {0})
    return limits[-1:] if any(_is_told(report, arm) for arm in arms) else limits


def _is_told(report: Report, arm: MeasuredArm) -> bool:
    """Whether the study tells this arm how many turns it has left."""
    study_arm = report.study_arms.get(arm.arm)
    turns = study_arm.sampling.turns if study_arm else None
    return turns is not None and turns.told


def _counts_within(report: Report, arm: MeasuredArm, rows: IntArray, limit: int) -> Counts:
    """Counts of some problems of an arm within a limit; a plain response is an episode of one."""
    judged, right = arm.is_judged[rows], arm.is_right[rows]
    turns = np.ones_like(right, np.int64)
    if id(arm) in episodes(report):
        turns = episodes(report)[id(arm)].turns[rows]
    return counts_within_turns(judged, right, turns, limit)


@once_each
def turn_limits(report: Report) -> Iterator[TurnLimit]:
    """Yield the curves of the compared arms under each limit, on sets where any has episodes."""
    for _, arms in report.by_set([arm for arm in report.compared_arms if arm.verdicts is not None]):
        if not _limits(report, arms):
            continue
        for arm in arms:
            weights = report.settings.weights(arm.curve_problems)
            for limit in _limits(report, [arm]) or [1]:
                counts = _counts_within(report, arm, arm.curve_rows, limit)
                yield TurnLimit(arm, limit, pass_curve(counts, weights, prob=report.settings.prob))


@once_each
def limited_answers(report: Report) -> Iterator[LimitedAnswer]:
    """Yield the answer of each comparison under each limit; they share the comparison's error."""
    for pair in report.last_comparisons:
        limits = _limits(report, [pair.base, pair.trained])
        for limit in limits:
            curve = difference_curve(
                _counts_within(report, pair.base, pair.base_rows, limit),
                _counts_within(report, pair.trained, pair.trained_rows, limit),
                report.settings.weights(pair.problems),
                prob=report.settings.prob,
            )
            answer = decide(
                curve,
                pair.margin,
                comparisons=pair.comparisons * len(limits),
                errors=(pair.base.errors, pair.trained.errors),
            )
            yield LimitedAnswer(pair, limit, answer)


def section(report: Report) -> Iterator[Node]:
    """Show pass@(k, T) of each problem set, as a figure over T and as a table."""
    for set_name, limits in report.by_set(turn_limits(report)):
        yield el("h3", f"{set_name}: right within T turns")
        yield figure(
            "pass@(k, T): share of problems solved in k episodes of at most T turns, with "
            f"intervals; last, the k at which it is {100 * _CONTOUR:g} %, if an arm comes there.",
            turns_chart(limits, report.colours),
        )
        sizes = spread_evenly(report.k(max(int(each.curve.k[-1]) for each in limits)))
        heads = ["arm", "T", *(f"k = {k:,}" for k in sizes)]
        rows = []
        for each in limits:
            texts = interval_texts(sizes, each.curve.k, each.curve.interval)
            rows.append([each.measured.label, each.limit, *texts])
        yield table(f"pass@(k, T) on {set_name}, percent", heads, rows, last=True)
        yield note(
            "A model that is not told its limit has the same first T turns under any limit, so "
            "one set of episodes serves every T. An arm that is told has its own limit alone."
        )


def turns_chart(limits: Sequence[TurnLimit], colours: Colours) -> Chart:
    """Draw pass@(k, T) of each arm over T at a few k, and the k that solves half of the problems.

    ``limits``: arms under their limits, T rising.
    """
    reach = min(int(each.curve.k[-1]) for each in limits)
    sizes = spread_evenly(powers_of_two(reach), _SHOWN_SIZES)
    x = step_axis([each.limit for each in limits], "T, turns at most")
    panels = [Panel(x, percent_axis(f"pass@({k:,}, T), %")) for k in sizes]
    contour = Panel(x, replace(k_axis(reach), label=f"k at {100 * _CONTOUR:g} %"))
    limits_of_arm: dict[str, list[TurnLimit]] = {}
    for each in limits:
        limits_of_arm.setdefault(each.measured.label, []).append(each)
    for name, of_arm in limits_of_arm.items():
        colour, turns = colours[of_arm[0].measured.arm], [each.limit for each in of_arm]
        for panel, k in zip(panels, sizes, strict=True):
            rates = [each.curve.at(k) for each in of_arm]
            panel.interval_line(turns, rates, colour, name)
        contour_sizes = [_size_reaching(each.curve, _CONTOUR) for each in of_arm]
        if np.isfinite(contour_sizes).any():
            contour.line(turns, contour_sizes, colour, name=name)
    if contour.marks:
        panels.append(contour)
    legend = colours.legend(each.measured.arm for each in limits)
    return Chart(panels, lambda: turns_frame(limits), legend)


def _size_reaching(curve: PassCurve, rate: float) -> float:
    """K at which pass@k reaches a rate, between sizes on log k; NaN where it does not."""
    log_k = np.interp(rate, curve.interval.estimate, np.log(curve.k), right=np.nan)
    return float(np.exp(log_k))


def turns_frame(limits: Sequence[TurnLimit]) -> pd.DataFrame:
    """pass@(k, T) with its interval, one row per arm, T and k."""
    return stack_rows(
        {
            **each.measured.key,
            "turns": each.limit,
            "k": each.curve.k,
            **interval_columns("pass_at_k", each.curve.interval, sound=True),
        }
        for each in limits
    )


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """The answer of one comparison under each limit as a table; nothing without episodes."""
    rows = []
    for each in limited_answers(report):
        if each.pair is pair:
            lost, gained = each.answer.lost, each.answer.gained
            rows.append(
                [each.limit, each.answer.headline, lost.count, _share_text(lost), gained.count,
                 _share_text(gained), interval_text(each.answer.net, sign=True)]
            )  # fmt: skip
    if rows:
        heads = ["T", "answer", "only base", "lost, %", "only trained", "gained, %", "net, points"]
        yield table("Lost and gained within T turns", heads, rows)


def _share_text(finding: Finding) -> str:
    return f"{percent_text(finding.low)} to {percent_text(finding.high)}"


def limited_answers_frame(answers: Sequence[LimitedAnswer]) -> pd.DataFrame:
    """The answers under each limit, one row per comparison and T."""
    return pd.DataFrame(
        {
            **each.pair.key,
            "turns": each.limit,
            "answer": each.answer.headline,
            **finding_columns("lost", each.answer.lost),
            **finding_columns("gained", each.answer.gained),
            "k": each.answer.k,
            **interval_columns("difference", each.answer.net),
        }
        for each in answers
    )


@once_each
def call_budgets(report: Report) -> Iterator[Budget]:
    """Work out what tool calls buy, at the mean calls of an episode of each arm that makes any."""
    arms = [arm for arm in report.compared_arms if id(arm) in episodes(report)]
    for _, arms_of_set in report.by_set(arms):
        costs = []
        for arm in arms_of_set:
            mean_calls = float(episodes(report)[id(arm)].calls[arm.is_judged].mean())
            if mean_calls > 0:
                costs.append((arm, np.full(len(arm.curve_rows), mean_calls)))
        yield from budget_curves(report, costs)


ASPECT = Aspect(
    Part.CURVES,
    section,
    comparison,
    tables=lambda report: {
        "turns": turns_frame(turn_limits(report)),
        "turns_answers": limited_answers_frame(limited_answers(report)),
    },
    metrics=("pass@(k, T)",),
    charts=charts_by_set("turns", turn_limits, turns_chart),
)
CALL_BUDGET = budget_aspect(
    "budget_calls", "tool calls per problem", "the mean calls of that arm's episodes", call_budgets
)
