"""What a conclusion hangs on: the verdict, the grader, the prompt, the temperature, the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    has_texts,
    once,
    once_each,
    read_columns,
    tables_of,
)
from rlbhpc.report.chart import (
    DOTTED,
    Chart,
    Colours,
    Panel,
    k_axis,
    percent_axis,
    points_axis,
    row_axis,
)
from rlbhpc.report.compare import Comparison, common_problems, compare
from rlbhpc.report.gather import Pair, gather
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import COUNTERPARTS, MeasuredArm
from rlbhpc.report.phrases import (
    FloatArray,
    IntArray,
    count_text,
    interval_columns,
    interval_text,
    percent_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, difference_curve, k_grid
from rlbhpc.stats.curve import PromptSpread, prompt_spread
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
    """Last comparisons, each with itself by the verdict that does not decide, if that differs."""
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
    """Say what the other of strict and lenient does to an answer; empty where one was stored."""
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
    """Every condition of each question that was asked under more than one."""
    recipe_of = {arm: name for name, arms in report.settings.trainings.items() for arm in arms}
    pairs_of_question: dict[tuple[str, str, str], list[Comparison]] = {}
    for pair in report.last_comparisons:
        recipe = recipe_of.get(pair.trained.arm, pair.trained.model)
        question = (pair.problem_set, pair.base.model, recipe)
        pairs_of_question.setdefault(question, []).append(pair)
    counterparts = {id(pair): outcome for pair, outcome in by_counterpart(report)}
    regraded = {id(pair): outcome for pair, outcome in second_opinion(report).comparisons}
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
    """Name what a comparison has otherwise than the first: prompts, temperatures, the training."""
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
    """The word and the net under each condition, on one panel for each problem set."""
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


def robustness_chart(tried: Sequence[Condition], colours: Colours) -> Chart:
    """Draw a row for each condition: its word, and the net with its interval."""
    x = points_axis([condition.outcome.net for condition in tried], "trained − base pass@K, points")
    panel = Panel(x, row_axis(len(tried)), height=34 * len(tried))
    panel.upright(0)
    for number, condition in enumerate(tried):
        arm, outcome = condition.question.trained.arm, condition.outcome
        name = f"{arm}, {condition.change}: {outcome.answer.headline}"
        panel.interval_row(number, name, outcome.net, colours[arm])
    return Chart([panel], lambda: robustness_frame(tried))


def robustness_frame(tried: Sequence[Condition]) -> pd.DataFrame:
    """One row per question and condition."""
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


@dataclass(frozen=True)
class Regraded:
    """One arm under the grader of the run and under another, sample by sample.

    ``own_grader, other_grader``: fingerprints; empty where no sample says. ``gained, lost``:
    samples that only the other grader calls right, and that only the run's does. ``own_rates,
    other_rates``: mean pass@k under each grader. ``difference``: other minus own, paired over
    problems. ``own_solved, other_solved``: problems that only this grader calls solved.
    """

    measured: MeasuredArm
    own_grader: str
    other_grader: str
    gained: int
    lost: int
    k: IntArray
    own_rates: FloatArray
    other_rates: FloatArray
    difference: Interval
    own_solved: int
    other_solved: int


@dataclass(frozen=True)
class SecondOpinion:
    """All that another grader says of a run; empty where there is one grader.

    ``comparisons`` holds each last comparison as the run's grader and as the other one has it.
    """

    arms: tuple[Regraded, ...] = ()
    comparisons: tuple[tuple[Comparison, Comparison], ...] = ()


def lay_beside(report: Report, folder: Path, pairs: Sequence[Pair] = ()) -> None:
    """Show what ``rlbhpc verify RUN --into FOLDER`` wrote, beside the run itself.

    ``report``: the run; its sections compare the two graders from now on. ``folder``: the run with
    the other verdicts. ``pairs``: as for :func:`rlbhpc.report.gather.gather`.
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


