"""What the responses of an arm are like: their length, their entropy, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    once_each,
    read_variables,
    tables_of,
)
from rlbhpc.report.aspects.pass_at_k import spread_evenly
from rlbhpc.report.chart import (
    DOTTED,
    Chart,
    Colours,
    Panel,
    linear_axis,
    log_axis,
    percent_axis,
    step_axis,
)
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import (
    BoolArray,
    FloatArray,
    interval_columns,
    interval_text,
    number_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval
from rlbhpc.stats.curve import budget_curve


@dataclass(frozen=True)
class Responses:
    """Lengths and entropies of the responses of one arm at one step.

    ``entropy``: entropy per token in nats, at the sampling temperature before top-p, over all
    tokens. ``tokens``: tokens per response, end-of-text included. ``cost``: tokens that were drawn
    for a response to each sampled problem, rejected ones included; NaN where none is known.
    """

    measured: MeasuredArm
    entropy: Interval
    tokens: Interval
    cost: FloatArray


@once_each
def responses(report: Report) -> Iterator[Responses]:
    """Measure lengths and entropies of the responses of every arm and step that has samples.

    ``read_variables`` gives ``[problem, sample]``: tokens of a response, and the sum of the
    entropies of its tokens, NaN where it is not known. Only judged samples count, and for the
    entropy only those that have one. ``report.ratio``: a ratio of sums over problems, with its
    interval.
    """
    variables = ("n_tokens", "entropy_sum")
    for arm, (tokens, entropy) in read_variables(report, report.measured_arms, variables):
        has_length = arm.is_judged & (tokens > 0)
        has_entropy = has_length & ~np.isnan(entropy)
        rows, problems = arm.sampled_rows, arm.sampled_problems
        responses = has_length.sum(axis=1)[rows]
        total_tokens = _masked_sums(tokens, has_length)[rows]
        entropy_tokens = _masked_sums(tokens, has_entropy)[rows]
        total_entropy = _masked_sums(entropy, has_entropy)[rows]
        with np.errstate(invalid="ignore"):
            cost = _masked_sums(_tokens_drawn(report, arm, tokens), has_length)[rows] / responses
        yield Responses(
            arm,
            entropy=report.ratio(total_entropy, entropy_tokens, problems),
            tokens=report.ratio(total_tokens, responses, problems),
            cost=cost,
        )


def _tokens_drawn(report: Report, arm: MeasuredArm, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Tokens that each sample took, ``[problem, sample]``; those of its response if drawn at once.

    Power sampling draws several suffixes of a response. ``tokens``: those of the responses.
    """
    if "n_tokens_drawn" not in report.tree[arm.group].data_vars:
        return tokens
    ((_, (drawn,)),) = read_variables(report, [arm], ("n_tokens_drawn",))
    return np.asarray(drawn)


def _masked_sums(values: NDArray[Any], mask: BoolArray) -> FloatArray:
    """Sum the values of each problem's masked samples."""
    return np.asarray(np.where(mask, values, 0).sum(axis=1, dtype=np.float64))


def compared_responses(report: Report) -> list[Responses]:
    """The responses of the arms that are compared at their last step."""
    compared = {id(arm) for arm in report.compared_arms}
    return [measure for measure in responses(report) if id(measure.measured) in compared]


def section(report: Report) -> Iterator[Node]:
    """Show entropy and length of responses as figure and table, one of each per problem set.

    ``report.by_set`` yields each problem set with its arms' measures.
    """
    for set_name, measures in report.by_set(responses(report)):
        yield el("h3", f"{set_name}: entropy and length")
        yield figure(
            "Entropy of the next token over all response tokens, at the sampling temperature "
            "and before top-p, and tokens per response, both with intervals over problems; "
            "arms with one step as a level; pass@K against entropy, the last step a dot.",
            entropy_chart(measures, report.colours),
        )
        heads = ["arm", "step", "entropy, nat per token", "tokens per response"]
        rows = [
            [measure.measured.arm, measure.measured.step, number_text(measure.entropy, 3),
             number_text(measure.tokens, 0)]
            for measure in measures
        ]  # fmt: skip
        yield table(f"Entropy and length on {set_name}", heads, rows)


def entropy_chart(measures: Sequence[Responses], colours: Colours) -> Chart:
    """Draw entropy and length over steps, and pass@K against entropy along the steps.

    ``measures``: entropy and length of the responses of one arm at one step each. Where every arm
    has one step, only the last panel is drawn.
    """
    by_arm: dict[str, list[Responses]] = {}
    for measure in measures:
        by_arm.setdefault(measure.measured.arm, []).append(measure)
    panels = []
    if any(len(checkpoints) > 1 for checkpoints in by_arm.values()):
        panels = [
            _steps_panel(by_arm, "entropy", "entropy, nat per token", colours),
            _steps_panel(by_arm, "tokens", "tokens per response", colours),
        ]
    panels.append(_entropy_against_pass_at_k(by_arm, colours))
    return Chart(panels, lambda: responses_frame(measures), colours.legend(by_arm))


