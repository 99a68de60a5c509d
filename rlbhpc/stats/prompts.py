r"""Several prompts of one model: how far they lie apart, and how it does under its best one.

A base that fails only on the format of a prompt is weaker on paper than it is. The plain maximum
over prompts repairs that too well, since the maximum of noisy estimates is biased up. In
:func:`best_prompt` whoever chooses never sees the samples that are scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.binomial import chances_of_right
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.weights import ProblemWeights

_CACHED: Final = 4096


@dataclass(frozen=True)
class PromptSpread:
    """pass@k of one model under several prompts.

    ``prompts``: names, in the order of the rows of ``values``. ``values``: mean pass@k, ``[prompt,
    k]``. ``spread``: best minus worst prompt at each k, with a population interval.
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
    conditional on which two these are. With few prompts it says how far a template reaches, not
    how far templates in general might.

    ``by_prompt``: counts under each prompt, the same problems in the same order; at least two.
    ``k``: draw sizes; a log-spaced grid where not given.
    """
    if len(by_prompt) < 2:
        raise UserError(f"{len(by_prompt)} prompts have no spread; sample under two at least")
    reach = min(counts.reach for counts in by_prompt.values())
    sizes = as_sizes(reach if k is None else k)
    values = np.stack([counts.pass_at_k(sizes) for counts in by_prompt.values()])
    mean = values.mean(axis=1)
    column = np.arange(len(sizes))
    best, worst = mean.argmax(axis=0), mean.argmin(axis=0)
    gap = values[best, :, column].T - values[worst, :, column].T
    replicates = weights.means(gap)
    tails = [(1 - check_prob(prob)) / 2, (1 + prob) / 2]
    lower, upper = np.quantile(replicates, tails, axis=0)
    spread = Interval(
        gap.mean(axis=0),
        lower,
        upper,
        Target.POPULATION,
        "paired problem bootstrap, percentile, of the best and the worst prompt",
        prob,
        # Only where best and worst are told apart is the choice of the two beyond doubt.
        (lower > 0) & (weights.units >= 50),
        ("the largest of several differences is biased up by part of its noise",),
    )
    return PromptSpread(sizes, tuple(by_prompt), mean, spread)


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
