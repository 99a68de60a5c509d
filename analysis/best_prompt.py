"""Models under each of their prompts and under the best, and trained against base under that.

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
from rlbhpc.report.aspect import Aspect, Part, Report, once_each
from rlbhpc.report.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval, k_grid
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.exact import chances_of_right
from rlbhpc.stats.interval import PROB, ProblemWeights, Target, check_prob

_CACHED: Final = 4096
# Units from which on the gap between two prompts holds what it says.
_LEAST_UNITS: Final = 50
#: The prompt that asks for an answer and no reasoning.
NO_REASONING: Final = "no-think"


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
class PromptSpread:
    """pass@k of one model under several prompts.

    ``prompts``: names, in the order of the rows of ``values``. ``values``: mean pass@k (prompts,
    sizes). ``spread``: best minus worst prompt at each k, with a population interval.
    """

    k: NDArray[np.int64]
    prompts: tuple[str, ...]
    values: NDArray[np.float64]
    spread: Interval


def prompt_spread(
    by_prompt: Mapping[str, Counts],
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> PromptSpread:
    """Compare one model under several prompts, at each k.

    The interval is of the difference between the two prompts that came out best and worst, and so
    conditional on which two these are. With few prompts it says how far a template reaches, not how
    far templates in general might.

    ``by_prompt``: counts under each prompt, the same problems in the same order; at least two.
    ``k``: draw sizes; a log-spaced grid where not given.

    ``values``: pass@k (prompts, problems, sizes). At each k the best and the worst prompt are those
    with the largest and least mean over problems; ``gap`` is their difference (problems, sizes).
    ``reach``: largest k that every problem has samples for.
    """
    if len(by_prompt) < 2:
        raise UserError(f"{len(by_prompt)} prompts have no spread; sample under two at least")
    reach = min(counts.reach for counts in by_prompt.values())
    sizes = as_sizes(reach if k is None else k)
    values = np.stack([counts.pass_at_k(sizes) for counts in by_prompt.values()])
    means = values.mean(axis=1)
    column = np.arange(len(sizes))
    best, worst = means.argmax(axis=0), means.argmin(axis=0)
    # At each k the best minus the worst prompt (problems, sizes).
    gap = values[best, :, column].T - values[worst, :, column].T
    tails = [(1 - check_prob(prob)) / 2, (1 + prob) / 2]
    lower, upper = np.quantile(weights.means(gap), tails, axis=0)
    spread = Interval(
        gap.mean(axis=0),
        lower,
        upper,
        Target.POPULATION,
        "paired problem bootstrap, percentile, of the best and the worst prompt",
        prob,
        # Only where best and worst are told apart is the choice of the two beyond doubt. The
        # largest of several differences is biased up by part of its noise.
        (lower > 0) & (weights.units >= _LEAST_UNITS),
    )
    return PromptSpread(sizes, tuple(by_prompt), means, spread)


@dataclass(frozen=True)
class Prompts:
    """A model at one step under all prompts that it was sampled with, otherwise alike.

    ``arms``: the arm of each prompt, in the order of ``spread.prompts``. ``spread``: pass@k under
    each, and best minus worst. ``problems``: problems that all these arms have samples of.
    """

    problem_set: str
    model: str
    step: int
    arms: tuple[MeasuredArm, ...]
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
    arms_alike: dict[tuple[object, ...], list[MeasuredArm]] = {}
    for arm in report.measured_arms:
        study_arm = report.study_arms.get(arm.arm)
        if study_arm is None or study_arm.prompt == NO_REASONING or not arm.has_samples.any():
            continue
        key = (arm.problem_set, arm.model, arm.step, study_arm.sampling)
        arms_alike.setdefault(key, []).append(arm)
    for arms in arms_alike.values():
        # Arms of one prompt differ in nothing that is known here; the first stands for them.
        arm_of_prompt = {report.study_arms[arm.arm].prompt: arm for arm in reversed(arms)}
        if len(arm_of_prompt) > 1:
            yield from _compare_prompts(report, dict(sorted(arm_of_prompt.items())))


def _compare_prompts(report: Report, arm_of_prompt: dict[str, MeasuredArm]) -> Iterator[Prompts]:
    arms = tuple(arm_of_prompt.values())
    problems = common_problems(arms)
    if len(problems) < 2:
        return
    counts = {prompt: arm.counts_of(problems) for prompt, arm in arm_of_prompt.items()}
    k = k_grid(min(each.reach for each in counts.values()))
    weights = report.settings.weights(problems)
    spread = prompt_spread(counts, weights, k, report.settings.prob)
    yield Prompts(arms[0].problem_set, arms[0].model, arms[0].step, arms, spread, len(problems))


def prompts_section(report: Report) -> Iterator[Node]:
    """Show how much of a difference the template alone makes."""
    for set_name, models in report.by_set(prompts(report)):
        yield el("h3", f"{set_name}: prompt sensitivity")
        for model in models:
            yield el("p", _prompts_sentence(model))
        yield figure(
            "pass@k of each model under all its prompts, each with its name at the right; the "
            "rest of the sampling setting is the same. Dashed: a base.",
            prompts_chart(models, report.colours),
        )
        rows = []
        for model in models:
            last = len(model.spread.k) - 1
            for i in sorted({0, (last + 1) // 2, last}, reverse=True):
                rates = ", ".join(
                    f"{prompt} {percent_text(float(rate))}"
                    for prompt, rate in zip(
                        model.spread.prompts, model.spread.values[:, i], strict=True
                    )
                )
                spread = interval_text(model.spread.spread, i)
                rows.append([model.label, int(model.spread.k[i]), rates, spread])
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
        spread = model.spread
        panel = Panel(k_axis(int(spread.k[-1])), percent_axis(), model.label)
        for arm, prompt, rates in zip(model.arms, spread.prompts, spread.values, strict=True):
            colour, dash = colours[arm.arm], colours.dash(arm.arm)
            panel.line(spread.k, 100 * rates, colour, name=prompt, dash=dash)
            panel.end(100 * rates, prompt, colour)
        panels.append(panel)
    return Chart(panels, lambda: prompts_frame(models))


def prompts_frame(models: Sequence[Prompts]) -> pd.DataFrame:
    """pass@k by prompt, one row per model, step, prompt and k, with the spread at that k."""
    return stack_rows(
        {
            "problem_set": model.problem_set,
            "model": model.model,
            "step": model.step,
            "prompt": prompt,
            "k": model.spread.k,
            "pass_at_k": rates,
            **interval_columns("best_minus_worst", model.spread.spread, sound=True),
        }
        for model in models
        for prompt, rates in zip(model.spread.prompts, model.spread.values, strict=True)
    )


def _prompts_sentence(model: Prompts) -> str:
    """Say what the template makes of a model at its first and last k."""
    spread = model.spread
    phrases = []
    for i in (0, len(spread.k) - 1):
        rates, gap = spread.values[:, i], spread.spread[i]
        best, worst = spread.prompts[int(rates.argmax())], spread.prompts[int(rates.argmin())]
        size = f"at k = {int(spread.k[i]):,}"
        if float(gap.estimate) == 0:
            phrases.append(f"{size} not at all")
            continue
        doubt = "" if gap.low > 0 else ", which noise alone could make"
        phrases.append(f"{size} by {interval_text(gap)} points ({best} best, {worst} worst{doubt})")
    return f"The template alone moves {model.label} {' and '.join(dict.fromkeys(phrases))}."


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
        minus = report.difference_interval(
            rival_counts.pass_at_k(best.k) - best.per_problem, problems
        )
    yield Best(model, best, curves, rival.label if rival else "", minus)


def section(report: Report) -> Iterator[Node]:
    """Show what each prompt makes of a model, and what the best leaves of a difference."""
    yield from prompts_section(report)
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
    tables=lambda report: {
        "prompts": prompts_frame(prompts(report)),
        "best_prompt": best_prompt_frame(best_prompts(report)),
    },
)
