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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.decision import MARGIN, Word, decide
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.finding import Finding, finding
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.joint import Joint
from rlbhpc.stats.weights import ProblemWeights

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


@dataclass(frozen=True)
class Forecast:
    """Chance that a study of a given size is decided.

    ``decided``: share of simulated studies of this size whose word leaves nothing open at large k.
    ``words``: share of each word.
    """

    n: int
    decided: float
    words: dict[Word, float]


def forecast(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    sizes: Sequence[int],
    rng: np.random.Generator,
    studies: int = 50,
    margin: float = MARGIN,
    comparisons: int = 1,
) -> list[Forecast]:
    """Simulate how a study would come out with more samples of the same problems.

    The two rates of each problem are drawn from what its counts leave open, further samples from
    the rates, and the grown data are answered again.

    ``base, trained``: counts so far; sampling must not have stopped at successes. ``sizes``:
    samples per problem to forecast, none below what exists. ``studies``: simulated studies per
    size. ``margin``: what counts as the same. ``comparisons``: how many share the error.
    """
    check_paired(base, trained)
    have = int(max(base.n.max(), trained.n.max()))
    if not sizes or min(sizes) < have:
        raise UserError(f"forecast for {list(sizes)} samples, but {have} exist; ask for more")
    for arm in (base, trained):
        arm.refuse_stopped("a forecast")
    joint = Joint(base, trained, min(base.reach, trained.reach))
    best = joint.fit()
    result = []
    for size in sizes:
        drawn: list[Word] = []
        for _ in range(studies):
            rates = joint.draw(best, rng)
            grown = [
                Counts.of(size, arm.c + rng.binomial(size - arm.n, rate))
                for arm, rate in zip((base, trained), rates, strict=True)
            ]
            curve = difference_curve(grown[0], grown[1], weights)
            drawn.append(decide(curve, margin, comparisons=comparisons, bounds=False).word)
        shares = {word: drawn.count(word) / studies for word in Word if word in drawn}
        decided = sum(not word.open for word in drawn) / studies
        result.append(Forecast(size, decided, shares))
    return result


def samples_until_decided(forecasts: Sequence[Forecast], chance: float = 0.8) -> int | None:
    """Give the least forecast n that is decided with a given chance; None where none is."""
    enough = [f.n for f in forecasts if f.decided >= chance]
    return min(enough) if enough else None
