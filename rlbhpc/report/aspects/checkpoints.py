"""The checkpoints of a training: their curves, what they gain and lose over steps, the best one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Lineage, Part, Report, once_each
from rlbhpc.report.aspects.pass_at_k import curves_frame
from rlbhpc.report.chart import (
    BASE_COLOUR,
    DASHED,
    Chart,
    Colours,
    Key,
    Panel,
    k_axis,
    percent_axis,
    points_axis,
    step_axis,
)
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm, powers_of_two
from rlbhpc.report.phrases import interval_columns, interval_text, points_text
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.stats.curve import choose_checkpoint, even_odd

# From dark to light as training goes on, between what can be told from black and from white
# paper: the middle of the colour map cividis, made for all kinds of colour vision.
_SHADES: Final = ("#213d6b", "#44516b", "#5d6470", "#747878", "#8e8c74", "#a9a16b", "#c6b75c")


@dataclass(frozen=True)
class Chosen:
    """The checkpoint with the best pass@``k`` on even samples, as odd samples report it.

    The best of several noisy checkpoints looks better than it is. So even samples choose and odd
    samples report, of the base as well. ``on_even``: difference to the base on the samples that
    chose, which flatters the choice. ``on_odd``: the same on the other half, with its interval.
    ``problems``: problems that base and all checkpoints have samples of.
    """

    base: MeasuredArm
    chosen: MeasuredArm
    checkpoints: int
    k: int
    on_even: float
    on_odd: Interval
    problems: int


@once_each
def chosen_checkpoints(report: Report) -> Iterator[Chosen]:
    """Choose a checkpoint of each lineage with two or more, by pass@1 and by pass@K."""
    for lineage in report.lineages:
        arms = (lineage.base, *lineage.checkpoints)
        if len(lineage.checkpoints) > 1 and all(arm.verdicts is not None for arm in arms):
            yield from _choose(report, lineage)


def _choose(report: Report, lineage: Lineage) -> Iterator[Chosen]:
    """Choose the best checkpoint of a lineage by pass@1, and by pass@K for the largest K.

    A *lineage* is a base arm and its checkpoints on one problem set. Even samples choose, odd
    samples report, so that luck in the choice does not flatter the result. ``halves``: counts of
    even and odd samples of each arm, the base first. ``reach``: the largest k that all problems
    support. ``selection.report``: odd samples of the chosen one. ``depth``: samples that every
    problem has.
    """
    arms = (lineage.base, *lineage.checkpoints)
    problems = common_problems(arms)
    depth = min(arm.common_depth for arm in arms)
    if len(problems) < 2 or depth < 2:
        return
    halves = [count_even_and_odd(report, arm, problems, depth) for arm in arms]
    reach = min(counts.reach for even_and_odd in halves for counts in even_and_odd)
    if not reach:
        return
    (base_even, base_odd), *checkpoint_halves = halves
    weights = report.settings.weights(problems)
    for k in dict.fromkeys((1, powers_of_two(reach)[-1])):
        selection = choose_checkpoint(checkpoint_halves, k)
        best_score = selection.scores[selection.chosen]
        curve = difference_curve(base_odd, selection.report, weights, [k], report.settings.prob)
        yield Chosen(
            lineage.base,
            lineage.checkpoints[selection.chosen],
            len(lineage.checkpoints),
            k,
            on_even=float(best_score - base_even.pass_at_k(k).mean()),
            on_odd=curve.pointwise[0],
            problems=len(problems),
        )


def count_even_and_odd(
    report: Report, arm: MeasuredArm, problems: tuple[str, ...], depth: int
) -> tuple[Counts, Counts]:
    """Counts of the even and of the odd ones of the first ``depth`` samples of each problem.

    ``verdicts``: codes ``[problem, sample]``. Kept in ``report.memo``, since several parts of a
    report ask for the same.
    """
    key = (count_even_and_odd, id(arm), problems, depth)
    if key not in report.memo:
        assert arm.verdicts is not None
        report.memo[key] = even_odd(arm.verdicts[arm.rows_of(problems), :depth])
    halves: tuple[Counts, Counts] = report.memo[key]
    return halves


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """Curves and differences over the steps as HTML; nothing where there is one checkpoint.

    ``lineage``: the base and the checkpoints that this comparison is the last of.
    ``step.pointwise``: difference to the base at each k; ``step.net`` at the largest k,
    ``step.reach``.
    """
    number = next(i for i, last in enumerate(report.last_comparisons) if last is pair)
    lineage, pairs = report.lineages[number], report.comparisons_by_lineage[number]
    if len(pairs) < 2:
        return
    panels = [_curves_panel(lineage), _differences_panel(pairs, report.colours)]
    yield figure(
        "Left: checkpoints from dark to light, the base dashed. Right: trained minus base at "
        "k = 1 (rings) and at the largest k (dots) over the steps, with intervals.",
        Chart(panels, lambda: steps_frame(pairs)),
    )
    heads = ["step", "pass@1 − base, points", "K", "pass@K − base, points"]
    rows = [
        [step.trained.step, interval_text(step.pointwise, 0, sign=True), step.reach,
         interval_text(step.net, sign=True)]
        for step in pairs
    ]  # fmt: skip
    yield table("Over training steps", heads, rows, last=True)


def checkpoints_chart(lineage: Lineage, colours: Colours) -> Chart:
    """Draw the curves of base and checkpoints, and beside them pass@1 and pass@K over steps.

    ``lineage``: a base arm and its checkpoints on one problem set. ``arm.curve``: pass@k over the k
    of its samples. K is the largest k that all of them have.
    """
    arms = [arm for arm in (lineage.base, *lineage.checkpoints) if arm.curve is not None]
    trained = lineage.checkpoints[-1].arm
    # A base of its own is step 0 of the training, whatever its own step is.
    steps = [0 if arm.arm != trained else arm.step for arm in arms]
    panel = Panel(step_axis(steps, "training step (0: the base)"), percent_axis())
    colour = colours[trained]
    for k in (1, min(int(arm.curve.k[-1]) for arm in arms if arm.curve)):
        rates = [arm.pass_at(k) for arm in arms]
        panel.interval_line(steps, rates, colour, f"pass@{k:,}", hollow=k == 1)
        panel.end(100 * rates[-1].estimate, f"pass@{k:,}", colour)
    legend = (Key(lineage.base.arm, BASE_COLOUR, DASHED), Key(trained, colour))
    return Chart([_curves_panel(lineage), panel], lambda: curves_frame(arms), legend)


def _curves_panel(lineage: Lineage) -> Panel:
    """Draw pass@k of the checkpoints from dark to light, and of the base dashed.

    ``lineage``: a base arm and its checkpoints on one problem set, steps rising. Only the first and
    the last have their names at the ends of their curves.
    """
    base, checkpoints = lineage
    reach = max(int(arm.curve.k[-1]) for arm in (base, *checkpoints) if arm.curve)
    panel = Panel(k_axis(reach), percent_axis())
    last = len(checkpoints) - 1
    for number, arm in enumerate(checkpoints):
        if arm.curve is not None:
            # From the first shade to the last, however many checkpoints there are.
            shade = _SHADES[number * (len(_SHADES) - 1) // max(last, 1)]
            rates, name = 100 * arm.curve.interval.estimate, f"step {arm.step:,}"
            panel.line(arm.curve.k, rates, shade, name=name, width=1.3)
            if number in (0, last):
                panel.end(rates, name, shade)
    if base.curve is not None:
        rates = 100 * base.curve.interval.estimate
        panel.line(base.curve.k, rates, BASE_COLOUR, name=base.arm, dash=DASHED)
        panel.end(rates, base.arm, BASE_COLOUR)
    return panel


def _differences_panel(pairs: Sequence[Comparison], colours: Colours) -> Panel:
    """Draw the difference to the base over the training steps, at k = 1 and at the largest k.

    ``pairs``: comparisons of the checkpoints with their base, steps rising. ``pair.net`` is the
    difference at the largest k.
    """
    at_one = [pair.pointwise[0] for pair in pairs]
    at_largest = [pair.net for pair in pairs]
    steps = [pair.trained.step for pair in pairs]
    panel = Panel(step_axis(steps), points_axis([*at_one, *at_largest], "trained − base, points"))
    panel.level(0)
    colour = colours[pairs[-1].trained.arm]
    for name, differences in (("pass@1", at_one), ("pass@K", at_largest)):
        panel.interval_line(steps, differences, colour, name, hollow=name == "pass@1")
        panel.end(100 * differences[-1].estimate, name, colour)
    return panel


def steps_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Difference to the base at k = 1 and at the largest k, one row per step and metric.

    ``pair.key``: columns that name the comparison. ``pair.pointwise``: the difference at each k.
    ``pair.net``: that at the largest k, ``pair.reach``.
    """
    return pd.DataFrame(
        {
            **pair.key,
            "metric": metric,
            "k": k,
            **interval_columns("difference", interval, sound=True),
        }
        for pair in pairs
        for metric, k, interval in (
            ("pass@1", 1, pair.pointwise[0]),
            ("pass@K", pair.reach, pair.net),
        )
    )


