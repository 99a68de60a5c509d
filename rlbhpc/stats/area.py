r"""The whole curve in a number: the area under pass@k over the logarithm of k.

.. math:: A = \frac{1}{\log K} \int_1^K \text{pass@}k \; d \log k

is the mean of pass@k over all orders of magnitude up to K, from 0 to 1: two curves that cross may
have the same. Like pass@k it is a mean over problems, and unbiased.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import k_grid


def log_area(counts: Counts, k: int) -> NDArray[np.float64]:
    """Area under pass@k over log k from 1 to ``k``, per problem, by trapezia between grid points.

    >>> log_area(Counts.of(4, [0, 4]), 4).tolist()
    [0.0, 1.0]
    """
    if k < 2:
        raise UserError(f"an area under pass@k up to k = {k} is none; allowed is 2 or more")
    sizes = k_grid(k)
    logs = np.log(sizes)
    return np.asarray(np.trapezoid(counts.pass_at_k(sizes), logs, axis=1) / logs[-1])
