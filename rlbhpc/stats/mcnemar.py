r"""Exact test of two paired shares: did the same problems change cells in one direction?"""

from __future__ import annotations

from math import comb

import numpy as np
from scipy import special

from rlbhpc.errors import UserError


def mcnemar_exact(b: int, c: int) -> float:
    r"""Two-sided p-value of McNemar's test from the two discordant counts.

    Given :math:`b + c` problems that only one of two models solves, each is equally likely to be
    either model's if nothing moved, so

    .. math:: p = \min\big(1,\; 2 \Pr[\text{Bin}(b+c, ½) \le \min(b, c)]\big) .

    With fewer than six discordant problems no split reaches p < .05.

    ``b, c``: problems that only the one and only the other model solves.

    McNemar (1947), "Note on the sampling error of the difference between correlated proportions".

    >>> mcnemar_exact(4, 0)
    0.125
    >>> round(mcnemar_exact(18, 5), 3)
    0.011
    """
    for name, count in (("b", b), ("c", c)):
        if count < 0 or int(count) != count:
            raise UserError(f"McNemar's {name} is {count}; it counts problems, 0 or more")
    n, few = int(b) + int(c), int(min(b, c))
    # Integers until the last step: exact for any counts.
    tail = sum(comb(n, i) for i in range(few + 1))
    return min(1.0, float(2 * tail / 2**n))


def attained_level(discordant: int, alpha: float = 0.05) -> float:
    """Largest p below ``alpha`` that some split of the discordant problems has; 0 for none.

    That is the share of null studies in which the exact test at ``alpha`` claims a difference.

    >>> attained_level(5), attained_level(6)
    (0.0, 0.03125)
    """
    p_values = 2 * special.bdtr(np.arange(discordant // 2 + 1), discordant, 0.5)
    return float(p_values[p_values < alpha].max(initial=0.0))
