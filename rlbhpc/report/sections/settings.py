"""How much the settings matter: temperature, prompt, and what a response costs."""

from __future__ import annotations

import numpy as np

from rlbhpc.report.budgets import TOKENS, Budget
from rlbhpc.report.details import Details
from rlbhpc.report.figures.budget import budget_figure
from rlbhpc.report.figures.prompts import prompts_figure
from rlbhpc.report.figures.temperature import temperature_figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.matched import Matched
from rlbhpc.report.phrases import bounds, percent, several
from rlbhpc.report.prompts import Prompts, UnderPrompt
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.temperatures import Temperatures
from rlbhpc.stats import Interval

# Budgets that a table shows.
_COLUMNS = 5


def settings(details: Details, pen: Pen) -> list[Node]:
    """Best temperatures, sensitivity to the prompt, equal cost: what a run has."""
    nodes: list[Node] = []
    for one in details.temperatures:
        name = f"temperature-{one.base}-{one.trained}-{one.problem_set}"
        caption = (
            "Each model at the temperature that is best for it at each k (bold, with intervals), "
            "all temperatures thin with their value at the left; on the right the difference of "
            "the two, paired over problems."
        )
        nodes += [
            el("h3", f"{one.problem_set}: {one.trained} and {one.base}, best temperature"),
            pen.figure(name, caption, temperature_figure, one, pen.bases, pen.colours),
            _temperatures(one),
        ]
    return [*nodes, *_matched(details), *_prompts(details, pen), *_budgets(details, pen)]


def _temperatures(one: Temperatures) -> Node:
    k = one.envelopes[0].k
    rows: list[list[Cell]] = []
    for i in _ends(len(k)):
        row: list[Cell] = [int(k[i])]
        for side in one.envelopes:
            row += [float(side.temperature[i]), bounds(side.interval, i)]
        rows.append([*row, bounds(one.difference, i, sign=True)])
    heads = ["k", f"best T of {one.base}", "pass@k, %", f"best T of {one.trained}", "pass@k, %",
             "trained − base, points"]  # fmt: skip
    caption = f"Each model at its best temperature, {several(one.problems, 'problem')}"
    return table(caption, heads, rows)


def _matched(details: Details) -> list[Node]:
    """Show what is left of a difference where both models are equally random."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.base.problem_set for one in details.matched):
        here = [one for one in details.matched if one.base.problem_set == set_name]
        rows: list[list[Cell]] = [
            [one.trained, one.base.label, f"{one.entropy:.3f}", f"{one.temperature:.2f}",
             int(one.k[i]), bounds(one.difference, i, sign=True)]
            for one in here
            for i in _ends(len(one.k))
        ]  # fmt: skip
        heads = ["trained", "base", "entropy of the base", "T of the trained", "k",
                 "trained − base, points"]  # fmt: skip
        nodes += [
            el("h3", f"{set_name}: at equal entropy"),
            *(el("p", _left(one)) for one in here),
            table(f"The trained model on {set_name}, as random as its base", heads, rows),
            el(
                "p",
                "pass@k between two sampled temperatures is interpolated. The interval does not "
                "hold the uncertainty of the entropies themselves.",
                class_="soft",
            ),
        ]
    return nodes


def _left(one: Matched) -> str:
    last = one.difference[len(one.k) - 1]
    says = {1: "the trained model leads", -1: "the base leads", 0: "neither leads for certain"}
    return (
        f"With {one.trained} at a temperature of {one.temperature:.2f}, where it is as random as "
        f"{one.base.label} ({one.entropy:.3f} nat per token), {says[int(last.sign)]} at "
        f"k = {int(one.k[-1]):,}: {bounds(last, sign=True)} points."
    )


def _ends(number: int) -> list[int]:
    """First, middle and last place."""
    return sorted({0, number // 2, number - 1})


def _prompts(details: Details, pen: Pen) -> list[Node]:
    """Show how far the template reaches, and whether the answer hangs on it."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in details.prompts):
        here = [one for one in details.prompts if one.problem_set == set_name]
        caption = (
            "pass@k of one model under all its prompts, each with its name at the right; the rest "
            "of the sampling setting is the same. Dashed: a base."
        )
        nodes += [
            el("h3", f"{set_name}: prompt sensitivity"),
            *(el("p", _reach(one)) for one in here),
            pen.figure(f"prompts-{set_name}", caption, prompts_figure, here, pen.bases,
                       pen.colours),
            _spreads(here, set_name),
        ]  # fmt: skip
        answers = [one for one in details.under_prompts if one.problem_set == set_name]
        if answers:
            nodes.append(_under_prompts(answers, set_name))
    if nodes:
        nodes.append(
            el(
                "p",
                "Best minus worst is the largest of several differences and so a little too "
                "large; its interval holds for the two prompts that came out best and worst.",
                class_="soft",
            )
        )
    return nodes


