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

Words of this module: a *level* is one rate of the grid of an arm, a *cell* a pair of levels (base,
trained), and a *row* a distinct pair of counts (base, trained), which several problems may share.

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
#: Multiples of K at which it is said what stays open.
MULTIPLES: Final = (10.0, math.inf)
# Bins of hazards from one to the guarded factor times it.
_BINS_PER_FACTOR: Final = 6
_LOG_BIN_WIDTH: Final = math.log(FACTOR * _GUARD) / _BINS_PER_FACTOR
# Bins of the factors whose shares are shown: 1.8, 4.3, 10 and 24 times.
_SHOWN_BINS_APART: Final = (2, 4, _BINS_PER_FACTOR, 8)
# Bins above 1/k from which on a problem counts as solved in k samples: by 88 of 100 draws of k.
_BINS_TO_SOLVED: Final = 2
# Points of the Gauss–Legendre rule that averages a likelihood over a bin.
_POINTS_PER_BIN: Final = 6
# EM ends after so many rounds, or when this many of them gain less than this log-likelihood.
_MOST_ROUNDS: Final = 400
_ROUNDS_PER_CHECK: Final = 10
_LEAST_GAIN: Final = 1e-3
# Cells whose likelihood is this far below the best of their region are not stored.
_NEGLIGIBLE: Final = 1e-9
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Fit:
    """A fitted joint distribution: mass of every cell, and the log-likelihood at these masses."""

    mass: NDArray[np.float64]
    log_likelihood: float


