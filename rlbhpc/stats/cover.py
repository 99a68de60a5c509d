r"""Cover@τ: the share of problems that are solved with probability at least τ.

.. math:: \text{Cover@}\tau = \frac1P \sum_i 1\{p_i \ge \tau\}, \qquad
          \text{pass@}k = \int_0^1 \text{Cover@}\tau \; k (1-\tau)^{k-1}\, d\tau :

pass@k is its average under Beta(1, k), which looks only at τ of about 1/k. Counting
:math:`c/n \ge \tau` is biased by noise near τ, so the posterior probability of
:math:`p_i \ge \tau` under a fitted distribution of rates is averaged instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.priors import RatePrior, fit_prior


def posterior_above(
    counts: Counts, tau: ArrayLike, prior: RatePrior | None = None
) -> NDArray[np.float64]:
    """Posterior probability that a problem's rate is at least τ, ``[problem, tau]``.

    Its mean over problems is Cover@τ. Model-based in the choice of the fitted distribution (Beta
    with zeros where none is given), which matters for τ below about 3/n.

    Dragoi et al. (2025), arXiv:2510.08325.
    """
    level = _levels(tau)
    fitted = prior or fit_prior(counts, zero_inflated=True)
    alike, row, _ = counts.alike()
    n, c = alike.n[:, None], alike.c[:, None]
    beta = special.betaincc(fitted.a + c, fitted.b + n - c, level)
    return np.where(level <= 0, 1.0, (1 - fitted.never(n, c)) * beta)[row]


def _levels(tau: ArrayLike) -> NDArray[np.float64]:
    level = np.atleast_1d(np.asarray(tau, np.float64))
    if not ((level >= 0) & (level <= 1)).all():
        raise UserError("Cover thresholds are success rates; allowed are numbers from 0 to 1")
    return level
