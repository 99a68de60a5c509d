r"""Repeated responses of a problem, and whether chance explains them.

Independent draws from a model that is sure of itself repeat legitimately: two responses are the
same text with probability :math:`\sum_y q(y)^2 = E[q(Y)]`, so n responses with log-probabilities
:math:`\ell_i` are expected to hold :math:`\binom n2 \frac1n \sum_i e^{\ell_i}` equal pairs. A pair
of texts of probability q or less comes up in n draws with probability at most
:math:`\binom n2 q`: a repeat far below that was no draw of its own, but a seed used twice or a
sample copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from rlbhpc.errors import UserError


@dataclass(frozen=True)
class Duplicates:
    r"""Repeated samples of one problem.

    ``distinct``: different token sequences among them. ``effective_n``: :math:`n^2 / \sum_j m_j^2`
    for sequences seen :math:`m_j` times: n if all differ, 1 if all are equal.
    """

    n: int
    distinct: int
    effective_n: float


def duplicates(sequences: ArrayLike) -> Duplicates:
    """Count repeated token sequences among the samples of one problem.

    Independent samples repeat only where a response is short or near certain. Long responses
    that repeat mean reused seeds, and pass@k then overstates what n samples show.

    ``sequences``: one hash (or any label) of the token sequence per sample.

    >>> duplicates(["a", "a", "b", "c"])
    Duplicates(n=4, distinct=3, effective_n=2.66...)
    """
    labels = np.asarray(sequences)
    if labels.ndim != 1:
        raise UserError("duplicates are counted per problem; give one label per sample")
    if not len(labels):
        return Duplicates(0, 0, 0.0)
    _, times = np.unique(labels, return_counts=True)
    return Duplicates(len(labels), len(times), float(len(labels) ** 2 / (times**2).sum()))


#: Chance, over a whole arm, below which a repeat counts as no draw of its own.
UNLIKELY: Final = 0.001


@dataclass(frozen=True)
class Collisions:
    """Equal responses of one problem against what independent draws would hold.

    ``pairs, expected``: equal pairs that there are, and that independent draws of these
    probabilities would hold. ``copies``: responses that repeat an earlier one too improbable to be
    drawn twice.
    """

    pairs: int
    expected: float
    copies: int


def collisions(sequences: ArrayLike, logprobs: ArrayLike, problems: int = 1) -> Collisions:
    """Compare repeated responses of a problem with the collisions that chance explains.

    ``sequences``: one hash (or any label) of the token sequence per sample. ``logprobs``:
    log-probability of each sequence in the distribution that it was drawn from. ``problems``: how
    many problems of the arm are looked at: the chance of a false alarm, ``UNLIKELY``, is that of
    all of them together.

    >>> collisions(["yes"] * 3 + ["no"], [-0.1, -0.1, -0.1, -2.3]).copies
    0
    >>> collisions(["long"] * 2 + ["other"], [-300.0, -300.0, -310.0]).copies
    1
    """
    labels, logs = np.asarray(sequences), np.asarray(logprobs, np.float64)
    if labels.ndim != 1 or labels.shape != logs.shape:
        raise UserError("collisions need a label and a log-probability for each sample")
    n = len(labels)
    if n < 2:
        return Collisions(0, 0.0, 0)
    _, first, times = np.unique(labels, return_index=True, return_counts=True)
    every_pair = n * (n - 1) / 2
    expected = every_pair * float(np.exp(np.minimum(logs, 0.0)).mean())
    unlikely = logs[first] + math.log(every_pair * problems) < math.log(UNLIKELY)
    copies = int((times - 1)[unlikely].sum())
    return Collisions(int((times * (times - 1) // 2).sum()), expected, copies)
