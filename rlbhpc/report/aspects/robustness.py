"""What a conclusion hangs on: the verdict, the prompt, the temperature, the seed, the grader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.aspects.graders import verdicts
from rlbhpc.report.compare import Comparison, compare
from rlbhpc.report.draw.chart import Chart, Colours, Panel, points_axis, row_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import COUNTERPARTS, Measured
from rlbhpc.report.phrases import interval_columns, interval_text


@dataclass(frozen=True)
class Condition:
    """A question asked anew with one thing changed.

    ``of``: the comparison as the study lists it first. ``changed``: what is not as there, in
    words. ``pair``: what comes out.
    """

    of: Comparison
    changed: str
    pair: Comparison


@once_each
def by_counterpart(report: Report) -> Iterator[tuple[Comparison, Comparison]]:
    """Last comparisons, each with itself by the verdict that does not decide, if that differs."""
    for pair in report.final:
        base, trained = pair.base.counterpart, pair.trained.counterpart
        if base is None or trained is None or base.curve is None or trained.curve is None:
            continue
        if _counts_agree(pair.base, base) and _counts_agree(pair.trained, trained):
            continue
        if len(set(base.sampled_problems) & set(trained.sampled_problems)) > 1:
            again = compare(base, trained, report.settings)
            yield pair, replace(again, comparisons=pair.comparisons)


def _counts_agree(decided: Measured, counterpart: Measured) -> bool:
    """Whether both verdicts count the same right samples, as of a verifier with one reading."""
    return np.array_equal(decided.counts.c, counterpart.counts.c)


def strictness(report: Report, pair: Comparison) -> str:
    """Say in a sentence what the verdict does to an answer; nothing where one was stored."""
    for own, counterpart in by_counterpart(report):
        if own is not pair:
            continue
        decides = pair.base.decided_by
        word, other_word = pair.answer.headline, counterpart.answer.headline
        nets = (
            f"net {interval_text(counterpart.net, sign=True)} points at k = {counterpart.reach:,} "
            f"and not {interval_text(pair.net, sign=True)}"
        )
        if word == other_word:
            return f"By {COUNTERPARTS[decides]} verdicts the answer is the same: {word}; {nets}."
        return (
            f"The answer hangs on how answers are read: {word} by {decides} verdicts, which "
            f"decide, and {other_word} by {COUNTERPARTS[decides]} ones; {nets}."
        )
    return ""


@once_each
def conditions_tried(report: Report) -> Iterator[Condition]:
    """Every condition of each question that was asked under more than one."""
    families: dict[tuple[str, ...], list[Comparison]] = {}
    recipe_of = {arm: name for name, arms in report.settings.trainings.items() for arm in arms}
    for pair in report.final:
        trained = recipe_of.get(pair.trained.arm, pair.trained.model)
        family = (pair.problem_set, pair.base.model, trained)
        families.setdefault(family, []).append(pair)
    counterparts = {id(pair): again for pair, again in by_counterpart(report)}
    regraded = {id(pair): again for pair, again in verdicts(report).answers}
    for pairs in families.values():
        first = pairs[0]
        tried = [Condition(first, _changes(report, first, pair), pair) for pair in pairs]
        for pair in pairs:
            setting = _changes(report, first, pair)
            behind = f", {setting}" if pair is not first else ""
            if id(pair) in counterparts:
                reading = COUNTERPARTS[pair.base.decided_by]
                changed = f"{reading} verdicts{behind}"
                tried.append(Condition(first, changed, counterparts[id(pair)]))
            if id(pair) in regraded:
                tried.append(Condition(first, f"another grader{behind}", regraded[id(pair)]))
        if len(tried) > 1:
            yield from tried


def _changes(report: Report, first: Comparison, pair: Comparison) -> str:
    """Name what a comparison has otherwise than the first: prompts, temperatures, the training."""
    if pair is first:
        return "as asked"
    changes = []
    if pair.trained.arm not in report.arms or pair.base.arm not in report.arms:
        return f"{pair.trained.arm} against {pair.base.arm}"
    for name in ("prompt", "temperature", "top_p"):
        values = [_setting(report, side.arm, name) for side in (pair.base, pair.trained)]
        asked = [_setting(report, side.arm, name) for side in (first.base, first.trained)]
        if values != asked:
            changes.append(f"{name.replace('_', '-')} {' / '.join(dict.fromkeys(values))}")
    if pair.trained.model != first.trained.model:
        changes.append(pair.trained.model)
    return ", ".join(changes) or f"{pair.trained.arm} against {pair.base.arm}"


def _setting(report: Report, arm_name: str, name: str) -> str:
    arm = report.arms[arm_name]
    value = arm.prompt if name == "prompt" else getattr(arm.sampling, name)
    return f"{value:g}" if isinstance(value, float) else str(value)


def section(report: Report) -> Iterator[Node]:
    """The word and the net under each condition, on one panel for each problem set."""
    for set_name, tried in report.by_set(conditions_tried(report)):
        yield el("h3", f"{set_name}: what the conclusion hangs on")
        yield figure(
            "Trained minus base pass@K with its interval, under each condition that was tried; "
            "the first row of a question is as the study asks it.",
            robustness_chart(tried, report.colours),
        )
        rows: list[list[Cell]] = [
            [c.of.trained.arm, c.changed, c.pair.answer.headline, c.pair.reach,
             interval_text(c.pair.net, sign=True), interval_text(c.pair.pointwise, 0, sign=True)]
            for c in tried
        ]  # fmt: skip
        heads = ["trained", "condition", "answer", "K", "net, points", "at k = 1, points"]
        yield table(f"The answer on {set_name} under each condition", heads, rows, wide=(1,))
    if conditions_tried(report):
        yield note("Each interval has its own error; the words share one over all comparisons.")


def robustness_chart(tried: Sequence[Condition], colours: Colours) -> Chart:
    """Draw a row for each condition, the net with its interval, and its word."""
    x = points_axis([condition.pair.net for condition in tried], "trained − base pass@K, points")
    panel = Panel(x, row_axis(len(tried)), height=34 * len(tried))
    panel.upright(0)
    for number, condition in enumerate(tried):
        pair = condition.pair
        colour = colours[condition.of.trained.arm]
        text = f"{condition.of.trained.arm}, {condition.changed}: {pair.answer.headline}"
        middle = panel.row(number, text)
        net = pair.net
        ends = 100 * net.lower, 100 * net.upper
        panel.points(100 * net.estimate, middle, colour, *ends, name=text, sideways=True)
    return Chart([panel], lambda: robustness_frame(tried))


def robustness_frame(tried: Sequence[Condition]) -> pd.DataFrame:
    """One row per question and condition."""
    return pd.DataFrame(
        {
            **condition.of.key,
            "condition": condition.changed,
            "answer": condition.pair.answer.headline,
            "k": condition.pair.reach,
            **interval_columns("net", condition.pair.net),
            "difference_at_1": float(np.asarray(condition.pair.pointwise.estimate)[0]),
        }
        for condition in tried
    )


charts = charts_by_set("robustness", conditions_tried, robustness_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    section,
    tables=tables_of(conditions_tried, robustness=robustness_frame),
    charts=charts,
)
