r"""The answer about a trained model and its base: what was lost, what was gained, and the net.

Three questions are decided, in this order, each with its share of the error; docs/statistics.md
states the rule and what it was simulated on.

*Lost?* Are there problems that the base solves in k samples and that take the trained model at
least ten times the samples of the base? *Gained?* The same with the arms exchanged. Both are
likelihood-ratio tests of the joint distribution of the two rates (:mod:`rlbhpc.stats.joint`), each
one-sided at .025. A model that is merely slower, or merely quicker, loses and gains nothing.

*Net?* Is pass@k of the two different at the k of the answer? A paired interval over problems, and
McNemar's exact test beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.answer_text import answer_sentences
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.crossings import crossing
from rlbhpc.stats.curve import k_grid
from rlbhpc.stats.difference import DifferenceCurve, difference_curve
from rlbhpc.stats.interval import PROB, Interval, Target
from rlbhpc.stats.joint import Fit, Joint
from rlbhpc.stats.mcnemar import mcnemar_exact
from rlbhpc.stats.weights import ProblemWeights

#: Shares of problems, and differences of pass@k, below this count as the same.
MARGIN: Final = 0.02
#: Share of the problems that must support the k of an answer.
SUPPORT: Final = 0.98
# Of the curve that finds the crossing; its intervals do not depend on them.
REPLICATES: Final = 500


class Verdict(StrEnum):
    """Whether something happened."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


class Word(StrEnum):
    """The answer in a word or two."""

    TRADES = "trades"
    SHRINKS = "shrinks"
    EXPANDS = "expands"
    BEHIND = "behind at large k"
    AHEAD = "ahead at large k"
    ONLY_SHARPENS = "only sharpens"
    ONLY_BLUNTS = "only blunts"
    UNCHANGED = "unchanged"
    UNDECIDED = "undecided"
    NOTHING_SOLVED = "nothing solved"


