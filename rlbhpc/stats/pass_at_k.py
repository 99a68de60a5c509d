r"""pass@k from counts: :math:`n` samples of a problem, :math:`c` of them right.

The unbiased estimator of Chen et al. (2021, arXiv:2107.03374) is one minus the chance that a
draw of :math:`k` of the :math:`n` samples without replacement holds no right one,

.. math:: \widehat{\text{pass@}k} = 1 - q, \qquad
          q = \binom{n-c}{k} \Big/ \binom{n}{k} = \binom{n-k}{c} \Big/ \binom{n}{c} .

The second form is the first with :math:`c` and :math:`k` exchanged, so :math:`q` is a product of
:math:`m = \min(c, k)` factors,

.. math:: \log q = \sum_{j=0}^{m-1} \log\Big(1 - \frac{\max(c, k)}{n - j}\Big) .

The sum is taken with ``log1p`` and the value with ``expm1``. Both matter: differences of
log-gammas lose seven digits of a small pass@k at n = 10,000, and one minus the product loses a
failure rate below 1e-16 altogether.

A draw of more samples than exist is not defined: pass@k is NaN for k > n, never 1.

**Sampling that stops** at a problem's r-th right sample, or at :math:`n_\max` samples, whichever
comes first, has an unbiased estimator as well, for every :math:`k \le n_\max`. A problem that
stopped at sample n ends with a right one, whatever stands before it, so the other r − 1 right ones
are spread over n − 1 places, each way as likely as another:

.. math:: q = \binom{n-1-k}{r-1} \Big/ \binom{n-1}{r-1}, \qquad 0 \text{ for } k \ge n .

That is the first formula with n − 1 and r − 1 in place of n and c. A problem that reached
:math:`n_\max` with c < r keeps n and c. The proof stands in ``docs/stopping.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

# No limit to k.
_NO_LIMIT: Final = np.asarray(np.iinfo(np.int64).max)


def pass_at_k(
    n: ArrayLike,
    c: ArrayLike,
    k: ArrayLike,
    stop_after: ArrayLike = 0,
    n_max: ArrayLike | None = None,
) -> NDArray[np.float64]:
    r"""Unbiased pass@k per problem, :math:`1 - \binom{n-c}{k} / \binom{n}{k}`.

    ``n, c, k``: samples, right samples and draw size: whole numbers with 0 ≤ c ≤ n and k ≥ 1. They
    broadcast against each other. ``stop_after``: right samples at which sampling stopped; 0 where n
    was fixed beforehand. Then n and c are those of the samples up to the last right one that
    counts. ``n_max``: samples at which a problem would have ended without stopping. Where not
    given, one that stopped is certain to be solved within any k ≥ n; ask for no k above your own
    limit. Gives float64 of the broadcast shape; NaN where k > n, and for a problem that stopped
    where k > n_max.

    Within 1e-15 of the exact rational, relative to the value itself, as long as min(c, k) is in
    the thousands; the error grows like its square root.

    Chen et al. (2021), "Evaluating large language models trained on code", arXiv:2107.03374.

    >>> pass_at_k([5, 5], [3, 4], 1)
    array([0.6, 0.8])
    >>> pass_at_k(4, [0, 1], [[2], [8]])
    array([[0. , 0.5],
           [nan, nan]])
    >>> pass_at_k(n=[4, 9], c=2, k=[1, 5], stop_after=2)  # the second right sample came last
    array([0.33333333, 0.625     ])
    """
    # abs, not minus, which would make −0.0 of c = 0.
    return np.asarray(np.abs(np.expm1(log_fail_at_k(n, c, k, stop_after, n_max))))


def log_fail_at_k(
    n: ArrayLike,
    c: ArrayLike,
    k: ArrayLike,
    stop_after: ArrayLike = 0,
    n_max: ArrayLike | None = None,
) -> NDArray[np.float64]:
    r"""Log of the failure rate, :math:`\log\big[\binom{n-c}{k} / \binom{n}{k}\big]`.

    This is what failure-rate curves and :math:`-\log` pass@k are drawn from: it keeps its digits
    where ``1 - pass_at_k(...)`` is 0.

    ``n, c, k, stop_after, n_max``: as in :func:`pass_at_k`. Gives float64 of the broadcast shape;
    −inf where every draw holds a right sample (n − c < k ≤ n) and NaN where :func:`pass_at_k` is.

    The rate is a product of min(c, k) factors 1 − max(c, k)/(n − j), see ``_partial_sums``. A draw
    larger than the number of wrong samples is certain to hold a right one, so its log is −inf
    without a sum.

    >>> log_fail_at_k(10_000, 5_000, 4_000)
    array(-4227.5553...)
    """
    n_, c_, k_, stop = np.broadcast_arrays(
        whole_numbers("n", n),
        whole_numbers("c", c),
        whole_numbers("k", k),
        whole_numbers("stop_after", stop_after),
    )
    check_counts(n_, c_, stop)
    if (k_ < 1).any():
        raise UserError(f"draw size k is {k_.min()}; allowed are whole numbers from 1 on")
    stopped = (stop > 0) & (c_ == stop)
    limit = _NO_LIMIT if n_max is None else whole_numbers("n_max", n_max)
    undefined = k_ > np.where(stopped, limit, n_)
    # The right sample at which a problem stopped stands last, so it is not drawn from.
    n_, c_ = n_ - stopped, c_ - stopped
    terms, largest = np.minimum(c_, k_), np.maximum(c_, k_)
    certain = terms + largest > n_
    result = np.where(undefined, np.nan, np.where(certain, -np.inf, 0.0))
    summed = (terms > 0) & ~certain & ~undefined
    result[summed] = _partial_sums(n_[summed], largest[summed], terms[summed])
    return result


def pass_curves(n: ArrayLike, c: ArrayLike) -> NDArray[np.float64]:
    """pass@1, pass@2, … pass@max(n) of every problem at once.

    ``n, c``: samples and right samples, broadcasting against each other. Gives float64 of the
    broadcast shape with one axis more at the end, ``[..., k - 1]``; NaN where k > n.

    One running sum over j serves all k of a (n, c) pair, and problems with equal pairs share it.
    With equal n, ``pass_curves(n, np.arange(n + 1))`` is the table of all values there are.

    >>> pass_curves([3, 2], [1, 1]).round(3)
    array([[0.333, 0.667, 1.   ],
           [0.5  , 1.   ,   nan]])
    """
    n_, c_ = np.broadcast_arrays(whole_numbers("n", n), whole_numbers("c", c))
    check_counts(n_, c_)
    longest = int(n_.max(initial=0))
    # A pair as one number, n (longest + 1) + c.
    pairs, pair_of = np.unique(n_.ravel() * (longest + 1) + c_.ravel(), return_inverse=True)
    curves = np.full((len(pairs), longest), np.nan)
    for curve, pair in zip(curves, pairs.tolist(), strict=True):
        samples, right = divmod(pair, longest + 1)
        curve[:samples] = _curve_of_pair(samples, right)
    return curves[pair_of].reshape(*n_.shape, longest)


def _curve_of_pair(n: int, c: int) -> NDArray[np.float64]:
    """pass@1 … pass@n of one problem with c right of n samples.

    The chance that a draw of k holds no right sample is the product of 1 − c/(n − j) over j < k.
    Its log is a running sum, which loses no digits of small values.
    """
    if c == 0:
        return np.zeros(n)
    # Past n − c every draw holds a right sample.
    curve = np.ones(n)
    terms = np.log1p(-c / np.arange(n, c, -1, dtype=np.float64))
    curve[: n - c] = -np.expm1(np.cumsum(terms))
    return curve


def _partial_sums(
    n: NDArray[np.int64], largest: NDArray[np.int64], terms: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum log1p(−largest/(n − j)) over j < ``terms``, for 1-d arrays of equal length.

    All entries with the same n and largest read one running sum, which makes a table over problems
    and k cheap: its sums are the distinct c and the distinct k. Entries are sorted by their pair
    and cut where the pair changes; each pair's running sum goes as far as its longest entry needs.
    """
    # A pair as one number, n (longest + 1) + largest.
    longest = int(n.max(initial=0))
    pairs, pair_of = np.unique(n * (longest + 1) + largest, return_inverse=True)
    by_pair = np.argsort(pair_of, kind="stable")
    first_of_pair = np.searchsorted(pair_of[by_pair], np.arange(1, len(pairs)))
    sums = np.empty(len(n))
    for pair, entries in zip(pairs.tolist(), np.split(by_pair, first_of_pair), strict=False):
        samples, numerator = divmod(pair, longest + 1)
        length = int(terms[entries].max())
        denominators = np.arange(samples, samples - length, -1, dtype=np.float64)
        running_sum = np.cumsum(np.log1p(-numerator / denominators))
        sums[entries] = running_sum[terms[entries] - 1]
    return sums


def whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Values as int64; a fraction or NaN among them is an error."""
    array = np.asarray(values)
    with np.errstate(invalid="ignore"):
        numbers = array.astype(np.int64)
    if (numbers != array).any():
        raise UserError(
            f"{name} holds {array[numbers != array].flat[0]}; counts are whole numbers: "
            "drop problems whose samples are missing"
        )
    return numbers


def check_counts(
    n: NDArray[np.int64], c: NDArray[np.int64], stop_after: NDArray[np.int64] | int = 0
) -> None:
    """Refuse counts that no set of samples has.

    ``n, c``: samples, and right ones. ``stop_after``: right samples at which sampling stops; 0 if
    it does not. They broadcast; the message names the first entry that breaks a rule.
    """
    n, c, stop_after = np.broadcast_arrays(n, c, stop_after)
    broken_rules = {
        "0 <= c <= n": (c < 0) | (c > n),
        "stop_after >= 0": stop_after < 0,
        "c <= stop_after, counted up to where sampling stops": (stop_after > 0) & (c > stop_after),
    }
    for rule, broken in broken_rules.items():
        if broken.any():
            index = np.unravel_index(broken.argmax(), broken.shape)
            raise UserError(
                f"problem {', '.join(map(str, index))} has n={n[index]}, c={c[index]}, "
                f"stop_after={stop_after[index]}; needed is {rule}: count its samples anew"
            )
