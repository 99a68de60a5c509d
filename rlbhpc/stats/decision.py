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
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.curve import k_grid
from rlbhpc.stats.difference import (
    DifferenceCurve,
    claimed_sign,
    difference_curve,
    interval_at_one,
    sign_at_one,
)
from rlbhpc.stats.exact import attained_level, detection_threshold, mcnemar_exact
from rlbhpc.stats.interval import PROB, Interval, Target
from rlbhpc.stats.joint import FACTOR, Contrast, Finding, Joint, Verdict, contrasts, finding
from rlbhpc.stats.seeds import Spread, seeds_curve, spread
from rlbhpc.stats.weights import ProblemWeights

if TYPE_CHECKING:
    from rlbhpc.stats.joint import Contrast, Finding


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

    >>> from rlbhpc.stats.counts import pythia
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
    at more samples say of lost and gained (:mod:`rlbhpc.stats.design`): a second decision
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


_OTHER: Final = {"lost": "the trained model", "gained": "the base"}


def answer_sentences(answer: Answer) -> tuple[str, ...]:
    """Lost and gained first, then the net, then k = 1, then what was left out."""
    problems = answer.lost.problems
    left_out = _left_out(answer)
    if not answer.solved:
        rate = float(detection_threshold(answer.k))
        return (
            f"Neither model solves any of the {_several(problems, 'problem')} in "
            f"{_several(answer.k, 'sample')} each: "
            f"rates below {100 * rate:.2g} % are not seen. Try easier problems or more samples.",
            *left_out,
        )
    p = "" if math.isnan(answer.p_mcnemar) else f" (McNemar p {p_value(answer.p_mcnemar)})"
    return (
        f"In {_several(answer.k, 'sample')} of each of {_several(problems, 'problem')} the base "
        f"alone solved {answer.lost.count:,} and the trained model alone "
        f"{answer.gained.count:,}{p}.",
        *_finding("lost", answer.lost, answer),
        *_finding("gained", answer.gained, answer),
        f"At k = {answer.k:,} trained minus base is {points(answer.net)} points"
        f"{_against(answer)}{_at_one(answer)}.",
        _further(answer),
        *_crossing(answer),
        *_trainings(answer),
        *left_out,
    )


def _trainings(answer: Answer) -> tuple[str, ...]:
    """Tell the components of the variance, where a recipe was trained several times."""
    if answer.spread is None:
        return ()
    problems, seeds, rest = (
        f"{100 * value:.1f}"
        for value in (answer.spread.problems, answer.spread.seeds, answer.spread.rest)
    )
    return (
        f"Mean of {answer.seeds} seeds. The difference at k = {answer.k:,} has a standard "
        f"deviation of {seeds} points between seeds, {problems} between problems "
        f"and {rest} of the rest.",
    )


def _finding(verb: str, side: Finding, answer: Answer) -> tuple[str, ...]:
    """Say what the joint model says of one side."""
    high, margin = f"{100 * side.high:.1f}", f"{100 * answer.margin:g}"
    if side.verdict == "yes":
        few = ""
        if side.high < answer.margin:
            few = f", fewer than the margin of {margin} %"
        elif side.estimate < answer.margin:
            few = f"; whether as many as the margin of {margin} % is open"
        interval = f"[{100 * side.low:.1f}, {high}] % of problems{few}"
        if math.isnan(side.low):
            interval = f"% of problems; from {answer.seeds} seeds that share has no sound interval"
        return (
            f"Truly {verb}, in that {_OTHER[verb]} needs at least {FACTOR:g} times the samples: "
            f"{100 * side.estimate:.1f} {interval}.",
        )
    if side.verdict == "no":
        return (f"Truly {verb}: at most {high} % of problems, below the margin of {margin} %.",)
    slower = "slower" if verb == "lost" else "quicker"
    return (
        f"It is undecided whether problems were truly {verb} or it is only {slower}: between 0 "
        f"and {high} % of them.",
    )


def _further(answer: Answer) -> str:
    """Say what the joint model says of more samples than there are, and what stays open."""
    _, more, limit = answer.contrasts
    return (
        f"The fit of all rates puts it at {_open(more)} at k = {more.k:,.0f} and at {_open(limit)} "
        "in the limit."
    )


def _open(contrast: Contrast) -> str:
    fit, low, high = (f"{100 * v:+.1f}" for v in (contrast.fit, contrast.low, contrast.high))
    return f"{fit} (open: {low} to {high})"


def _crossing(answer: Answer) -> tuple[str, ...]:
    if answer.crossing is None:
        return ()
    low, high = answer.crossing.low, answer.crossing.high
    last = f"beyond {answer.k:,}" if math.isinf(high) else f"{high:,.0f}"
    return (
        f"The curves last cross at k = {float(answer.crossing.estimate):,.0f}; the data allow "
        f"{low:,.0f} to {last}.",
    )


def _against(answer: Answer) -> str:
    """Point out where the counted cells and the interval of the net disagree."""
    if math.isnan(answer.p_mcnemar) or math.isnan(answer.net.low):
        return ""
    if bool(answer.net.sign) == (answer.p_mcnemar < 1 - PROB):
        return ""
    return " (the interval and McNemar's test disagree: take it as open)"


def _at_one(answer: Answer) -> str:
    return f"; at k = 1 it is {points(answer.efficiency)}" if answer.k > 1 else ""


def _left_out(answer: Answer) -> tuple[str, ...]:
    number = len(answer.left_out)
    if not number:
        return ()
    verb = "is" if number == 1 else "are"
    return (
        f"{_several(number, 'problem')} with fewer than {_several(answer.k, 'sample')} {verb} "
        "left out.",
    )


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def points(interval: Interval, form: str = "+.1f") -> str:
    """``+2.3 [-1.7, +6.4]``, with ``?`` behind unsound bounds; alone where there are none."""
    ends = interval.estimate, interval.lower, interval.upper
    middle, low, high = ("–" if np.isnan(end) else f"{100 * float(end):{form}}" for end in ends)
    if low == "–" and middle != "–":
        return middle
    return f"{middle} [{low}, {high}]{'' if bool(interval.sound) else ' ?'}"


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