class JointRates:
    """Likelihood of the counts of two arms on a grid of pairs of hazards.

    ``rates``: rate at each level of an arm: 0, the middles of the bins, 1. ``row_of_problem``:
    the row of each problem. ``problems_in_row``: how many problems have each row. ``lost, gained``:
    whether each cell is one of lost, or of gained problems. ``likelihood``: of each row in each
    cell (rows, cells), sparse, divided by the row's largest, whose logs are ``log_scale``.
    """

    def __init__(self, base: Counts, trained: Counts, k: int) -> None:
        """Put the counts of the same problems on the grid of rates, and compute their likelihoods.

        ``base, trained``: n samples and c right ones of each problem. ``k``: samples within which a
        problem must be solvable to be lost or gained.

        A *level* is one of the rates that an arm may have: 0, the middle of each bin, 1. A *cell*
        is a pair of levels (base, trained), a *row* a distinct quadruple of counts, which several
        problems may share. The bins are even in the log of the hazard, −log(1 − rate); ``edges``
        are their ends. ``lost`` and ``gained`` say of each cell whether its problems were lost, or
        gained; the regions handed on are these two groups and the rest.
        """
        most_samples = max(int(base.n.max()), int(trained.n.max()), k)
        edges = _hazard_edges(k, most_samples)
        bin_middles = np.sqrt(edges[1:] * edges[:-1])
        self.rates = np.concatenate([[0.0], -np.expm1(-bin_middles), [1.0]])
        rows, self.row_of_problem, self.problems_in_row = np.unique(
            np.stack([base.n, base.c, trained.n, trained.c]),
            axis=1,
            return_inverse=True,
            return_counts=True,
        )
        self.lost, self.gained = self.lost_and_gained(_BINS_PER_FACTOR)
        self.likelihood, self.log_scale = _cell_likelihoods(
            _level_log_likelihoods(rows[0], rows[1], edges, base),
            _level_log_likelihoods(rows[2], rows[3], edges, trained),
            regions=(self.lost, self.gained, ~(self.lost | self.gained)),
        )
        self._likelihood_by_cell = self.likelihood.T.tocsr()

    def fit(
        self,
        start: NDArray[np.float64] | None = None,
        group: NDArray[np.bool_] | None = None,
        share: float = 0.0,
    ) -> Fit:
        """Find the masses of the cells that make the counts likeliest, by the EM algorithm.

        A *cell* is a pair of rates (base, trained) and its mass the share of problems that have
        them. A *row* is a distinct set of counts of the two arms, ``problems_in_row`` how many
        problems have it, and ``likelihood`` (rows, cells) its chance in each cell, divided by the
        largest of the row, whose log is ``log_scale``. ``density`` is the chance of each row under
        the masses.

        ``start``: masses to start from; all equal where not given. ``group, share``: cells whose
        masses must add up to ``share``, to see how much worse the counts then fit.

        Each round multiplies the mass of a cell by a mean over problems: how much likelier this
        cell makes a problem's counts than all masses together do. It ends when the log-likelihood
        stops rising. Masses that start at 0 would stay there, hence the 1e-9.
        """
        mass = np.full(self.likelihood.shape[1], 1.0) if start is None else start + 1e-9
        mass = _normalize(mass, group, share)
        density = self.likelihood @ mass
        log_likelihood = -np.inf
        for em_round in range(1, _MOST_ROUNDS + 1):
            # The EM step: each problem is shared out among the cells by how well they explain it.
            mass = mass * (self._likelihood_by_cell @ (self.problems_in_row / density))
            mass = _normalize(mass, group, share)
            density = self.likelihood @ mass
            if em_round % _ROUNDS_PER_CHECK:
                continue
            last_log_likelihood = log_likelihood
            log_likelihood = float(self.problems_in_row @ np.log(density))
            if log_likelihood - last_log_likelihood < _LEAST_GAIN:
                break
        return Fit(mass, float(self.problems_in_row @ (np.log(density) + self.log_scale)))

    def lost_and_gained(self, bins_apart: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which cells are of lost, and which of gained problems.

        A *level* is one of the rates that an arm may have, numbered from 0 in rising order; a
        *cell* is a pair of levels (base, trained), and the arrays say of each whether it belongs. A
        problem is lost if the base solves it in k samples, the trained model does not, and the two
        rates are more than ``bins_apart`` levels apart; gained is the mirror image.
        """
        levels = np.arange(len(self.rates))
        base, trained = levels[:, None], levels[None, :]
        # Level 0 is rate 0, and the bins start one factor below 1/k.
        highest_unsolved = _BINS_PER_FACTOR + _BINS_TO_SOLVED
        only_base_solves = (base > highest_unsolved) & (trained <= highest_unsolved)
        lost = only_base_solves & (trained < base - bins_apart)
        # Gained is lost with the arms exchanged.
        return lost.ravel(), lost.T.ravel()

    def row_log_likelihoods(self, fit: Fit) -> NDArray[np.float64]:
        """Log-likelihood of every row."""
        return np.asarray(np.log(self.likelihood @ fit.mass) + self.log_scale)

    def chances(self, fit: Fit, group: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Chance that a problem with the counts of each row belongs to a group of cells."""
        density = self.likelihood @ fit.mass
        density_of_group = self.likelihood @ np.where(group, fit.mass, 0.0)
        return np.asarray(density_of_group / density)


def _normalize(
    mass: NDArray[np.float64], group: NDArray[np.bool_] | None, share: float
) -> NDArray[np.float64]:
    """Scale masses so that they add up to 1, and those of the group of cells to ``share``.

    A *cell* is a pair of rates (base, trained); its mass is the share of problems that have them.
    ``group``: whether each cell is in the group; without it there is only the first condition.
    """
    if group is None:
        return np.asarray(mass / mass.sum())
    # Cells in which no count has any likelihood end at 0, and stay there.
    inside = max(mass[group].sum(), _TINY)
    outside = max(mass[~group].sum(), _TINY)
    return np.asarray(mass * np.where(group, share / inside, (1 - share) / outside))


def _hazard_edges(k: int, most_samples: int) -> NDArray[np.float64]:
    """Edges of the bins of hazards, from one factor below 1/k to where no failure is ever seen."""
    largest_hazard = math.log(4.0 * most_samples)
    bins_above = math.ceil(math.log(largest_hazard * k) / _LOG_BIN_WIDTH)
    bins_above = max(bins_above, _BINS_TO_SOLVED + 1)
    steps = np.arange(-_BINS_PER_FACTOR, bins_above + 1)
    return np.asarray(np.exp(_LOG_BIN_WIDTH * steps) / k)


def _level_log_likelihoods(
    n: NDArray[np.int64], c: NDArray[np.int64], edges: NDArray[np.float64], arm: Counts
) -> NDArray[np.float64]:
    """Log-likelihood of c right of n samples (rows) at every level of an arm (columns).

    A *level* is one of the rates that an arm may have: 0, each bin of the grid, 1. A bin's
    likelihood is the mean over the rates in it, so that no count falls between two bins;
    Gauss–Legendre quadrature takes that mean at a few points, with weights that add up to 2. The
    binomial coefficient is left out: it is the same at every level.

    ``edges``: ends of the bins as hazards h, where the rate is 1 − exp(−h). ``arm``: gives the
    error rates of the verifier.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS_PER_BIN)
    low_rates, high_rates = -np.expm1(-edges[:-1]), -np.expm1(-edges[1:])
    middles, half_widths = (low_rates + high_rates) / 2, (high_rates - low_rates) / 2
    # Rates in each bin (bins, points) at which the likelihood is taken.
    points = middles[:, None] + half_widths[:, None] * nodes
    in_bins = special.logsumexp(_log_chance(n, c, points, arm), axis=2, b=weights / 2)
    never_and_always = _log_chance(n, c, np.array([[0.0], [1.0]]), arm)[:, :, 0]
    return np.concatenate([never_and_always[:, :1], in_bins, never_and_always[:, 1:]], axis=1)


def _log_chance(
    n: NDArray[np.int64], c: NDArray[np.int64], rates: NDArray[np.float64], arm: Counts
) -> NDArray[np.float64]:
    """Log-likelihood of c of n verdicts "right" at rates of right responses (rows, *rates).

    A verdict is "right" for a right response that is not missed, and for a wrong one that the
    verifier takes for right. ``n, c``: of each row. ``rates``: 2-d array of rates. ``arm``: gives
    the verifier's two error rates. The binomial coefficient is left out.
    """
    judged_right = rates * (1 - arm.missed) + (1 - rates) * arm.false_right
    judged_wrong = rates * arm.missed + (1 - rates) * (1 - arm.false_right)
    hits = c[:, None, None].astype(np.float64)
    misses = (n - c)[:, None, None].astype(np.float64)
    return np.asarray(special.xlogy(hits, judged_right) + special.xlogy(misses, judged_wrong))


def _cell_likelihoods(
    base: NDArray[np.float64],
    trained: NDArray[np.float64],
    regions: tuple[NDArray[np.bool_], ...],
) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Likelihood of every row in every cell, divided by the row's best, and logs of the best.

    A *row* is a distinct set of counts of the two arms, a *level* one of the rates that an arm may
    have, and a *cell* a pair of levels (base, trained). Given its cell, the counts of the two arms
    are independent, so their log-likelihoods add up. Dividing by the row's best keeps the numbers
    from underflow.

    ``base, trained``: log-likelihoods of each row at each level of the arm (rows, levels).
    ``regions``: groups of cells, such as those of lost problems. In each, cells whose likelihood is
    negligible beside the group's best are left out, which makes the matrix (rows, cells) sparse; a
    group as a whole is never lost by it.
    """
    from scipy import sparse  # a tenth of a second, which only who decides needs

    logs = (base[:, :, None] + trained[:, None, :]).reshape(len(base), -1)
    best = logs.max(axis=1)
    logs = logs - best[:, None]
    keep = np.zeros(logs.shape, bool)
    for region in regions:
        best_of_region = logs[:, region].max(axis=1, keepdims=True, initial=-np.inf)
        keep[:, region] = logs[:, region] > best_of_region + np.log(_NEGLIGIBLE)
    return sparse.csr_array(np.where(keep, np.exp(logs), 0.0)), best


@dataclass(frozen=True)
class Beyond:
    """What the samples leave open of trained minus base at more than K, infinite in the limit."""

    k: float
    low: float
    high: float


def beyond_samples(base: Counts, trained: Counts, k: int, net: Interval) -> tuple[Beyond, ...]:
    r"""Bounds of trained minus base pass@k at multiples of K, which need no model of the rates.

    ``k``: K, the samples of the study. ``net``: interval of the difference at K itself.

    A fit says nothing here: the likelihood is flat. K samples can hardly tell a rate far below 1/K
    from 0, and moving that mass from one to the other costs a deviance of less than 2 and moves the
    fitted difference at 10 K by 4 to 23 points. But the share :math:`f(k)` of problems that an arm
    fails is a mean of :math:`(1-p)^k` over their rates p: it falls, and its logarithm is convex, so
    that for :math:`r \ge 1`

    .. math:: f(K) \left(\frac{f(K)}{f(K/2)}\right)^{2(r-1)} \le f(rK) \le f(K) .

    :math:`f(K/2) - f(K)` is the share of problems first solved in the second half of K samples.
    Where no problem was, it may still be a few percent, so its exact upper bound stands for it.

    ``still_solved`` gives how far the share solved by one arm may rise beyond K. The base's rise
    can only lower the difference, the trained model's only raise it.
    """
    return tuple(
        Beyond(
            k=multiple * k,
            low=max(-1.0, net.low - still_solved(base, k, multiple)),
            high=min(1.0, net.high + still_solved(trained, k, multiple)),
        )
        for multiple in MULTIPLES
    )


def still_solved(counts: Counts, k: int, multiple: float) -> float:
    """Largest share of problems that are not solved in k samples but may be in ``multiple`` k.

    The share f that fails has a convex logarithm over k, so it falls by no larger a factor in any
    later stretch of k/2 samples than it did from k/2 to k. ``halves`` is the number of such
    stretches up to ``multiple`` k. The fall seen from k/2 to k is replaced by its exact upper bound
    (Clopper and Pearson), since seeing no fall does not rule one out. With infinitely many samples,
    all that fail may be solved.
    """
    half_k = max(k // 2, 1)
    failed_half, failed = (1 - counts.pass_at_k(np.array([half_k, k])).mean(axis=0)).tolist()
    if failed <= 0:
        return 0.0
    if math.isinf(multiple) or half_k == k:
        return float(failed)
    problems = len(counts)
    solved_late = clopper_pearson(problems * max(failed_half - failed, 0.0), problems).high
    failed_half = min(1.0, failed + solved_late)
    # How many times the step from k/2 to k fits between k and ``multiple`` k.
    halves = (multiple - 1) * k / (k - half_k)
    return float(failed * (1 - (failed / failed_half) ** halves))


# A variance of shares below this is rounding.
_CERTAIN: Final = 1e-12
# Fewer trainings than these, if more than one, give a share no interval.
_LEAST_SEEDS: Final = 5


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

    ``group``: which cells. ``seeds``: trainings that stand under each other in the counts, so that
    a problem occurs that many times. ``unit``: of every occurrence, what was drawn independently
    of the others: its problem or its cluster.
    """

    joint: JointRates
    best: Fit
    group: NDArray[np.bool_]
    seeds: int
    unit: NDArray[np.int64]

    @property
    def problems(self) -> int:
        """Number of problems."""
        return len(self.joint.row_of_problem) // self.seeds

    @property
    def estimate(self) -> float:
        """Share of problems."""
        return min(1.0, float(self.chances.mean()))

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """Chance of every problem to belong to the group."""
        return self.joint.chances(self.best, self.group)[self.joint.row_of_problem]

    @cached_property
    def units(self) -> int:
        """Problems or clusters that were drawn independently."""
        return len(np.unique(self.unit))

    @property
    def has_clusters(self) -> bool:
        """Whether problems share clusters."""
        return self.units < self.problems

    @property
    def evidence(self) -> float:
        """Root of the deviance of "none".

        None is lost on average only if none is lost in any training or cluster, so that the test
        needs no spread between these; but the trainings of one problem share the counts of the
        base.
        """
        deviance, trainings_worth_one = self._deviance_of_none
        return math.sqrt(deviance / trainings_worth_one)

    @cached_property
    def _deviance_of_none(self) -> tuple[float, float]:
        """Deviance of "none", and how many trainings of one problem tell as much as one."""
        deviance, gains = self._deviance(0.0)
        problem = np.tile(np.arange(self.problems), self.seeds)
        return deviance, _worth_one(gains, problem)

    def root_deviance(self, share: float) -> float:
        """Root of the deviance of a share; problems of a cluster count as many as differ."""
        deviance, gains = self._deviance(share)
        if self.has_clusters:
            return math.sqrt(deviance / _worth_one(gains, self.unit))
        return math.sqrt(deviance / self._deviance_of_none[1])

    def _deviance(self, share: float) -> tuple[float, NDArray[np.float64]]:
        """Twice the log-likelihood that holding the share costs, and the cost of every problem."""
        joint = self.joint
        held = joint.fit(self.best.mass, self.group, share)
        row_costs = joint.row_log_likelihoods(self.best) - joint.row_log_likelihoods(held)
        deviance = 2 * max(self.best.log_likelihood - held.log_likelihood, 0.0)
        return deviance, row_costs[joint.row_of_problem]

    def quantile(self, tail: float) -> float:
        """Quantile of a normal variable, of Student's t where clusters are the units."""
        if not self.has_clusters:
            return float(special.ndtri(1 - tail))
        return float(special.stdtrit(max(self.units - 1, 1), 1 - tail))

    def hidden_by_clusters(self, prob: float) -> float:
        """Share that so few clusters may hide, if each is lost as a whole or not at all.

        Where nothing is seen the counts do not tell how much problems of a cluster are alike.
        """
        if not self.has_clusters:
            return 0.0
        sizes = np.bincount(self.unit)
        clusters = float(sizes.sum() ** 2 / (sizes**2).sum())
        return float(_jeffreys_bounds(self.estimate, clusters, prob)[1])

    def refutes_none(self, error: float) -> bool:
        """Whether "none" is refuted, by a one-sided test at a quarter of the error."""
        return self.evidence > float(special.ndtri(1 - error / 4))

    def verdict(self, margin: float, error: float, prob: float = PROB) -> Verdict:
        """Decide whether at least the share ``margin`` of problems was lost (or gained).

        "None was lost" is refuted by a one-sided likelihood-ratio test; then the estimate and its
        upper bound are held against the margin. Otherwise the answer is no only if the estimate
        lies below the margin and the counts refute a share as large as it: its root deviance (the
        root of twice the log-likelihood that holding the share costs) is beyond the quantile.

        ``error``: error of the test of "none". ``prob``: probability of the interval.
        ``hidden_by_clusters``: the share that so few clusters may hide. No more fits are made than
        it takes.

        In all other cases it is undecided.
        """
        if self.refutes_none(error):
            high = self.interval(prob)[1]
            return Finding(Verdict.YES, self.estimate, 0.0, high, 0, 0).against(margin)
        below_margin = max(self.estimate, self.hidden_by_clusters(prob)) < margin
        if below_margin and self.root_deviance(margin) > self.quantile((1 - prob) / 2):
            return Verdict.NO
        return Verdict.UNDECIDED

    def interval(self, prob: float = PROB) -> tuple[float, float]:
        r"""Jeffreys interval of the share of problems in the group, as lower and upper bound.

        No problem's membership is certain; ``chances`` holds, for every problem, the chance
        :math:`r_i` that it belongs. The information about their share s is that of :math:`\nu =
        \sum_i (r_i - s)^2 / s(1-s)` problems that one could be sure of (Louis, 1982), which takes
        the rest of the distribution as known. Since it was fitted too, the interval is that of
        :math:`\nu (\nu/P)^3` of them, for P problems: simulated, that holds 93 to 97 %.

        Problems of one *unit* (cluster) count as fewer: ``_worth_one`` says how many of them tell
        as much as one. ``quantile`` is Student's where clusters are the units, which reduces the
        trials further. The variance between trainings (``seeds``) is added, see
        :mod:`rlbhpc.stats.seeds`. That of two to four seeds is known too badly: with three the
        interval held 92 to 98 %, so there is none, and the bounds are NaN.
        """
        if 1 < self.seeds < _LEAST_SEEDS:
            return math.nan, math.nan
        share = self.estimate
        deviations = self.chances - share
        variance = share * (1 - share)
        total = len(deviations)
        # Problems that one could be sure of and that would tell as much.
        sure = float((deviations**2).sum()) / variance if variance > _CERTAIN else total
        trials = sure * (sure / total) ** 3 / _worth_one(deviations, self.unit)
        tail = (1 - prob) / 2
        # Few clusters know the spread badly: fewer trials widen the interval as Student's t would.
        trials *= (float(special.ndtri(1 - tail)) / self.quantile(tail)) ** 2
        if self.seeds > 1 and variance > _CERTAIN:
            between_seeds = seed_variance(self.chances.reshape(self.seeds, -1, 1)).item()
            trials = variance / (variance / trials + between_seeds)
        low, high = _jeffreys_bounds(share, trials, prob).tolist()
        return float(low), float(high)

    def upper_bound(self, prob: float = PROB) -> float:
        """Bound where the root of the deviance reaches the quantile, or what clusters may hide."""
        high = 1.0
        if self.estimate <= 1 - 1e-6:
            cut = self.quantile((1 - prob) / 2)
            high = _share_at(self.root_deviance, cut, self.estimate, 1.0)
        return max(high, self.hidden_by_clusters(prob))


def finding(side: Side, count: float, margin: float, error: float, prob: float = PROB) -> Finding:
    """Whether problems were lost (or gained) on this side, and an interval of their share.

    ``side``: the lost, or the gained, problems in the fitted distribution of pairs of rates (base,
    trained). ``count``: problems that only one arm solved, summed over trainings. ``margin``: share
    below which a loss counts as nothing. "None" is refuted at ``error``, by the likelihood ratio;
    the interval, which must end below the margin for a "no", holds with ``prob``.
    """
    if side.refutes_none(error):
        verdict = Verdict.YES
        low, high = side.interval(prob)
    else:
        low, high = 0.0, side.upper_bound(prob)
        verdict = Verdict.NO if high < margin else Verdict.UNDECIDED
    only_this_side = round(count / side.seeds)
    return Finding(verdict, side.estimate, low, high, only_this_side, side.problems)


@dataclass(frozen=True)
class FactorShare:
    """Shares of problems that need at least ``factor`` times the samples.

    ``lost, gained``: estimate, lower and upper bound.
    """

    factor: float
    lost: tuple[float, float, float]
    gained: tuple[float, float, float]


def by_factor(
    side: Side, lost: Finding, gained: Finding, margin: float, error: float
) -> tuple[FactorShare, ...]:
    """Shares of problems lost and gained, each by how many times the samples they need.

    ``side``: either side of the fitted distribution; only its grid and fit are used. ``lost,
    gained``: what was found at the factor of the study, which is not computed again. ``margin,
    error``: as in :func:`finding`.

    Bins are even in the log of the hazard, −log(1 − rate), so a distance in bins is a factor.
    ``lost_and_gained`` says which pairs of rates are at least so far apart. The factor that is
    stated is smaller than that of the bins by ``_GUARD``, since two bins tell a ratio only roughly.
    """
    shares = []
    for bins_apart in _SHOWN_BINS_APART:
        findings = [lost, gained]
        if bins_apart != _BINS_PER_FACTOR:
            findings = [
                finding(replace(side, group=group), 0.0, margin, error)
                for group in side.joint.lost_and_gained(bins_apart)
            ]
        # The bins are this much wider than the factor that they stand for.
        factor = math.exp(_LOG_BIN_WIDTH * bins_apart) / _GUARD
        bounds = [(share.estimate, share.low, share.high) for share in findings]
        shares.append(FactorShare(factor, lost=bounds[0], gained=bounds[1]))
    return tuple(shares)


def _jeffreys_bounds(share: float, trials: float, prob: float) -> NDArray[np.float64]:
    """Jeffreys interval of a share out of a number of trials, which need not be whole."""
    tail = (1 - prob) / 2
    successes, failures = share * trials + 0.5, (1 - share) * trials + 0.5
    return np.asarray(special.betaincinv(successes, failures, [tail, 1 - tail]))


def _worth_one(values: NDArray[np.float64], unit: NDArray[np.int64]) -> float:
    """How many values of one unit tell as much as one: 1 where they are unrelated, at most all.

    If the values of a unit (a cluster, or one problem in several trainings) are unrelated, the
    squares of their sums add up to the sum of their squares; if they go together, to more. The
    ratio is the design effect by which the information shrinks. With all values 0 nothing is known,
    and the largest unit is taken.

    ``values``: deviations or gains, one entry per problem and training. ``unit``: label of each
    value, a number from 0.
    """
    if len(np.unique(unit)) == len(values):
        return 1.0
    sum_of_squares = float((values**2).sum())
    square_of_sums = float((np.bincount(unit, values) ** 2).sum())
    if sum_of_squares <= 0:
        return float(np.bincount(unit).max())
    return max(1.0, square_of_sums / sum_of_squares)


# Steps of the search for a bound, and how near the root of the deviance has to come.
_MOST_STEPS: Final = 12
_CLOSE: Final = 0.03
# A step beyond where a straight line would pass the cut, to have it enclosed; most of the way to
# the edge.
_OVERSHOOT: Final = 1.2
_MOST_OF_THE_WAY: Final = 0.9


def _share_at(
    root_deviance: Callable[[float], float], cut: float, estimate: float, edge: float
) -> float:
    """Find the share between the estimate and the edge at which the root deviance is ``cut``.

    The root deviance of a share is the root of twice the log-likelihood that holding it costs. It
    is 0 at the estimate and rises nearly as a straight line, so that false position takes few
    steps; each step costs a fit.

    ``cut``: quantile that the bound has to reach. ``edge``: 0 or 1, the end of the search.
    ``inside, depth``: share that is still short of the cut, and its root deviance. ``outside,
    depth_outside``: the same beyond the cut, infinite until one is found. Until then the slope from
    the estimate says where the cut may be, and a step goes a little further to get past it.
    """
    inside, depth = estimate, 0.0
    outside, depth_outside = edge, math.inf
    # One problem more or fewer moves the bound by about this much.
    share = estimate + (edge - estimate) / 16
    for _ in range(_MOST_STEPS):
        reached = root_deviance(share)
        if abs(reached - cut) < _CLOSE:
            return share
        if reached < cut:
            inside, depth = share, reached
        else:
            outside, depth_outside = share, reached
        if not math.isinf(depth_outside):
            share = inside + (outside - inside) * (cut - depth) / (depth_outside - depth)
            continue
        slope = depth / abs(inside - estimate) if depth > 0 else 0.0
        step = _OVERSHOOT * (cut - depth) / slope if slope > 0 else abs(edge - inside) / 2
        step = min(step, abs(edge - inside) * _MOST_OF_THE_WAY)
        share = inside + math.copysign(step, edge - estimate)
    return share
