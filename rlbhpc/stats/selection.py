"""Checkpoints and prompts: how far they lie apart, and a choice judged on other data.

The best of several noisy checkpoints is better than itself. Even samples of each problem choose and
odd ones report, which costs nothing with large n and is unbiased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob
from rlbhpc.stats.weights import ProblemWeights


@dataclass(frozen=True)
class Selection:
    """A checkpoint chosen on even samples, with the counts to report it by.

    ``chosen``: position of the chosen checkpoint. ``scores``: mean pass@k of every checkpoint on
    the even samples. ``report``: counts of the odd samples of the chosen checkpoint.
    """

    chosen: int
    scores: NDArray[np.float64]
    report: Counts


def even_odd(verdict: ArrayLike) -> tuple[Counts, Counts]:
    """Split the samples of one arm by the parity of their index.

    ``verdict``: integer codes ``[problem, sample]``: 0 to 3 judged, 1 of them right; any other
    says nothing of the model: missing, failed generation, failed verifier.

    >>> even, odd = even_odd([[1, 0, 1, -1]])
    >>> even.n, even.c, odd.n, odd.c
    (array([2]), array([2]), array([1]), array([0]))
    """
    codes = np.asarray(verdict)
    if codes.ndim != 2:
        raise UserError("an even/odd split needs verdicts by problem and sample")
    judged, right = (codes >= 0) & (codes <= 3), codes == 1
    even, odd = (
        Counts.of(judged[:, first::2].sum(axis=1), right[:, first::2].sum(axis=1))
        for first in (0, 1)
    )
    return even, odd


def choose_checkpoint(halves: Sequence[tuple[Counts, Counts]], k: int) -> Selection:
    """Choose the checkpoint with the best mean pass@k on even samples.

    ``halves``: even and odd samples of each checkpoint, from :func:`even_odd`. ``k``: draw size of
    the choice, at most half of the samples.
    """
    if not halves:
        raise UserError("a choice of checkpoint needs one checkpoint at least")
    scores = np.asarray([even.pass_at_k(k)[:, 0].mean() for even, _ in halves])
    if np.isnan(scores).all():
        raise UserError(f"no checkpoint has {k} even samples of every problem; choose a smaller k")
    chosen = int(np.nanargmax(scores))
    return Selection(chosen, scores, halves[chosen][1])


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
