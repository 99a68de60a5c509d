r"""The sampling-efficiency gap: what the base reaches with K samples, the trained model with one.

.. math:: \Delta_{SE} = \text{pass@}K^{\text{base}} - \text{pass@}1^{\text{trained}},
          \qquad K = 256 .

Smaller is better: 0 would mean that training turned all that the base can reach into pass@1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.paired import paired_interval
from rlbhpc.stats.weights import ProblemWeights

#: The K of the study.
LARGE_K: Final = 256


def delta_se(base_at_k: ArrayLike, trained_at_1: ArrayLike) -> NDArray[np.float64]:
    """Difference of two published or computed values, pass@K of the base minus trained pass@1.

    ``base_at_k, trained_at_1``: values in the same unit (rates or percent); they broadcast.

    Yue et al. (2025), arXiv:2504.13837, section 4.

    >>> delta_se(67.2, [26.1, 27.2]).round(1)
    array([41.1, 40. ])
    """
    return np.asarray(
        np.asarray(base_at_k, np.float64) - np.asarray(trained_at_1, np.float64), np.float64
    )


def delta_se_interval(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    k: int = LARGE_K,
    prob: float = PROB,
) -> Interval:
    """Sampling-efficiency gap with a paired population interval.

    The two terms have different k, so nearly all noise of sampling is the base's. Where k is
    above n/4 a note says so.

    >>> from rlbhpc.stats.examples import pythia
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> gap = delta_se_interval(models["2.8B"], models["6.9B"], weights)
    >>> round(float(gap.estimate), 4)
    0.5258
    """
    check_paired(base, trained)
    gap = paired_interval(base.pass_at_k(k) - trained.pass_at_k(1), weights, prob)[0]
    if 4 * k > base.reach:
        far = f"pass@{k} of the base is taken from n = {base.reach}: little more than one draw"
        gap = replace(gap, notes=(*gap.notes, far))
    return gap
