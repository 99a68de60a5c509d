"""What the responses of an arm are like beyond right and wrong: their length and entropy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.errors import UserError
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
from rlbhpc.report.draw.chart import (
    DOTTED,
    Chart,
    Colours,
    Panel,
    linear_axis,
    log_axis,
    percent_axis,
    step_axis,
)
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import interval_columns, interval_text, number_text, stack_rows
from rlbhpc.stats import Interval
from rlbhpc.stats.curve import budget_curve
from rlbhpc.store import left_out
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan


@dataclass(frozen=True)
class Responses:
    """Responses of one arm at one step.

    ``of``: the arm, step and problem set. ``entropy``: entropy per token in nats, at the sampling
    temperature before top-p, over all tokens. ``tokens``: tokens per response, end-of-text
    included. ``cost``: tokens per response of each sampled problem; NaN where none is known.
    """

    of: Measured
    entropy: Interval
    tokens: Interval
    cost: NDArray[np.float64]


@once_each
def responses(report: Report) -> Iterator[Responses]:
    """Measure lengths and entropies of every arm and step that has samples."""
    for arm, (tokens, entropy) in read_variables(
        report, report.measured, ("n_tokens", "entropy_sum")
    ):
        counted = arm.judged & (tokens > 0)
        has_entropy = counted & ~np.isnan(entropy)
        every_known = bool((has_entropy == counted).all())
        responses = counted.sum(axis=1)[arm.rows]
        lengths = _sums(tokens, counted)[arm.rows]
        lengths_known = lengths if every_known else _sums(tokens, has_entropy)[arm.rows]
        entropies = _sums(entropy, has_entropy)[arm.rows]
        with np.errstate(invalid="ignore"):
            cost = lengths / responses
        per_token = report.ratio(entropies, lengths_known, arm.sampled_problems)
        per_response = report.ratio(lengths, responses, arm.sampled_problems)
        yield Responses(arm, per_token, per_response, cost)


def _sums(values: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum the values of each problem's masked samples."""
    if mask.all():
        return np.asarray(values.sum(axis=1, dtype=np.float64))
    return np.asarray(np.where(mask, values, 0).sum(axis=1, dtype=np.float64))


def compared_responses(report: Report) -> list[Responses]:
    """Those of the arms that are compared at their last step."""
    compared = {id(arm) for arm in report.compared}
    return [measure for measure in responses(report) if id(measure.of) in compared]


def section(report: Report) -> Iterator[Node]:
    """Entropy and length, problem set by problem set."""
    for set_name, measures in report.by_set(responses(report)):
        caption = (
            "Entropy of the next token over all response tokens, at the sampling temperature "
            "and before top-p, and tokens per response, both with intervals over problems; "
            "arms with one step as a level; pass@K against entropy, the last step a dot."
        )
        rows: list[list[Cell]] = [
            [m.of.arm, m.of.step, number_text(m.entropy, 3), number_text(m.tokens, 0)]
            for m in measures
        ]
        heads = ["arm", "step", "entropy, nat per token", "tokens per response"]
        yield el("h3", f"{set_name}: entropy and length")
        yield figure(caption, entropy_chart(measures, report.colours))
        yield table(f"Entropy and length on {set_name}", heads, rows)


def entropy_chart(measures: Sequence[Responses], colours: Colours) -> Chart:
    """Draw entropy and length over steps, and pass@K against entropy along the steps.

    An arm with one step has a level and no line: its step counts from another beginning.
    """
    lines: dict[str, list[Responses]] = {}
    for measure in measures:
        lines.setdefault(measure.of.arm, []).append(measure)
    k = min((int(m.of.curve.k[-1]) for m in measures if m.of.curve), default=1)
    across = linear_axis([m.entropy.estimate for m in measures], "entropy, nat per token")
    against = Panel(across, percent_axis(f"pass@{k:,}, %"))
    for arm, line in lines.items():
        entropy = [float(m.entropy.estimate) for m in line]
        solved = [100 * float(m.of.pass_at(k).estimate) for m in line]
        against.line(entropy, solved, colours[arm], width=1)
        against.points(entropy[-1:], solved[-1:], colours[arm], name=arm)
    panels = [against]
    if any(len(line) > 1 for line in lines.values()):
        panels = [
            _over_steps(lines, "entropy", "entropy, nat per token", colours),
            _over_steps(lines, "tokens", "tokens per response", colours),
            against,
        ]
    return Chart(panels, lambda: responses_frame(measures), colours.legend(lines))


