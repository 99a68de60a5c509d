r"""Many comparisons in one report: adjusted p-values.

Along one curve there is one question, answered by the simultaneous band. Models times data sets
are many questions, and :func:`holm` holds the chance of any false claim.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError


def holm(p: ArrayLike) -> NDArray[np.float64]:
    r"""Holm's adjusted p-values: any false claim among all has at most the stated probability.

    :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m-j+1)\, p_{(j)})`, valid under any dependence.

    Holm (1979), "A simple sequentially rejective multiple test procedure".

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p, np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise UserError("p-values must be a list of numbers from 0 to 1; drop comparisons without")
    order = np.argsort(values, kind="stable")
    steps = (len(values) - np.arange(len(values))) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
