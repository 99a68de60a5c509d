r"""The answer about a trained model and its base: what was lost, what was gained, and the net.

Three questions are decided, in this order, each with its share of the error; docs/statistics.md
states the rule and what it was simulated on.

*Lost?* Are there problems that the base solves in k samples, that the trained model does not, and
that take it at least ten times the samples of the base? *Gained?* The same with the arms exchanged.
Both are likelihood-ratio tests of the joint distribution of the two rates
(:mod:`rlbhpc.stats.joint`), each one-sided at .0125. A model that is merely slower, or merely
quicker, loses and gains nothing.

*Net?* Is pass@k of the two different at the k of the answer? A paired interval over problems, and
McNemar's exact test beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from rlbhpc.stats.paired import FEW
from rlbhpc.stats.weights import ProblemWeights

#: Shares of problems, and differences of pass@k, below this count as the same.
MARGIN: Final = 0.02
#: Share of the problems that must support the k of an answer.
SUPPORT: Final = 0.98
# Of the forecast how much more data decides.
_POWER: Final = 0.8
# Of the root of a deviance, at a bound.
_CLOSE: Final = 0.03
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
    more
        Where undecided: how many times the problems, or the samples of each, decide in about 80 %
        of studies.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    count: int
    problems: int
    more: float = math.nan


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
        Trained minus base pass@k at this k, and at k = 1; there without bounds, which are NaN,
        where fewer than ten problems carry the difference.
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
    both = np.minimum(base.limit, trained.limit)
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
    curve: DifferenceCurve,
    margin: float = MARGIN,
    left_out: tuple[int, ...] = (),
    comparisons: int = 1,
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
    comparisons
        How many share the error: each is decided at its share of it, while intervals keep theirs.
    """
    if not 0 < margin < 1:
        raise UserError(f"margin is {margin}; allowed is a difference of rates between 0 and 1")
    base, trained, k = curve.base, curve.trained, int(curve.k[-1])
    joint = Joint(base, trained, k)
    best = joint.fit()
    base_only, trained_only = _cells(base, trained, k)
    error = (1 - PROB) / comparisons
    lost = _finding(joint, best, joint.lost, base_only, margin, error)
    gained = _finding(joint, best, joint.gained, trained_only, margin, error)
    net, efficiency = curve.pointwise[len(curve.k) - 1], _carried(curve)
    solved = int((base.solved | trained.solved).sum())
    counted = bool((base.limit == k).all() and (trained.limit == k).all())
    p_mcnemar = mcnemar_exact(lost.count, gained.count) if counted else math.nan
    return Answer(
        k,
        lost,
        gained,
        net,
        efficiency,
        _last_crossing(curve),
        left_out,
        margin,
        p_mcnemar,
        solved,
        _word(lost, gained, _net_sign(net, p_mcnemar, error), _sign(efficiency, error), solved),
    )


def _cells(base: Counts, trained: Counts, k: int) -> tuple[float, float]:
    """Unbiased number of problems that only one arm solves in k samples."""
    ours, theirs = base.pass_at_k(k)[:, 0], trained.pass_at_k(k)[:, 0]
    return float((ours * (1 - theirs)).sum()), float((theirs * (1 - ours)).sum())


def _finding(
    joint: Joint, best: Fit, group: NDArray[np.bool_], count: float, margin: float, error: float
) -> Finding:
    """Decide by the likelihood ratio of "none", and put an interval around the share."""
    problems = int(joint.times.sum())
    if not group.any():  # one sample each: no two rates are that far apart
        return Finding(Verdict.UNDECIDED, 0.0, 0.0, 1.0, round(count), problems)
    chances = joint.chances(best, group)
    estimate = min(1.0, float(joint.times @ chances) / problems)
    cut = float(special.ndtri((1 + PROB) / 2))

    def root_deviance(share: float) -> float:
        held = joint.fit(best.mass, group, share)
        return math.sqrt(2 * max(best.log_likelihood - held.log_likelihood, 0.0))

    evidence = root_deviance(0.0)
    threshold = float(special.ndtri(1 - error / 4))
    if evidence > threshold:
        low, high = _shares(chances, joint.times, estimate)
        return Finding(Verdict.YES, estimate, low, high, round(count), problems)
    high = 1.0 if estimate > 1 - 1e-6 else _bound(root_deviance, cut, estimate, 1.0)
    if high < margin:
        return Finding(Verdict.NO, estimate, 0.0, high, round(count), problems)
    needed = threshold + float(special.ndtri(_POWER))
    more = high / margin
    if evidence > 0:
        more = min(more, (needed / evidence) ** 2)
    return Finding(Verdict.UNDECIDED, estimate, 0.0, high, round(count), problems, more)


