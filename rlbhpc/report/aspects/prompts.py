"""One model under several prompts: how much of a difference the template alone makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.compare import common_problems
from rlbhpc.report.draw.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, stack_rows
from rlbhpc.stats import k_grid
from rlbhpc.stats.curve import PromptSpread, prompt_spread

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
                    f"{name} {percent_text(float(model.spread.values[j, i]))}"
                    for j, name in enumerate(model.spread.prompts)
                )
                rows.append([model.label, int(k[i]), values, interval_text(model.spread.spread, i)])
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
    return stack_rows(
        {
            "problem_set": model.problem_set,
            "model": model.model,
            "step": model.step,
            "prompt": name,
            "k": model.spread.k,
            "pass_at_k": values,
            **interval_columns("best_minus_worst", model.spread.spread, sound=True),
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
            f"at k = {int(model.spread.k[i]):,} by {interval_text(gap)} points "
            f"({best} best, {worst} worst{clear})"
        )
    return f"The template alone moves {model.label} {' and '.join(dict.fromkeys(phrases))}."


ASPECT = Aspect(Part.RESPONSES, section, tables=tables_of(prompts, prompts=prompts_frame))
