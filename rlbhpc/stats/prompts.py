r"""Prompt sensitivity: how much of a difference the template alone makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.weights import ProblemWeights


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
