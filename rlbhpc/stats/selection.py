r"""Choices by the data, judged on other data: checkpoint, prompt, temperature.

A checkpoint chosen by the data is tested on other data: even samples choose, odd ones report.

The best of several noisy checkpoints is better than itself. Splitting each problem's samples in
two halves costs nothing with large n, and what the odd half says about the chosen one is unbiased.

Several prompts of one model: how far they lie apart, and how it does under its best one.

A base that fails only on the format of a prompt is weaker on paper than it is. The plain maximum
over prompts repairs that too well, since the maximum of noisy estimates is biased up. In
:func:`best_prompt` whoever chooses never sees the samples that are scored.

Fair comparison across sampling temperatures: each model at its best, or at equal entropy.

One temperature for both models favours whichever it suits: at T = 1.2 the study's base collapses
and the trained model leads everywhere. The *envelope* lets each model choose its temperature at
each k; *entropy matching* samples the trained model as diversely as the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.exact import chances_of_right
from rlbhpc.stats.interval import PROB, Interval, Target, check_prob, percentile_interval
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


@dataclass(frozen=True)
class Envelope:
    """Best mean pass@k over temperatures.

    ``interval``: value and population interval. The maximum is taken anew in each replicate, so the
    choice of temperature is part of the uncertainty. ``temperature``: the best temperature at each
    k. ``replicates``: replicates of the value, to compare two envelopes drawn with the same
    weights.
    """

    k: NDArray[np.int64]
    interval: Interval
    temperature: NDArray[np.float64]
    replicates: NDArray[np.float64]


def envelope(
    by_temperature: Mapping[float, Counts],
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> Envelope:
    """Take the best temperature of one model at each k.

    ``by_temperature``: counts at each temperature, the same problems in the same order. ``k``: draw
    sizes; a log-spaced grid where not given.

    The best of several noisy values is biased up by part of their noise, and each replicate takes
    its own best. Compare two models over equally many temperatures, where most of it cancels.
    """
    if not by_temperature:
        raise UserError("an envelope needs counts at one temperature at least")
    temperatures = np.asarray(sorted(by_temperature))
    reach = min(counts.reach for counts in by_temperature.values())
    sizes = as_sizes(reach if k is None else k)
    values = np.stack([by_temperature[t].pass_at_k(sizes) for t in temperatures.tolist()], axis=1)
    mean = values.mean(axis=0)
    best = mean.argmax(axis=0)
    replicates = weights.means(values).max(axis=1)
    interval = percentile_interval(
        mean.max(axis=0),
        replicates,
        prob,
        "problem bootstrap, percentile, temperature chosen in each replicate",
        weights.units >= 50,
        () if weights.units >= 50 else ("percentiles of fewer than 50 problems are too short",),
    )
    return Envelope(sizes, interval, temperatures[best], replicates)


def envelope_difference(base: Envelope, trained: Envelope, prob: float = PROB) -> Interval:
    """Trained minus base envelope, paired over problems, pointwise in k."""
    if base.replicates.shape != trained.replicates.shape or (base.k != trained.k).any():
        raise UserError("envelopes differ in k or in bootstrap weights; draw both with the same")
    return percentile_interval(
        trained.interval.estimate - base.interval.estimate,
        trained.replicates - base.replicates,
        prob,
        "paired problem bootstrap, percentile, temperatures chosen in each replicate",
        base.interval.sound & trained.interval.sound,
    )


def matched_temperature(temperature: ArrayLike, entropy: ArrayLike, wanted: float) -> float:
    """Temperature at which a model's entropy equals ``wanted``, by linear interpolation.

    ``temperature``: temperatures that were sampled, at least two. ``entropy``: mean token entropy
    at each. ``wanted``: entropy of the model to match.

    >>> matched_temperature([0.6, 1.0], [0.22, 0.62], 0.47)
    0.85
    """
    t, h = _by_temperature(temperature, entropy)
    if not h.min() <= wanted <= h.max():
        raise UserError(
            f"entropy {wanted:g} is outside what the sampled temperatures give, {h.min():g} to "
            f"{h.max():g}; sample the model at a {'higher' if wanted > h.max() else 'lower'} one"
        )
    order = np.argsort(h)
    return round(float(np.interp(wanted, h[order], t[order])), 12)


def matched_pass_at_k(
    temperature: ArrayLike, entropy: ArrayLike, curves: ArrayLike, wanted: float
) -> NDArray[np.float64]:
    """pass@k at equal entropy, interpolated between the curves of neighbouring temperatures.

    ``temperature, entropy``: as in :func:`matched_temperature`. ``curves``: one curve per
    temperature (rows): means, values per problem, or replicates. ``wanted``: entropy of the model
    to match.
    """
    matched = matched_temperature(temperature, entropy, wanted)
    t = np.asarray(temperature, np.float64)
    order = np.argsort(t)
    rows = np.asarray(curves, np.float64)[order]
    t = t[order]
    right = int(np.clip(np.searchsorted(t, matched), 1, len(t) - 1))
    share = (matched - t[right - 1]) / (t[right] - t[right - 1])
    return np.asarray((1 - share) * rows[right - 1] + share * rows[right])


def _by_temperature(
    temperature: ArrayLike, entropy: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    t, h = np.asarray(temperature, np.float64), np.asarray(entropy, np.float64)
    if t.shape != h.shape or t.ndim != 1 or len(t) < 2:
        raise UserError("entropy matching needs one entropy for each of two or more temperatures")
    order = np.argsort(t)
    t, h = t[order], h[order]
    if (np.diff(h) <= 0).any():
        raise UserError(
            f"entropy does not rise with temperature: {h.tolist()} at {t.tolist()}; "
            "sample more, or compare the envelopes"
        )
    return t, h