@once
def second_opinion(report: Report) -> SecondOpinion:
    """Compare the verdicts of both graders."""
    other: Report | None = report.memo.get(lay_beside)
    if other is None:
        return SecondOpinion()
    other_arms = {(arm.arm, arm.problem_set, arm.step): arm for arm in other.measured_arms}
    arms: list[Regraded] = []
    for arm in report.compared:
        other_arm = other_arms.get((arm.arm, arm.problem_set, arm.step))
        if other_arm is not None:
            arms += _regrade(report, other, arm, other_arm)
    by_title = {pair.title: pair for pair in other.last_comparisons}
    comparisons = [
        (pair, by_title[pair.title]) for pair in report.last_comparisons if pair.title in by_title
    ]
    return SecondOpinion(tuple(arms), tuple(comparisons))


def _regrade(
    report: Report, other_report: Report, arm: MeasuredArm, other_arm: MeasuredArm
) -> Iterator[Regraded]:
    """Compare two graders' verdicts on the samples of an arm that both could judge."""
    if arm.verdicts is None or other_arm.verdicts is None:
        return
    if arm.verdicts.shape != other_arm.verdicts.shape:
        return
    judged = arm.is_judged & other_arm.is_judged
    own_right, other_right = arm.is_right & judged, other_arm.is_right & judged
    rows = np.flatnonzero(judged.any(axis=1))
    if len(rows) < 2:
        return
    samples = judged.sum(axis=1)[rows]
    own = Counts.of(samples, own_right.sum(axis=1)[rows])
    other = Counts.of(samples, other_right.sum(axis=1)[rows])
    weights = report.settings.weights(arm.ids_at(rows))
    curve = difference_curve(own, other, weights, prob=report.settings.prob)
    yield Regraded(
        arm,
        _grader_of(report, arm),
        _grader_of(other_report, other_arm),
        gained=int((other_right & ~own_right).sum()),
        lost=int((own_right & ~other_right).sum()),
        k=curve.k,
        own_rates=own.pass_at_k(curve.k).mean(axis=0),
        other_rates=other.pass_at_k(curve.k).mean(axis=0),
        difference=curve.pointwise,
        own_solved=int((own.solved & ~other.solved).sum()),
        other_solved=int((other.solved & ~own.solved).sum()),
    )


def _grader_of(report: Report, arm: MeasuredArm) -> str:
    """Graders of the first sampled problem's samples."""
    if not has_texts(report, arm):
        return ""
    table = read_columns(report, arm, [arm.sampled_problems[0]], ("sample", "grader"))
    return ", ".join(sorted(filter(None, table["grader"].unique().to_pylist())))


def graders_section(report: Report) -> Iterator[Node]:
    """Compare two graders, sample by sample and in what they say; nothing without a second."""
    opinion = second_opinion(report)
    if not opinion.arms:
        return
    yield el("h3", "Another grader")
    yield el("p", _graders_sentence(opinion.arms))
    for own, other in opinion.comparisons:
        yield el("p", _grader_sentence(own, other))
    changed = [arm for arm in opinion.arms if arm.gained or arm.lost]
    unchanged = [arm.measured.label for arm in opinion.arms if not (arm.gained or arm.lost)]
    if unchanged:
        yield note(f"Of {', '.join(unchanged)} they judge every sample alike.")
    for set_name, arms in report.by_set(changed):
        yield figure(
            "Left: pass@k of the same samples under the run's grader (solid) and the other "
            "(dotted). Right: other minus own, paired over problems, with intervals. What a "
            "lenient grader accepts by mistake grows with k.",
            regraded_chart(arms, report.colours),
        )
        heads = ["arm", "k", "own, %", "other, %", "other − own, points", "samples gained", "lost",
                 "problems gained", "lost"]  # fmt: skip
        rows = [row for arm in arms for row in _regraded_rows(arm)]
        yield table(f"The same samples of {set_name} under two graders", heads, rows)


