"""What lies beyond the samples: predictions, and how many more would decide."""

from __future__ import annotations

from rlbhpc.report.beyond import Beyond, More
from rlbhpc.report.details import Details
from rlbhpc.report.figures.beyond import extrapolation_figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds, percent, several
from rlbhpc.report.sections.parts import Pen


def beyond_samples(details: Details, pen: Pen) -> list[Node]:
    """Extrapolated curves, their checks, and forecasts of undecided comparisons."""
    nodes: list[Node] = [node for one in details.more for node in _forecast(one)]
    for set_name in dict.fromkeys(one.of.problem_set for one in details.beyond):
        shown = [one for one in details.beyond if one.of.problem_set == set_name]
        nodes += [
            el("h3", f"{set_name}: pass@k beyond the samples"),
            pen.figure(
                f"beyond-{set_name}",
                "Observed up to n; beyond, the middle and the envelope of three models (Beta, "
                "Beta with unsolvable problems, power law), for these problems. Crosses: what a "
                "tenth of the samples predicted for n, beside what was observed there.",
                extrapolation_figure,
                shown,
                pen.bases,
                pen.colours,
            ),
            _checks(shown, set_name),
        ]
    return nodes


def _forecast(one: More) -> list[Node]:
    chances = ", ".join(f"{percent(f.decided)} % with {f.n:,}" for f in one.forecasts)
    enough = (
        f"{one.until:,} samples of each problem would decide it with a chance of 80 % or more."
        if one.until
        else "None of these sizes decides it with a chance of 80 %: more problems would."
    )
    nodes: list[Node] = [
        el("h3", f"What would decide: {one.of.title}"),
        el(
            "p",
            f"Chance of a decision with more samples of each problem: {chances}, in "
            f"{several(one.studies, 'simulation')} of each size from fitted rates. {enough}",
        ),
    ]
    if one.spend:
        rows: list[list[Cell]] = [[problem, percent(chance)] for problem, chance in one.spend]
        nodes.append(
            table(
                "Unsolved problems that the base is likeliest to solve when its samples double",
                ["problem", "chance, %"],
                rows,
            )
        )
    return nodes


def _checks(shown: list[Beyond], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for one in shown:
        last = one.prediction.band[-1]
        check = one.check
        rows.append(
            [
                one.of.label,
                int(one.prediction.k[-1]),
                bounds(last),
                bounds(check.predicted) if check else "–",
                percent(check.observed) if check else "–",
                check.passed if check else None,
            ]
        )
    heads = ["arm", "K", "predicted pass@K, %", "check: predicted", "observed", "held"]
    return table(f"Predictions on {set_name}; 10 n at the most", heads, rows)
