"""What is pooled: the seeds of a recipe as one trained arm, and problem sets as a named mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each
from rlbhpc.report.aspects.conclusions import found
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounded, bounds
from rlbhpc.stats import Answer, Interval
from rlbhpc.stats.decision import decide, supporting
from rlbhpc.stats.seeds import seeds_curve


@dataclass(frozen=True)
class Recipe:
    """All trainings of one recipe against their base on one problem set.

    ``looked``: whether looks decide about some of them.
    """

    name: str
    base: str
    problem_set: str
    arms: tuple[str, ...]
    answer: Answer
    looked: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The answer in sentences."""
        sentences = self.answer.sentences()
        if not self.looked:
            return sentences
        return (
            *sentences,
            f"This is one test of the first {self.answer.k:,} samples of each problem: looks of "
            "`plan --until` decide about each training by itself, and have no part in it.",
        )

    @property
    def title(self) -> str:
        """Name both sides and the problem set."""
        seeds = f"{len(self.arms)} seeds of {self.name}"
        return f"{seeds} against {self.base} on {self.problem_set}"


@dataclass(frozen=True)
class Mean:
    """Mean over problem sets, each with the same weight, of one comparison of two arms.

    ``first, last``: trained minus base at k = 1 and at the largest k that all the sets have.
    """

    name: str
    base: str
    trained: str
    sets: tuple[str, ...]
    k: int
    first: Interval
    last: Interval


@once_each
def recipes(report: Report) -> Iterator[Recipe]:
    """Pool the seeds of every recipe of which two or more were compared."""
    for name, arms in report.settings.trainings.items():
        lines: dict[tuple[int, str], list[Comparison]] = {}
        for pair in report.final:
            if pair.trained.arm in arms:
                lines.setdefault((id(pair.base), pair.base.problem_set), []).append(pair)
        for pairs in lines.values():
            if len(pairs) > 1:
                yield _recipe(report, name, pairs)


def _recipe(report: Report, name: str, pairs: list[Comparison]) -> Recipe:
    base, runs = pairs[0].base, [pair.trained for pair in pairs]
    problems = common_problems([base, *runs])
    ours = base.counts_of(problems)
    theirs = [run.counts_of(problems) for run in runs]
    enough = supporting(ours, theirs)
    settings = report.settings
    curve = seeds_curve(
        ours[enough],
        [run[enough] for run in theirs],
        np.random.default_rng(settings.seed),
        settings.replicates,
        prob=settings.prob,
    )
    left_out = tuple(np.flatnonzero(~enough).tolist())
    answer = decide(curve, settings.margin, left_out, len(report.final))
    arms = tuple(run.arm for run in runs)
    looked = any(pair.look is not None for pair in pairs)
    return Recipe(name, base.label, base.problem_set, arms, answer, looked)


@once_each
def means(report: Report) -> Iterator[Mean]:
    """Take the named means of every pair of arms that was compared on all of their sets."""
    for name, sets in report.settings.averages.items():
        lines: dict[tuple[str, str], dict[str, Comparison]] = {}
        for pair in report.final:
            arms = (pair.base.arm, pair.trained.arm)
            lines.setdefault(arms, {})[pair.base.problem_set] = pair
        for (base, trained), pairs in lines.items():
            if set(sets) <= set(pairs):
                yield _mean(report, (name, base, trained), [pairs[s] for s in sets])


def _mean(report: Report, names: tuple[str, str, str], pairs: list[Comparison]) -> Mean:
    k = min(pair.reach for pair in pairs)
    parts = [_at(report, pair, k) for pair in pairs]
    # Different problems: the sets are independent of each other.
    estimate = np.mean([part.estimate for part in parts], axis=0)
    half = np.sqrt(np.mean([((p.upper - p.lower) / 2) ** 2 for p in parts], axis=0) / len(parts))
    mean = Interval(
        estimate,
        estimate - half,
        estimate + half,
        parts[0].target,
        "mean of independent sets",
        parts[0].prob,
        np.all([part.sound for part in parts], axis=0),
    )
    return Mean(*names, tuple(pair.base.problem_set for pair in pairs), k, mean[0], mean[1])


def _at(report: Report, pair: Comparison, k: int) -> Interval:
    sides = pair.sides
    difference = sides.trained.pass_at_k([1, k]) - sides.base.pass_at_k([1, k])
    return report.paired(difference, pair.problems)


def answers(report: Report) -> list[Node]:
    """What stands below the matrix."""
    nodes: list[Node] = []
    for recipe in recipes(report):
        head = el("strong", f"{recipe.title}: {recipe.answer.headline}.")
        nodes.append(el("p", head, f" {' '.join(recipe.words)}"))
    rows: list[list[Cell]] = [
        [mean.name, mean.trained, mean.base, len(mean.sets), mean.k,
         bounds(mean.first, sign=True), bounds(mean.last, sign=True)]
        for mean in means(report)
    ]  # fmt: skip
    if rows:
        heads = ["mean", "arm", "against", "sets", "K", "at k = 1, points", "at K, points"]
        nodes.append(table("Means over problem sets, each with the same weight", heads, rows))
    return nodes


def lines(report: Report) -> list[str]:
    """One line each, for a terminal."""
    of_recipes = [
        f"{recipe.title}: {recipe.answer.headline}; only base {recipe.answer.lost.count}, only "
        f"trained {recipe.answer.gained.count} of {recipe.answer.lost.problems:,}; net "
        f"{bounds(recipe.answer.net, sign=True)}"
        for recipe in recipes(report)
    ]
    of_means = [
        f"{mean.name}: {mean.trained} against {mean.base} {bounds(mean.first, sign=True)} at "
        f"k = 1, {bounds(mean.last, sign=True)} at k = {mean.k:,}"
        for mean in means(report)
    ]
    return of_recipes + of_means


def recipes_frame(pooled: list[Recipe]) -> pd.DataFrame:
    """One row per recipe and problem set."""
    return pd.DataFrame(_row(recipe) for recipe in pooled)


def _row(recipe: Recipe) -> dict[str, object]:
    answer = recipe.answer
    spread = answer.spread
    return {
        "problem_set": recipe.problem_set,
        "base": recipe.base,
        "recipe": recipe.name,
        "arms": " ".join(recipe.arms),
        "answer": answer.headline,
        **found("lost", answer.lost),
        **found("gained", answer.gained),
        "k": answer.k,
        **bounded("difference", answer.net),
        "sd_seeds": spread.seeds if spread else math.nan,
        "sd_problems": spread.problems if spread else math.nan,
        "sd_rest": spread.rest if spread else math.nan,
    }


def means_frame(pooled: list[Mean]) -> pd.DataFrame:
    """One row per mean and pair of arms."""
    return pd.DataFrame(
        {
            "mean": mean.name,
            "problem_sets": " ".join(mean.sets),
            "base": mean.base,
            "trained": mean.trained,
            "k": k,
            **bounded("difference", interval),
        }
        for mean in pooled
        for k, interval in ((1, mean.first), (mean.k, mean.last))
    )


ASPECT = Aspect(
    Part.COMPARISONS,
    tables=lambda report: {
        "seeds": recipes_frame(recipes(report)),
        "means": means_frame(means(report)),
    },
)
