"""What two arms say under given error rates of the verifier, and how much of it they survive."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np

from rlbhpc.stats.counts import Counts
from rlbhpc.stats.difference import (
    DifferenceCurve,
    claimed_sign,
    difference_curve,
    interval_at_one,
    sign_by_flips,
)
from rlbhpc.stats.exact import attained_level, mcnemar_exact
from rlbhpc.stats.interval import Interval
from rlbhpc.stats.joint import Fit, JointRates, Side, Verdict
from rlbhpc.stats.seeds import pooled_curve
from rlbhpc.stats.verifier_error import largest_false_right

#: Share of the error that the test of the net may use up; the rest is always that of k = 1.
NET_SHARE: Final = 0.8
# Clusters that must carry the spread of the net.
_LEAST_CARRYING_CLUSTERS: Final = 6
# Error rates that a tipping point is looked for at have one of these digits, and the smallest
# would make this share of unsolved problems look solved in K samples.
_DIGITS: Final = (1, 2, 5)
_SMALLEST_EFFECT: Final = 0.01


class Word(StrEnum):
    """The answer in a word or two, where both sides are decided."""

    TRADES = "trades"
    SHRINKS = "shrinks"
    EXPANDS = "expands"
    ONLY_SHARPENS = "only sharpens"
    ONLY_BLUNTS = "only blunts"
    UNCHANGED = "unchanged"
    OPEN = "open"
    OPEN_TO_VERIFIER = "open to the verifier"
    NOTHING_SOLVED = "nothing solved"


_LOST_TEXTS: Final = {
    Verdict.YES: "lost", Verdict.NO: "no loss", Verdict.UNDECIDED: "losses open"
}  # fmt: skip
_GAINED_TEXTS: Final = {
    Verdict.YES: "gained", Verdict.NO: "no gain", Verdict.UNDECIDED: "gains open"
}  # fmt: skip


@dataclass(frozen=True)
class States:
    """What is claimed of an answer's four questions.

    ``lost, gained``: whether problems were, beyond the margin. ``net, first``: sign of trained
    minus base at K and at k = 1; 0 where none is claimed.
    """

    lost: Verdict
    gained: Verdict
    net: int
    first: int

    def word(self, any_solved: bool) -> Word:
        """The answer in a word, if it is decided both of losses and of gains.

        ``lost`` and ``gained``: whether problems were, beyond the margin. ``net`` and ``first``:
        the claimed signs of trained minus base pass@k at K and at k = 1. A net that goes against
        the only decided side shows that the other side moved too: then training trades. If neither
        was lost nor gained, the sign at k = 1 decides.

        ``any_solved``: whether any model solved any problem.
        """
        if not any_solved:
            return Word.NOTHING_SOLVED
        if Verdict.UNDECIDED in (self.lost, self.gained):
            return Word.OPEN
        some_lost, some_gained = self.lost is Verdict.YES, self.gained is Verdict.YES
        if some_lost and (some_gained or self.net > 0):
            return Word.TRADES
        if some_gained and self.net < 0:
            return Word.TRADES
        if some_lost:
            return Word.SHRINKS
        if some_gained:
            return Word.EXPANDS
        return {0: Word.UNCHANGED, 1: Word.ONLY_SHARPENS, -1: Word.ONLY_BLUNTS}[self.first]

    @property
    def direction(self) -> str:
        """Which way it went at K: ``lost``, ``gained``, ``both``, ``same`` or ``open``.

        A decided loss and a negative difference (``net``) both count as a fall, a decided gain and
        a positive one as a rise. ``same`` needs both losses and gains to be ruled out.
        """
        if (self.lost, self.gained) == (Verdict.NO, Verdict.NO):
            return "same"
        fell = self.lost is Verdict.YES or self.net < 0
        rose = self.gained is Verdict.YES or self.net > 0
        if fell and rose:
            return "both"
        if fell:
            return "lost"
        return "gained" if rose else "open"

    def decided_text(self, name_of_k: str) -> str:
        """Say what is decided where a side is open.

        ``name_of_k``: what K is called. ``net`` and ``first`` are the claimed signs of trained
        minus base at K and at k = 1. Where both sides are undecided, only a sign is left to state;
        else the decided side comes first.
        """
        net = {0: "", 1: f"ahead at {name_of_k}", -1: f"behind at {name_of_k}"}[self.net]
        if self.lost is self.gained:
            first = {0: "undecided", 1: "ahead at k = 1", -1: "behind at k = 1"}[self.first]
            return net or first
        texts = [_LOST_TEXTS[self.lost], _GAINED_TEXTS[self.gained]]
        if self.lost is Verdict.UNDECIDED:
            texts.reverse()
        if net:
            texts.append(net)
        return ", ".join(texts)


@dataclass(frozen=True)
class Tip:
    """How large the verifier's rate of false right verdicts may be before a statement falls.

    ``statement``: ``lost``, ``gained``, ``net`` or ``first``, as in :class:`States`. ``arm``:
    ``base`` or ``trained``, whose false rights would explain it. ``rate``: the statement stands up
    to here. ``all_allowed``: this is the largest rate that the counts themselves allow.
    """

    statement: str
    arm: str
    rate: float
    all_allowed: bool


class Scenario:
    """Two arms under one assumption about the verifier's errors: the fit and every test.

    ``k``: the K of the answer, the last k of the curve.
    """

    def __init__(self, curve: DifferenceCurve, margin: float, error: float) -> None:
        """Take a curve whose counts carry the error rates of the verifier.

        ``margin``: what counts as the same. ``error``: of all statements together.
        """
        self.curve = curve
        self.margin = margin
        self.error = error
        self.k = int(curve.k[-1])

    @cached_property
    def joint(self) -> JointRates:
        """Likelihood of the counts of both arms."""
        return JointRates(self.curve.base, self.curve.trained, self.k)

    @cached_property
    def best(self) -> Fit:
        """Likeliest joint distribution."""
        return self.joint.fit()

    def side(self, name: str) -> Side:
        """Problems that are ``lost`` or ``gained``."""
        group = self.joint.lost if name == "lost" else self.joint.gained
        return Side(self.joint, self.best, group, self.curve.seeds, self.curve.weights.unit)

    @cached_property
    def solved_by_one(self) -> tuple[float, float]:
        """Unbiased numbers of problems that only the base, and only the trained model, solve in K.

        Both are of verdicts as they are: the verifier's error rates are set to 0. A problem's
        pass@K of one arm times the chance that the other fails is its chance of being solved by one
        alone.
        """
        base, trained = (
            replace(arm, false_right=0.0, missed=0.0).pass_at_k(self.k)[:, 0]
            for arm in (self.curve.base, self.curve.trained)
        )
        return float((base * (1 - trained)).sum()), float((trained * (1 - base)).sum())

    @property
    def net(self) -> Interval:
        """Trained minus base pass@k at K; at K = 1 only where that has an interval.

        Bounds are NaN where few clusters of problems carry the spread (``carriers``), or where the
        interval does not hold its probability (``sound``).
        """
        net = self.first if self.k == 1 else self.curve.pointwise[len(self.curve.k) - 1]
        few_carry = self.curve.carriers[-1] < _LEAST_CARRYING_CLUSTERS
        if self.curve.has_clusters and (few_carry or not net.sound):
            return replace(net, lower=np.asarray(np.nan), upper=np.asarray(np.nan))
        return net

    @cached_property
    def first(self) -> Interval:
        """Trained minus base at k = 1."""
        return interval_at_one(self.curve)

    @cached_property
    def p_mcnemar(self) -> float:
        """P-value of McNemar's exact test; NaN where it does not test "nothing moved".

        The test counts problems that only one arm solved. It holds only where every problem has
        exactly K samples in both arms (``limit``), the verifier errs alike in both, and problems
        are independent: not with several trainings (``seeds``) and not in clusters.
        """
        base, trained = self.curve.base, self.curve.trained
        if not (base.limit == self.k).all() or not (trained.limit == self.k).all():
            return math.nan
        if (base.false_right, base.missed) != (trained.false_right, trained.missed):
            return math.nan
        if self.curve.seeds > 1 or self.curve.has_clusters:
            return math.nan
        only_base, only_trained = self.solved_by_one
        return mcnemar_exact(round(only_base), round(only_trained))

    def states(self) -> States:
        """Decide each question at its share of the error."""
        lost, gained = (
            self.side(name).verdict(self.margin, self.error) for name in ("lost", "gained")
        )
        return States(lost, gained, *self.signs())

    def claim(self, statement: str) -> Verdict | int:
        """Decide one question, named as in :class:`States`."""
        if statement in ("lost", "gained"):
            return self.side(statement).verdict(self.margin, self.error)
        net, first = self.signs()
        return net if statement == "net" else first

    def signs(self) -> tuple[int, int]:
        """Signs of trained minus base at K and at k = 1 that are claimed: +1, −1, or 0 for none.

        The two tests share the error. McNemar's exact test decides at K where it applies
        (``p_mcnemar`` is not NaN), else the interval or sign flips (``_sign``). Its p-value takes
        few values, so it uses less than its share, and ``attained_level`` is what it can use.
        """
        error_of_net = NET_SHARE * self.error
        last = len(self.curve.k) - 1
        if math.isnan(self.p_mcnemar):
            return self._sign(last, error_of_net), self._sign(0, self.error - error_of_net)
        net = float(self.curve.pointwise.estimate[last])
        net_sign = int(np.sign(net)) if self.p_mcnemar < error_of_net else 0
        # What the exact test cannot use up of its part goes to the sign at k = 1.
        discordant = sum(round(problems) for problems in self.solved_by_one)
        used_by_net = attained_level(discordant, error_of_net)
        return net_sign, self._sign(0, self.error - used_by_net)

    def _sign(self, column: int, error: float) -> int:
        """Sign at one k that is claimed.

        Flips of problems know nothing of what differs between trainings, and their number at large
        k is that of few problems: there the interval decides.
        """
        if self.curve.seeds > 1 or (column and not self.curve.has_clusters):
            return claimed_sign(self.curve.pointwise[column], error, self.curve.seeds)
        return sign_by_flips(self.curve, column, error)


def recount(curve: DifferenceCurve, base: Counts, trained: Counts) -> DifferenceCurve:
    """Give the curve of the same arms under the error rates that these counts carry."""
    if (base.false_right, base.missed, trained.false_right, trained.missed) == (0, 0, 0, 0):
        return curve
    if curve.seeds > 1:
        return pooled_curve(base, trained, curve.weights, curve.seeds, curve.k)
    return difference_curve(base, trained, curve.weights, curve.k)


def tipping_points(scenario: Scenario, states: States) -> tuple[Tip, ...]:
    """For each statement that is claimed, the largest rate of false rights that it survives.

    A *false right* is a wrong response judged right. ``scenario``: the arms under the assumed error
    rates of the verifier. ``states``: the statements that are claimed, by name; a verdict that is
    undecided or a sign of 0 claims nothing.
    """
    states_of_counts = scenario.states()
    tips = []
    for statement, claim in vars(states).items():
        # What further looks decide is not in these counts.
        if claim in (0, Verdict.UNDECIDED) or getattr(states_of_counts, statement) != claim:
            continue
        tips.append(_tipping_point(scenario, statement, claim))
    return tuple(tips)


def _tipping_point(scenario: Scenario, statement: str, claim: Verdict | int) -> Tip:
    """Largest rate of false rights that a claim survives in the arm that could explain it.

    A *false right* is a wrong response judged right. Those of the base explain what it alone seems
    to solve, and hide what the trained model gained; those of the trained model do the opposite.
    ``scenario``: the arms under the assumed error rates. ``statement, claim``: name of the
    statement, and its verdict or sign.

    ``largest_false_right`` is the largest rate that the counts allow. If the claim survives it, it
    is the result; otherwise bisection finds, on a grid of 1, 2 and 5 times powers of ten, the last
    rate that the claim survives.
    """
    claims_less_solved = claim in (Verdict.YES, -1)
    if statement == "gained":
        claims_less_solved = claim is Verdict.NO
    arm = "base" if claims_less_solved else "trained"
    arms = {"base": scenario.curve.base, "trained": scenario.curve.trained}
    counts = arms[arm]

    def survives(rate: float) -> bool:
        changed_arms = arms | {arm: replace(counts, false_right=rate)}
        curve = recount(scenario.curve, **changed_arms)
        return Scenario(curve, scenario.margin, scenario.error).claim(statement) == claim

    largest = largest_false_right(counts)
    if largest <= counts.false_right or survives(largest):
        return Tip(statement, arm, max(largest, counts.false_right), all_allowed=True)
    smallest_exponent = math.floor(math.log10(_SMALLEST_EFFECT / scenario.k))
    rates = [
        digit * 10.0**exponent for exponent in range(smallest_exponent, 0) for digit in _DIGITS
    ]
    rates = [rate for rate in rates if counts.false_right < rate < largest]
    survived = bisect_left(rates, True, key=lambda rate: not survives(rate))
    rate = rates[survived - 1] if survived else counts.false_right
    return Tip(statement, arm, rate, all_allowed=False)
