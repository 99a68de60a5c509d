r"""Accuracy histograms: how many problems are never, sometimes and always solved."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.paired import paired_interval
from rlbhpc.stats.weights import ProblemWeights

#: Exactly 0; nine tenths, each open below and closed above; above .9 but not all; exactly 1.
BINS: Final = (
    "0", "(0, .1]", "(.1, .2]", "(.2, .3]", "(.3, .4]", "(.4, .5]",
    "(.5, .6]", "(.6, .7]", "(.7, .8]", "(.8, .9]", "(.9, 1)", "1",
)  # fmt: skip


def accuracy_histogram(n: ArrayLike, c: ArrayLike) -> NDArray[np.int64]:
    """Count problems by accuracy, in the twelve bins {0}, (0, .1], …, (.9, 1), {1}.

    ``n, c``: samples and right samples per problem: ``*counts.places``.

    Figures 5 and 14 of Yue et al. (2025), arXiv:2504.13837.

    >>> accuracy_histogram(8, [0, 0, 1, 8])
    array([2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    counts = Counts.of(n, c)
    # Whole numbers decide, so that an accuracy of exactly .3 never slips over an edge.
    tenth = -(-10 * counts.c // np.maximum(counts.n, 1))  # ceiling of 10 c / n
    always = (counts.c == counts.n) & (counts.n > 0)
    return np.bincount(np.where(always, 11, tenth), minlength=len(BINS))


def never_solved_shift(
    base: Counts, trained: Counts, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    """Change in the share of problems never solved, trained minus base, paired over problems."""
    check_paired(base, trained)
    lost = (~trained.solved).astype(np.float64) - ~base.solved
    return paired_interval(lost[:, None], weights, prob)[0]
