"""How arms differ beyond right and wrong: who solves what, votes, temperatures, perplexity."""

from __future__ import annotations

from rlbhpc.report.beyond import compared
from rlbhpc.report.budgets import budgets
from rlbhpc.report.details import Details
from rlbhpc.report.figures.budget import budget_figure
from rlbhpc.report.figures.majority import majority_figure
from rlbhpc.report.figures.palette import Colours, bases_of
from rlbhpc.report.figures.perplexity import perplexity_figure
from rlbhpc.report.figures.solvable import solvable_figure
from rlbhpc.report.figures.temperature import temperature_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds
from rlbhpc.report.responses import Votes
from rlbhpc.report.scored import Scored
from rlbhpc.report.sections.parts import figure


def behaviour(report: Report, details: Details, colours: Colours) -> list[Node]:
    """Solvable sets, votes, temperatures, budgets, perplexity, reliability: what a run has."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        shown = [one for one in compared(report) if one.problem_set == set_name]
        if len(shown) > 1:
            caption = (
                "Problems by the exact set of arms that solve them at least once in equally many "
                "samples; the ids are in solvable.csv."
            )
            nodes.append(el("h3", f"{set_name}: who solves what"))
            nodes.append(figure(solvable_figure(shown, colours), f"solvable-{set_name}", caption))
    for set_name in dict.fromkeys(one.of.problem_set for one in details.votes):
        held = [one for one in details.votes if one.of.problem_set == set_name]
        caption = (
            "Bold: chance that the most frequent answer of k samples is right, ties split, with "
            "its interval. Thin: chance that any of them is right. What lies between is there but "
            "not found by a vote."
        )
        drawn = majority_figure(held, bases_of(report), colours)
        nodes.append(el("h3", f"{set_name}: majority votes"))
        nodes.append(figure(drawn, f"majority-{set_name}", caption))
        nodes.append(_answers(held, set_name))
    for one in details.temperatures:
        name = f"{one.base}-{one.trained}-{one.problem_set}"
        caption = (
            "Each model at the temperature that is best for it at each k (bold, with intervals), "
            "all temperatures thin with their value at the left; on the right the difference of "
            "the two, paired over problems."
        )
        nodes.append(el("h3", f"{one.problem_set}: {one.trained} and {one.base}, best temperature"))
        drawn = temperature_figure(one, bases_of(report), colours)
        nodes.append(figure(drawn, f"temperature-{name}", caption))
    return [*nodes, *_budgets(report, details, colours), *_perplexity(details, colours),
            *_reliability(details)]  # fmt: skip


def _answers(held: list[Votes], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for one in held:
        ends = [f"{float(v.estimate):.2f} [{float(v.lower):.2f}, {float(v.upper):.2f}]"
                for v in (one.entropy, one.distinct)]  # fmt: skip
        rows.append([one.of.label, one.samples, *ends])
    heads = ["arm", "samples", "answer entropy, nat", "distinct answers"]
    return table(f"Answers on {set_name}, per problem", heads, rows)


def _budgets(report: Report, details: Details, colours: Colours) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        shown = [one for one in budgets(report, details.responses) if one.problem_set == set_name]
        if shown:
            caption = (
                "pass@k at equal cost: the k that a budget of response tokens per problem buys at "
                "the mean length of that arm's responses to that problem."
            )
            drawn = budget_figure(shown, bases_of(report), colours)
            nodes.append(el("h3", f"{set_name}: for a budget of tokens"))
            nodes.append(figure(drawn, f"budget-{set_name}", caption))
    return nodes


def _reliability(details: Details) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.of.problem_set for one in details.reliability):
        here = [one for one in details.reliability if one.of.problem_set == set_name]
        rows: list[list[Cell]] = [
            [one.of.label, *(bounds(value) for value in one.values.values())] for one in here
        ]
        heads = ["arm", *here[0].values]
        nodes.append(el("h3", f"{set_name}: reliability"))
        nodes.append(table(f"Reliability on {set_name}, percent", heads, rows))
    if nodes:
        nodes.append(
            el(
                "p",
                "pass^k: all of k right. G-Pass: at least half of them. mG-Pass: the mean over "
                "shares above a half. Cover@τ: share of problems whose success rate is at least τ, "
                "from a fitted distribution.",
                class_="soft",
            )
        )
    return nodes


def _perplexity(details: Details, colours: Colours) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in details.scored):
        shown = [one for one in details.scored if one.problem_set == set_name]
        caption = (
            "Perplexity of stored responses under the models that scored them, at temperature 1, "
            "prompt excluded, end-of-text included."
        )
        nodes += [
            el("h3", f"{set_name}: perplexity"),
            figure(perplexity_figure(shown, colours), f"perplexity-{set_name}", caption),
            _spreads(shown, set_name),
        ]
    return nodes


def _spreads(shown: list[Scored], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for one in shown:
        s = one.spread
        rows.append(
            [one.source, one.step, one.scorer, one.scorer_step, s.responses, s.median,
             s.lower_quartile, s.upper_quartile, s.geometric_mean]
        )  # fmt: skip
    heads = ["text of", "step", "under", "step", "responses", "median", "lower quartile",
             "upper quartile", "geometric mean"]  # fmt: skip
    return table(f"Perplexity on {set_name}", heads, rows)
