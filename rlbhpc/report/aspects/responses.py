"""What the responses of an arm are like beyond right and wrong: their length and entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.draw.axes import Axis, linear_axis, percent_axis, step_axis
from rlbhpc.report.draw.chart import Chart, Colours, Panel
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded, ends
from rlbhpc.report.stored import cells
from rlbhpc.stats import Interval


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
    for arm, (tokens, entropy) in cells(report, report.measured, ("n_tokens", "entropy_sum")):
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


def of_compared(report: Report) -> list[Responses]:
    """Those of the arms that are compared at their last step."""
    compared = {id(arm) for arm in report.compared}
    return [measure for measure in responses(report) if id(measure.of) in compared]


def section(report: Report) -> Iterator[Node]:
    """Entropy and length, problem set by problem set."""
    for set_name, measures in report.by_set(responses(report)):
        caption = (
            "Entropy of the next token over all response tokens, at the sampling temperature "
            "and before top-p, and tokens per response, both with intervals over problems; "
            "on the right pass@K against entropy, lines from step to step, the last one a dot."
        )
        rows: list[list[Cell]] = [
            [m.of.arm, m.of.step, ends(m.entropy, 3), ends(m.tokens, 0)] for m in measures
        ]
        heads = ["arm", "step", "entropy, nat per token", "tokens per response"]
        yield el("h3", f"{set_name}: entropy and length")
        yield figure(caption, entropy_chart(measures, report.colours))
        yield table(f"Entropy and length on {set_name}", heads, rows)


def entropy_chart(measures: Sequence[Responses], colours: Colours) -> Chart:
    """Draw entropy and length over steps, and pass@K against entropy along the steps."""
    lines: dict[str, list[Responses]] = {}
    for measure in measures:
        lines.setdefault(measure.of.arm, []).append(measure)
    k = min((int(m.of.curve.k[-1]) for m in measures if m.of.curve), default=1)
    x = step_axis([m.of.step for m in measures])
    entropies = _over_steps(lines, "entropy", "entropy, nat per token", colours, x)
    lengths = _over_steps(lines, "tokens", "tokens per response", colours, x)
    across = linear_axis([m.entropy.estimate for m in measures], "entropy, nat per token")
    against = Panel(across, percent_axis(f"pass@{k:,}, %"))
    for arm, line in lines.items():
        entropy = [float(m.entropy.estimate) for m in line]
        solved = [100 * float(m.of.pass_at(k).estimate) for m in line]
        against.line(entropy, solved, colours[arm], width=1)
        against.points(entropy[-1:], solved[-1:], colours[arm], name=arm)
    panels = [entropies, lengths, against]
    return Chart(panels, lambda: responses_frame(measures), colours.legend(lines))


def _over_steps(
    lines: dict[str, list[Responses]], name: str, label: str, colours: Colours, x: Axis
) -> Panel:
    every = [getattr(measure, name) for line in lines.values() for measure in line]
    limits = [side for interval in every for side in (interval.lower, interval.upper)]
    panel = Panel(x, linear_axis(limits, label, zero=True))
    for arm, line in lines.items():
        intervals = [getattr(measure, name) for measure in line]
        middle = np.array([float(interval.estimate) for interval in intervals])
        if colours.dash(arm) and len(line) == 1:
            # A base has a level and not a line.
            panel.level(middle[0], dash=colours.dash(arm), colour=colours[arm], width=1.4)
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
            **bounded("entropy", measure.entropy, "entropy_"),
            **bounded("tokens", measure.tokens, "tokens_"),
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
)