def _reach(one: Prompts) -> str:
    """Say in words what the template makes of a model at its first and last k."""
    told = []
    for i in (0, len(one.spread.k) - 1):
        values = one.spread.values[:, i]
        best, worst = (one.spread.prompts[int(j)] for j in (values.argmax(), values.argmin()))
        gap = one.spread.spread[i]
        if float(gap.estimate) == 0:
            told.append(f"at k = {int(one.spread.k[i]):,} not at all")
            continue
        clear = "" if float(gap.lower) > 0 else ", which noise alone could make"
        told.append(
            f"at k = {int(one.spread.k[i]):,} by {bounds(gap)} points ({best} best, {worst} "
            f"worst{clear})"
        )
    return f"The template alone moves {one.label} {' and '.join(dict.fromkeys(told))}."


def _spreads(here: list[Prompts], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for one in here:
        k = one.spread.k
        for i in _ends(len(k)):
            values = ", ".join(
                f"{name} {percent(float(one.spread.values[j, i]))}"
                for j, name in enumerate(one.spread.prompts)
            )
            rows.append([one.label, int(k[i]), values, bounds(one.spread.spread, i)])
    heads = ["model", "k", "pass@k by prompt, %", "best − worst, points"]
    return table(f"Prompts on {set_name}", heads, rows, wide=(2,))


def _under_prompts(answers: list[UnderPrompt], set_name: str) -> Node:
    rows: list[list[Cell]] = [
        [one.trained, one.base, one.prompt, str(one.headline), bounds(one.quick, sign=True),
         bounds(one.wide, sign=True), one.reach]
        for one in answers
    ]  # fmt: skip
    heads = ["trained", "base", "prompt", "answer", "pass@1 − base, points",
             "pass@K − base, points", "K"]  # fmt: skip
    return table(f"The answer on {set_name} under each prompt", heads, rows)


def _budgets(details: Details, pen: Pen) -> list[Node]:
    nodes: list[Node] = []
    for set_name, unit in dict.fromkeys((one.problem_set, one.unit) for one in details.budgets):
        here = [one for one in details.budgets if (one.problem_set, one.unit) == (set_name, unit)]
        tokens = unit == TOKENS
        caption = (
            "pass@k at equal cost: the k that a budget of response tokens per problem buys at the "
            "mean length of that arm's responses to that problem."
            if tokens
            else "pass@k at equal cost: the k that hours of a device buy, at the mean length of "
            "that arm's responses and the tokens per second that its workers made, without "
            "loading the model."
        )
        name = f"budget-{'tokens' if tokens else 'hours'}-{set_name}"
        what = "tokens" if tokens else "device-hours"
        nodes += [
            el("h3", f"{set_name}: for a budget of {what}"),
            pen.figure(name, caption, budget_figure, here, pen.bases, pen.colours),
            _bought(here, set_name),
        ]
    return nodes


def _bought(here: list[Budget], set_name: str) -> Node:
    spent = here[0].spent
    every = np.stack([~np.isnan(one.interval.estimate) for one in here])
    # From the first budget up to the last that all arms can use.
    last = int(np.flatnonzero(every.all(axis=0))[-1]) if every.all(axis=0).any() else 0
    shown = np.unique(np.linspace(0, last, _COLUMNS).round().astype(int)).tolist()
    rows: list[list[Cell]] = [
        [one.of.label, *(_cell(one.interval, i) for i in shown)] for one in here
    ]
    heads = ["arm", *(f"{spent[i]:,.3g}" for i in shown)]
    return table(f"pass@budget on {set_name}, percent, by {here[0].unit}", heads, rows)


def _cell(interval: Interval, at: int) -> str:
    return "–" if np.isnan(interval.estimate[at]) else bounds(interval, at)
