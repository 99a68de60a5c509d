r"""The reliability side: how often all, most or the average of k samples are right.

:math:`X` right ones in a draw of k samples without replacement are hypergeometric in (n, c).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.binomial import chances_of_right
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.pass_at_k import log_fail_at_k


def avg_at_k(counts: Counts) -> NDArray[np.float64]:
    """Mean accuracy c/n per problem: avg@k of any k, and pass@1."""
    return counts.pass_at_k(1)[:, 0]


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    r"""Chance that all of k samples are right, :math:`\binom ck / \binom nk`; NaN where k > n.

    >>> pass_hat_k(5, [3, 4], 2)
    array([0.3, 0.6])
    """
    # All k right is "no wrong one among k".
    return np.exp(log_fail_at_k(n, np.asarray(n) - np.asarray(c), k))


def g_pass_at_k(n: ArrayLike, c: ArrayLike, k: int, tau: float) -> NDArray[np.float64]:
    r"""Chance that at least a share τ of k samples is right; NaN where k > n.

    :math:`\Pr[X \ge \lceil \tau k \rceil]`. At τ = 1 it is pass^k; at τ → 0 it is
    pass@k, as at least one must be right.

    Liu et al. (2024), "Are your LLMs capable of stable reasoning?", arXiv:2412.13147. The authors
    advise n ≥ 3 k.

    >>> g_pass_at_k(5, [3, 4], 2, 0.5)
    array([0.9, 1. ])
    """
    if not 0 <= tau <= 1:
        raise UserError(f"G-Pass threshold is {tau}; allowed is a share from 0 to 1")
    _check_size(k)
    return np.asarray(_chances(n, c, k)[..., threshold(tau, k) :].sum(axis=-1))


def mg_pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    r"""Mean of G-Pass@k over thresholds from ½ to 1.

    :math:`\frac2k \sum_{j > \lceil k/2 \rceil} (j - \lceil k/2 \rceil) \Pr[X=j]`.

    >>> mg_pass_at_k(5, [3, 4], 3).mean().round(6)
    np.float64(0.166667)
    """
    _check_size(k)
    above = np.maximum(np.arange(k + 1) - math.ceil(k / 2), 0)
    return np.asarray(2 / k * (_chances(n, c, k) @ above))


def threshold(tau: float, k: int) -> int:
    """Least number of right samples that is a share τ of k, at least 1.

    ``tau = j / k`` asks for exactly j, whatever rounding makes of ``tau * k``.
    """
    least = math.floor(tau * k)
    return max(1, least + (tau > least / k))


def _chances(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    """Chance of every number of right ones; NaN where k > n."""
    n_ = np.asarray(n)[..., None]
    return np.where(n_ >= k, chances_of_right(np.maximum(n, k), c, k), np.nan)


def _check_size(k: int) -> None:
    if k < 1:
        raise UserError(f"draw size is {k}; allowed are whole numbers from 1 on")
