r"""Sharpening without training: what a base's own samples reach when likely ones count more.

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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError


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