def _over_steps(
    lines: dict[str, list[Responses]], name: str, label: str, colours: Colours
) -> Panel:
    every = [getattr(measure, name) for line in lines.values() for measure in line]
    limits = [side for interval in every for side in (interval.lower, interval.upper)]
    steps = [measure.of.step for line in lines.values() if len(line) > 1 for measure in line]
    panel = Panel(step_axis(steps), linear_axis(limits, label, zero=True))
    for arm, line in lines.items():
        intervals = [getattr(measure, name) for measure in line]
        middle = np.array([float(interval.estimate) for interval in intervals])
        if len(line) == 1:
            dash = colours.dash(arm) or DOTTED
            panel.level(middle[0], dash=dash, colour=colours[arm], width=1.4)
            continue
        steps = [measure.of.step for measure in line]
        low = [float(interval.lower) for interval in intervals]
        high = [float(interval.upper) for interval in intervals]
        panel.line(steps, middle, colours[arm], width=1.2)
        panel.points(steps, middle, colours[arm], low, high, name=arm, size=5)
    return panel


def responses_frame(measures: Sequence[Responses]) -> pd.DataFrame:
    """Entropy and length with intervals, pass@1 and pass@K, one row per arm, step and set."""
    return pd.DataFrame(
        {
            **measure.of.key,
            **interval_columns("entropy", measure.entropy, "entropy_"),
            **interval_columns("tokens", measure.tokens, "tokens_"),
            "pass_at_1": measure.of.curve.interval.estimate[0],
            "k": measure.of.curve.k[-1],
            "pass_at_k": measure.of.curve.interval.estimate[-1],
        }
        for measure in measures
        if measure.of.curve
    )


charts = charts_by_set("entropy", responses, entropy_chart)

ASPECT = Aspect(
    Part.TRAINING,
    section,
    tables=tables_of(responses, responses=responses_frame),
    metrics=("token entropy",),
    charts=charts,
)


#: A model at one of its steps.
Checkpoint = tuple[str, int]


#: What a budget is counted in, and for what.
TOKENS: Final = "response tokens per problem"
HOURS: Final = "device-hours for the problem set"
_POINTS: Final = 24
# Budgets that a table shows.
_COLUMNS: Final = 5


def speeds(folder: Path) -> dict[Checkpoint, float]:
    """Response tokens per second of one device, by model and step.

    Over all attempts that ended: from when the model was loaded until the last verdict. A worker
    has as many devices as its record names, and counts as one where it names none.
    """
    layout = Layout(folder)
    plan = cache(lambda name: _shards(layout, name))
    tokens: Counter[Checkpoint] = Counter()
    seconds: Counter[Checkpoint] = Counter()
    for attempt in read_attempts(layout):
        if not (attempt.get("tokens") and "loaded" in attempt and "ended" in attempt):
            continue
        shard = plan(attempt["plan"]).get(attempt["shard"])
        if shard is not None:
            gpus = max(1, len(attempt.get("devices") or ()))
            tokens[shard] += attempt["tokens"]
            seconds[shard] += (attempt["ended"] - attempt["loaded"]) * gpus
    return {which: tokens[which] / time for which, time in seconds.items() if time > 0}


def _shards(layout: Layout, name: str) -> dict[int, Checkpoint]:
    """Which model each shard of a plan loads; nothing where it is gone, or damaged and told."""
    path = layout.plans / f"{name}.json"
    try:
        return {shard.number: (shard.model, shard.step) for shard in Plan.load(path).shards}
    except UserError as error:
        if path.exists():
            left_out.warn_left_out(layout.root, [Note(DAMAGED, f"speeds of workers: {error}")])
        return {}


@dataclass(frozen=True)
class Budget:
    """Mean pass@budget over problems; NaN above what the samples of some problem cost.

    ``unit``: ``TOKENS`` or ``HOURS``. ``spent``: budgets, the same for all arms of a problem set.
    """

    of: Measured
    unit: str
    spent: NDArray[np.float64]
    interval: Interval


@once_each
def budgets(report: Report) -> Iterator[Budget]:
    """Work out the curves of the compared arms, from one response to all that there are.

    Hours are those of the devices that made the responses, without loading the model; they are
    known where the run sampled all compared arms itself.
    """
    priced = [written for written in compared_responses(report) if not np.isnan(written.cost).any()]
    rates = speeds(report.folder)
    for _, of_set in report.by_set(priced):
        arms = [written.of for written in of_set]
        # A straggler would end the curve of its arm at the few samples that it has.
        costs = [
            written.cost[np.isin(arm.rows, arm.curve_rows)]
            for written, arm in zip(of_set, arms, strict=True)
        ]
        yield from _curves(report, TOKENS, arms, costs)
        if all((arm.model, arm.step) in rates for arm in arms):
            hours = [
                cost * len(cost) / rates[arm.model, arm.step] / 3600
                for arm, cost in zip(arms, costs, strict=True)
            ]
            yield from _curves(report, HOURS, arms, hours)


