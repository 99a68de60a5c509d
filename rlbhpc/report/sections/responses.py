"""How arms differ beyond right and wrong: who solves what, votes, temperatures, perplexity."""

from __future__ import annotations

from rlbhpc.report.beyond import compared
from rlbhpc.report.details import Details
from rlbhpc.report.figures.majority import majority_figure
from rlbhpc.report.figures.palette import Colours, bases_of
from rlbhpc.report.figures.perplexity import perplexity_figure
from rlbhpc.report.figures.solvable import solvable_figure
from rlbhpc.report.figures.temperature import temperature_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.scored import Scored
from rlbhpc.report.sections.parts import figure


def behaviour(report: Report, details: Details, colours: Colours) -> list[Node]:
    """Solvable sets, majority votes, temperatures and perplexity, where the run has them."""
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
    return nodes + _perplexity(details, colours)


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
