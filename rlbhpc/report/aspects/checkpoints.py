"""The checkpoints of a training: their curves, and what they gain and lose over steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Lineage, Part, Report
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
    step_axis,
)
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, table
from rlbhpc.report.phrases import interval_columns, interval_text
from rlbhpc.report.svg import figure

# From dark to light as training goes on, between what can be told from black and from white
# paper: the middle of the colour map cividis, made for all kinds of colour vision.
_SHADES: Final = ("#213d6b", "#44516b", "#5d6470", "#747878", "#8e8c74", "#a9a16b", "#c6b75c")


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
    yield figure(
        "Left: checkpoints from dark to light, the base dashed. Right: pass@1 (rings) and pass@K "
        "(dots) over the steps, with intervals.",
        checkpoints_chart(lineage, report.colours),
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


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """Draw one chart for each lineage with several checkpoints."""
    for lineage, last in zip(report.lineages, report.last_comparisons, strict=True):
        if len(lineage.checkpoints) > 1:
            chart = checkpoints_chart(lineage, report.colours)
            yield f"checkpoints-{last.file_stem}", chart


ASPECT = Aspect(
    Part.TRAINING,
    comparison=comparison,
    tables=lambda report: {"steps": steps_frame(report.comparisons_at_all_steps)},
    charts=charts,
)
