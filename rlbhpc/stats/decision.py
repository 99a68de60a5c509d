r"""The answer about a trained model and its base: what was lost, what was gained, and the net.

docs/statistics.md states the rule, each question's share of the error, and what it was simulated
on. Lost and gained are likelihood-ratio tests of the joint distribution of the two rates
(:mod:`rlbhpc.stats.joint`), the net is McNemar's exact test or a paired interval, and k = 1 has a
sign-flip test at what the others leave of the error.

An answer is a vector of these four. It has one word only where both sides are decided. The
verifier's errors enter where they are known, and each statement says how large an unknown one may
be (:class:`~rlbhpc.stats.scenario.Tip`).
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
from rlbhpc.stats.difference import DifferenceCurve, difference_curve
from rlbhpc.stats.exact import detection_threshold
from rlbhpc.stats.interval import PROB, Interval, ProblemWeights, Target, widened
from rlbhpc.stats.joint import (
    FACTOR,
    Beyond,
    FactorShare,
    Finding,
    Verdict,
    beyond_samples,
    by_factor,
    finding,
)
from rlbhpc.stats.scenario import Scenario, States, Tip, Word, recount, tipping_points
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
    ``beyond``: what is left open of the difference at ten times k and in the limit.
    ``crossing``: the last k at which the curves cross, with its interval; None where they do not.
    ``left_out``: positions of the problems with fewer than k samples in an arm. ``margin``: what
    counts as the same. ``p_mcnemar``: McNemar's exact test of the counted cells; NaN where the arms
    have no equal k samples. ``solved``: problems that any of the two solves. ``states``: what is
    claimed of each of the four. ``spread``: standard deviations of the net between problems and
    trainings; None for one training. ``false_right``: rate of false right verdicts in base and
    trained model; None where nobody knows it. ``clusters``: units that were drawn independently.
    ``scenario``: the fit and the tests behind it all.
    """

    k: int
    lost: Finding
    gained: Finding
    net: Interval
    efficiency: Interval
    beyond: tuple[Beyond, ...]
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
    scenario: Scenario = field(repr=False, compare=False)

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
        return self.states.decided_text("large k" if self.k >= LARGE else f"k = {self.k}")

    @property
    def effective_problems(self) -> float:
        """Problems drawn one by one that would tell as much as these, which share clusters.

        The variance of a mean falls as one over the number of problems. So the ratio of two
        variances of the difference at K, one as if each problem were drawn alone and one with whole
        clusters drawn, says how many of the problems count. Without clusters, and with several
        trainings (``seeds``), all count.
        """
        curve = self.scenario.curve
        net_differences = curve.differences[:, -1]
        clustered_error = float(curve.weights.standard_error(net_differences))
        if curve.seeds > 1 or not curve.has_clusters or not clustered_error > 0:
            return float(self.lost.problems)
        # Weights without clusters, for the error as if each problem were drawn alone.
        one_by_one = ProblemWeights.draw(len(net_differences), np.random.default_rng(0), 1)
        error = float(one_by_one.standard_error(net_differences))
        return self.lost.problems * min(1.0, (error / clustered_error) ** 2)

    @cached_property
    def factors(self) -> tuple[FactorShare, ...]:
        """Shares lost and gained, by how many times the samples "lost" means."""
        scenario = self.scenario
        side = scenario.side("lost")
        return by_factor(side, self.lost, self.gained, scenario.margin, scenario.error)

    @cached_property
    def tips(self) -> tuple[Tip, ...]:
        """For each statement, the rate of false right verdicts that it survives."""
        return tipping_points(self.scenario, self.states)

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

    ``problems_with_samples`` says which problems have k samples in all arms; only these are
    compared. ``reach`` of counts is the largest k that all its problems have samples for.
    ``k_grid`` gives the k of the curve, log-spaced.

    >>> from rlbhpc.stats import pythia
    >>> models = pythia()
    >>> found = answer(models["2.8B"], models["6.9B"])
    >>> found.k, found.headline
    (10000, 'undecided')
    """
    trainings = [trained] if isinstance(trained, Counts) else list(trained)
    supports_k = problems_with_samples(base, trainings, k)
    base = base[supports_k]
    trainings = [training[supports_k] for training in trainings]
    largest_k = min(arm.reach for arm in (base, *trainings)) if k is None else int(k)
    labels = None if clusters is None else np.asarray(clusters)[supports_k]
    rng = np.random.default_rng(seed)
    if len(trainings) > 1:
        curve = seeds_curve(base, trainings, rng, REPLICATES, k_grid(largest_k), clusters=labels)
    else:
        weights = ProblemWeights.draw(len(base), rng, REPLICATES, labels)
        curve = difference_curve(base, trainings[0], weights, k_grid(largest_k))
    left_out = tuple(np.flatnonzero(~supports_k).tolist())
    return decide(curve, margin, left_out, errors=errors)


def problems_with_samples(
    base: Counts, trained: Sequence[Counts], k: int | None = None
) -> NDArray[np.bool_]:
    """Which problems have k samples in all arms; by default k is the most that nearly all have.

    The *limit* of a problem is the largest k that its samples support, in the arm that has fewest.
    The default k is the largest that the share ``SUPPORT`` of the problems supports, stragglers
    aside. A straggler has less than half of the samples that nine in ten problems have: what a
    crash or an outage left behind. A problem that lacks only a few samples is no straggler: it
    lowers k a little instead of being left out.
    """
    if not trained:
        raise UserError("no trained model is given; compare the base with one at least")
    for arm in trained:
        check_paired(base, arm)
    limits = np.min([base.limit, *(arm.limit for arm in trained)], axis=0)
    is_straggler = 2 * limits < _k_supported_by(limits, _NO_STRAGGLERS)
    largest_k = _k_supported_by(limits[~is_straggler], SUPPORT)
    if largest_k < 1:
        raise UserError(
            f"{int((limits < 1).sum())} of {len(limits)} problems have no samples in one of the "
            "arms; sample them, or select the problems that both have"
        )
    if k is not None and not 1 <= k <= largest_k:
        raise UserError(
            f"k is {k}; {100 * SUPPORT:g} % of the problems have {largest_k:,} samples in both "
            f"arms, so allowed is 1 to {largest_k:,}"
        )
    return np.asarray(limits >= (largest_k if k is None else k))


def _k_supported_by(limits: NDArray[np.int64], share: float) -> int:
    """Largest k that a share of the problems support; ``limits``: that each of them supports."""
    needed = math.ceil(share * len(limits) - 1e-9)
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
    base_errors = error_range(errors[0], curve.base)
    trained_errors = error_range(errors[1], curve.trained)

    def scenario_at(base_false_right: float, trained_false_right: float) -> Scenario:
        base = replace(curve.base, false_right=base_false_right, missed=base_errors.missed)
        trained = replace(
            curve.trained, false_right=trained_false_right, missed=trained_errors.missed
        )
        return Scenario(recount(curve, base, trained), margin, error)

    likely = scenario_at(base_errors.estimate, trained_errors.estimate)
    extremes = []
    if base_errors.high > base_errors.low or trained_errors.high > trained_errors.low:
        # Where the base's false rights are many and the trained model's few, and the reverse.
        extremes = [
            scenario_at(base_errors.high, trained_errors.low),
            scenario_at(base_errors.low, trained_errors.high),
        ]
    lost = _finding(likely, extremes, "lost", looked[0] if looked else None)
    gained = _finding(likely, extremes, "gained", looked[1] if looked else None)
    solved = (curve.base.solved | curve.trained.solved).reshape(curve.seeds, -1).any(axis=0)
    states = States(lost.against(margin), gained.against(margin), *likely.signs())
    word = states.word(bool(solved.any()))
    net = _difference(likely.net, extremes, column=-1)
    extreme_states = [scenario.states() for scenario in extremes]
    other_word = any(state.word(any_solved=True) is not word for state in extreme_states)
    if other_word and word is not Word.NOTHING_SOLVED:
        word = Word.OPEN_TO_VERIFIER
    return Answer(
        k=likely.k,
        lost=lost,
        gained=gained,
        net=net,
        efficiency=_difference(likely.first, extremes, column=0),
        beyond=beyond_samples(likely.curve.base, likely.curve.trained, likely.k, net),
        crossing=_last_crossing(likely.curve),
        left_out=left_out,
        margin=margin,
        p_mcnemar=likely.p_mcnemar,
        solved=int(solved.sum()),
        states=_common_states([states, *extreme_states]),
        word=word,
        spread=_net_spread(likely.curve),
        seeds=curve.seeds,
        false_right=(
            None if errors[0] is None else base_errors,
            None if errors[1] is None else trained_errors,
        ),
        clusters=curve.weights.units,
        scenario=likely,
    )


def _finding(
    likely: Scenario, extremes: list[Scenario], name: str, looked: Finding | None
) -> Finding:
    """What is found of one side, with bounds widened by what the audit leaves of the error rates.

    A *scenario* is the two arms under one assumption about the verifier's errors. ``likely``: under
    the estimated rates. ``extremes``: under the most unfavourable rates that the audit allows, one
    for each direction; empty if nothing is open. ``name``: side, ``lost`` or ``gained``.
    ``looked``: what earlier looks at the data decided, if there were any: it stands, and only the
    count is new.

    ``solved_by_one`` gives the numbers of problems that only the base, and only the trained model,
    solves. ``widened`` adds the distance to the extremes' estimates to the bounds, in squares. A
    "no" whose widened bound reaches the margin is undecided after all.
    """
    count = likely.solved_by_one[0 if name == "lost" else 1]
    if looked is not None:
        return replace(looked, count=round(count))
    likely_finding = finding(likely.side(name), count, likely.margin, likely.error)
    if not extremes:
        return likely_finding
    estimates = [scenario.side(name).estimate for scenario in extremes]
    low, high = widened(likely_finding.estimate, likely_finding.low, likely_finding.high, estimates)
    verdict = likely_finding.verdict
    if verdict is Verdict.NO and high >= likely.margin:
        verdict = Verdict.UNDECIDED
    low, high = np.clip([low, high], 0.0, 1.0).tolist()
    return replace(likely_finding, verdict=verdict, low=low, high=high)


def _difference(likely: Interval, extremes: list[Scenario], column: int) -> Interval:
    """Difference of the arms at one k, widened by what the audit leaves of the error rates.

    ``likely``: interval under the estimated error rates. ``extremes``: the same arms under the most
    unfavourable rates that the audit allows; empty if nothing is open. ``column``: position of k in
    the curves. ``widened`` adds the distance to the extremes' estimates to the bounds, in squares.
    There are none where an extreme has none: only studies that happen to audit few false rights
    would have an interval.
    """
    if not extremes:
        return likely
    intervals = [scenario.curve.pointwise[column] for scenario in extremes]
    if any(math.isnan(interval.low) for interval in intervals):
        return replace(likely, lower=np.asarray(np.nan), upper=np.asarray(np.nan))
    estimates = [float(interval.estimate) for interval in intervals]
    bounds = widened(float(likely.estimate), likely.low, likely.high, estimates)
    lower, upper = np.clip(bounds, -1.0, 1.0)
    return replace(likely, lower=lower, upper=upper)


def _common_states(states: list[States]) -> States:
    """Keep of each statement what holds under all error rates that an audit leaves.

    ``states``: what is claimed under each assumption about the verifier. A verdict on which two
    differ is undecided; a sign on which they differ (``net`` at K, ``first`` at k = 1) is 0.
    """
    first, *others = states
    for other in others:
        first = States(
            lost=first.lost if first.lost is other.lost else Verdict.UNDECIDED,
            gained=first.gained if first.gained is other.gained else Verdict.UNDECIDED,
            net=first.net if first.net == other.net else 0,
            first=first.first if first.first == other.first else 0,
        )
    return first


def _net_spread(curve: DifferenceCurve) -> Spread | None:
    """Standard deviations of the net between problems and trainings; None for one training."""
    if curve.seeds == 1:
        return None
    return spread(curve.differences[:, -1].reshape(curve.seeds, -1))


def _last_crossing(curve: DifferenceCurve) -> Interval | None:
    """Interval of the last k at which the curves cross; None where they do not.

    The bounds are the ends of the set, a range of k that may hold a crossing, in which the last
    estimated crossing lies. A set that reaches the last k is open above: its upper bound is
    infinite.
    """
    crossing = curve.crossing
    if not len(crossing.points):
        return None
    last_point = crossing.points[-1]
    for crossing_set in crossing.sets:
        if last_point in crossing_set:
            return Interval(
                last_point,
                np.asarray(crossing_set.lower),
                np.asarray(np.inf if crossing_set.open_above else crossing_set.upper),
                Target.POPULATION,
                "inverted pointwise interval",
                crossing.prob,
                np.asarray(crossing.sound),
            )
    return None


_STATEMENT_TEXTS: Final = {
    "lost": "lost",
    "gained": "gained",
    "net": "the net",
    "first": "k = 1",
}
_ARM_TEXTS: Final = {"base": "base", "trained": "trained model"}
# What each side is about: the arm that needs more samples, and how they may differ otherwise.
_SLOWER_ARM: Final = {"lost": "the trained model", "gained": "the base"}
_SPEED: Final = {"lost": "slower", "gained": "quicker"}


def answer_sentences(answer: Answer) -> tuple[str, ...]:
    """The answer in sentences: lost and gained first, then the net, k = 1, and what was left out.

    The first sentence gives raw counts of samples; the others say what the fit of the true rates
    says. If no problem was solved by either model, it only states the largest success rate that
    this many samples may miss.
    """
    problems = _number_of(answer.lost.problems, "problem")
    samples = _number_of(answer.k, "sample")
    if not answer.solved:
        percent = 100 * float(detection_threshold(answer.k))
        return (
            f"Neither model solves any of the {problems} in {samples} each: "
            f"rates below {percent:.2g} % are not seen. Try easier problems or more samples.",
            *_left_out_sentence(answer),
        )
    mcnemar = ""
    if not math.isnan(answer.p_mcnemar):
        mcnemar = f" (McNemar p {p_value(answer.p_mcnemar)})"
    return (
        f"In {samples} of each of {problems} the base alone solved {answer.lost.count:,} and the "
        f"trained model alone {answer.gained.count:,}{mcnemar}.",
        _side_sentence("lost", answer.lost, answer),
        _side_sentence("gained", answer.gained, answer),
        _net_sentence(answer),
        _beyond_sentence(answer),
        *_crossing_sentence(answer),
        *_trainings_sentence(answer),
        *_verifier_sentences(answer),
        *_clusters_sentence(answer),
        *_left_out_sentence(answer),
    )


def _side_sentence(verb: str, side: Finding, answer: Answer) -> str:
    """Sentence on the share of problems truly lost (or gained), by the fit of all rates.

    ``verb``: ``lost`` or ``gained``. ``side``: verdict, estimate and bounds of that share. The
    lower bound is NaN where too few trainings were made for an interval.
    """
    high = f"{100 * side.high:.1f}"
    margin = f"{100 * answer.margin:g}"
    if side.verdict is Verdict.NO:
        return f"Truly {verb}: at most {high} % of problems, below the margin of {margin} %."
    if side.verdict is Verdict.UNDECIDED:
        return (
            f"It is undecided whether problems were truly {verb} or it is only {_SPEED[verb]}: "
            f"between 0 and {high} % of them."
        )
    if math.isnan(side.low):
        interval = f"% of problems; from {answer.seeds} seeds that share has no sound interval"
    else:
        interval = f"[{100 * side.low:.1f}, {high}] % of problems"
        if side.high < answer.margin:
            interval += f", fewer than the margin of {margin} %"
        elif side.estimate < answer.margin:
            interval += f"; whether as many as the margin of {margin} % is open"
    return (
        f"Truly {verb}, in that {_SLOWER_ARM[verb]} needs at least {FACTOR:g} times the samples: "
        f"{100 * side.estimate:.1f} {interval}."
    )


def _net_sentence(answer: Answer) -> str:
    """Sentence on the difference of pass@k at K and at k = 1, in points (percent).

    It also says where the interval and McNemar's test disagree on whether the arms differ.
    """
    sentence = f"At k = {answer.k:,} trained minus base is {interval_in_points(answer.net)} points"
    if not math.isnan(answer.p_mcnemar) and not math.isnan(answer.net.low):
        test_rejects = answer.p_mcnemar < 1 - PROB
        if bool(answer.net.sign) != test_rejects:
            sentence += " (the interval and McNemar's test disagree: take it as open)"
    if answer.k > 1:
        sentence += f"; at k = 1 it is {interval_in_points(answer.efficiency)}"
    return f"{sentence}."


def _beyond_sentence(answer: Answer) -> str:
    """Say what more samples than there are could still show."""
    at_more, in_limit = answer.beyond
    return (
        f"With more samples it may be {_range_text(at_more)} at k = {at_more.k:,.0f} and "
        f"{_range_text(in_limit)} in the limit."
    )


def _range_text(beyond: Beyond) -> str:
    return f"{in_points(beyond.low)} to {in_points(beyond.high)}"


def _crossing_sentence(answer: Answer) -> tuple[str, ...]:
    """Sentence on the last k at which the curves cross, in a tuple that is empty if they do not."""
    if answer.crossing is None:
        return ()
    low, high = answer.crossing.low, answer.crossing.high
    end = f"beyond {answer.k:,}" if math.isinf(high) else f"{high:,.0f}"
    return (
        f"The curves last cross at k = {float(answer.crossing.estimate):,.0f}; the data allow "
        f"{low:,.0f} to {end}.",
    )


def _trainings_sentence(answer: Answer) -> tuple[str, ...]:
    """Sentence on the spread of the difference between trainings, problems and the rest, in points.

    The tuple is empty where there was only one training.
    """
    if answer.spread is None:
        return ()
    return (
        f"Mean of {answer.seeds} seeds. The difference at k = {answer.k:,} has a standard "
        f"deviation of {100 * answer.spread.seeds:.1f} points between seeds, "
        f"{100 * answer.spread.problems:.1f} between problems and "
        f"{100 * answer.spread.rest:.1f} of the rest.",
    )


def _verifier_sentences(answer: Answer) -> tuple[str, ...]:
    """Sentences on the verifier's error rates: known ones, and what would change the answer.

    ``answer.false_right`` holds the audited rate in the base and in the trained model, None where
    nobody knows it. A *tip* is the largest rate of false right verdicts in one arm that a statement
    survives.
    """
    sentences = []
    known_rates = [
        f"{rate_text(rates.estimate)} [{rate_text(rates.low)}, {rate_text(rates.high)}] of the "
        f"{arm}'s"
        for rates, arm in zip(answer.false_right, _ARM_TEXTS.values(), strict=True)
        if rates is not None
    ]
    if known_rates:
        sentences.append(f"The verifier accepts {' and '.join(known_rates)} wrong responses.")
    limits = []
    for tip in answer.tips:
        limit = f"{_STATEMENT_TEXTS[tip.statement]} {rate_text(tip.rate)} in the "
        limit += _ARM_TEXTS[tip.arm]
        limits.append(f"{limit}, the most that the counts allow" if tip.all_allowed else limit)
    if limits:
        unaudited = "" if known_rates else ", of which nothing was audited"
        sentences.append(
            f"Largest share of wrong responses judged right{unaudited}, that each statement "
            f"survives: {'; '.join(limits)}."
        )
    return tuple(sentences)


def _clusters_sentence(answer: Answer) -> tuple[str, ...]:
    """Sentence on the sources that problems share, and the effective number of problems.

    The tuple is empty where no problems share a source.
    """
    if not answer.scenario.curve.has_clusters:
        return ()
    return (
        f"The problems come from {_number_of(answer.clusters, 'source')} and tell as much as "
        f"{answer.effective_problems:.0f} drawn one by one.",
    )


def _left_out_sentence(answer: Answer) -> tuple[str, ...]:
    number = len(answer.left_out)
    if not number:
        return ()
    problems, samples = _number_of(number, "problem"), _number_of(answer.k, "sample")
    return (f"{problems} with fewer than {samples} {'is' if number == 1 else 'are'} left out.",)


def _number_of(number: int, noun: str) -> str:
    """``1 problem``, ``1,024 problems``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate_text(rate: float) -> str:
    """``2e-4``: one digit is what a tipping point has."""
    if rate >= 0.01 or rate == 0:
        return f"{100 * rate:.2g} %"
    digit, _, exponent = f"{rate:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


def interval_in_points(interval: Interval, form: str = "+.1f") -> str:
    """``+2.3 [-1.7, +6.4]``, with ``?`` behind unsound bounds; alone where there are none.

    A point is a hundredth of a rate. ``in_points`` gives "–" for NaN, which bounds are where they
    would not hold.
    """
    estimate, low, high = (
        in_points(float(value), form)
        for value in (interval.estimate, interval.lower, interval.upper)
    )
    if low == "–" and estimate != "–":
        return estimate
    return f"{estimate} [{low}, {high}]{'' if bool(interval.sound) else ' ?'}"


def in_points(rate: float, form: str = "+.1f") -> str:
    """Print a rate in points, "–" where there is none, and no sign before a 0."""
    if math.isnan(rate):
        return "–"
    text = f"{100 * rate:{form}}"
    return f"{0.0:{form}}" if float(text) == 0 else text


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
