r"""Perplexity of responses: who finds whose text likely.

.. math:: \text{PPL}_m(Y \mid x) = \exp\Big(-\frac1T \sum_{t \le T}
          \log P_m(y_t \mid x, y_{<t})\Big)

over the response tokens, prompt excluded and end-of-text included, at temperature 1. Responses
are summarised by the median, never by the mean of perplexities, which a few long tails decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.ratio import ratio_interval
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
