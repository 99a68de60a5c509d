r"""Perplexity of responses: who finds whose text likely.

.. math:: \text{PPL}_m(Y \mid x) = \exp\Big(-\frac1T \sum_{t \le T}
          \log P_m(y_t \mid x, y_{<t})\Big)

over the response tokens, prompt excluded and end-of-text included, at temperature 1. Responses
are summarised by the median, never by the mean of perplexities, which a few long tails decide.

Sharpening without training: what a base's own samples reach when likely ones count more.

Training may make right what the base could say all along, by moving probability to what was
likely anyway. How far that alone goes needs no new sample: those of the base, weighted with

.. math:: w_s \propto p(y_s)^{\alpha - 1}, \qquad
          \hat a_i(\alpha) = \frac{\sum_s w_s\, r_s}{\sum_s w_s},

estimate pass@1 of the base sharpened to :math:`p^\alpha / Z` (self-normalised importance
sampling), where the samples were drawn from p itself, at temperature 1 and from all tokens. Else
they estimate that of the distribution drawn from, times :math:`p^{\alpha-1}`. The effective sample
size :math:`(\sum w)^2 / \sum w^2` says how many of the samples still count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.interval import ratio_interval
from rlbhpc.stats.weights import ProblemWeights

# Problems that an interval over problems stands on.
_PROBLEMS: Final = 10


def perplexity(logprob_sum: ArrayLike, n_tokens: ArrayLike) -> NDArray[np.float64]:
    """Perplexity per response from its summed log-probability and number of tokens.

    Gives NaN where there are no tokens or no log-probability.

    >>> perplexity([-10.0, -1.0], [10, 0]).round(3)
    array([2.718,   nan])
    """
    total, tokens = np.asarray(logprob_sum, np.float64), np.asarray(n_tokens, np.float64)
    if (total > 1e-3).any():
        raise UserError(f"log-probability {total.max():g} is above 0; give natural logarithms")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(tokens > 0, np.exp(-total / tokens), np.nan))


@dataclass(frozen=True)
class Spread:
    """Distribution of perplexities of one kind of text under one model."""

    responses: int
    median: float
    lower_quartile: float
    upper_quartile: float
    smallest: float
    largest: float
    geometric_mean: float
    lower: float
    upper: float


def spread(values: ArrayLike) -> Spread:
    """Summarise perplexities; NaN are left out and not counted.

    Where they are given by problem and response, ``lower`` and ``upper`` are the 95 % interval of
    the geometric mean with whole problems resampled: responses to one problem are alike.

    >>> spread([1.0, 2.0, 4.0]).median
    2.0
    """
    table = np.asarray(values, np.float64)
    known = table[~np.isnan(table)]
    if not len(known):
        return Spread(0, *[float("nan")] * 8)
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75]).tolist()
    middle_log = float(np.exp(np.log(known).mean()))
    ends = float(known.min()), float(known.max())
    bounds = _clustered(table)
    return Spread(len(known), middle, low, high, *ends, middle_log, *bounds)


def _clustered(table: NDArray[np.float64]) -> tuple[float, float]:
    """Interval of the geometric mean over problems (rows); NaN for fewer than ten of them."""
    if table.ndim != 2:
        return float("nan"), float("nan")
    logs = np.log(table[~np.isnan(table).all(axis=1)])
    if len(logs) < _PROBLEMS:
        return float("nan"), float("nan")
    weights = ProblemWeights.draw(len(logs), np.random.default_rng(0), 1)
    interval = ratio_interval(np.nansum(logs, axis=1), (~np.isnan(logs)).sum(axis=1), weights)
    return float(np.exp(interval.lower)), float(np.exp(interval.upper))


def perplexity_over_steps(
    logprob_sum: ArrayLike, n_tokens: ArrayLike, responses: int = 32
) -> NDArray[np.float64]:
    """Perplexity over training as in the study: median per problem, mean over problems.

    ``logprob_sum, n_tokens``: ``[step, problem, response]``; NaN or 0 tokens where there is no
    response. ``responses``: how many of the first responses of each problem count; the study takes
    32. Gives one value per step, over the problems that have a response at every step, so that no
    step is easier by its problems.
    """
    values = perplexity(logprob_sum, n_tokens)
    if values.ndim != 3:
        raise UserError("perplexity over steps needs step, problem and response dimensions")
    values = values[:, :, :responses]
    complete = ~np.isnan(values).all(axis=2).any(axis=0)
    if not complete.any():
        return np.full(len(values), np.nan)
    return np.asarray(np.nanmedian(values[:, complete], axis=2).mean(axis=1))


def perplexity_by_position(
    logprobs: list[ArrayLike], window: int = 32
) -> dict[str, NDArray[np.float64]]:
    """Perplexity of the first, the middle and the last tokens of each response.

    Where two models differ over a response tells whether training changed how an answer starts
    or how it is carried out.

    ``logprobs``: per-token log-probabilities of each response. ``window``: tokens per part, the
    middle one centred. A response of fewer than three windows is too short for disjoint parts and
    gives NaN.

    >>> parts = perplexity_by_position([[-1.0, -1.0, -2.0, -2.0, -3.0, -3.0]], window=2)
    >>> {name: value.round(2).tolist() for name, value in parts.items()}
    {'first': [2.72], 'middle': [7.39], 'last': [20.09]}
    """
    if window < 1:
        raise UserError(f"a part of {window} tokens has no perplexity; take one token at least")
    rows = []
    for response in logprobs:
        tokens = np.asarray(response, np.float64)
        if len(tokens) < 3 * window:
            rows.append([np.nan] * 3)
            continue
        middle = (len(tokens) - window) // 2
        parts = tokens[:window], tokens[middle : middle + window], tokens[-window:]
        rows.append([float(np.exp(-part.mean())) for part in parts])
    table = np.asarray(rows, np.float64).reshape(-1, 3)
    return {name: table[:, i] for i, name in enumerate(("first", "middle", "last"))}


class Sharpened(NamedTuple):
    """pass@1 of every problem (rows) at every power (columns), and samples that still count."""

    value: NDArray[np.float64]
    effective_n: NDArray[np.float64]


def sharpened(
    right: ArrayLike, logprob: ArrayLike, judged: ArrayLike, power: ArrayLike
) -> Sharpened:
    r"""Reweight samples to powers of their probability.

    ``right, logprob, judged``: ``[problem, sample]``: whether it is right, its summed
    log-probability, whether it counts. Samples without a log-probability are left out. ``power``:
    :math:`\alpha`, from 1 (as sampled) on.

    Huang et al. (2024), "Self-Improvement in Language Models: The Sharpening Mechanism",
    arXiv:2412.01951; Karan and Du (2025), "Reasoning with Sampling", arXiv:2510.14901.

    >>> found = sharpened([[1, 0, 0]], np.log([[0.5, 0.25, 0.25]]), [[1, 1, 1]], [1, 2])
    >>> found.value.round(3).tolist(), found.effective_n.round(2).tolist()
    ([[0.333, 0.5]], [[3.0, 2.67]])
    """
    powers = np.atleast_1d(np.asarray(power, np.float64))
    if not (powers >= 1).all():
        raise UserError("powers of a sharpened base are 1 (as sampled) or more")
    is_right, logs = np.asarray(right, bool), np.asarray(logprob, np.float64)
    counted = np.asarray(judged, bool) & np.isfinite(logs)
    logs = np.where(counted, logs, -np.inf)
    best = logs.max(axis=1, keepdims=True, initial=-np.inf)
    below = np.where(counted, logs - np.where(np.isfinite(best), best, 0.0), 0.0)
    value = np.full((len(below), len(powers)), np.nan)
    effective = np.zeros_like(value)
    for column, alpha in enumerate(powers.tolist()):
        weight = np.where(counted, np.exp((alpha - 1) * below), 0.0)
        total = weight.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            value[:, column] = np.where(is_right, weight, 0.0).sum(axis=1) / total
            effective[:, column] = np.where(total > 0, total**2 / (weight**2).sum(axis=1), 0.0)
    return Sharpened(value, effective)