@dataclass(frozen=True)
class Finding:
    """Whether problems were lost, or gained, and how many.

    Attributes
    ----------
    verdict
        ``yes`` where the interval lies above 0, ``no`` where it lies below the margin.
    estimate, low, high
        Share of problems, about problems like these; NaN where no sound interval exists.
    count
        Problems that only this side solved within k samples: exact where both arms have k samples
        of every problem, else the nearest whole number to its unbiased estimate.
    problems
        Out of how many.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    count: int
    problems: int


@dataclass(frozen=True)
class Answer:
    """What training did to what the model can solve.

    Attributes
    ----------
    k
        Samples that the answer speaks about.
    lost, gained
        Problems that need ten times the samples, or a tenth of them.
    net, efficiency
        Trained minus base pass@k at this k, and at k = 1.
    crossing
        The last k at which the curves cross, with its interval; None where they do not.
    left_out
        Positions of the problems with fewer than k samples in an arm.
    margin
        What counts as the same.
    p_mcnemar
        McNemar's exact test of the counted cells; NaN where the arms have no equal k samples.
    solved
        Problems that any of the two solves.
    word
        The answer.
    """

    k: int
    lost: Finding
    gained: Finding
    net: Interval
    efficiency: Interval
    crossing: Interval | None
    left_out: tuple[int, ...]
    margin: float
    p_mcnemar: float
    solved: int
    word: Word

    def sentences(self) -> tuple[str, ...]:
        """Tell it in sentences: lost and gained, the net, k = 1, and what was left out."""
        return answer_sentences(self)


def answer(
    base: Counts,
    trained: Counts,
    k: int | None = None,
    margin: float = MARGIN,
    seed: int = 0,
) -> Answer:
    """Decide what training lost and gained.

    Parameters
    ----------
    base, trained
        Counts of the same problems in the same order; their n may differ.
    k
        Samples to speak about; the largest k that 98 % of the problems support where not given.
    margin
        Share of problems, and difference of pass@k, that counts as the same.
    seed
        Of the bootstrap.

    Examples
    --------
    >>> from rlbhpc.stats.examples import pythia
    >>> models = pythia()
    >>> found = answer(models["2.8B"], models["6.9B"])
    >>> found.k, str(found.word)
    (10000, 'undecided')
    """
    enough = supporting(base, trained, k)
    ours, theirs = base[enough], trained[enough]
    size = min(ours.reach, theirs.reach) if k is None else int(k)
    weights = ProblemWeights.draw(len(ours), np.random.default_rng(seed), REPLICATES)
    curve = difference_curve(ours, theirs, weights, k_grid(size))
    return decide(curve, margin, tuple(np.flatnonzero(~enough).tolist()))


def supporting(base: Counts, trained: Counts, k: int | None = None) -> NDArray[np.bool_]:
    """Find the problems that have k samples in both arms; ``SUPPORT`` of all have the default k."""
    check_paired(base, trained)
    both = np.minimum(base.n, trained.n)
    needed = int(np.ceil(SUPPORT * len(both) - 1e-9))
    largest = int(np.sort(both)[::-1][needed - 1])
    if largest < 1:
        raise UserError(
            f"{int((both < 1).sum())} of {len(both)} problems have no samples in one of the arms; "
            "sample them, or select the problems that both have"
        )
    if k is not None and not 1 <= k <= largest:
        raise UserError(
            f"k is {k}; {100 * SUPPORT:g} % of the problems have {largest:,} samples in both "
            f"arms, so allowed is 1 to {largest:,}"
        )
    return np.asarray(both >= (largest if k is None else k))


def decide(
    curve: DifferenceCurve, margin: float = MARGIN, left_out: tuple[int, ...] = ()
) -> Answer:
    """Give the answer of a difference curve whose last k all its problems support.

    Parameters
    ----------
    curve
        Difference of the two arms.
    margin
        What counts as the same.
    left_out
        Positions of problems that are not in the curve, to be told.
    """
    if not 0 < margin < 1:
        raise UserError(f"margin is {margin}; allowed is a difference of rates between 0 and 1")
    base, trained, k = curve.base, curve.trained, int(curve.k[-1])
    joint = Joint(base, trained, k)
    best = joint.fit()
    base_only, trained_only = _cells(base, trained, k)
    lost = _finding(joint, best, joint.lost, base_only, margin)
    gained = _finding(joint, best, joint.gained, trained_only, margin)
    net, efficiency = curve.pointwise[len(curve.k) - 1], curve.pointwise[0]
    solved = int((base.solved | trained.solved).sum())
    counted = (base.n == k).all() and (trained.n == k).all()
    return Answer(
        k,
        lost,
        gained,
        net,
        efficiency,
        _last_crossing(curve),
        left_out,
        margin,
        mcnemar_exact(lost.count, gained.count) if counted else float("nan"),
        solved,
        _word(lost, gained, net, efficiency, solved),
    )


def _cells(base: Counts, trained: Counts, k: int) -> tuple[float, float]:
    """Unbiased number of problems that only one arm solves in k samples."""
    ours, theirs = base.pass_at_k(k)[:, 0], trained.pass_at_k(k)[:, 0]
    return float((ours * (1 - theirs)).sum()), float((theirs * (1 - ours)).sum())


def _finding(
    joint: Joint, best: Fit, group: NDArray[np.bool_], count: float, margin: float
) -> Finding:
    problems = int(joint.times.sum())
    estimate = float(best.mass[group].sum())
    low, high = _profile(joint, best, group, estimate)
    unseen = Verdict.NO if high < margin else Verdict.UNDECIDED
    verdict = Verdict.YES if low > 0 else unseen
    return Finding(verdict, estimate, low, high, round(count), problems)


def _profile(
    joint: Joint, best: Fit, group: NDArray[np.bool_], estimate: float, prob: float = PROB
) -> tuple[float, float]:
    """Shares that the profile likelihood does not exclude."""
    cut = float(special.ndtri((1 + prob) / 2))

    def root_deviance(share: float) -> float:
        held = joint.fit(best.mass, group, share)
        return float(np.sqrt(2 * max(best.log_likelihood - held.log_likelihood, 0.0)))

    low = 0.0
    if estimate > 1e-6 and root_deviance(0.0) > cut:
        low = _bound(root_deviance, cut, estimate, 0.0)
    high = 1.0
    if estimate < 1 - 1e-6:
        high = _bound(root_deviance, cut, estimate, 1.0)
    return low, high


def _bound(
    root_deviance: Callable[[float], float], cut: float, estimate: float, edge: float
) -> float:
    """Where the root of the deviance passes the cut between the estimate and the edge."""
    inside, outside = estimate, edge
    for _ in range(9):
        middle = (inside + outside) / 2 if edge < estimate else inside + (outside - inside) / 4
        if root_deviance(middle) < cut:
            inside = middle
        else:
            outside = middle
        if abs(outside - inside) < 0.002:
            break
    return (inside + outside) / 2


def _last_crossing(curve: DifferenceCurve) -> Interval | None:
    found = crossing(curve)
    if not len(found.points):
        return None
    point = float(found.points[-1])
    for part in found.sets:
        if point in part:
            low = 1.0 if part.open_below else part.lower
            high = np.inf if part.open_above else part.upper
            return Interval(
                np.asarray(point),
                np.asarray(min(low, point)),
                np.asarray(max(high, point)),
                Target.POPULATION,
                "inverted pointwise interval",
                found.prob,
                np.asarray(found.sound),
            )
    return None


def _word(lost: Finding, gained: Finding, net: Interval, efficiency: Interval, solved: int) -> Word:
    if not solved:
        return Word.NOTHING_SOLVED
    if lost.verdict == gained.verdict == Verdict.YES:
        return Word.TRADES
    if lost.verdict is Verdict.YES:
        return Word.SHRINKS
    if gained.verdict is Verdict.YES:
        return Word.EXPANDS
    if lost.verdict == gained.verdict == Verdict.NO:
        return (Word.ONLY_BLUNTS, Word.UNCHANGED, Word.ONLY_SHARPENS)[int(efficiency.sign) + 1]
    return (Word.BEHIND, Word.UNDECIDED, Word.AHEAD)[int(net.sign) + 1]
