"""Models under their best prompt, and each trained model against its base under that.

In the report of a study: `analysis: {aspects: [./analysis/best_prompt.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.aspects.prompts import Prompts, prompts
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded, bounds, percent, stacked
from rlbhpc.stats import Interval, k_grid
from rlbhpc.stats.selection import BestPrompt, best_prompt


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


def section(report: Report) -> Iterator[Node]:
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

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(best_prompts, best_prompt=best_prompt_frame),
)
