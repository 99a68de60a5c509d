r"""The answer about a trained model and its base: what was lost, what was gained, and the net.

docs/statistics.md states the rule, each question's share of the error, and what it was simulated
on. Lost and gained are likelihood-ratio tests of the joint distribution of the two rates
(:mod:`rlbhpc.stats.joint`), the net is McNemar's exact test or a paired interval, and k = 1 has a
sign-flip test at what the others leave of the error.

An answer is a vector of these four. It has one word only where both sides are decided. The
verifier's errors enter where they are known, and each statement says how large an unknown one may
be (:class:`Tip`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.curve import k_grid
from rlbhpc.stats.difference import (
    DifferenceCurve,
    difference_curve,
)
from rlbhpc.stats.exact import detection_threshold
from rlbhpc.stats.interval import PROB, Interval, ProblemWeights, Target, widened
from rlbhpc.stats.joint import (
    FACTOR,
    Contrast,
    FactorShare,
    Finding,
    Verdict,
    by_factor,
    contrasts,
    finding,
)
from rlbhpc.stats.reading import Reading, States, Tip, Word, recount, tipping_points
from rlbhpc.stats.seeds import Spread, seeds_curve, spread
from rlbhpc.stats.verifier_error import ErrorRange, Errors, error_range

#: Shares of problems, and differences of pass@k, below this count as the same.
MARGIN: Final = 0.02
#: Share of the problems, without stragglers, that must support the k of an answer.
SUPPORT: Final = 0.98
# A straggler has less than half of the samples that this share of the problems have.
_NO_STRAGGLERS: Final = 0.9
#: From here on K is called large.
LARGE: Final = 64
# Of the curve that finds the crossing; its intervals do not depend on them.
REPLICATES: Final = 500


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
    have no equal k samples. ``solved``: problems that any of the two solves. ``states``: what is
    claimed of each of the four. ``spread``: standard deviations of the net between problems and
    trainings; None for one training. ``false_right``: rate of false right verdicts in base and
    trained model; None where nobody knows it. ``clusters``: units that were drawn independently.
    ``reading``: the likelihood behind it all.
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
    states: States
    word: Word
    spread: Spread | None
    seeds: int
    false_right: tuple[ErrorRange | None, ErrorRange | None]
    clusters: int
    reading: Reading = field(repr=False, compare=False)

    @property
    def direction(self) -> str:
        """``lost``, ``gained``, ``both``, ``same``, or ``open`` where nothing is claimed at K."""
        if self.word is Word.NOTHING_SOLVED:
            return "same"
        return "open" if self.word is Word.OPEN_TO_VERIFIER else self.states.direction

    @property
    def headline(self) -> str:
        """The word, or where a side is open what is decided."""
        if self.word is not Word.OPEN:
            return str(self.word)
        return self.states.said("large k" if self.k >= LARGE else f"k = {self.k}")

    @property
    def effective_problems(self) -> float:
        """Problems drawn one by one that would tell as much as these, which share clusters."""
        curve = self.reading.curve
        differences = curve.differences[:, -1]
        alone = ProblemWeights.draw(len(differences), np.random.default_rng(0), 1)
        clustered = float(curve.weights.standard_error(differences))
        if curve.seeds > 1 or not curve.clustered or not clustered > 0:
            return float(self.lost.problems)
        shrunk = min(1.0, (float(alone.standard_error(differences)) / clustered) ** 2)
        return self.lost.problems * shrunk

    @cached_property
    def factors(self) -> tuple[FactorShare, ...]:
        """Shares lost and gained, by how many times the samples "lost" means."""
        reading = self.reading
        side = reading.side("lost")
        return by_factor(side, self.lost, self.gained, reading.margin, reading.error)

    @cached_property
    def tips(self) -> tuple[Tip, ...]:
        """For each statement, the rate of false right verdicts that it survives."""
        return tipping_points(self.reading, self.states)

    def sentences(self) -> tuple[str, ...]:
        """Tell it in sentences: lost and gained, the net, k = 1, and what was left out."""
        return answer_sentences(self)


def answer(
    base: Counts,
    trained: Counts | Sequence[Counts],
    k: int | None = None,
    margin: float = MARGIN,
    seed: int = 0,
    errors: tuple[Errors, Errors] = (None, None),
    clusters: ArrayLike | None = None,
) -> Answer:
    """Decide what training lost and gained.

    ``base, trained``: counts of the same problems in the same order; their n may differ. Several
    trained models are trainings of one recipe with other seeds, and count as one arm. ``k``:
    samples to speak about; the largest k that 98 % of the problems support where not given,
    not counting stragglers.
    ``margin``: share of problems, and difference of pass@k, that counts as the same. ``errors``:
    what is known of the verifier in base and trained model. ``clusters``: a label per problem,
    where problems share a source: a topic, a competition, a template.

    >>> from rlbhpc.stats import pythia
    >>> models = pythia()
    >>> found = answer(models["2.8B"], models["6.9B"])
    >>> found.k, found.headline
    (10000, 'undecided')
    """
    runs = [trained] if isinstance(trained, Counts) else list(trained)
    enough = supporting(base, runs, k)
    ours, theirs = base[enough], [run[enough] for run in runs]
    size = min(arm.reach for arm in (ours, *theirs)) if k is None else int(k)
    labels = None if clusters is None else np.asarray(clusters)[enough]
    rng = np.random.default_rng(seed)
    if len(runs) > 1:
        curve = seeds_curve(ours, theirs, rng, REPLICATES, k_grid(size), clusters=labels)
    else:
        weights = ProblemWeights.draw(len(ours), rng, REPLICATES, labels)
        curve = difference_curve(ours, theirs[0], weights, k_grid(size))
    return decide(curve, margin, tuple(np.flatnonzero(~enough).tolist()), errors=errors)


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
    errors: tuple[Errors, Errors] = (None, None),
) -> Answer:
    """Give the answer of a difference curve whose last k all its problems support.

    ``curve``: difference of the two arms. ``margin``: what counts as the same. ``left_out``:
    positions of problems that are not in the curve, to be told. ``comparisons``: how many share the
    error: each is decided at its share of it, while intervals keep theirs. ``looked``: what looks
    at more samples say of lost and gained (:mod:`rlbhpc.stats.design`): a second decision
    beside theirs would have an error of its own. ``errors``: what is known of the verifier in base
    and trained model.
    """
    if not 0 < margin < 1:
        raise UserError(f"margin is {margin}; allowed is a difference of rates between 0 and 1")
    error = (1 - PROB) / comparisons
    base, trained = (
        error_range(known, counts)
        for known, counts in zip(errors, (curve.base, curve.trained), strict=True)
    )

    def reading(of_base: float, of_trained: float) -> Reading:
        ours = replace(curve.base, false_right=of_base, missed=base.missed)
        theirs = replace(curve.trained, false_right=of_trained, missed=trained.missed)
        return Reading(recount(curve, ours, theirs), margin, error)

    likely = reading(base.estimate, trained.estimate)
    # Where the base's false rights are many and the trained model's few, and the other way round.
    corners = []
    if base.high > base.low or trained.high > trained.low:
        corners = [reading(base.high, trained.low), reading(base.low, trained.high)]
    lost, gained = (
        _finding(likely, corners, name, looked[i] if looked else None, error)
        for i, name in enumerate(("lost", "gained"))
    )
    net, first = _difference(likely, corners)
    either = (curve.base.solved | curve.trained.solved).reshape(curve.seeds, -1).any(axis=0)
    states = States(lost.against(margin), gained.against(margin), *likely.signs())
    word = states.word(bool(either.any()))
    beyond = [corner.states() for corner in corners]
    states = _agreed([states, *beyond])
    if word is not Word.NOTHING_SOLVED and any(corner.word(True) is not word for corner in beyond):
        word = Word.OPEN_TO_VERIFIER
    known = tuple(
        None if given is None else found
        for given, found in zip(errors, (base, trained), strict=True)
    )
    return Answer(
        likely.k,
        lost,
        gained,
        net,
        first,
        contrasts(
            likely.joint, likely.best, likely.curve.base, likely.curve.trained, likely.k, net
        ),
        _last_crossing(likely.curve),
        left_out,
        margin,
        likely.p_mcnemar,
        int(either.sum()),
        states,
        word,
        _spread(likely.curve),
        curve.seeds,
        (known[0], known[1]),
        curve.weights.units,
        likely,
    )


def _finding(
    likely: Reading, corners: list[Reading], name: str, looked: Finding | None, error: float
) -> Finding:
    """Decide one side, with the bounds widened by what the audit leaves of the error rates."""
    count = likely.cells[0 if name == "lost" else 1]
    if looked is not None:
        return replace(looked, count=round(count))
    side = likely.side(name)
    found = finding(side, count, likely.margin, error)
    if not corners:
        return found
    shares = [corner.side(name).estimate for corner in corners]
    low, high = widened(found.estimate, found.low, found.high, shares)
    verdict = found.verdict
    if verdict is Verdict.NO and high >= likely.margin:
        verdict = Verdict.UNDECIDED
    low, high = np.clip([low, high], 0.0, 1.0).tolist()
    return replace(found, verdict=verdict, low=low, high=high)


def _difference(likely: Reading, corners: list[Reading]) -> tuple[Interval, Interval]:
    """Net and difference at k = 1, widened by what the audit leaves of the error rates."""
    first = likely.first
    net = likely.net

    def wide(interval: Interval, column: int) -> Interval:
        estimates = [float(corner.curve.pointwise.estimate[column]) for corner in corners]
        low, high = widened(float(interval.estimate), interval.low, interval.high, estimates)
        lower, upper = np.clip([low, high], -1.0, 1.0)
        return replace(interval, lower=lower, upper=upper)

    if corners:
        net, first = wide(net, -1), wide(first, 0)
    return net, first


def _agreed(states: list[States]) -> States:
    """Keep of each statement what holds under all error rates that an audit leaves."""
    lost, gained = {state.lost for state in states}, {state.gained for state in states}
    net, first = {state.net for state in states}, {state.first for state in states}
    return States(
        lost.pop() if len(lost) == 1 else Verdict.UNDECIDED,
        gained.pop() if len(gained) == 1 else Verdict.UNDECIDED,
        net.pop() if len(net) == 1 else 0,
        first.pop() if len(first) == 1 else 0,
    )


def _spread(curve: DifferenceCurve) -> Spread | None:
    if curve.seeds == 1:
        return None
    last = curve.k[-1:]
    differences = curve.trained.pass_at_k(last) - curve.base.pass_at_k(last)
    return spread(differences.reshape(curve.seeds, -1))


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


_STATEMENTS: Final = {
    "lost": "lost",
    "gained": "gained",
    "net": "the net",
    "first": "k = 1",
}
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
        *_side_sentence("lost", answer.lost, answer),
        *_side_sentence("gained", answer.gained, answer),
        f"At k = {answer.k:,} trained minus base is {points(answer.net)} points"
        f"{_against(answer)}{_at_one(answer)}.",
        _further(answer),
        *_crossing(answer),
        *_trainings(answer),
        *_verifier(answer),
        *_clusters(answer),
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


def _side_sentence(verb: str, side: Finding, answer: Answer) -> tuple[str, ...]:
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


def _verifier(answer: Answer) -> tuple[str, ...]:
    """Say which error rates of the verifier are known, and which ones would change the answer."""
    names = ("base", "trained model")
    known = [
        f"{rate_text(found.estimate)} [{rate_text(found.low)}, {rate_text(found.high)}] of the "
        f"{name}'s"
        for found, name in zip(answer.false_right, names, strict=True)
        if found is not None
    ]
    told = [f"The verifier accepts {' and '.join(known)} wrong responses."] if known else []
    limits = [
        f"{_STATEMENTS[tip.statement]} {rate_text(tip.rate)} in the {names[tip.arm != 'base']}"
        + (", the most that the counts allow" if tip.all_allowed else "")
        for tip in answer.tips
    ]
    if limits:
        unknown = "" if known else ", of which nothing was audited"
        told.append(
            f"Largest share of wrong responses judged right{unknown}, that each statement "
            f"survives: {'; '.join(limits)}."
        )
    return tuple(told)


def rate_text(value: float) -> str:
    """``2e-4``: one digit is what a tipping point has."""
    if value >= 0.01 or value == 0:
        return f"{100 * value:.2g} %"
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


def _clusters(answer: Answer) -> tuple[str, ...]:
    if not answer.reading.curve.clustered:
        return ()
    return (
        f"The problems come from {_several(answer.clusters, 'source')} and tell as much as "
        f"{answer.effective_problems:.0f} drawn one by one.",
    )


def _further(answer: Answer) -> str:
    """Say what the joint model says of more samples than there are, and what stays open."""
    _, more, limit = answer.contrasts
    return (
        f"The fit of all rates puts it at {_open(more)} at k = {more.k:,.0f} and at {_open(limit)} "
        "in the limit."
    )


def _open(contrast: Contrast) -> str:
    fit, low, high = (in_points(value) for value in (contrast.fit, contrast.low, contrast.high))
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
    middle, low, high = (in_points(float(end), form) for end in ends)
    if low == "–" and middle != "–":
        return middle
    return f"{middle} [{low}, {high}]{'' if bool(interval.sound) else ' ?'}"


def in_points(value: float, form: str = "+.1f") -> str:
    """Print a rate in points, "–" where there is none, and no sign before a 0."""
    if math.isnan(value):
        return "–"
    text = f"{100 * value:{form}}"
    return f"{0.0:{form}}" if float(text) == 0 else text


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
