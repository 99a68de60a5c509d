"""Models under their best prompt, and each trained model against its base under that.

In the report of a study: `analysis: {aspects: [./analysis/best_prompt.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.aspects.robustness import Prompts, prompts
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, stack_rows
from rlbhpc.stats import Interval, k_grid
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.exact import chances_of_right

_CACHED: Final = 4096


@dataclass(frozen=True)
class BestPrompt:
    """pass@k of a model under its best prompt; ``[problem, k]`` each.

    ``k``: draw sizes, up to half of the samples. ``per_problem``: the prompt is chosen for each
    problem by half of its samples; the other half is scored. Unbiased for this rule, and so never
    above the true best prompt of each problem in the mean. ``overall``: one prompt for a problem:
    the best in the mean of all other problems. ``highest``: the plain maximum over prompts, biased
    up: the truth lies between it and ``per_problem``.
    """

    k: NDArray[np.int64]
    per_problem: NDArray[np.float64]
    overall: NDArray[np.float64]
    highest: NDArray[np.float64]


def best_prompt(by_prompt: Mapping[str, Counts], k: ArrayLike | None = None) -> BestPrompt:
    """Score a model under its best prompt.

    Every split of a problem's samples into halves counts, by the hypergeometric distribution of
    the right ones in the half that chooses; prompts that tie there share.

    ``by_prompt``: counts under each prompt: the same problems in the same order, with equally many
    samples under every prompt, and none that stopped early. ``k``: draw sizes of at most half of
    the samples; a log-spaced grid where not given.

    >>> found = best_prompt({"a": Counts.of(8, [8, 0]), "b": Counts.of(8, [0, 8])}, 1)
    >>> found.per_problem.mean(), found.highest.mean()
    (np.float64(1.0), np.float64(1.0))
    """
    every = list(by_prompt.values())
    if len(every) < 2:
        raise UserError(f"{len(every)} prompts leave nothing to choose; sample under two at least")
    n = every[0].n
    if any(np.any(counts.n != n) or np.any(counts.stop_after > 0) for counts in every):
        raise UserError(
            "the best prompt is chosen among equally many samples: give every prompt the same n"
            " and no `stop_after`"
        )
    sizes = as_sizes(int((n - n // 2).min()) if k is None else k)
    values = np.stack([counts.pass_at_k(sizes) for counts in every])
    rights = np.stack([counts.c for counts in every], axis=1)
    chosen = [
        _split(int(length), tuple(map(int, row)), tuple(sizes.tolist()))
        for length, row in zip(n, rights, strict=True)
    ]
    others = values.sum(axis=1, keepdims=True) - values
    best = others.argmax(axis=0)
    overall = np.take_along_axis(values, best[None], axis=0)[0]
    return BestPrompt(sizes, np.stack(chosen), overall, values.max(axis=0))


@lru_cache(maxsize=_CACHED)
def _split(n: int, rights: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float64]:
    r"""Expected pass@k on the scored half, under the prompt with most right ones in the other.

    With :math:`A_p` right of prompt p in the choosing half, prompt p is taken with probability
    :math:`E[1/(1+T)]` where none of the others has more and T have as many. That is
    :math:`\int_0^1 \prod_{q \ne p} (P(A_q < a) + z P(A_q = a)) \, dz`, a polynomial, so that few
    nodes of Gauss and Legendre give it exactly.
    """
    half = n // 2
    choosing = np.arange(half + 1)
    equal = chances_of_right(n, rights, half)
    below = np.cumsum(equal, axis=1) - equal
    nodes, weights = np.polynomial.legendre.leggauss((len(rights) + 1) // 2)
    z, weight = (nodes + 1) / 2, weights / 2
    total = np.zeros(len(sizes))
    for prompt, c in enumerate(rights):
        rivals = [q for q in range(len(rights)) if q != prompt]
        ties = below[rivals, :, None] + z * equal[rivals, :, None]
        chance_taken = equal[prompt] * (ties.prod(axis=0) @ weight)
        possible = (choosing <= c) & (c - choosing <= n - half)
        scored = Counts.of(n - half, (c - choosing)[possible]).pass_at_k(sizes)
        total += chance_taken[possible] @ scored
    return total


@dataclass(frozen=True)
class Best:
    """A model under its best prompt, with a trained model against it where there is one.

    ``curves`` and ``trained_minus`` are intervals over problems at every k of ``best``.
    """

    prompts: Prompts
    best: BestPrompt
    curves: dict[str, Interval]
    trained: str
    trained_minus: Interval | None

    @property
    def problem_set(self) -> str:
        """The problem set of the prompts."""
        return self.prompts.problem_set


@once_each
def best_prompts(report: Report) -> Iterator[Best]:
    """Every model under several prompts with equally many samples under each."""
    for model in prompts(report):
        trained = [
            pair.trained
            for pair in report.last_comparisons
            if pair.base.arm in {arm.arm for arm in model.arms}
            and (pair.base.problem_set, pair.base.step) == (model.problem_set, model.step)
        ]
        rivals: list[MeasuredArm | None] = [*trained] or [None]
        for rival in rivals:
            yield from _best(report, model, rival)


def _best(report: Report, model: Prompts, rival: MeasuredArm | None) -> Iterator[Best]:
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
                result.prompts.label,
                int(result.best.k[i]),
                *(interval_text(curve, i) for curve in result.curves.values()),
                percent_text(float(result.best.highest[:, i].mean())),
                result.trained or "–",
                interval_text(result.trained_minus, i, sign=True),
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
            "problem_set": result.prompts.problem_set,
            "model": result.prompts.model,
            "step": result.prompts.step,
            "prompts": ", ".join(result.prompts.spread.prompts),
            "k": result.best.k,
            "highest": result.best.highest.mean(axis=0),
            "trained": result.trained,
        }
        for name, interval in {**result.curves, "trained minus base": result.trained_minus}.items():
            slug = name.replace(" ", "_")
            columns |= interval_columns(slug, interval, f"{slug}_")
        parts.append(columns)
    return stack_rows(parts)


HEADS: Final = [
    "model", "k", "chosen per problem, %", "chosen on the other problems, %", "maximum, %",
    "trained", "trained − base, points",
]  # fmt: skip

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(best_prompts, best_prompt=best_prompt_frame),
)