def _entropy_against_pass_at_k(by_arm: dict[str, list[Responses]], colours: Colours) -> Panel:
    """Draw the path of each arm along its steps: pass@K up, entropy to the right.

    ``by_arm``: entropy and length of the responses of each arm, steps rising. K is the largest k
    that the curves of all arms and steps have. A dot marks the last step.
    """
    measures = [measure for checkpoints in by_arm.values() for measure in checkpoints]
    curves = [measure.measured.curve for measure in measures]
    k = min((int(curve.k[-1]) for curve in curves if curve), default=1)
    entropies = [measure.entropy.estimate for measure in measures]
    x = linear_axis(entropies, "entropy, nat per token")
    panel = Panel(x, percent_axis(f"pass@{k:,}, %"))
    for arm, checkpoints in by_arm.items():
        entropy = [float(measure.entropy.estimate) for measure in checkpoints]
        solved = [100 * float(measure.measured.pass_at(k).estimate) for measure in checkpoints]
        panel.line(entropy, solved, colours[arm], width=1)
        panel.points(entropy[-1:], solved[-1:], colours[arm], name=arm)
    return panel


def _steps_panel(
    by_arm: dict[str, list[Responses]], measure_name: str, label: str, colours: Colours
) -> Panel:
    """Draw a measure of each arm over its steps.

    ``by_arm``: entropy and length of the responses of each arm, steps rising. ``measure_name``:
    which of the two. An arm with one step is a level across the panel: its step counts from another
    beginning.
    """
    intervals_of_arm = {
        arm: [getattr(measure, measure_name) for measure in checkpoints]
        for arm, checkpoints in by_arm.items()
    }
    bounds = [interval.bounds for intervals in intervals_of_arm.values() for interval in intervals]
    steps_of_arm = {
        arm: [measure.measured.step for measure in checkpoints]
        for arm, checkpoints in by_arm.items()
    }
    axis_steps = [step for steps in steps_of_arm.values() if len(steps) > 1 for step in steps]
    panel = Panel(step_axis(axis_steps), linear_axis(bounds, label, zero=True))
    for arm, intervals in intervals_of_arm.items():
        if len(intervals) == 1:
            level = float(intervals[0].estimate)
            dash = colours.dash(arm) or DOTTED
            panel.level(level, dash=dash, colour=colours[arm], width=1.4)
        else:
            panel.interval_line(steps_of_arm[arm], intervals, colours[arm], arm, scale=1, size=5)
    return panel


def responses_frame(measures: Sequence[Responses]) -> pd.DataFrame:
    """Entropy and length with intervals, pass@1 and pass@K, one row per arm, step and set.

    ``interval_columns``: columns of an estimate and its bounds. ``[0]`` is k = 1, ``[-1]`` the
    largest k of the curve.
    """
    return pd.DataFrame(
        {
            **measure.measured.key,
            **interval_columns("entropy", measure.entropy, "entropy_"),
            **interval_columns("tokens", measure.tokens, "tokens_"),
            "pass_at_1": measure.measured.curve.interval.estimate[0],
            "k": measure.measured.curve.k[-1],
            "pass_at_k": measure.measured.curve.interval.estimate[-1],
        }
        for measure in measures
        if measure.measured.curve
    )


charts = charts_by_set("entropy", responses, entropy_chart)

ASPECT = Aspect(
    Part.TRAINING,
    section,
    tables=tables_of(responses, responses=responses_frame),
    metrics=("token entropy",),
    charts=charts,
)


#: What a budget is counted in.
TOKENS: Final = "response tokens per problem"
# Budgets of a curve, and those that a table shows.
_CURVE_BUDGETS: Final = 24
_TABLE_BUDGETS: Final = 5


@dataclass(frozen=True)
class Budget:
    """Mean pass@budget of an arm over problems.

    ``budgets``: the same for all arms of a problem set. ``rates``: NaN above what the samples of
    some problem cost.
    """

    measured: MeasuredArm
    budgets: FloatArray
    rates: Interval


@once_each
def budgets(report: Report) -> Iterator[Budget]:
    """Work out the curves of the compared arms, from one response to all that there are."""
    for costs in token_costs(report):
        yield from budget_curves(report, costs)


def token_costs(report: Report) -> Iterator[list[tuple[MeasuredArm, FloatArray]]]:
    """Yield for each problem set the compared arms, with the cost of each problem in the curve.

    A cost is the mean number of tokens of a response. An arm with a problem whose cost is not known
    is left out. ``sampled_rows, curve_rows``: positions of the problems with samples, and of those
    in the pass@k curve; ``measure.cost`` is of the former.
    """
    priced = [measure for measure in compared_responses(report) if not np.isnan(measure.cost).any()]
    for _, measures in report.by_set(priced):
        costs = []
        for measure in measures:
            arm = measure.measured
            # A straggler would end the curve of its arm at the few samples that it has.
            in_curve = np.isin(arm.sampled_rows, arm.curve_rows)
            costs.append((arm, measure.cost[in_curve]))
        yield costs