def _shares(
    chances: NDArray[np.float64], times: NDArray[np.int64], share: float
) -> tuple[float, float]:
    r"""Jeffreys interval of a share of problems of which one cannot be sure.

    With chances :math:`r_i` of belonging to the group, the information about its share s is that of
    :math:`\nu = \sum_i (r_i - s)^2 / s(1-s)` problems that one could be sure of (Louis, 1982),
    which takes the rest of the distribution as known. Since it was fitted too, the interval is that
    of :math:`\nu (\nu/P)^2` of them: simulated, that holds 93 to 97 %.
    """
    problems = int(times.sum())
    spread = share * (1 - share)
    known = float(times @ (chances - share) ** 2) / spread if spread > 1e-12 else problems
    trials = known * (known / problems) ** 2
    a, b = share * trials + 0.5, (1 - share) * trials + 0.5
    low, high = special.betaincinv(a, b, [(1 - PROB) / 2, (1 + PROB) / 2]).tolist()
    return float(low), float(high)


def _bound(
    root_deviance: Callable[[float], float], cut: float, estimate: float, edge: float
) -> float:
    """Where the root of the deviance, 0 at the estimate, passes the cut on the way to the edge."""
    inside, outside = estimate, edge
    depth, beyond = 0.0, math.inf
    # One problem more or fewer moves the bound by about this much.
    share = estimate + (edge - estimate) / 16
    for _ in range(12):
        value = root_deviance(share)
        if abs(value - cut) < _CLOSE:
            return share
        if value < cut:
            inside, depth = share, value
        else:
            outside, beyond = share, value
        if math.isinf(beyond):
            # Nearly a straight line: a little beyond where it would pass, to have it enclosed.
            slope = depth / abs(inside - estimate) if depth > 0 else 0.0
            step = 1.2 * (cut - depth) / slope if slope > 0 else abs(edge - inside) / 2
            share = inside + math.copysign(min(step, abs(edge - inside) * 0.9), edge - estimate)
        else:
            share = inside + (outside - inside) * (cut - depth) / (beyond - depth)
    return share


def _carried(curve: DifferenceCurve) -> Interval:
    """Difference at k = 1, without bounds where a handful of problems carry it."""
    first = curve.pointwise[0]
    if curve.carriers[0] >= FEW:
        return first
    nothing = np.asarray(np.nan)
    return replace(first, lower=nothing, upper=nothing, sound=np.asarray(False))


def _net_sign(net: Interval, p_mcnemar: float, error: float) -> int:
    """Sign of the net that is claimed: by the exact test where there is one."""
    if math.isnan(p_mcnemar):
        return _sign(net, error)
    return int(np.sign(net.estimate)) if p_mcnemar < error else 0


def _sign(interval: Interval, error: float) -> int:
    """Sign of an estimate whose interval, widened to this error, leaves 0 out."""
    wider = float(special.ndtri(1 - error / 2) / special.ndtri((1 + interval.prob) / 2))
    half = (interval.high - interval.low) / 2 * wider
    estimate = float(interval.estimate)
    return int(np.sign(estimate)) if abs(estimate) > half else 0


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


def _word(lost: Finding, gained: Finding, net: int, efficiency: int, solved: int) -> Word:
    """Say it in a word: lost and gained first, then the net, then the speed."""
    if not solved:
        return Word.NOTHING_SOLVED
    fell = lost.verdict is Verdict.YES
    rose = gained.verdict is Verdict.YES
    if (fell and (rose or net > 0)) or (rose and net < 0):
        return Word.TRADES
    if fell or rose:
        return Word.SHRINKS if fell else Word.EXPANDS
    if lost.verdict is gained.verdict is Verdict.NO:
        return (Word.ONLY_BLUNTS, Word.UNCHANGED, Word.ONLY_SHARPENS)[efficiency + 1]
    return (Word.BEHIND, Word.UNDECIDED, Word.AHEAD)[net + 1]