def _curves(
    report: Report, unit: str, arms: list[Measured], costs: list[NDArray[np.float64]]
) -> Iterator[Budget]:
    """``costs``: of one response to each problem in the curve of an arm."""
    priced = []
    for arm, cost in zip(arms, costs, strict=True):
        most = float((cost * arm.counts[arm.curve_rows].n).min())
        if most > cost.max():
            priced.append((arm, cost, most))
    if not priced:
        return
    # From what buys every arm a response to each problem.
    least = max(float(cost.max()) for _, cost, _ in priced)
    spent = np.geomspace(least, max(most for _, _, most in priced), _POINTS)
    for arm, cost, _ in priced:
        weights = report.weights(arm.curve_problems)
        counts = arm.counts[arm.curve_rows]
        bought = budget_curve(counts, cost, spent, weights, report.settings.prob)
        yield Budget(arm, unit, spent, bought)


def _by_set_and_unit(report: Report) -> Iterator[tuple[str, str, list[Budget]]]:
    for set_name, of_set in report.by_set(budgets(report)):
        for unit in dict.fromkeys(curve.unit for curve in of_set):
            yield set_name, unit, [curve for curve in of_set if curve.unit == unit]


def budget_section(report: Report) -> Iterator[Node]:
    """Curves and table of each problem set and unit."""
    for set_name, unit, curves in _by_set_and_unit(report):
        tokens = unit == TOKENS
        caption = (
            "pass@k at equal cost: the k that a budget of response tokens per problem buys at the "
            "mean length of that arm's responses to that problem."
            if tokens
            else "pass@k at equal cost: the k that hours of a device buy, at the mean length of "
            "that arm's responses and the tokens per second that its workers made, without "
            "loading the model."
        )
        yield el("h3", f"{set_name}: for a budget of {'tokens' if tokens else 'device-hours'}")
        yield figure(caption, budget_chart(curves, report.colours))
        spent = curves[0].spent
        # From the first budget up to the last that all arms can use.
        usable = ~np.isnan([curve.interval.estimate for curve in curves]).any(axis=0)
        last = int(np.flatnonzero(usable)[-1]) if usable.any() else 0
        columns = spread_evenly(range(last + 1), _COLUMNS)
        rows: list[list[Cell]] = [
            [curve.of.label, *(_cell(curve.interval, i) for i in columns)] for curve in curves
        ]
        heads = ["arm", *(budget_text(spent[i]) for i in columns)]
        caption = f"pass@budget on {set_name}, percent, by {curves[0].unit}"
        yield table(caption, heads, rows, last=True)


def budget_chart(curves: Sequence[Budget], colours: Colours) -> Chart:
    """Draw each arm over budgets of one unit, base dashed, with its interval."""
    x = log_axis([curve.spent for curve in curves], curves[0].unit)
    panel = Panel(x, percent_axis("pass@budget, %"), height=220)
    for curve in curves:
        name, colour = curve.of.arm, colours[curve.of.arm]
        panel.curve(curve.spent, curve.interval, colour, name, dash=colours.dash(name))
        values = curve.interval.estimate[~np.isnan(curve.interval.estimate)]
        if len(values):
            panel.end(100 * values, name, colour)
    return Chart([panel], lambda: budget_frame(curves))


def budget_frame(curves: Sequence[Budget]) -> pd.DataFrame:
    """pass@budget with its interval, one row per arm and budget."""
    return stack_rows(
        {
            **curve.of.key,
            "unit": curve.unit,
            "budget": curve.spent,
            **interval_columns("pass_at_budget", curve.interval),
        }
        for curve in curves
    )


def budget_text(budget: float) -> str:
    """Three digits of a budget; all digits, and no exponent, from 1,000 on."""
    return f"{budget:,.3g}" if budget < 999.5 else f"{budget:,.0f}"


def _cell(interval: Interval, place: int) -> str:
    return "–" if np.isnan(interval.estimate[place]) else interval_text(interval, place)


def budget_charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a problem set and unit."""
    for set_name, unit, curves in _by_set_and_unit(report):
        name = f"budget-{set_name}" if unit == TOKENS else f"budget-hours-{set_name}"
        yield name, budget_chart(curves, report.colours)


BUDGET = Aspect(
    Part.RESPONSES,
    budget_section,
    tables=tables_of(budgets, budget=budget_frame),
    metrics=("pass@budget",),
    charts=budget_charts,
)