def budget_curves(
    report: Report, costs: Sequence[tuple[MeasuredArm, FloatArray]]
) -> Iterator[Budget]:
    """Yield pass@budget of each arm, all on one grid of budgets.

    A *budget* is what may be spent on the responses to one problem. The grid begins where every arm
    can buy a response to each problem.

    ``costs``: arms, each with the cost of one response to each problem in its curve. ``largest``:
    the budget at which the samples of some problem run out; an arm whose samples run out before it
    can buy a response to its dearest problem has no curve.
    """
    affordable = []
    for arm, cost in costs:
        largest = float((cost * arm.counts[arm.curve_rows].n).min())
        if largest > cost.max():
            affordable.append((arm, cost, largest))
    if not affordable:
        return
    least = max(float(cost.max()) for _, cost, _ in affordable)
    grid = np.geomspace(least, max(largest for _, _, largest in affordable), _CURVE_BUDGETS)
    for arm, cost, _ in affordable:
        weights = report.settings.weights(arm.curve_problems)
        counts = arm.counts[arm.curve_rows]
        rates = budget_curve(counts, cost, grid, weights, report.settings.prob)
        yield Budget(arm, grid, rates)


def budget_table(set_name: str, curves: Sequence[Budget], unit: str) -> Node:
    """Table of the rates at a few budgets, from the first one to the last that all arms can use.

    ``curve.rates``: rate with its interval at each of ``curve.budgets``, which all arms share; NaN
    above what an arm has samples for. ``spread_evenly``: takes a few of the columns.
    """
    usable = ~np.isnan([curve.rates.estimate for curve in curves]).any(axis=0)
    last = int(np.flatnonzero(usable)[-1]) if usable.any() else 0
    columns = spread_evenly(range(last + 1), _TABLE_BUDGETS)
    heads = ["arm", *(budget_text(curves[0].budgets[column]) for column in columns)]
    rows = [
        [curve.measured.label, *(interval_text(curve.rates, column) for column in columns)]
        for curve in curves
    ]
    return table(f"pass@budget on {set_name}, percent, by {unit}", heads, rows, last=True)


def budget_chart(curves: Sequence[Budget], colours: Colours, unit: str) -> Chart:
    """Draw pass@budget of each arm over budgets, base dashed, with its interval.

    ``unit``: what a budget is counted in.
    """
    x = log_axis([curve.budgets for curve in curves], unit)
    panel = Panel(x, percent_axis("pass@budget, %"), height=220)
    for curve in curves:
        arm = curve.measured.arm
        panel.named_curve(curve.budgets, curve.rates, colours[arm], arm, dash=colours.dash(arm))
    return Chart([panel], lambda: budget_frame(curves))


def budget_frame(curves: Sequence[Budget]) -> pd.DataFrame:
    """pass@budget with its interval, one row per arm and budget.

    ``measured.key``: columns that name the arm. ``curve.rates``: over ``curve.budgets``.
    """
    return stack_rows(
        {
            **curve.measured.key,
            "budget": curve.budgets,
            **interval_columns("pass_at_budget", curve.rates),
        }
        for curve in curves
    )


def budget_text(budget: float) -> str:
    """Three digits of a budget; all digits, and no exponent, from 1,000 on."""
    return f"{budget:,.3g}" if budget < 999.5 else f"{budget:,.0f}"


def budget_aspect(
    name: str, unit: str, price: str, gather: Callable[[Report], Sequence[Budget]]
) -> Aspect:
    """Return an aspect that shows what a budget in some unit buys, as curves and table by set.

    ``name``: of its table and figures. ``unit``: what a budget is counted in. ``price``: what one
    sample is said to cost, in words. ``gather``: finds the curves.
    """

    def draw(curves: Sequence[Budget], colours: Colours) -> Chart:
        return budget_chart(curves, colours, unit)

    def section(report: Report) -> Iterator[Node]:
        for set_name, curves in report.by_set(gather(report)):
            yield el("h3", f"{set_name}: for a budget of {unit}")
            caption = f"pass@k at equal cost: the k that a budget of {unit} buys at {price}."
            yield figure(caption, draw(curves, report.colours))
            yield budget_table(set_name, curves, unit)

    return Aspect(
        Part.RESPONSES,
        section,
        tables=tables_of(gather, **{name: budget_frame}),
        metrics=("pass@budget",),
        charts=charts_by_set(name, gather, draw),
    )


BUDGET = budget_aspect(
    "budget", TOKENS, "the mean length of that arm's responses to that problem", budgets
)