def _regraded_rows(arm: Regraded) -> Iterator[list[Cell]]:
    """Rows at the largest k, a quarter of it and 1; the first one has the counts."""
    last = len(arm.k) - 1
    quarter = int(np.searchsorted(arm.k, arm.k[-1] // 4))
    for i in sorted({0, quarter, last}, reverse=True):
        counts: list[Cell] = [None, None, None, None]
        if i == last:
            counts = [arm.gained, arm.lost, arm.other_solved, arm.own_solved]
        own, other = (percent_text(float(r[i])) for r in (arm.own_rates, arm.other_rates))
        difference = interval_text(arm.difference, i, sign=True)
        yield [arm.measured.label, int(arm.k[i]), own, other, difference, *counts]


def regraded_chart(arms: Sequence[Regraded], colours: Colours) -> Chart:
    """Draw both curves of each arm on the left, and other minus own grader on the right."""
    x = k_axis(max(int(arm.k[-1]) for arm in arms))
    curves = Panel(x, percent_axis("pass@k, % (dotted: other grader)"))
    y = points_axis([arm.difference for arm in arms], "other − own grader, points")
    differences = Panel(x, y)
    differences.level(0)
    for arm in arms:
        name, colour = arm.measured.arm, colours[arm.measured.arm]
        own, other = 100 * arm.own_rates, 100 * arm.other_rates
        curves.line(arm.k, own, colour, name=name)
        curves.line(arm.k, other, colour, name=f"{name}, other grader", dash=DOTTED)
        curves.end(own, name, colour)
        differences.named_curve(arm.k, arm.difference, colour, name)
    return Chart([curves, differences], lambda: regraded_frame(arms))


def regraded_frame(arms: Sequence[Regraded]) -> pd.DataFrame:
    """pass@k under both graders and their difference, one row per arm and k."""
    return stack_rows(
        {
            **arm.measured.key,
            "k": arm.k,
            "own": arm.own_rates,
            "other": arm.other_rates,
            **interval_columns("difference", arm.difference),
            "own_grader": arm.own_grader,
            "other_grader": arm.other_grader,
        }
        for arm in arms
    )


def _graders_sentence(arms: Sequence[Regraded]) -> str:
    own = dict.fromkeys(arm.own_grader for arm in arms if arm.own_grader)
    other = dict.fromkeys(arm.other_grader for arm in arms if arm.other_grader)
    changed = sum(arm.gained + arm.lost for arm in arms)
    return (
        f"Grader of the run: {' / '.join(own) or '(not stored)'}; the other: "
        f"{' / '.join(other) or '(not stored)'}. They differ on "
        f"{count_text(changed, 'sample')} of the compared arms."
    )


def _grader_sentence(own: Comparison, other: Comparison) -> str:
    """Say whether the answer hangs on the grader."""
    word, other_word = own.answer.headline, other.answer.headline
    differences = (
        f"{interval_text(own.net, sign=True)} points at k = {own.reach:,}, and "
        f"{interval_text(other.net, sign=True)} at k = {other.reach:,} under the other grader"
    )
    if word == other_word:
        return f"{own.title}: {word} under both graders; {differences}."
    return (
        f"{own.title}: the answer hangs on the grader. It is {word}, and "
        f"{other_word} under the other; {differences}."
    )


GRADERS = Aspect(
    Part.SAMPLES,
    graders_section,
    tables=lambda report: {"regraded": regraded_frame(second_opinion(report).arms)},
)


def audit_section(report: Report) -> Iterator[Node]:
    """Show how often verdicts are wrong by what people judged; nothing without an audit."""
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


#: The prompt that asks for an answer and no reasoning.
NO_REASONING: Final = "no-think"


@dataclass(frozen=True)
class Prompts:
    """A model at one step under all prompts that it was sampled with, otherwise alike.

    ``arms``: the arm of each prompt, in the order of ``spread.prompts``. ``spread``: pass@k under
    each, and best minus worst. ``problems``: problems that all these arms have samples of.
    """

    problem_set: str
    model: str
    step: int
    arms: tuple[MeasuredArm, ...]
    spread: PromptSpread
    problems: int

    @property
    def label(self) -> str:
        """Model and step in one name."""
        return self.model if self.step == 0 else f"{self.model}, step {self.step}"


@once_each
def prompts(report: Report) -> Iterator[Prompts]:
    """Compare the prompts of every model that was sampled under two or more.

    The prompt without reasoning asks another question, so it is none of them.
    """
    arms_alike: dict[tuple[object, ...], list[MeasuredArm]] = {}
    for arm in report.measured_arms:
        study_arm = report.study_arms.get(arm.arm)
        if study_arm is None or study_arm.prompt == NO_REASONING or not arm.sampled.any():
            continue
        key = (arm.problem_set, arm.model, arm.step, study_arm.sampling)
        arms_alike.setdefault(key, []).append(arm)
    for arms in arms_alike.values():
        # Arms of one prompt differ in nothing that is known here; the first stands for them.
        arm_of_prompt = {report.study_arms[arm.arm].prompt: arm for arm in reversed(arms)}
        if len(arm_of_prompt) > 1:
            yield from _compare_prompts(report, dict(sorted(arm_of_prompt.items())))


def _compare_prompts(report: Report, arm_of_prompt: dict[str, MeasuredArm]) -> Iterator[Prompts]:
    arms = tuple(arm_of_prompt.values())
    problems = common_problems(arms)
    if len(problems) < 2:
        return
    counts = {prompt: arm.counts_of(problems) for prompt, arm in arm_of_prompt.items()}
    k = k_grid(min(each.reach for each in counts.values()))
    weights = report.settings.weights(problems)
    spread = prompt_spread(counts, weights, k, report.settings.prob)
    yield Prompts(arms[0].problem_set, arms[0].model, arms[0].step, arms, spread, len(problems))


def prompts_section(report: Report) -> Iterator[Node]:
    """Show how much of a difference the template alone makes."""
    for set_name, models in report.by_set(prompts(report)):
        yield el("h3", f"{set_name}: prompt sensitivity")
        for model in models:
            yield el("p", _prompts_sentence(model))
        yield figure(
            "pass@k of each model under all its prompts, each with its name at the right; the "
            "rest of the sampling setting is the same. Dashed: a base.",
            prompts_chart(models, report.colours),
        )
        rows = []
        for model in models:
            last = len(model.spread.k) - 1
            for i in sorted({0, (last + 1) // 2, last}, reverse=True):
                rates = ", ".join(
                    f"{prompt} {percent_text(float(rate))}"
                    for prompt, rate in zip(
                        model.spread.prompts, model.spread.values[:, i], strict=True
                    )
                )
                spread = interval_text(model.spread.spread, i)
                rows.append([model.label, int(model.spread.k[i]), rates, spread])
        heads = ["model", "k", "pass@k by prompt, %", "best − worst, points"]
        yield table(f"Prompts on {set_name}", heads, rows, wide=(2,))
    if prompts(report):
        yield note(
            "Best minus worst is the largest of several differences and so a little too "
            "large; its interval holds for the two prompts that came out best and worst."
        )


def prompts_chart(models: Sequence[Prompts], colours: Colours) -> Chart:
    """Draw one panel per model, one line per prompt, named at its end."""
    panels = []
    for model in models:
        spread = model.spread
        panel = Panel(k_axis(int(spread.k[-1])), percent_axis(), model.label)
        for arm, prompt, rates in zip(model.arms, spread.prompts, spread.values, strict=True):
            colour, dash = colours[arm.arm], colours.dash(arm.arm)
            panel.line(spread.k, 100 * rates, colour, name=prompt, dash=dash)
            panel.end(100 * rates, prompt, colour)
        panels.append(panel)
    return Chart(panels, lambda: prompts_frame(models))


def prompts_frame(models: Sequence[Prompts]) -> pd.DataFrame:
    """pass@k by prompt, one row per model, step, prompt and k, with the spread at that k."""
    return stack_rows(
        {
            "problem_set": model.problem_set,
            "model": model.model,
            "step": model.step,
            "prompt": prompt,
            "k": model.spread.k,
            "pass_at_k": rates,
            **interval_columns("best_minus_worst", model.spread.spread, sound=True),
        }
        for model in models
        for prompt, rates in zip(model.spread.prompts, model.spread.values, strict=True)
    )


def _prompts_sentence(model: Prompts) -> str:
    """Say what the template makes of a model at its first and last k."""
    spread = model.spread
    phrases = []
    for i in (0, len(spread.k) - 1):
        rates, gap = spread.values[:, i], spread.spread[i]
        best, worst = spread.prompts[int(rates.argmax())], spread.prompts[int(rates.argmin())]
        size = f"at k = {int(spread.k[i]):,}"
        if float(gap.estimate) == 0:
            phrases.append(f"{size} not at all")
            continue
        doubt = "" if gap.low > 0 else ", which noise alone could make"
        phrases.append(f"{size} by {interval_text(gap)} points ({best} best, {worst} worst{doubt})")
    return f"The template alone moves {model.label} {' and '.join(dict.fromkeys(phrases))}."


PROMPTS = Aspect(Part.RESPONSES, prompts_section, tables=tables_of(prompts, prompts=prompts_frame))
