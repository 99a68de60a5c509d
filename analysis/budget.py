"""pass@k at equal cost: what a budget of response tokens, or of device-hours, buys from each arm.

Example: python analysis/budget.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator

from rlbhpc.report.budgets import TOKENS, budgets
from rlbhpc.report.figures.budget import budget_figure
from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn
from rlbhpc.report.gather import Report
from rlbhpc.report.responses import responses
from rlbhpc.report.script import main


def draw(report: Report) -> Iterator[tuple[str, Drawn]]:
    found = budgets(report, responses(report))
    for set_name, unit in dict.fromkeys((one.problem_set, one.unit) for one in found):
        shown = [one for one in found if (one.problem_set, one.unit) == (set_name, unit)]
        name = f"budget-{set_name}" if unit == TOKENS else f"budget-hours-{set_name}"
        yield name, budget_figure(shown, bases_of(report), colours_of(report))


if __name__ == "__main__":
    main(__doc__, draw)
