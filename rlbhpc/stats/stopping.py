r"""How often to look: the error that is left for each look at data that are still growing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError


def spending(fractions: ArrayLike, alpha: float = 0.05) -> NDArray[np.float64]:
    r"""Error probability that may be spent up to each planned look (O'Brien–Fleming type).

    .. math:: \alpha(t) = 2 - 2\,\Phi\big(z_{1-\alpha/2} / \sqrt t\big)

    at a share t of the planned samples. Looking at the data after every batch and stopping when
    a difference appears claims one in most null studies; with the looks fixed beforehand, each
    claim is tested at what this function leaves for it.

    Parameters
    ----------
    fractions
        Rising shares of the samples at which the data are looked at, the last one 1.
    alpha
        Error probability of the whole study.

    Returns
    -------
    numpy.ndarray
        Cumulative error; test look j at the increment over look j − 1.

    References
    ----------
    Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials".

    Examples
    --------
    >>> spending([0.25, 0.5, 1.0]).round(4)
    array([0.0001, 0.0056, 0.05  ])
    """
    t = np.asarray(fractions, np.float64)
    if t.ndim != 1 or not len(t) or (np.diff(t) <= 0).any() or t[0] <= 0 or t[-1] != 1:
        raise UserError(f"looks at {t.tolist()} must rise from above 0 to exactly 1")
    if not 0 < alpha < 1:
        raise UserError(f"error probability is {alpha}; allowed is a number between 0 and 1")
    return np.asarray(2 * special.ndtr(special.ndtri(alpha / 2) / np.sqrt(t)))
