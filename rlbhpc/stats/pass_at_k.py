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

# Values of one batch of partial sums; 32 MB as float64.
_BATCH: Final = 1 << 22
# 1 − exp(−38) is 1.0 in double precision.
_CERTAIN: Final = 38.0
# No limit to k.
_ANY: Final = np.asarray(np.iinfo(np.int64).max)


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
    values = _log_fail(n, c, k, -_CERTAIN, stop_after, n_max)
    np.expm1(values, out=values)
    # abs, not minus, which would make −0.0 of c = 0.
    return np.abs(values, out=values)


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

    >>> log_fail_at_k(10_000, 5_000, 4_000)
    array(-4227.5553...)
    """
    return _log_fail(n, c, k, -np.inf, stop_after, n_max)


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
    n_, c_ = np.broadcast_arrays(_whole("n", n), _whole("c", c))
    _check(n_, c_, np.ones_like(n_), np.zeros_like(n_))
    width = int(n_.max(initial=0))
    pairs, where = np.unique(n_.ravel() * (width + 1) + c_.ravel(), return_inverse=True)
    table = np.empty((len(pairs), width))
    for row, pair in zip(table, pairs.tolist(), strict=True):
        _fill_curve(row, *divmod(pair, width + 1))
    return table[where].reshape(*n_.shape, width)


def _log_fail(
    n: ArrayLike,
    c: ArrayLike,
    k: ArrayLike,
    floor: float,
    stop_after: ArrayLike,
    n_max: ArrayLike | None,
) -> NDArray[np.float64]:
    """Log failure rate; values that are surely below ``floor`` may come back as −inf."""
    n_, c_, k_, stop = np.broadcast_arrays(
        _whole("n", n), _whole("c", c), _whole("k", k), _whole("stop_after", stop_after)
    )
    _check(n_, c_, k_, stop)
    stopped = (stop > 0) & (c_ == stop)
    end = _ANY if n_max is None else _whole("n_max", n_max)
    undefined = k_ > np.where(stopped, end, n_)
    # The right sample at which a problem stopped stands last, so it has no place to choose.
    n_, c_ = n_ - stopped, c_ - stopped
    few, many = np.minimum(c_, k_), np.maximum(c_, k_)
    result = np.where(undefined, np.nan, np.where(few + many > n_, -np.inf, 0.0))
    summed = (few > 0) & (few + many <= n_) & ~undefined
    # No term is above the first one, log1p(−many/n).
    first_terms = np.log1p(-many / np.maximum(n_, 1), out=np.zeros(n_.shape), where=summed)
    below = summed & (few * first_terms < floor)
    result[below] = -np.inf
    summed &= ~below
    if summed.any():
        result[summed] = _partial_sums(n_[summed], many[summed], few[summed])
    return result


def _fill_curve(row: NDArray[np.float64], n: int, c: int) -> None:
    """Write pass@1 … pass@n of one problem into ``row`` and NaN behind it."""
    row[n:] = np.nan
    if c == 0:
        row[:n] = 0.0
        return
    # Past n − c every draw holds a right sample. Before that, log q ≤ k log(1 − c/n) tells from
    # where on the value rounds to 1, which spares most of the sum for large c.
    stop = n - c
    if stop:
        stop = min(stop, int(np.ceil(_CERTAIN / -np.log1p(-c / n))))
    sums = np.cumsum(np.log1p(-c / np.arange(n, n - stop, -1, dtype=np.float64)))
    np.negative(np.expm1(sums), out=row[:stop])
    row[stop:n] = 1.0


def _partial_sums(
    n: NDArray[np.int64], many: NDArray[np.int64], few: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum log1p(−many/(n − j)) over j < few, for 1-d arrays of equal length.

    All entries with the same (n, many) read one running sum, which makes a table over problems
    and k cheap: its rows are the distinct c and the distinct k.
    """
    base = int(n.max()) + 1
    rows, row_of = np.unique(n * base + many, return_inverse=True)
    length = np.zeros(len(rows), np.int64)
    np.maximum.at(length, row_of, few)
    result = np.empty(len(n))
    # Batches of whole rows bound the memory, whatever n is.
    batch_of = (np.cumsum(length) - length) // _BATCH
    for batch in np.unique(batch_of):
        first, last = np.searchsorted(batch_of, [batch, batch + 1])
        start = np.cumsum(length[first:last]) - length[first:last]
        sums = np.empty(int(length[first:last].sum()))
        for row, begin in zip(range(first, last), start.tolist(), strict=True):
            size, top = divmod(int(rows[row]), base)
            terms = np.arange(size, size - length[row], -1, dtype=np.float64)
            np.cumsum(np.log1p(-top / terms), out=sums[begin : begin + length[row]])
        in_block = (row_of >= first) & (row_of < last)
        result[in_block] = sums[start[row_of[in_block] - first] + few[in_block] - 1]
    return result


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Values as int64; a fraction or NaN among them is an error."""
    array = np.asarray(values)
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    if (whole != array).any():
        wrong = array[whole != array].flat[0]
        raise ValueError(f"{name} holds {wrong}: counts are whole numbers; drop missing problems")
    return whole


def _check(
    n: NDArray[np.int64], c: NDArray[np.int64], k: NDArray[np.int64], stop: NDArray[np.int64]
) -> None:
    """Refuse counts that no set of samples has."""
    rules = (
        ((c < 0) | (c > n), "0 <= c <= n"),
        (k < 1, "k >= 1"),
        (stop < 0, "stop_after >= 0"),
        ((stop > 0) & (c > stop), "c <= stop_after: the counts up to where sampling stops"),
    )
    for wrong, rule in rules:
        if wrong.any():
            index = tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
            raise ValueError(
                f"pass@k needs {rule}, got n={n[index]}, c={c[index]}, k={k[index]}, "
                f"stop_after={stop[index]} at {index}"
            )
