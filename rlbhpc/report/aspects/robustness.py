"""What a conclusion hangs on: the verdict, the grader, the prompt, the temperature, the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    once_each,
    tables_of,
)
from rlbhpc.report.chart import (
    Chart,
    Colours,
    Panel,
    points_axis,
    row_axis,
)
from rlbhpc.report.compare import Comparison, common_problems, compare
from rlbhpc.report.gather import Pair, gather
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import COUNTERPARTS
from rlbhpc.report.phrases import (
    interval_columns,
    interval_text,
)
from rlbhpc.report.svg import figure
from rlbhpc.study.layout import Layout
from rlbhpc.verify.error_audit import ErrorRate, load_error_rates


@dataclass(frozen=True)
class Condition:
    """A question asked again with one thing changed.

    ``question``: the comparison as the study lists it first. ``change``: what differs from it, in
    words. ``outcome``: the comparison under this condition.
    """

    question: Comparison
    change: str
    outcome: Comparison

    @property
    def problem_set(self) -> str:
        """The problem set of the question."""
        return self.question.problem_set


@once_each
def by_counterpart(report: Report) -> Iterator[tuple[Comparison, Comparison]]:
    """Last comparisons, each with itself by the verdict that does not decide, if that differs.

    A sample has a strict and a lenient verdict, one of which decides. The *counterpart* of an arm
    is its samples by the other one; None where only one was stored. ``counts.c``: right samples of
    each problem. ``comparisons``: how many share the error of an answer.
    """
    for pair in report.last_comparisons:
        base, trained = pair.base.counterpart, pair.trained.counterpart
        if base is None or trained is None or base.curve is None or trained.curve is None:
            continue
        # A verifier with one reading counts the same right samples by both verdicts.
        if np.array_equal(pair.base.counts.c, base.counts.c) and np.array_equal(
            pair.trained.counts.c, trained.counts.c
        ):
            continue
        if len(common_problems((base, trained))) > 1:
            outcome = compare(base, trained, report.settings)
            yield pair, replace(outcome, comparisons=pair.comparisons)


def strictness_sentence(report: Report, pair: Comparison) -> str:
    """Say what the other of strict and lenient does to an answer; empty where one was stored.

    One of the two verdicts of a sample decides. ``counterpart``: the comparison by the other one.
    ``headline``: the answer in a word. ``net``: difference of pass@k at ``reach``, the largest k.
    """
    for decided, counterpart in by_counterpart(report):
        if decided is not pair:
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
    """Every condition of each question that was asked under more than one.

    A question is a base model and a recipe of training on one problem set. Comparisons that ask it
    differ in prompt, sampling or seed; the first one that the study lists is "as asked". Each may
    also be there by the other of strict and lenient verdicts, and by another grader. ``recipe_of``:
    the recipe whose seed an arm is.
    """
    recipe_of = {arm: name for name, arms in report.settings.trainings.items() for arm in arms}
    pairs_of_question: dict[tuple[str, str, str], list[Comparison]] = {}
    for pair in report.last_comparisons:
        recipe = recipe_of.get(pair.trained.arm, pair.trained.model)
        question = (pair.problem_set, pair.base.model, recipe)
        pairs_of_question.setdefault(question, []).append(pair)
    counterparts = {id(pair): outcome for pair, outcome in by_counterpart(report)}
    regraded = {id(pair): outcome for pair, outcome in by_other_grader(report)}
    for first, *others in pairs_of_question.values():
        tried = [Condition(first, "as asked", first)]
        setting_of = {id(other): _changed_settings(report, first, other) for other in others}
        tried += [Condition(first, setting_of[id(other)], other) for other in others]
        for pair in (first, *others):
            setting = f", {setting_of[id(pair)]}" if pair is not first else ""
            if id(pair) in counterparts:
                change = f"{COUNTERPARTS[pair.base.decided_by]} verdicts{setting}"
                tried.append(Condition(first, change, counterparts[id(pair)]))
            if id(pair) in regraded:
                tried.append(Condition(first, f"another grader{setting}", regraded[id(pair)]))
        if len(tried) > 1:
            yield from tried


def _changed_settings(report: Report, first: Comparison, pair: Comparison) -> str:
    """Name what a comparison has otherwise than the first: prompts, temperatures, the training.

    Values are of base and trained arm, ``0.6 / 1`` or one value if they are alike. Where nothing
    differs, or the study does not know an arm, the arms are named instead.
    """
    arms = f"{pair.trained.arm} against {pair.base.arm}"
    if pair.trained.arm not in report.study_arms or pair.base.arm not in report.study_arms:
        return arms
    changes = []
    for name in ("prompt", "temperature", "top_p"):
        values = [_setting_text(report, side.arm, name) for side in (pair.base, pair.trained)]
        first_values = [
            _setting_text(report, side.arm, name) for side in (first.base, first.trained)
        ]
        if values != first_values:
            changes.append(f"{name.replace('_', '-')} {' / '.join(dict.fromkeys(values))}")
    if pair.trained.model != first.trained.model:
        changes.append(pair.trained.model)
    return ", ".join(changes) or arms


def _setting_text(report: Report, arm_name: str, setting: str) -> str:
    arm = report.study_arms[arm_name]
    value = arm.prompt if setting == "prompt" else getattr(arm.sampling, setting)
    return f"{value:g}" if isinstance(value, float) else str(value)


def section(report: Report) -> Iterator[Node]:
    """Show the answer and the net difference under each condition, by problem set.

    A *condition* is a question of the study asked again with one thing changed. ``outcome``: the
    comparison under it. ``net``: trained minus base pass@K, at the largest k, ``reach``.
    """
    for set_name, tried in report.by_set(conditions_tried(report)):
        yield el("h3", f"{set_name}: what the conclusion hangs on")
        yield figure(
            "Trained minus base pass@K with its interval, under each condition that was tried; "
            "the first row of a question is as the study asks it.",
            robustness_chart(tried, report.colours),
        )
        heads = ["trained", "condition", "answer", "K", "net, points", "at k = 1, points"]
        rows = [
            [condition.question.trained.arm, condition.change, condition.outcome.answer.headline,
             condition.outcome.reach, interval_text(condition.outcome.net, sign=True),
             interval_text(condition.outcome.pointwise, 0, sign=True)]
            for condition in tried
        ]  # fmt: skip
        yield table(f"The answer on {set_name} under each condition", heads, rows, wide=(1,))
    if conditions_tried(report):
        yield note("Each interval has its own error; the words share one over all comparisons.")
    if regraded_report(report) and not by_other_grader(report):
        yield note(
            "No comparison was judged by both graders; analysis/graders.py, named in "
            "analysis.aspects, compares them arm by arm."
        )


def robustness_chart(tried: Sequence[Condition], colours: Colours) -> Chart:
    """Draw a row for each condition: its word, and the net difference with its interval.

    A *condition* is a comparison (``question``) made again with one thing changed (``change``).
    ``outcome``: the comparison under it; ``outcome.net``: trained minus base pass@K.
    """
    x = points_axis([condition.outcome.net for condition in tried], "trained − base pass@K, points")
    panel = Panel(x, row_axis(len(tried)), height=34 * len(tried))
    panel.upright(0)
    for number, condition in enumerate(tried):
        arm, outcome = condition.question.trained.arm, condition.outcome
        name = f"{arm}, {condition.change}: {outcome.answer.headline}"
        panel.interval_row(number, name, outcome.net, colours[arm])
    return Chart([panel], lambda: robustness_frame(tried))


def robustness_frame(tried: Sequence[Condition]) -> pd.DataFrame:
    """One row per question and condition.

    A *condition* is a comparison (``question``) made again with one thing changed (``change``).
    ``outcome``: the comparison under it; ``net``: its difference at ``reach``, the largest k.
    """
    return pd.DataFrame(
        {
            **condition.question.key,
            "condition": condition.change,
            "answer": condition.outcome.answer.headline,
            "k": condition.outcome.reach,
            **interval_columns("net", condition.outcome.net),
            "difference_at_1": float(condition.outcome.pointwise.estimate[0]),
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


def lay_beside(report: Report, folder: Path, pairs: Sequence[Pair] = ()) -> None:
    """Show what ``rlbhpc verify RUN --into FOLDER`` wrote, beside the run itself.

    ``report``: the run; the other grader is one of its conditions from now on. ``folder``: the run
    with the other verdicts. ``pairs``: as for :func:`rlbhpc.report.gather.gather`. ``regraded``:
    the file by which such a folder is known. ``memo``: what is kept with a report.
    """
    if not Layout(folder).regraded.is_file():
        raise UserError(
            f"--regraded {folder}: was not written by `rlbhpc verify RUN --into FOLDER`; "
            "only the same samples under another grader can be compared"
        )
    other = gather(folder, pairs)
    if other.study_hash != report.study_hash:
        raise UserError(f"--regraded {folder}: is of another study; give one that was made from "
                        f"{report.folder}")  # fmt: skip
    report.memo[lay_beside] = other


def regraded_report(report: Report) -> Report | None:
    """The same samples under another grader, if :func:`lay_beside` was told of them."""
    regraded: Report | None = report.memo.get(lay_beside)
    return regraded


@once_each
def by_other_grader(report: Report) -> Iterator[tuple[Comparison, Comparison]]:
    """Last comparisons that another grader judged too, each with its outcome by that grader.

    ``regraded``: the report on the same samples under that grader; None where there is none. A
    title names both arms, their steps and the problem set.
    """
    regraded = regraded_report(report)
    if regraded is None:
        return
    outcome_of_title = {outcome.title: outcome for outcome in regraded.last_comparisons}
    for pair in report.last_comparisons:
        if pair.title in outcome_of_title:
            yield pair, outcome_of_title[pair.title]


def audit_section(report: Report) -> Iterator[Node]:
    """Show how often verdicts are wrong by what people judged; nothing without an audit.

    ``rates_of_side``: error rates of the verifier, by arm, step and problem set. ``read``: how many
    responses people judged.
    """
    rates_of_side = load_error_rates(Layout(report.folder))
    if not rates_of_side:
        return
    yield el("h3", "Error rates of the verdicts")
    yield note(
        "A sample of the responses, judged by people who saw neither arm nor verdict. False right: "
        "share of the accepted responses whose answer is wrong; false wrong: share of the refused "
        "ones whose answer is right."
    )
    heads = ["arm", "false right, %", "read", "false wrong, %", "read"]
    rows = [
        [str(side), _rate_text(rates.false_right), rates.false_right.read,
         _rate_text(rates.false_wrong), rates.false_wrong.read]
        for side, rates in rates_of_side.items()
    ]  # fmt: skip
    yield table("Error rates of the verdicts, with 95 % intervals", heads, rows)


def _rate_text(rate: ErrorRate) -> str:
    if not rate.audited:
        return "–"
    return f"{100 * rate.rate:.2f} [{100 * rate.low:.2f}, {100 * rate.high:.2f}]"


AUDIT = Aspect(Part.SAMPLES, audit_section)
