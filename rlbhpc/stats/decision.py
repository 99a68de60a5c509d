r"""The answer about a trained model and its base: what was lost, what was gained, and the net.

docs/statistics.md states the rule, each question's share of the error, and what it was simulated
on. Lost and gained are likelihood-ratio tests of the joint distribution of the two rates
(:mod:`rlbhpc.stats.joint`), the net is McNemar's exact test or a paired interval, and k = 1 has a
sign-flip test at what the others leave of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.answer_text import answer_sentences
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.curve import k_grid
from rlbhpc.stats.difference import DifferenceCurve, difference_curve
from rlbhpc.stats.efficiency import claimed_sign, interval_at_one, sign_at_one
from rlbhpc.stats.finding import Finding, Verdict, finding
from rlbhpc.stats.interval import PROB, Interval, Target
from rlbhpc.stats.joint import Contrast, Joint, contrasts
from rlbhpc.stats.mcnemar import attained_level, mcnemar_exact
from rlbhpc.stats.seeds import Spread, seeds_curve, spread
from rlbhpc.stats.weights import ProblemWeights

#: Shares of problems, and differences of pass@k, below this count as the same.
MARGIN: Final = 0.02
#: Share of the problems, without stragglers, that must support the k of an answer.
SUPPORT: Final = 0.98
# A straggler has less than half of the samples that this share of the problems have.
_NO_STRAGGLERS: Final = 0.9
#: From here on K is called large.
LARGE: Final = 64
#: Share of the error that the test of the net may use up; the rest is always that of k = 1.
NET: Final = 0.8
# Of the curve that finds the crossing; its intervals do not depend on them.
REPLICATES: Final = 500


class Word(StrEnum):
    """The answer in a word or two."""

    TRADES = "trades"
    SHRINKS = "shrinks"
    EXPANDS = "expands"
    LOST = "lost, gains open"
    GAINED = "gained, losses open"
    LOST_YET_AHEAD = "lost, yet ahead at large k"
    GAINED_YET_BEHIND = "gained, yet behind at large k"
    NO_LOSS = "no loss, gains open"
    NO_GAIN = "no gain, losses open"
    BEHIND = "behind at large k"
    AHEAD = "ahead at large k"
    SLOWER = "behind at k = 1"
    QUICKER = "ahead at k = 1"
    ONLY_SHARPENS = "only sharpens"
    ONLY_BLUNTS = "only blunts"
    UNCHANGED = "unchanged"
    UNDECIDED = "undecided"
    NOTHING_SOLVED = "nothing solved"


_ONE_SIDE_OPEN: Final = {
    (Verdict.YES, Verdict.UNDECIDED): Word.LOST,
    (Verdict.UNDECIDED, Verdict.YES): Word.GAINED,
    (Verdict.NO, Verdict.UNDECIDED): Word.NO_LOSS,
    (Verdict.UNDECIDED, Verdict.NO): Word.NO_GAIN,
}


@dataclass(frozen=True)
class Answer:
    """What training did to what the model can solve.

    ``k``: samples that the answer speaks about. ``lost, gained``: problems that need ten times the
    samples, or a tenth of them. ``net, efficiency``: trained minus base pass@k at this k, and at k
    = 1; there without bounds, which are NaN, where a handful of problems may carry the difference.
    ``contrasts``: at k, at ten times k and in the limit, what the joint model says and what is left
    open.
    ``crossing``: the last k at which the curves cross, with its interval; None where they do not.
    ``left_out``: positions of the problems with fewer than k samples in an arm. ``margin``: what
    counts as the same. ``p_mcnemar``: McNemar's exact test of the counted cells; NaN where the arms
    have no equal k samples. ``solved``: problems that any of the two solves. ``spread``: standard
    deviations of the net between problems and trainings; None for one training.
    """

    k: int
    lost: Finding
    gained: Finding
    net: Interval
    efficiency: Interval
    contrasts: tuple[Contrast, ...]
    crossing: Interval | None
    left_out: tuple[int, ...]
    margin: float
    p_mcnemar: float
    solved: int
    word: Word
    spread: Spread | None
    seeds: int

    @property
    def headline(self) -> str:
        """The word, with K itself in place of a large k that it is not."""
        if self.k < LARGE:
            return self.word.replace("large k", f"k = {self.k}")
        return str(self.word)

    def sentences(self) -> tuple[str, ...]:
        """Tell it in sentences: lost and gained, the net, k = 1, and what was left out."""
        return answer_sentences(self)


def answer(
    base: Counts,
    trained: Counts | Sequence[Counts],
    k: int | None = None,
    margin: float = MARGIN,
    seed: int = 0,
) -> Answer:
    """Decide what training lost and gained.

    ``base, trained``: counts of the same problems in the same order; their n may differ. Several
    trained models are trainings of one recipe with other seeds, and count as one arm. ``k``:
    samples to speak about; the largest k that 98 % of the problems support where not given,
    not counting stragglers.
    ``margin``: share of problems, and difference of pass@k, that counts as the same.

    >>> from rlbhpc.stats.examples import pythia
    >>> models = pythia()
    >>> found = answer(models["2.8B"], models["6.9B"])
    >>> found.k, str(found.word)
    (10000, 'undecided')
    """
    runs = [trained] if isinstance(trained, Counts) else list(trained)
    enough = supporting(base, runs, k)
    ours, theirs = base[enough], [run[enough] for run in runs]
    size = min(arm.reach for arm in (ours, *theirs)) if k is None else int(k)
    rng = np.random.default_rng(seed)
    if len(runs) > 1:
        curve = seeds_curve(ours, theirs, rng, REPLICATES, k_grid(size))
    else:
        weights = ProblemWeights.draw(len(ours), rng, REPLICATES)
        curve = difference_curve(ours, theirs[0], weights, k_grid(size))
    return decide(curve, margin, tuple(np.flatnonzero(~enough).tolist()))


def supporting(base: Counts, trained: Sequence[Counts], k: int | None = None) -> NDArray[np.bool_]:
    """Find the problems that have k samples in all arms.

    ``SUPPORT`` of all but the stragglers have the default k. A straggler has less than half of the
    samples that nine in ten problems have: what a crash or an outage left behind. A problem that
    lacks a few samples is none, and lowers k a little instead of being left out.
    """
    if not trained:
        raise UserError("no trained model is given; compare the base with one at least")
    for arm in trained:
        check_paired(base, arm)
    both = np.min([base.limit, *(arm.limit for arm in trained)], axis=0)
    stragglers = 2 * both < _supported(both, _NO_STRAGGLERS)
    largest = _supported(both[~stragglers], SUPPORT)
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


def _supported(limits: NDArray[np.int64], share: float) -> int:
    """Largest k that a share of the problems support."""
    needed = int(np.ceil(share * len(limits) - 1e-9))
    return int(np.sort(limits)[::-1][needed - 1])


def decide(
    curve: DifferenceCurve,
    margin: float = MARGIN,
    left_out: tuple[int, ...] = (),
    comparisons: int = 1,
    looked: tuple[Finding, Finding] | None = None,
) -> Answer:
    """Give the answer of a difference curve whose last k all its problems support.

    ``curve``: difference of the two arms. ``margin``: what counts as the same. ``left_out``:
    positions of problems that are not in the curve, to be told. ``comparisons``: how many share the
    error: each is decided at its share of it, while intervals keep theirs. ``looked``: what looks
    at more samples say of lost and gained (:mod:`rlbhpc.stats.sequential`): a second decision
    beside theirs would have an error of its own.
    """
    if not 0 < margin < 1:
        raise UserError(f"margin is {margin}; allowed is a difference of rates between 0 and 1")
    base, trained, k = curve.base, curve.trained, int(curve.k[-1])
    base_only, trained_only = _cells(base, trained, k)
    error = (1 - PROB) / comparisons
    joint = Joint(base, trained, k)
    best = joint.fit()
    if looked is not None:
        lost = replace(looked[0], count=round(base_only))
        gained = replace(looked[1], count=round(trained_only))
    else:
        lost, gained = (
            finding(joint, best, group, curve.seeds, cells, margin, error)
            for group, cells in ((joint.lost, base_only), (joint.gained, trained_only))
        )
    net = curve.pointwise[len(curve.k) - 1]
    at_one = interval_at_one(curve)
    exact = bool((base.limit == k).all() and (trained.limit == k).all())
    counted = curve.seeds == 1 and exact
    p_mcnemar = mcnemar_exact(lost.count, gained.count) if counted else math.nan
    of_net = NET * error
    # What the test of the net can use up of its part; the sign at k = 1 has the rest.
    spent = attained_level(lost.count + gained.count, of_net) if counted else of_net
    either = (base.solved | trained.solved).reshape(curve.seeds, -1).any(axis=0)
    word = _word(
        _side(lost, margin),
        _side(gained, margin),
        _net_sign(net, p_mcnemar, of_net, curve.seeds),
        lambda: sign_at_one(curve, error - spent),
        bool(either.any()),
    )
    if k == 1:  # the net is pass@1, and nothing is known of large k
        word = {Word.AHEAD: Word.QUICKER, Word.BEHIND: Word.SLOWER}.get(word, word)
    return Answer(
        k,
        lost,
        gained,
        at_one if k == 1 else net,
        at_one,
        contrasts(joint, best, base, trained, k, net),
        _last_crossing(curve),
        left_out,
        margin,
        p_mcnemar,
        int(either.sum()),
        word,
        _spread(curve),
        curve.seeds,
    )


def _spread(curve: DifferenceCurve) -> Spread | None:
    if curve.seeds == 1:
        return None
    last = curve.k[-1:]
    differences = curve.trained.pass_at_k(last) - curve.base.pass_at_k(last)
    return spread(differences.reshape(curve.seeds, -1))


def _cells(base: Counts, trained: Counts, k: int) -> tuple[float, float]:
    """Unbiased number of problems that only one arm solves in k samples."""
    ours, theirs = base.pass_at_k(k)[:, 0], trained.pass_at_k(k)[:, 0]
    return float((ours * (1 - theirs)).sum()), float((theirs * (1 - ours)).sum())


def _net_sign(net: Interval, p_mcnemar: float, error: float, seeds: int) -> int:
    """Sign of the net that is claimed: by the exact test where there is one."""
    if math.isnan(p_mcnemar):
        return claimed_sign(net, error, seeds)
    return int(np.sign(net.estimate)) if p_mcnemar < error else 0


def _last_crossing(curve: DifferenceCurve) -> Interval | None:
    crossing = curve.crossing
    for point in crossing.points[-1:]:
        for part in crossing.sets:
            if point in part:
                return Interval(
                    point,
                    np.asarray(part.lower),
                    np.asarray(np.inf if part.open_above else part.upper),
                    Target.POPULATION,
                    "inverted pointwise interval",
                    crossing.prob,
                    np.asarray(crossing.sound),
                )
    return None


def _side(finding: Finding, margin: float) -> Verdict:
    """What the word says of one side: what is lost must reach the margin, or stay below it."""
    if finding.verdict is not Verdict.YES:
        return finding.verdict
    if finding.high < margin:
        return Verdict.NO
    return Verdict.YES if finding.estimate >= margin else Verdict.UNDECIDED


def _word(
    lost: Verdict, gained: Verdict, net: int, efficiency: Callable[[], int], solved: bool
) -> Word:
    """Say it in a word: lost and gained first, then the net, then the speed where it is asked.

    A word that speaks of both sides needs both decided.
    """
    if not solved:
        return Word.NOTHING_SOLVED
    fell, rose = lost is Verdict.YES, gained is Verdict.YES
    if Verdict.UNDECIDED in (lost, gained):
        if net and not (fell or rose):
            return Word.AHEAD if net > 0 else Word.BEHIND
        if fell and net > 0:
            return Word.LOST_YET_AHEAD
        if rose and net < 0:
            return Word.GAINED_YET_BEHIND
        if lost is not gained:
            return _ONE_SIDE_OPEN[lost, gained]
        return (Word.SLOWER, Word.UNDECIDED, Word.QUICKER)[efficiency() + 1]
    if (fell and (rose or net > 0)) or (rose and net < 0):
        return Word.TRADES
    if fell or rose:
        return Word.SHRINKS if fell else Word.EXPANDS
    return (Word.ONLY_BLUNTS, Word.UNCHANGED, Word.ONLY_SHARPENS)[efficiency() + 1]
