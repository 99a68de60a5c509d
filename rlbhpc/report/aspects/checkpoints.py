"""One line of checkpoints: its curves, what it gains and loses over the steps, the best one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Line, Part, Report, once
from rlbhpc.report.aspects.pass_at_k import curves_frame
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.draw.chart import (
    BASE_COLOUR,
    DASHED,
    Chart,
    Colours,
    Key,
    Panel,
    k_axis,
    linear_axis,
    percent_axis,
    step_axis,
)
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured, powers_of_two
from rlbhpc.report.phrases import interval_columns, interval_text, points_text
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.stats.curve import choose_checkpoint, even_odd

# From dark to light as training goes on, between what can be told from black and from white
# paper: the middle of the colour map cividis, made for all kinds of colour vision.
_SHADES: Final = ("#213d6b", "#44516b", "#5d6470", "#747878", "#8e8c74", "#a9a16b", "#c6b75c")


@dataclass(frozen=True)
class Chosen:
    """The best checkpoint of a line by pass@``k`` of even samples, on odd samples.

    The best of several noisy checkpoints looks better than it is. So even samples choose and odd
    samples report, of the base as well.

    ``k``: the k of the choice, and of what is reported. ``on_even``: difference to the base that
    the choosing half shows, which flatters the choice. ``on_odd``: the same on the other half, with
    its interval. ``problems``: problems that base and all checkpoints have samples of.
    """

    base: Measured
    chosen: Measured
    checkpoints: int
    k: int
    on_even: float
    on_odd: Interval
    problems: int


@once
def chosen_checkpoints(report: Report) -> list[Chosen]:
    """Choose a checkpoint of each line with two or more, by pass@1 and by pass@K."""
    return [choice for line in report.lines for choice in _of_line(report, line)]


def _of_line(report: Report, line: Line) -> list[Chosen]:
    every = (line.base, *line.steps)
    if len(line.steps) < 2 or any(arm.verdicts is None for arm in every):
        return []
    problems = common_problems(every)
    width = min(arm.width for arm in every)
    if len(problems) < 2 or width < 2:
        return []
    base, *checkpoints = (count_even_and_odd(report, arm, problems, width) for arm in every)
    reach = min(half.reach for arm in (base, *checkpoints) for half in arm)
    if not reach:
        return []
    weights = report.weights(problems)
    choices = []
    for k in dict.fromkeys((1, powers_of_two(reach)[-1])):
        selection = choose_checkpoint(checkpoints, k)
        curve = difference_curve(base[1], selection.report, weights, [k], report.settings.prob)
        flattering = float(selection.scores[selection.chosen] - base[0].pass_at_k(k).mean())
        best, on_odd = line.steps[selection.chosen], curve.pointwise[0]
        sizes = len(checkpoints), k
        choices.append(Chosen(line.base, best, *sizes, flattering, on_odd, len(problems)))
    return choices


def count_even_and_odd(
    report: Report, arm: Measured, problems: tuple[str, ...], width: int
) -> tuple[Counts, Counts]:
    """Count even and odd samples of an arm once; a base is compared with several."""
    key = (count_even_and_odd, id(arm), problems, width)
    if key not in report.memo:
        assert arm.verdicts is not None
        report.memo[key] = even_odd(arm.verdicts[arm.rows_of(problems), :width])
    of_arm: tuple[Counts, Counts] = report.memo[key]
    return of_arm


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """Curves and differences over the steps, where there are several."""
    number = next(i for i, last in enumerate(report.final) if last is pair)
    line, line_up = report.lines[number], report.line_ups[number]
    if len(line_up) < 2:
        return
    caption = (
        "Left: checkpoints from dark to light, the base dashed. Right: trained minus base at "
        "k = 1 (rings) and at the largest k (dots) over the steps, with intervals."
    )
    chart = checkpoints_chart(line, report.colours)
    steps = _steps_panel(line_up, report.colours)
    yield figure(caption, Chart([chart.panels[0], steps], lambda: steps_frame(line_up)))
    rows: list[list[Cell]] = [
        [
            pair.trained.step,
            interval_text(pair.pointwise, 0, sign=True),
            pair.reach,
            interval_text(pair.net, sign=True),
        ]
        for pair in line_up
    ]
    heads = ["step", "pass@1 − base, points", "K", "pass@K − base, points"]
    yield table("Over training steps", heads, rows, last=True)


def checkpoints_chart(line: Line, colours: Colours) -> Chart:
    """Draw base and checkpoints in one panel, pass@1 and pass@K over steps in another."""
    base, checkpoints = line
    drawn = [arm for arm in (base, *checkpoints) if arm.curve is not None]
    curves = Panel(k_axis(max(int(arm.curve.k[-1]) for arm in drawn if arm.curve)), percent_axis())
    for number, arm in enumerate(checkpoints):
        if arm.curve is not None:
            place = number * (len(_SHADES) - 1) // max(len(checkpoints) - 1, 1)
            value, name = 100 * arm.curve.interval.estimate, f"step {arm.step:,}"
            curves.line(arm.curve.k, value, _SHADES[place], name=name, width=1.3)
            if number in {0, len(checkpoints) - 1}:
                curves.end(value, name, _SHADES[place])
    if base.curve is not None:
        value = 100 * base.curve.interval.estimate
        curves.line(base.curve.k, value, BASE_COLOUR, name=base.arm, dash=DASHED)
        curves.end(value, base.arm, BASE_COLOUR)
    reach = min(int(arm.curve.k[-1]) for arm in drawn if arm.curve)
    steps = [0 if arm is base and base.arm != checkpoints[-1].arm else arm.step for arm in drawn]
    over = Panel(step_axis(steps, "training step (0: the base)"), percent_axis())
    colour = colours[checkpoints[-1].arm]
    for k in (1, reach):
        values = [arm.pass_at(k) for arm in drawn]
        middle, low, high = 100 * np.array([(v.estimate, v.lower, v.upper) for v in values]).T
        over.line(steps, middle, colour, width=1.2)
        over.points(steps, middle, colour, low, high, name=f"pass@{k:,}", hollow=k == 1)
        over.end(middle, f"pass@{k:,}", colour)
    legend = (Key(base.arm, BASE_COLOUR, DASHED), Key(checkpoints[-1].arm, colour))
    return Chart([curves, over], lambda: curves_frame(drawn), legend)


def _steps_panel(line_up: Sequence[Comparison], colours: Colours) -> Panel:
    """Draw the difference to the base at k = 1 and at the largest k, with intervals."""
    frame = steps_frame(line_up)
    limits = [100 * frame[name] for name in ("difference", "lower", "upper")]
    y = linear_axis(limits, "trained − base, points", zero=True)
    panel = Panel(step_axis(frame["step"].tolist()), y)
    panel.level(0)
    colour = colours[line_up[-1].trained.arm]
    for name, part in frame.groupby("metric"):
        middle = 100 * part["difference"].to_numpy()
        low, high = 100 * part["lower"], 100 * part["upper"]
        panel.line(part["step"], middle, colour, width=1.2)
        panel.points(
            part["step"], middle, colour, low, high, name=str(name), hollow=name == "pass@1"
        )
        panel.end(middle, str(name), colour)
    return panel


def steps_frame(line_up: Sequence[Comparison]) -> pd.DataFrame:
    """Difference to the base at k = 1 and at the largest k, one row per step and metric."""
    return pd.DataFrame(
        {
            **pair.key,
            "metric": name,
            "k": k,
            **interval_columns("difference", interval, sound=True),
        }
        for pair in line_up
        for name, k, interval in (
            ("pass@1", 1, pair.pointwise[0]),
            ("pass@K", pair.reach, pair.net),
        )
    )


def section(report: Report) -> Iterator[Node]:
    """Show what a checkpoint is worth on samples that did not choose it."""
    choices = chosen_checkpoints(report)
    if not choices:
        return
    rows: list[list[Cell]] = [
        [choice.chosen.arm, choice.base.problem_set, f"pass@{choice.k:,}", choice.chosen.step,
         choice.checkpoints, choice.problems, points_text(choice.on_even),
         interval_text(choice.on_odd, sign=True)]
        for choice in choices
    ]  # fmt: skip
    heads = ["arm", "set", "chosen by", "step", "of", "problems",
             "even: trained − base", "odd: trained − base"]  # fmt: skip
    yield el("h3", "A checkpoint that the data chose")
    yield table("Best checkpoints, chosen by even samples, points", heads, rows, last=True)
    yield note(
        "The best of several checkpoints looks better than it is on the samples that chose "
        "it. So even samples choose, and odd samples report, of the base as well. The answer "
        "above is that of the last checkpoint, which nobody chose by its results."
    )


def chosen_frame(choices: Sequence[Chosen]) -> pd.DataFrame:
    """Checkpoints that even samples chose, one row per line of checkpoints and k."""
    return pd.DataFrame(
        {
            "problem_set": choice.base.problem_set,
            "base": choice.base.arm,
            "trained": choice.chosen.arm,
            "step": choice.chosen.step,
            "checkpoints": choice.checkpoints,
            "k": choice.k,
            "problems": choice.problems,
            "difference_even": choice.on_even,
            **interval_columns("difference_odd", choice.on_odd, sound=True),
        }
        for choice in choices
    )


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a line of checkpoints."""
    for line, last in zip(report.lines, report.final, strict=True):
        if len(line.steps) > 1:
            yield f"checkpoints-{last.slug}", checkpoints_chart(line, report.colours)


ASPECT = Aspect(
    Part.TRAINING,
    section,
    comparison,
    lambda report: {
        "steps": steps_frame(report.every_comparison),
        "chosen_checkpoints": chosen_frame(chosen_checkpoints(report)),
    },
    charts=charts,
)
