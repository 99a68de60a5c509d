"""One model under several prompts: how much of a difference the template alone makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.compare import common_problems
from rlbhpc.report.draw.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded, bounds, percent, stacked
from rlbhpc.stats import Interval, k_grid
from rlbhpc.stats.selection import BestPrompt, PromptSpread, best_prompt, prompt_spread

#: The prompt that asks for an answer and no reasoning.
NO_REASONING = "no-think"


@dataclass(frozen=True)
class Prompts:
    """A model at one step under all prompts that it was sampled with, otherwise alike.

    ``arms``: the arm of each prompt, in the order of ``spread.prompts``. ``spread``: pass@k under
    each, and best minus worst. ``problems``: problems that all these arms have samples of.
    """

    problem_set: str
    model: str
    step: int
    arms: tuple[Measured, ...]
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
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for measured in report.measured:
        arm = report.arms.get(measured.arm)
        if arm is None or arm.prompt == NO_REASONING or not measured.sampled.any():
            continue
        key = (measured.problem_set, measured.model, measured.step, arm.sampling)
        groups.setdefault(key, []).append(measured)
    for arms in groups.values():
        # Arms of one prompt differ in nothing that is known here; the first stands for them.
        by_prompt = {report.arms[arm.arm].prompt: arm for arm in reversed(arms)}
        if len(by_prompt) > 1:
            yield from _spread(report, dict(sorted(by_prompt.items())))


def _spread(report: Report, by_prompt: dict[str, Measured]) -> Iterator[Prompts]:
    arms = tuple(by_prompt.values())
    problems = common_problems(arms)
    if len(problems) < 2:
        return
    counts = {name: arm.counts_of(problems) for name, arm in by_prompt.items()}
    reach = min(arm.reach for arm in counts.values())
    spread = prompt_spread(counts, report.weights(problems), k_grid(reach), report.settings.prob)
    yield Prompts(arms[0].problem_set, arms[0].model, arms[0].step, arms, spread, len(problems))


def section(report: Report) -> Iterator[Node]:
    """Show how far the template reaches."""
    for set_name, models in report.by_set(prompts(report)):
        caption = (
            "pass@k of each model under all its prompts, each with its name at the right; the "
            "rest of the sampling setting is the same. Dashed: a base."
        )
        yield el("h3", f"{set_name}: prompt sensitivity")
        yield from (el("p", _reach(model)) for model in models)
        yield figure(caption, prompts_chart(models, report.colours))
        rows: list[list[Cell]] = []
        for model in models:
            k = model.spread.k
            for i in sorted({0, len(k) // 2, len(k) - 1}, reverse=True):
                values = ", ".join(
                    f"{name} {percent(float(model.spread.values[j, i]))}"
                    for j, name in enumerate(model.spread.prompts)
                )
                rows.append([model.label, int(k[i]), values, bounds(model.spread.spread, i)])
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
        panel = Panel(k_axis(int(model.spread.k[-1])), percent_axis(), model.label)
        lines = zip(model.arms, model.spread.prompts, model.spread.values, strict=True)
        for arm, name, values in lines:
            colour, dash = colours[arm.arm], colours.dash(arm.arm)
            panel.line(model.spread.k, 100 * values, colour, name=name, dash=dash)
            panel.end(100 * values, name, colour)
        panels.append(panel)
    return Chart(panels, lambda: prompts_frame(models))


def prompts_frame(models: Sequence[Prompts]) -> pd.DataFrame:
    """pass@k by prompt, one row per model, step, prompt and k, with the spread at that k."""
    return stacked(
        {
            "problem_set": model.problem_set,
            "model": model.model,
            "step": model.step,
            "prompt": name,
            "k": model.spread.k,
            "pass_at_k": values,
            **bounded("best_minus_worst", model.spread.spread, sound=True),
        }
        for model in models
        for name, values in zip(model.spread.prompts, model.spread.values, strict=True)
    )


def _reach(model: Prompts) -> str:
    """Say in words what the template makes of a model at its first and last k."""
    phrases = []
    for i in (0, len(model.spread.k) - 1):
        values = model.spread.values[:, i]
        best, worst = (model.spread.prompts[int(j)] for j in (values.argmax(), values.argmin()))
        gap = model.spread.spread[i]
        if float(gap.estimate) == 0:
            phrases.append(f"at k = {int(model.spread.k[i]):,} not at all")
            continue
        clear = "" if float(gap.lower) > 0 else ", which noise alone could make"
        phrases.append(
            f"at k = {int(model.spread.k[i]):,} by {bounds(gap)} points ({best} best, {worst} "
            f"worst{clear})"
        )
    return f"The template alone moves {model.label} {' and '.join(dict.fromkeys(phrases))}."


ASPECT = Aspect(Part.RESPONSES, section, tables=tables_of(prompts, prompts=prompts_frame))


@dataclass(frozen=True)
class Best:
    """A model under its best prompt, with a trained model against it where there is one.

    ``curves`` and ``trained_minus`` are intervals over problems at every k of ``best``.
    """

    of: Prompts
    best: BestPrompt
    curves: dict[str, Interval]
    trained: str
    trained_minus: Interval | None


@once_each
def best_prompts(report: Report) -> Iterator[Best]:
    """Every model under several prompts with equally many samples under each."""
    for model in prompts(report):
        trained = [
            pair.trained
            for pair in report.final
            if pair.base.arm in {arm.arm for arm in model.arms}
            and (pair.base.problem_set, pair.base.step) == (model.problem_set, model.step)
        ]
        rivals: list[Measured | None] = [*trained] or [None]
        for rival in rivals:
            yield from _best(report, model, rival)


def _best(report: Report, model: Prompts, rival: Measured | None) -> Iterator[Best]:
    problems = common_problems((*model.arms, *([rival] if rival else [])))
    counts = {
        name: arm.counts_of(problems)
        for name, arm in zip(model.spread.prompts, model.arms, strict=True)
    }
    first = next(iter(counts.values()))
    alike = all((c.n == first.n).all() and not c.stop_after.any() for c in counts.values())
    reach = int((first.n - first.n // 2).min()) if len(problems) > 1 else 0
    rival_counts = rival.counts_of(problems) if rival else None
    if rival_counts is not None:
        reach = min(reach, rival_counts.reach)
    if not alike or reach < 1:
        return
    best = best_prompt(counts, k_grid(reach))
    curves = {
        "chosen per problem": report.mean(best.per_problem, problems, "split halves"),
        "chosen on the other problems": report.mean(best.overall, problems, "left out"),
    }
    minus = None
    if rival_counts is not None:
        minus = report.paired(rival_counts.pass_at_k(best.k) - best.per_problem, problems)
    yield Best(model, best, curves, rival.label if rival else "", minus)


def best_section(report: Report) -> Iterator[Node]:
    """Show what the best prompt makes of a model, and what that leaves of a difference."""
    for set_name, results in report.by_set(best_prompts(report)):
        yield el("h3", f"{set_name}: under the best prompt")
        rows: list[list[Cell]] = [
            [
                result.of.label,
                int(result.best.k[i]),
                *(bounds(curve, i) for curve in result.curves.values()),
                percent(float(result.best.highest[:, i].mean())),
                result.trained or "–",
                bounds(result.trained_minus, i, sign=True),
            ]
            for result in results
            for i in sorted({0, len(result.best.k) - 1}, reverse=True)
        ]
        yield table(f"Best prompt on {set_name}", HEADS, rows)
    if best_prompts(report):
        yield note(
            "Chosen per problem: half of a problem's samples choose its prompt and the other "
            "half is scored, over all halves. That is right for this rule and so a little low "
            "for the best prompt of each problem; the plain maximum is too high, and the truth "
            "lies between them. Chosen on the other problems: one prompt, the best in the mean "
            "of all problems but the one that is scored. Trained minus base takes the base "
            "under its prompt chosen per problem."
        )


def best_prompt_frame(results: list[Best]) -> pd.DataFrame:
    """One row per model, trained model and k."""
    parts = []
    for result in results:
        columns: dict[str, object] = {
            "problem_set": result.of.problem_set,
            "model": result.of.model,
            "step": result.of.step,
            "prompts": ", ".join(result.of.spread.prompts),
            "k": result.best.k,
            "highest": result.best.highest.mean(axis=0),
            "trained": result.trained,
        }
        for name, interval in {**result.curves, "trained minus base": result.trained_minus}.items():
            slug = name.replace(" ", "_")
            columns |= bounded(slug, interval, f"{slug}_")
        parts.append(columns)
    return stacked(parts)


HEADS: Final = [
    "model", "k", "chosen per problem, %", "chosen on the other problems, %", "maximum, %",
    "trained", "trained − base, points",
]  # fmt: skip

BEST = Aspect(
    Part.RESPONSES,
    best_section,
    tables=tables_of(best_prompts, best_prompt=best_prompt_frame),
)
