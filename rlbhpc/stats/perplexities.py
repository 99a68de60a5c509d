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
from rlbhpc.stats.interval import ProblemWeights, ratio_interval

# With fewer problems than this there is no interval over problems.
_LEAST_PROBLEMS: Final = 10
# A summed log-probability may lie this far above 0 by rounding.
_LOG_ROUNDING: Final = 1e-3


def perplexity(logprob_sum: ArrayLike, n_tokens: ArrayLike) -> NDArray[np.float64]:
    """Perplexity per response from its summed log-probability and number of tokens.

    Gives NaN where there are no tokens or no log-probability.

    ``logprob_sum``: natural logs of the token probabilities, summed over the response. The
    perplexity is the exponential of minus their mean per token.

    >>> perplexity([-10.0, -1.0], [10, 0]).round(3)
    array([2.718,   nan])
    """
    log_probability = np.asarray(logprob_sum, np.float64)
    tokens = np.asarray(n_tokens, np.float64)
    if (log_probability > _LOG_ROUNDING).any():
        raise UserError(
            f"log-probability {log_probability.max():g} is above 0; give natural logarithms"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(tokens > 0, np.exp(-log_probability / tokens), np.nan))


@dataclass(frozen=True)
class PerplexitySummary:
    """Distribution of perplexities of one kind of text under one model.

    ``responses``: how many have a perplexity. ``lower, upper``: 95 % interval of the geometric
    mean over problems like these; NaN where there is none.
    """

    responses: int
    median: float
    lower_quartile: float
    upper_quartile: float
    smallest: float
    largest: float
    geometric_mean: float
    lower: float
    upper: float


def summarize_perplexities(perplexities: ArrayLike) -> PerplexitySummary:
    """Summarise perplexities; NaN are left out and not counted.

    ``perplexities``: of shape (responses,), or (problems, responses). The second has an interval:
    whole problems are resampled, since responses to one problem are alike.

    >>> summarize_perplexities([1.0, 2.0, 4.0]).median
    2.0
    """
    table = np.asarray(perplexities, np.float64)
    values = table[~np.isnan(table)]
    if not len(values):
        return PerplexitySummary(0, *[float("nan")] * 8)
    lower_quartile, median, upper_quartile = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    lower, upper = _geometric_mean_interval(table)
    return PerplexitySummary(
        responses=len(values),
        median=median,
        lower_quartile=lower_quartile,
        upper_quartile=upper_quartile,
        smallest=float(values.min()),
        largest=float(values.max()),
        geometric_mean=float(np.exp(np.log(values).mean())),
        lower=lower,
        upper=upper,
    )


def _geometric_mean_interval(table: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval over problems of the geometric mean of a table (problems, responses).

    The mean log of all responses is a ratio of two sums over problems, of logs and of responses, so
    that its interval knows that responses to one problem are alike. Its exponential is the
    geometric mean. NaN in the table is no response; both bounds are NaN where responses are not
    given by problem, or where there are too few problems.
    """
    if table.ndim != 2:
        return float("nan"), float("nan")
    has_response = ~np.isnan(table).all(axis=1)
    logs = np.log(table[has_response])
    if len(logs) < _LEAST_PROBLEMS:
        return float("nan"), float("nan")
    weights = ProblemWeights.draw(len(logs), np.random.default_rng(0), replicates=1)
    response_counts = (~np.isnan(logs)).sum(axis=1)
    mean_log = ratio_interval(np.nansum(logs, axis=1), response_counts, weights)
    return float(np.exp(mean_log.lower)), float(np.exp(mean_log.upper))
