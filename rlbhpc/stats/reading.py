"""What two arms say under given error rates of the verifier, and how much of it they survive."""

from __future__ import annotations

import math
from collections.abc import Callable
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
NET: Final = 0.8
# Clusters that must carry the spread of the net.
_CARRYING_CLUSTERS: Final = 6
# First digits of the error rates that a tipping point is looked for at.
_DIGITS: Final = (1, 2, 5)


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


_SIDES: Final = {
    "lost": {Verdict.YES: "lost", Verdict.NO: "no loss", Verdict.UNDECIDED: "losses open"},
    "gained": {Verdict.YES: "gained", Verdict.NO: "no gain", Verdict.UNDECIDED: "gains open"},
}


@dataclass(frozen=True)
class States:
    """What is claimed: lost and gained beyond the margin, and the signs at K and at k = 1."""

    lost: Verdict
    gained: Verdict
    net: int
    first: int

    def word(self, solved: bool) -> Word:
        """Say it in a word if both sides are decided."""
        if not solved:
            return Word.NOTHING_SOLVED
        if Verdict.UNDECIDED in (self.lost, self.gained):
            return Word.OPEN
        fell, rose = self.lost is Verdict.YES, self.gained is Verdict.YES
        if (fell and (rose or self.net > 0)) or (rose and self.net < 0):
            return Word.TRADES
        if fell:
            return Word.SHRINKS
        if rose:
            return Word.EXPANDS
        return (Word.UNCHANGED, Word.ONLY_SHARPENS, Word.ONLY_BLUNTS)[self.first]

    @property
    def direction(self) -> str:
        """Which way it went at K: ``lost``, ``gained``, ``both``, ``same`` or ``open``."""
        if (self.lost, self.gained) == (Verdict.NO, Verdict.NO):
            return "same"
        fell = self.lost is Verdict.YES or self.net < 0
        rose = self.gained is Verdict.YES or self.net > 0
        if fell and rose:
            return "both"
        if fell:
            return "lost"
        return "gained" if rose else "open"

    def said(self, large: str) -> str:
        """Say what is decided where a side is open; ``large`` is what K is called."""
        net = ("", f"ahead at {large}", f"behind at {large}")[self.net]
        if self.lost is self.gained:
            return net or ("undecided", "ahead at k = 1", "behind at k = 1")[self.first]
        sides = [_SIDES["lost"][self.lost], _SIDES["gained"][self.gained]]
        if self.lost is Verdict.UNDECIDED:
            sides.reverse()
        return ", ".join([*sides, net] if net else sides)


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


class Reading:
    """What two arms say under given error rates of the verifier."""

    def __init__(self, curve: DifferenceCurve, margin: float, error: float) -> None:
        """Read a curve whose counts carry the error rates.

        ``margin``: what counts as the same. ``error``: of all statements together.
        """
        self.curve, self.margin, self.error = curve, margin, error
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
    def cells(self) -> tuple[float, float]:
        """Unbiased number of problems that only base, and only the trained model, solve in K."""
        base = replace(self.curve.base, false_right=0.0, missed=0.0).pass_at_k(self.k)[:, 0]
        trained = replace(self.curve.trained, false_right=0.0, missed=0.0).pass_at_k(self.k)[:, 0]
        return float((base * (1 - trained)).sum()), float((trained * (1 - base)).sum())

    @property
    def net(self) -> Interval:
        """Trained minus base at K; at K = 1 only where that has an interval."""
        net = self.first if self.k == 1 else self.curve.pointwise[len(self.curve.k) - 1]
        few = self.curve.carriers[-1] < _CARRYING_CLUSTERS
        if self.curve.clustered and (few or not net.sound):
            return replace(net, lower=np.asarray(np.nan), upper=np.asarray(np.nan))
        return net

    @cached_property
    def first(self) -> Interval:
        """Trained minus base at k = 1."""
        return interval_at_one(self.curve)

    @cached_property
    def p_mcnemar(self) -> float:
        """McNemar's exact test; NaN where it is none of "nothing moved"."""
        base, trained = self.curve.base, self.curve.trained
        exact = bool((base.limit == self.k).all() and (trained.limit == self.k).all())
        alike = (base.false_right, base.missed) == (trained.false_right, trained.missed)
        if not (exact and alike) or self.curve.seeds > 1 or self.curve.clustered:
            return math.nan
        lost, gained = self.cells
        return mcnemar_exact(round(lost), round(gained))

    def states(self) -> States:
        """Decide each question at its share of the error."""
        lost, gained = (
            self.side(name).verdict(self.margin, self.error) for name in ("lost", "gained")
        )
        return States(lost, gained, *self.signs())

    def signs(self) -> tuple[int, int]:
        """Signs of the differences at K and at k = 1 that are claimed."""
        of_net = NET * self.error
        net = self.curve.pointwise[len(self.curve.k) - 1]
        if math.isnan(self.p_mcnemar):
            spent = of_net
            sign = self._sign(len(self.curve.k) - 1, of_net)
        else:
            # What the test of the net can use up of its part; the sign at k = 1 has the rest.
            spent = attained_level(sum(round(cell) for cell in self.cells), of_net)
            sign = int(np.sign(net.estimate)) if self.p_mcnemar < of_net else 0
        return sign, self._sign(0, self.error - spent)

    def _sign(self, column: int, error: float) -> int:
        """Sign at one k that is claimed.

        Flips of problems know nothing of what differs between trainings, and their number at large
        k is that of few problems: there the interval decides.
        """
        if self.curve.seeds > 1 or (column and not self.curve.clustered):
            return claimed_sign(self.curve.pointwise[column], error, self.curve.seeds)
        return sign_by_flips(self.curve, column, error)


