"""Perplexity: who finds whose text likely, and where in a response."""

from __future__ import annotations

from rlbhpc.report.details import Details
from rlbhpc.report.figures.perplexity import perplexity_figure
from rlbhpc.report.figures.positions import positions_figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import ends
from rlbhpc.report.positions import WINDOW, Positions
from rlbhpc.report.scored import Scored
from rlbhpc.report.sections.parts import Pen


def perplexities(details: Details, pen: Pen) -> list[Node]:
    """Texts under models that scored them, then responses by position."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in details.scored):
        shown = [one for one in details.scored if one.problem_set == set_name]
        caption = (
            "Perplexity of stored responses under the models that scored them, at temperature 1, "
            "prompt excluded, end-of-text included."
        )
        nodes += [
            el("h3", f"{set_name}: perplexity"),
            pen.figure(f"perplexity-{set_name}", caption, perplexity_figure, shown, pen.colours),
            _spreads(shown, set_name),
        ]
    for set_name in dict.fromkeys(one.of.problem_set for one in details.positions):
        here = [one for one in details.positions if one.of.problem_set == set_name]
        nodes += _positions(here, set_name, pen)
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


def _positions(here: list[Positions], set_name: str, pen: Pen) -> list[Node]:
    caption = (
        f"Perplexity of the first, the middle and the last {WINDOW} tokens of a response under "
        "the model that wrote it, at the sampling temperature and before top-p, with intervals "
        "over problems."
    )
    rows: list[list[Cell]] = [
        [one.of.label, one.problems, one.responses, one.short,
         *(ends(value, 3) for value in one.parts.values())]
        for one in here
    ]  # fmt: skip
    heads = ["arm", "problems", "responses", "too short", *here[0].parts]
    return [
        el("h3", f"{set_name}: perplexity by position"),
        *(el("p", _where(one)) for one in here),
        pen.figure(
            f"positions-{set_name}", caption, positions_figure, here, pen.bases, pen.colours
        ),
        table(f"Perplexity on {set_name} by position, geometric mean", heads, rows),
        el(
            "p",
            "Where two models differ tells whether training changed how a response starts or how "
            f"it is carried out. Responses of fewer than {3 * WINDOW} tokens are too short for "
            "three parts and are left out.",
            class_="soft",
        ),
    ]


def _where(one: Positions) -> str:
    """Say in words where a model is surest."""
    by_value = sorted(one.parts, key=lambda name: float(one.parts[name].estimate))
    surest, least = by_value[0], by_value[-1]
    clear = float(one.parts[surest].upper) < float(one.parts[least].lower)
    if not clear:
        return f"{one.of.label} is about as sure of itself at all three places."
    return (
        f"{one.of.label} is surest in the {surest} tokens, {ends(one.parts[surest], 3)}, and "
        f"least sure in the {least} ones, {ends(one.parts[least], 3)}."
    )
