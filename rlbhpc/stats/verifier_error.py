r"""Errors of a verifier, and what they do to pass@k.

CoT-pass@k: a sample counts only if both its answer and its chain of reasoning are right.

The estimator is that of pass@k with c the samples judged right in both. The judge errs, so the
value is also given for a judge of known error: with probability ``1 − ppv`` a chain judged valid
is not, and with probability ``1 − npv`` a chain judged invalid is. The number of truly valid
chains among the right answers is then a sum of two binomials, and pass@k is averaged over it.

What a lenient verifier or a lucky guess makes of large k.

A verifier that accepts a wrong answer with probability f turns a problem that is never solved
into one that looks solved with probability

.. math:: 1 - (1-f)^k ,

63 % at f = 0.001 and k = 1,000. A curve that does not rise above this floor shows nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.exact import chances_of
from rlbhpc.stats.pass_at_k import pass_at_k


def cot_pass_at_k(
    n: ArrayLike,
    right: ArrayLike,
    valid: ArrayLike,
    k: ArrayLike,
    ppv: float = 1.0,
    npv: float = 1.0,
) -> NDArray[np.float64]:
    """pass@k per problem (rows) and k (columns), counting right answers with valid chains.

    ``n, right, valid``: samples, those with a right answer, and those of them whose chain was
    judged valid. ``ppv, npv``: shares of correct judgements among chains judged valid and judged
    invalid, from an audit of the judge. Evaluate at both ends of their intervals to get error bars.

    Wen et al. (2025), arXiv:2506.14245.

    >>> cot_pass_at_k(8, [4], [2], [1, 8])
    array([[0.25, 1.  ]])
    >>> cot_pass_at_k(8, [4], [2], [1, 8], ppv=0.5)
    array([[0.125, 0.75 ]])
    """
    for name, share in (("ppv", ppv), ("npv", npv)):
        if not 0 <= share <= 1:
            raise UserError(f"{name} of the judge is {share}; allowed is a share from 0 to 1")
    answers, chains = Counts.of(n, right), Counts.of(right, valid)
    if len(answers) != len(chains):
        raise UserError("right and valid counts are of different numbers of problems")
    sizes = np.atleast_1d(np.asarray(k, np.int64))
    if ppv == npv == 1:
        return Counts.of(answers.n, chains.c).pass_at_k(sizes)
    rows = zip(answers.n.tolist(), chains.n.tolist(), chains.c.tolist(), strict=True)
    return np.stack([_expected(*row, sizes, ppv, npv) for row in rows])


def _expected(
    n: int, right: int, valid: int, k: NDArray[np.int64], ppv: float, npv: float
) -> NDArray[np.float64]:
    """Average pass@k over how many of the right answers truly have a valid chain."""
    chance = np.convolve(chances_of(valid, ppv), chances_of(right - valid, 1 - npv))
    return np.asarray(chance @ pass_at_k(n, np.arange(right + 1)[:, None], k))


def verifier_floor(rate: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """Apparent pass@k of problems that are never solved; rate and k broadcast.

    >>> verifier_floor(0.001, [1, 1000]).round(3)
    array([0.001, 0.632])
    """
    f = np.asarray(rate, np.float64)
    if not ((f >= 0) & (f <= 1)).all():
        raise UserError("a false-positive rate is a share from 0 to 1")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.asarray(k, np.float64) * np.log1p(-f)))