def recount(curve: DifferenceCurve, base: Counts, trained: Counts) -> DifferenceCurve:
    """Give the curve of the same arms under other error rates."""
    if (base.false_right, base.missed, trained.false_right, trained.missed) == (0, 0, 0, 0):
        return curve
    if curve.seeds > 1:
        return pooled_curve(base, trained, curve.weights, curve.seeds, curve.k)
    return difference_curve(base, trained, curve.weights, curve.k)


def tipping_points(reading: Reading, states: States) -> tuple[Tip, ...]:
    """Find for each statement the largest rate of false rights in one arm that it survives.

    Which arm is clear: false rights of the base explain what it alone seems to solve, and hide what
    the trained model gained; those of the trained model do the opposite.
    """
    curve = reading.curve

    def at(arm: str, rate: float) -> Reading:
        base, trained = curve.base, curve.trained
        if arm == "base":
            base = replace(base, false_right=rate)
        else:
            trained = replace(trained, false_right=rate)
        return Reading(recount(curve, base, trained), reading.margin, reading.error)

    here = reading.states()
    tips = []
    for statement, value in vars(states).items():
        # What further looks decide is not in these counts.
        if value in (0, Verdict.UNDECIDED) or getattr(here, statement) != value:
            continue
        claims_loss = value in (Verdict.YES, -1)
        if statement == "gained":
            claims_loss = value is Verdict.NO
        arm = "base" if claims_loss else "trained"
        counts = curve.base if arm == "base" else curve.trained
        most = largest_false_right(counts)

        def stands(rate: float, name: str = statement, said: object = value, of: str = arm) -> bool:
            other = at(of, rate)
            if name in ("lost", "gained"):
                return other.side(name).verdict(other.margin, other.error) is said
            return other.signs()[name == "first"] == said

        tips.append(Tip(statement, arm, *_largest(stands, counts.false_right, most, reading.k)))
    return tuple(tips)


def _largest(
    stands: Callable[[float], bool], start: float, most: float, k: int
) -> tuple[float, bool]:
    """Largest rate, in one digit, at which a statement stands, and whether it is all there is."""
    if most <= start or stands(most):
        return max(most, start), True
    exponents = range(math.floor(math.log10(0.01 / k)), 0)
    rates = [digit * 10.0**exponent for exponent in exponents for digit in _DIGITS]
    rates = [rate for rate in rates if start < rate < most]
    survived, falls = -1, len(rates)
    while falls - survived > 1:
        middle = (survived + falls) // 2
        if stands(rates[middle]):
            survived = middle
        else:
            falls = middle
    return (rates[survived] if survived >= 0 else start), False
