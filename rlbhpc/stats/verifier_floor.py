r"""What a lenient verifier or a lucky guess makes of large k.

A verifier that accepts a wrong answer with probability f turns a problem that is never solved
into one that looks solved with probability

.. math:: 1 - (1-f)^k ,

63 % at f = 0.001 and k = 1,000. A curve that does not rise above this floor shows nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError


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
