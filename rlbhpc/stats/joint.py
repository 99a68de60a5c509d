r"""The joint distribution of a problem's two rates, base and trained, fitted without a family.

Rates are put on the scale of hazards, :math:`h = -\log(1-p)`: a model with a tenth of the hazard
needs ten times the samples, exactly. The distribution is a histogram over a grid of hazards of the
two arms, with masses at rate 0 and at rate 1, and its likelihood

.. math:: \ell(g) = \sum_i \log \sum_{j,l} g_{jl}\,
          \Pr[c_i^{\text{base}} \mid \text{bin } j]\, \Pr[c_i^{\text{trained}} \mid \text{bin } l]

is concave in the masses g: there is one maximum, whichever arm is called the base. It is found by
the EM algorithm. A stopping rule for the samples does not change the likelihood.

A problem is *lost* if the base solves it in k samples, :math:`h \ge 10^{1/3}/k`, which is 88 of
100 draws of k, if the trained model does not, and if it would need at least ``FACTOR`` times the
samples of the base; *gained* is the mirror image. Masses may be held to a given share of lost
problems, which gives likelihood ratios: how much worse do the counts fit if nothing, or so much,
was lost?

Kiefer and Wolfowitz (1956), "Consistency of the maximum likelihood estimator in the presence of
infinitely many incidental parameters"; Laird (1978), "Nonparametric maximum likelihood estimation
of a mixing distribution".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.stats.counts import Counts
from rlbhpc.stats.exact import clopper_pearson
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.seeds import seed_variance

if TYPE_CHECKING:
    from scipy import sparse


#: How many times the samples a lost problem needs at least.
FACTOR: Final = 10.0
# The groups begin this much above the factor, since two bins tell a ratio no better than to a
# sixth of a decade: with all problems 9.9 times slower, 2 to 3 % of studies claim a loss.
_GUARD: Final = 1.3
#: Multiples of K that a contrast is given at.
MULTIPLES: Final = (1.0, 10.0, math.inf)
# Bins per factor.
_STEPS: Final = 6
# Bins of the factors whose shares are shown: 1.8, 4.3, 10 and 24 times.
_FACTOR_STEPS: Final = (2, 4, _STEPS, 8)
# Bins above 1/k from which on a problem counts as solved in k samples: by 88 of 100 draws of k.
_SOLVED: Final = 2
# Rounds of EM, and the gain in log-likelihood of ten rounds below which it ends.
_ROUNDS: Final = 400
_ENOUGH: Final = 1e-3
# Cells whose likelihood is this far below the best of their region are not stored.
_NEGLIGIBLE: Final = 1e-9
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Fit:
    """A fitted joint distribution.

    ``mass``: mass of every cell of the grid. ``log_likelihood``: at these masses.
    """

    mass: NDArray[np.float64]
    log_likelihood: float


class Joint:
    """Likelihood of the counts of two arms on a grid of pairs of hazards.

    ``rates``: rate in the middle of each bin of an arm. ``row, times``: distinct pair of counts of
    each problem, and how many problems have it. ``lost, gained``: which cells are lost and gained
    problems.
    """

    def __init__(self, base: Counts, trained: Counts, k: int) -> None:
        """Put the counts of the same problems on the grid.

        ``k``: samples within which a problem must be solvable to be lost or gained.
        """
        most = max(int(base.n.max()), int(trained.n.max()), k)
        edges = _edges(k, most)
        middle = np.sqrt(edges[1:] * edges[:-1])
        self.rates = np.concatenate([[0.0], -np.expm1(-middle), [1.0]])
        rows, self.row, self.times = np.unique(
            np.stack([base.n, base.c, trained.n, trained.c]),
            axis=1,
            return_inverse=True,
            return_counts=True,
        )
        ours = _likelihood(rows[0], rows[1], edges, base)
        theirs = _likelihood(rows[2], rows[3], edges, trained)
        self.lost, self.gained = self.groups(_STEPS)
        self.cells, self.scale = _cells(ours, theirs, (self.lost, self.gained))
        self.flipped = self.cells.T.tocsr()

    def fit(
        self,
        start: NDArray[np.float64] | None = None,
        group: NDArray[np.bool_] | None = None,
        share: float = 0.0,
    ) -> Fit:
        """Find the masses that make the counts likeliest.

        ``start``: masses to start from; all equal where not given. ``group, share``: cells whose
        masses must add up to ``share``.
        """
        parts = None if group is None else (np.flatnonzero(group), np.flatnonzero(~group))
        mass = np.full(self.cells.shape[1], 1.0) if start is None else start + 1e-9
        mass = _held(mass, parts, share)
        before, density = -np.inf, self.cells @ mass
        for turn in range(_ROUNDS):
            mass = mass * (self.flipped @ (self.times / density))
            mass = _held(mass, parts, share)
            density = self.cells @ mass
            if turn % 10 == 9:
                now = float(self.times @ np.log(density))
                if now - before < _ENOUGH:
                    break
                before = now
        return Fit(mass, float(self.times @ (np.log(density) + self.scale)))

    def groups(self, steps: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Cells of lost and of gained problems, whose rates are more than so many bins apart."""
        lost = _lost(len(self.rates), steps)
        return lost.ravel(), lost.T.ravel()

    def logs(self, fit: Fit) -> NDArray[np.float64]:
        """Log-likelihood of every distinct pair of counts."""
        return np.asarray(np.log(self.cells @ fit.mass) + self.scale)

    def contrast(self, fit: Fit, k: float) -> float:
        """Trained minus base at k, which may be infinite."""
        mass = fit.mass.reshape(len(self.rates), -1)
        fail = (1 - self.rates) ** k
        return float((mass.sum(axis=1) - mass.sum(axis=0)) @ fail)

    def chances(self, fit: Fit, group: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Chance of every distinct pair of counts to be of a problem of this group."""
        density = self.cells @ fit.mass
        return np.asarray((self.cells @ np.where(group, fit.mass, 0.0)) / density)


def _held(
    mass: NDArray[np.float64],
    parts: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    share: float,
) -> NDArray[np.float64]:
    """Scale masses so that they add up to 1, and those of the first part of them to ``share``."""
    if parts is None:
        return np.asarray(mass / mass.sum())
    # Cells in which no count has any likelihood end at 0, and stay there.
    inside, outside = (max(mass[part].sum(), _TINY) for part in parts)
    scale = np.full(len(mass), (1 - share) / outside)
    scale[parts[0]] = share / inside
    return np.asarray(mass * scale)


def _edges(k: int, most: int) -> NDArray[np.float64]:
    """Edges of the bins of hazards, from far below 1/k to where a failure is never seen."""
    step = np.log(FACTOR * _GUARD) / _STEPS
    top = max(int(np.ceil(np.log(np.log(4.0 * most) * k) / step)), _SOLVED + 1)
    return np.asarray(np.exp(step * np.arange(-_STEPS, top + 1)) / k)


def _likelihood(
    n: NDArray[np.int64], c: NDArray[np.int64], edges: NDArray[np.float64], arm: Counts
) -> NDArray[np.float64]:
    """Log-likelihood of every count (rows) in every bin (columns), up to a constant of the row.

    Within a bin rates are uniform, so that no count falls between two bins. The verifier's errors
    are those of the arm.
    """
    nodes, weight = np.polynomial.legendre.leggauss(6)
    low, high = -np.expm1(-edges[:-1]), -np.expm1(-edges[1:])
    rates = (low + high) / 2 + (high - low) / 2 * nodes[:, None]
    inside = special.logsumexp(_log_chance(n, c, rates.T, arm), axis=2, b=weight / 2)
    ends = _log_chance(n, c, np.array([[0.0], [1.0]]), arm)[:, :, 0]
    return np.concatenate([ends[:, :1], inside, ends[:, 1:]], axis=1)


def _log_chance(
    n: NDArray[np.int64], c: NDArray[np.int64], rates: NDArray[np.float64], arm: Counts
) -> NDArray[np.float64]:
    """Log-likelihood of counts at rates of right responses, ``[row, *rates]``."""
    right = rates * (1 - arm.missed) + (1 - rates) * arm.false_right
    wrong = rates * arm.missed + (1 - rates) * (1 - arm.false_right)
    hits, misses = (values[:, None, None].astype(np.float64) for values in (c, n - c))
    return np.asarray(special.xlogy(hits, right) + special.xlogy(misses, wrong))


def _lost(levels: int, steps: int) -> NDArray[np.bool_]:
    """Cells ``[base, trained]`` that the base solves and the trained model is far slower at."""
    base, trained = np.arange(levels)[:, None], np.arange(levels)[None, :]
    # Level 0 is rate 0; bins from 1/k on start at 1 + _STEPS.
    solved = _STEPS + _SOLVED
    return np.asarray((base > solved) & (trained <= solved) & (trained < base - steps))


def _cells(
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    groups: tuple[NDArray[np.bool_], NDArray[np.bool_]],
) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Likelihood of every row in every cell, scaled by the row's best, without what is nothing."""
    from scipy import sparse  # a tenth of a second, which only who decides needs

    logs = (ours[:, :, None] + theirs[:, None, :]).reshape(len(ours), -1)
    best = logs.max(axis=1)
    logs = logs - best[:, None]
    keep = np.zeros(logs.shape, bool)
    for group in (*groups, ~(groups[0] | groups[1])):
        top = logs[:, group].max(axis=1, keepdims=True, initial=-np.inf)
        keep[:, group] |= logs[:, group] > top + np.log(_NEGLIGIBLE)
    return sparse.csr_array(np.where(keep, np.exp(logs), 0.0)), best


@dataclass(frozen=True)
class Contrast:
    """Trained minus base at one k, which is infinite in the limit.

    ``fit``: of the joint distribution. ``low, high``: at K the interval of the net, beyond it what
    the samples leave open.
    """

    k: float
    fit: float
    low: float
    high: float


def contrasts(
    joint: Joint, best: Fit, base: Counts, trained: Counts, k: int, net: Interval
) -> tuple[Contrast, ...]:
    r"""Give the contrast at every multiple of K, whose net has an interval.

    K samples say little of rates far below 1/K, and intervals around the fit hold the truth in 76
    to 98 % of studies. So bounds stand beside it that need no model. The share :math:`f(k)` of
    problems that an arm fails is a mean of :math:`(1-p)^k`: it falls, and its logarithm is convex,
    so that for :math:`r \ge 1`

    .. math:: f(K) \left(\frac{f(K)}{f(K/2)}\right)^{2(r-1)} \le f(rK) \le f(K) .

    :math:`f(K/2) - f(K)` is the share of problems first solved in the second half of K samples.
    Where no problem was, it may still be a few percent, so its exact upper bound stands for it.
    """
    return tuple(
        Contrast(
            multiple * k,
            joint.contrast(best, multiple * k),
            max(-1.0, net.low - still_solved(base, k, multiple)),
            min(1.0, net.high + still_solved(trained, k, multiple)),
        )
        for multiple in MULTIPLES
    )


def still_solved(counts: Counts, k: int, multiple: float) -> float:
    """Largest share of problems that are not solved in k samples but may be in ``multiple`` k."""
    half = max(k // 2, 1)
    before, now = 1 - counts.pass_at_k(np.array([half, k])).mean(axis=0)
    if now <= 0 or multiple == 1:
        return 0.0
    if math.isinf(multiple) or half == k:
        return float(now)
    size = len(counts.n)
    solved_late = float(clopper_pearson(size * max(before - now, 0.0), size).high)
    before = min(1.0, now + solved_late)
    return float(now * (1 - (now / before) ** ((multiple - 1) * k / (k - half))))


# A variance of shares below this is rounding.
_CERTAIN: Final = 1e-12
# Fewer trainings than these, if more than one, give a share no interval.
_SEEDS: Final = 5
# Of the root of a deviance, at a bound.
_CLOSE: Final = 0.03


class Verdict(StrEnum):
    """Whether something happened."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """Whether problems were lost, or gained, and how many.

    ``verdict``: ``yes`` where "none" is refuted, ``no`` where the interval lies below the margin.
    ``estimate, low, high``: share of problems, about problems like these; NaN where no sound
    interval exists. ``count``: problems that only this side solved within k samples: exact where
    both arms have k samples of every problem, else the nearest whole number to its unbiased
    estimate. ``problems``: out of how many.
    """

    verdict: Verdict
    estimate: float
    low: float
    high: float
    count: int
    problems: int

    def against(self, margin: float) -> Verdict:
        """Decide with less than the margin as nothing: the fit reaches it, or all is below it."""
        if self.verdict is not Verdict.YES:
            return self.verdict
        if self.high < margin:
            return Verdict.NO
        return Verdict.YES if self.estimate >= margin else Verdict.UNDECIDED


@dataclass(frozen=True)
class Side:
    """Problems lost, or gained, in a fitted joint distribution.

    ``group``: cells of the grid. ``seeds``: trainings that stand under each other in the counts.
    ``unit``: of every row, what was drawn independently of the others: its problem or cluster.
    """

    joint: Joint
    best: Fit
    group: NDArray[np.bool_]
    seeds: int
    unit: NDArray[np.int64]

    @property
    def problems(self) -> int:
        """Number of problems."""
        return len(self.joint.row) // self.seeds

    @property
    def estimate(self) -> float:
        """Share of problems."""
        return min(1.0, float(self.chances.mean()))

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """Chance of every row to belong to the group."""
        return self.joint.chances(self.best, self.group)[self.joint.row]

    @property
    def evidence(self) -> float:
        """Root of the deviance of "none".

        None is lost on average only if none is lost in any training or cluster, so that the test
        needs no spread between these; but the rows of one problem share the counts of the base.
        """
        deviance, rows_of_problem = self._none
        return math.sqrt(deviance / rows_of_problem)

    @cached_property
    def _none(self) -> tuple[float, float]:
        """Deviance of "none", and how many rows of one problem are worth one."""
        deviance, rows = self._deviance(0.0)
        return deviance, _alike(rows, np.tile(np.arange(self.problems), self.seeds))

    @cached_property
    def units(self) -> int:
        """Problems or clusters that were drawn independently."""
        return len(np.unique(self.unit))

    def root_deviance(self, share: float) -> float:
        """Root of the deviance of a share, with rows of one unit worth as many as differ."""
        deviance, rows = self._deviance(share)
        clustered = self.units < self.problems
        return math.sqrt(deviance / (_alike(rows, self.unit) if clustered else self._none[1]))

    def _deviance(self, share: float) -> tuple[float, NDArray[np.float64]]:
        held = self.joint.fit(self.best.mass, self.group, share)
        rows = (self.joint.logs(self.best) - self.joint.logs(held))[self.joint.row]
        return 2 * max(self.best.log_likelihood - held.log_likelihood, 0.0), rows

    def quantile(self, tail: float) -> float:
        """Quantile of a normal variable, of Student's t where clusters are the units."""
        if self.units == self.problems:
            return float(special.ndtri(1 - tail))
        return float(special.stdtrit(max(self.units - 1, 1), 1 - tail))

    def hidden_by_clusters(self, prob: float) -> float:
        """Share that so few clusters may hide, if each is lost as a whole or not at all.

        Where nothing is seen the counts do not tell how much problems of a cluster are alike.
        """
        if self.units == self.problems:
            return 0.0
        sizes = np.bincount(self.unit)
        trials = float(sizes.sum() ** 2 / (sizes**2).sum())
        events = self.estimate * trials
        return float(special.betaincinv(events + 0.5, trials - events + 0.5, (1 + prob) / 2))

    def verdict(self, margin: float, error: float, prob: float = PROB) -> Verdict:
        """Decide at this error, without more fits than it takes."""
        if self.evidence > float(special.ndtri(1 - error / 4)):
            high = self.interval(prob)[1]
            return Finding(Verdict.YES, self.estimate, 0.0, high, 0, 0).against(margin)
        below = max(self.estimate, self.hidden_by_clusters(prob)) < margin
        if below and self.root_deviance(margin) > self.quantile((1 - prob) / 2):
            return Verdict.NO
        return Verdict.UNDECIDED

    def interval(self, prob: float = PROB) -> tuple[float, float]:
        r"""Jeffreys interval of a share of problems of which one cannot be sure.

        With chances :math:`r_i` of belonging to the group, the information about its share s is
        that of :math:`\nu = \sum_i (r_i - s)^2 / s(1-s)` problems that one could be sure of (Louis,
        1982), which takes the rest of the distribution as known. Since it was fitted too, the
        interval is that of :math:`\nu (\nu/P)^3` of them: simulated, that holds 93 to 97 %. Rows of
        one unit count as fewer, and the variance between seeds is added, see
        :mod:`rlbhpc.stats.seeds`. That of two to four seeds is known too badly: with three the
        interval held 92 to 98 %, so there is none.
        """
        if 1 < self.seeds < _SEEDS:
            return math.nan, math.nan
        chances, share = self.chances, self.estimate
        spread = share * (1 - share)
        deviations = chances - share
        rows = len(chances)
        effective = float((deviations**2).sum()) / spread if spread > _CERTAIN else rows
        trials = effective * (effective / rows) ** 3 / _alike(deviations, self.unit)
        tail = (1 - prob) / 2
        trials *= (float(special.ndtri(1 - tail)) / self.quantile(tail)) ** 2
        if self.seeds > 1 and spread > _CERTAIN:
            table = chances.reshape(self.seeds, -1, 1)
            trials = spread / (spread / trials + seed_variance(table).item())
        a, b = share * trials + 0.5, (1 - share) * trials + 0.5
        low, high = special.betaincinv(a, b, [tail, 1 - tail]).tolist()
        return float(low), float(high)


def finding(side: Side, count: float, margin: float, error: float, prob: float = PROB) -> Finding:
    """Decide by the likelihood ratio of "none", and put an interval around the share.

    "None" is refuted at ``error``; the interval, which must end below the margin for a "no", holds
    with ``prob``.
    """
    estimate = side.estimate
    cells = round(count / side.seeds), side.problems
    if side.evidence > float(special.ndtri(1 - error / 4)):
        return Finding(Verdict.YES, estimate, *side.interval(prob), *cells)
    cut = side.quantile((1 - prob) / 2)
    high = 1.0 if estimate > 1 - 1e-6 else _bound(side.root_deviance, cut, estimate, 1.0)
    high = max(high, side.hidden_by_clusters(prob))
    verdict = Verdict.NO if high < margin else Verdict.UNDECIDED
    return Finding(verdict, estimate, 0.0, high, *cells)


@dataclass(frozen=True)
class FactorShare:
    """Shares of problems that need at least ``factor`` times the samples, and their bounds."""

    factor: float
    lost: tuple[float, float, float]
    gained: tuple[float, float, float]


def by_factor(
    side: Side, lost: Finding, gained: Finding, margin: float, error: float
) -> tuple[FactorShare, ...]:
    """Give the shares lost and gained by factor, with the bounds that a finding has.

    ``side``: any side of the joint distribution. ``lost, gained``: what was found at ``FACTOR``.
    """
    step = math.log(FACTOR * _GUARD) / _STEPS
    shares = []
    for steps in _FACTOR_STEPS:
        if steps == _STEPS:
            found = [lost, gained]
        else:
            groups = side.joint.groups(steps)
            found = [finding(replace(side, group=group), 0.0, margin, error) for group in groups]
        bounds = [(share.estimate, share.low, share.high) for share in found]
        shares.append(FactorShare(math.exp(step * steps) / _GUARD, bounds[0], bounds[1]))
    return tuple(shares)


def _alike(values: NDArray[np.float64], unit: NDArray[np.int64]) -> float:
    """How many rows of one unit are worth one: 1 where each has its own, at most all."""
    if len(np.unique(unit)) == len(values):
        return 1.0
    apart = float((values**2).sum())
    together = float((np.bincount(unit, values) ** 2).sum())
    return max(1.0, together / apart) if apart > 0 else float(np.bincount(unit).max())


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
