r"""Would it come out again? The probability that a problem changes sides when sampled anew.

A problem solved once in n may well not be solved in the next n. Under a fitted distribution of
rates, :math:`f_i = E[(1-p_i)^n \mid c_i]` is the probability that a new run of n samples fails,
and a problem flips with probability :math:`f_i` if it was solved and :math:`1-f_i` if not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats.counts import Counts
from rlbhpc.stats.priors import fit_prior


def flip_probability(counts: Counts) -> NDArray[np.float64]:
    """Probability per problem that "solved at least once" comes out differently in a new run.

    Model-based: the distribution of rates is a fitted Beta without zeros, which lets every
    unsolved problem be solvable and so gives the larger probability of the two priors.
    """
    fail = fit_prior(counts, zero_inflated=False).fail(counts.n, counts.c, counts.limit)
    return np.where(counts.solved, fail, 1 - fail)
