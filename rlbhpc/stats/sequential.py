r"""Deciding step by step: looks at growing data whose error holds at every one of them.

Whoever looks again and again until something is significant finds it too often. The j-th look at a
comparison therefore has the share

.. math:: \frac{1}{j(j+1)}, \qquad \sum_{j=1}^\infty \frac{1}{j(j+1)} = 1

of the error. Any number of looks, at any moment, errs no more often than one look at the end
would. Samples may go where they tell most, since the likelihood of the joint distribution
(:mod:`rlbhpc.stats.joint`) does not depend on why a problem was sampled further.

Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.decision import MARGIN
from rlbhpc.stats.finding import Finding, finding
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.joint import Joint

#: A problem is worth more samples while its chance of being lost, or gained, lies between these.
OPEN: Final = (0.02, 0.98)


@dataclass(frozen=True)
class Look:
    """One look at a comparison.

    ``lost, gained``: what it decides; their intervals hold at all looks together. ``error``: share
    of the error that this look used. ``chances``: of every problem, the chance of being lost and of
    being gained, ``[2, problem]``.
    """

    lost: Finding
    gained: Finding
    error: float
    chances: NDArray[np.float64]

    def open_problems(self, lost: bool, gained: bool) -> NDArray[np.bool_]:
        """Problems of which more samples can change what, of lost and gained, is undecided."""
        low, high = OPEN
        unclear = (self.chances > low) & (self.chances < high)
        return np.asarray((unclear[0] & lost) | (unclear[1] & gained))


def look(
    base: Counts,
    trained: Counts,
    k: int,
    number: int,
    margin: float = MARGIN,
    comparisons: int = 1,
) -> Look:
    """Look at two arms for the ``number``-th time: was anything lost, was anything gained?

    ``base, trained``: all samples so far of the same problems; each problem may have its own
    number. ``k``: samples that the answer speaks about, whatever was drawn. ``number``: 1 for the
    first look at this comparison, 2 for the second. ``margin``: share of problems below which
    nothing is lost or gained. ``comparisons``: how many share the error.

    >>> base = Counts.of(64, [0, 30, 60] * 20)
    >>> trained = Counts.of(64, [0, 0, 60] * 20)
    >>> first = look(base, trained, 64, 1)
    >>> str(first.lost.verdict), str(first.gained.verdict), first.error
    ('yes', 'undecided', 0.5)
    """
    check_paired(base, trained)
    share = 1 / (number * (number + 1))
    prob = 1 - (1 - PROB) * share
    joint = Joint(base, trained, k)
    best = joint.fit()
    findings, chances = [], []
    for group, arms in ((joint.lost, (base, trained)), (joint.gained, (trained, base))):
        count = float((arms[0].solved & ~arms[1].solved).sum())
        result = finding(joint, best, group, 1, count, margin, (1 - prob) / comparisons, prob)
        # Where next to nothing seems lost: which problems would be, if as many were as matter?
        fit = best if result.estimate > margin else joint.fit(best.mass, group, margin)
        findings.append(result)
        chances.append(joint.chances(fit, group)[joint.row])
    return Look(findings[0], findings[1], share, np.stack(chances))
