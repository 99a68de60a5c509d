"""Which problems a model answers without reasoning, now and then: marks for any statistic."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError

LOW_RATE: Final = 0.05


def guessable(n: ArrayLike, right: ArrayLike, below: float = LOW_RATE) -> NDArray[np.bool_]:
    """Mark problems that the no-think prompt answers at a low but nonzero rate.

    Such a problem is solved by luck at large k: its answer is guessed from a small set, not found.
    One that is answered at a high rate is known or easy and stays.

    ``n, right``: samples of the no-think prompt for each problem, and how many were right.
    ``below``: rates from 0 to here, both ends excluded, mark a problem. Gives one bool a problem:
    an attribute of the cube that every statistic can select by. A problem without samples is not
    marked.

    Examples
    --------
    >>> guessable([100, 100, 100, 0], [0, 3, 40, 0])
    array([False,  True, False, False])
    """
    samples, hits = np.asarray(n, np.int64), np.asarray(right, np.int64)
    if samples.shape != hits.shape or (hits > samples).any() or (hits < 0).any():
        raise UserError("no-think counts: right must be between 0 and n for each problem")
    if not 0 < below <= 1:
        raise UserError(f"guessable below a rate of {below}: allowed is a share above 0 up to 1")
    return np.asarray((hits > 0) & (hits < below * samples))
