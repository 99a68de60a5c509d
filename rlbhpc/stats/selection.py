r"""A checkpoint chosen by the data is tested on other data: even samples choose, odd ones report.

The best of several noisy checkpoints is better than itself. Splitting each problem's samples in
two halves costs nothing with large n, and what the odd half says about the chosen one is unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts


@dataclass(frozen=True)
class Selection:
    """A checkpoint chosen on even samples, with the counts to report it by.

    ``chosen``: position of the chosen checkpoint. ``scores``: mean pass@k of every checkpoint on
    the even samples. ``report``: counts of the odd samples of the chosen checkpoint.
    """

    chosen: int
    scores: NDArray[np.float64]
    report: Counts


def even_odd(verdict: ArrayLike) -> tuple[Counts, Counts]:
    """Split the samples of one arm by the parity of their index.

    ``verdict``: integer codes ``[problem, sample]``: 0 to 3 judged, 1 of them right; any other
    says nothing of the model: missing, failed generation, failed verifier.

    >>> even, odd = even_odd([[1, 0, 1, -1]])
    >>> even.n, even.c, odd.n, odd.c
    (array([2]), array([2]), array([1]), array([0]))
    """
    codes = np.asarray(verdict)
    if codes.ndim != 2:
        raise UserError("an even/odd split needs verdicts by problem and sample")
    judged, right = (codes >= 0) & (codes <= 3), codes == 1
    even, odd = (
        Counts.of(judged[:, first::2].sum(axis=1), right[:, first::2].sum(axis=1))
        for first in (0, 1)
    )
    return even, odd


def choose_checkpoint(halves: Sequence[tuple[Counts, Counts]], k: int) -> Selection:
    """Choose the checkpoint with the best mean pass@k on even samples.

    ``halves``: even and odd samples of each checkpoint, from :func:`even_odd`. ``k``: draw size of
    the choice, at most half of the samples.
    """
    if not halves:
        raise UserError("a choice of checkpoint needs one checkpoint at least")
    scores = np.asarray([even.pass_at_k(k)[:, 0].mean() for even, _ in halves])
    if np.isnan(scores).all():
        raise UserError(f"no checkpoint has {k} even samples of every problem; choose a smaller k")
    chosen = int(np.nanargmax(scores))
    return Selection(chosen, scores, halves[chosen][1])