def section(report: Report) -> Iterator[Node]:
    """Show what a checkpoint is worth on samples that did not choose it.

    Even samples choose the best checkpoint of each training, odd samples report its difference to
    the base. ``choice.k``: of the pass@k that chose.
    """
    choices = chosen_checkpoints(report)
    if not choices:
        return
    yield el("h3", "A checkpoint that the data chose")
    heads = ["arm", "set", "chosen by", "step", "of", "problems",
             "even: trained − base", "odd: trained − base"]  # fmt: skip
    rows = [
        [choice.chosen.arm, choice.base.problem_set, f"pass@{choice.k:,}", choice.chosen.step,
         choice.checkpoints, choice.problems, points_text(choice.on_even),
         interval_text(choice.on_odd, sign=True)]
        for choice in choices
    ]  # fmt: skip
    yield table("Best checkpoints, chosen by even samples, points", heads, rows, last=True)
    yield note(
        "The best of several checkpoints looks better than it is on the samples that chose "
        "it. So even samples choose, and odd samples report, of the base as well. The answer "
        "above is that of the last checkpoint, which nobody chose by its results."
    )


def chosen_frame(choices: Sequence[Chosen]) -> pd.DataFrame:
    """Checkpoints that even samples chose, one row per base, problem set, training and k.

    ``on_even``: difference to the base on the samples that chose. ``on_odd``: on the other half.
    """
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
    """Draw one chart for each lineage with several checkpoints."""
    for lineage, last in zip(report.lineages, report.last_comparisons, strict=True):
        if len(lineage.checkpoints) > 1:
            chart = checkpoints_chart(lineage, report.colours)
            yield f"checkpoints-{last.file_stem}", chart


ASPECT = Aspect(
    Part.TRAINING,
    section,
    comparison,
    lambda report: {
        "steps": steps_frame(report.comparisons_at_all_steps),
        "chosen_checkpoints": chosen_frame(chosen_checkpoints(report)),
    },
    charts=charts,
)
