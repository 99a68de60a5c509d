r"""The difference of two pass@k curves, with bands, and the test that anything moved at all.

.. math:: D(k) = \frac1P \sum_i \big(\hat\pi^{\text{trained}}_i(k) - \hat\pi^{\text{base}}_i(k)\big)

is paired over problems. Two intervals stand at each k: *pointwise*, for the question about one k
that was fixed beforehand, and the *band*, which holds the whole curve at once and is what any
statement like "ahead up to k = 31, behind from 60 on" must be read from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.crossings import Crossing, crossing
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.paired import around, carriers, paired_error, paired_interval
from rlbhpc.stats.weights import ProblemWeights

#: The K of the study.
LARGE_K: Final = 256
# Below this a difference of means is rounding.
_TINY: Final = 1e-12


@dataclass(frozen=True)
class DifferenceCurve:
    """Trained minus base, at each k.

    ``pointwise``: interval at each single k. ``carriers``: how many problems carry the spread of
    the differences, see :mod:`rlbhpc.stats.paired`. ``support, informative``: as in
    :class:`~rlbhpc.stats.curve.PassCurve`, for both arms. ``base, trained``: the counts behind the
    curve. ``differences, weights``: difference of every problem at every k, and the bootstrap
    weights of the report. ``seeds``: trainings that stand under each other in the counts.
    """

    k: NDArray[np.int64]
    pointwise: Interval
    carriers: NDArray[np.float64]
    support: NDArray[np.int64]
    informative: NDArray[np.bool_]
    base: Counts = field(repr=False)
    trained: Counts = field(repr=False)
    differences: NDArray[np.float64] = field(repr=False)
    weights: ProblemWeights = field(repr=False)
    seeds: int = 1

    @cached_property
    def replicates(self) -> NDArray[np.float64]:
        """Bootstrap replicates of D, ``[replicate, k]``."""
        return self.weights.means(self.differences)

    @cached_property
    def band(self) -> Interval:
        """Simultaneous band: the probability that it holds the whole curve."""
        return _band(self.differences, self.replicates, self.weights, self.pointwise.prob)

    @cached_property
    def crossing(self) -> Crossing:
        """Where the two curves may cross."""
        return crossing(self)

    @cached_property
    def p_moved(self) -> float:
        """Sign-flip p-value of "the two models differ at some k", exact where nothing moved."""
        return _sign_flip_p(self.differences, self.weights)


def difference_curve(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> DifferenceCurve:
    """Trained minus base pass@k over problems, with pointwise and simultaneous intervals.

    ``base, trained``: counts of the two arms, the same problems in the same order. ``weights``:
    bootstrap weights of the report, shared by all its curves. ``k``: draw sizes; a log-spaced grid
    up to the least n of both where not given. ``prob``: nominal probability of both intervals.

    >>> weights = ProblemWeights.draw(4, np.random.default_rng(0))
    >>> curve = difference_curve(
    ...     Counts.of(8, [0, 1, 4, 8]), Counts.of(8, [0, 0, 8, 8]), weights, [1, 8]
    ... )
    >>> curve.pointwise.estimate
    array([ 0.09375, -0.25   ])
    """
    check_paired(base, trained)
    reach = min(base.reach, trained.reach)
    sizes = as_sizes(reach if k is None else k)
    differences = trained.pass_at_k(sizes) - base.pass_at_k(sizes)
    return DifferenceCurve(
        sizes,
        paired_interval(differences, weights, prob),
        carriers(differences),
        np.minimum(base.support(sizes), trained.support(sizes)),
        4 * sizes <= reach,
        base,
        trained,
        differences,
        weights,
    )


def delta_se(base_at_k: ArrayLike, trained_at_1: ArrayLike) -> NDArray[np.float64]:
    r"""Difference of two published or computed values, pass@K of the base minus trained pass@1.

    .. math:: \Delta_{SE} = \text{pass@}K^{\text{base}} - \text{pass@}1^{\text{trained}},
              \qquad K = 256 .

    Smaller is better: 0 would mean that training turned all that the base can reach into pass@1.
    ``base_at_k, trained_at_1``: values in the same unit (rates or percent); they broadcast.

    Yue et al. (2025), arXiv:2504.13837, section 4.

    >>> delta_se(67.2, [26.1, 27.2]).round(1)
    array([41.1, 40. ])
    """
    return np.subtract(base_at_k, trained_at_1, dtype=np.float64)


def delta_se_interval(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    k: int = LARGE_K,
    prob: float = PROB,
) -> Interval:
    """Sampling-efficiency gap with a paired population interval.

    The two terms have different k, so nearly all noise of sampling is the base's. Where k is
    above n/4 a note says so.

    >>> from rlbhpc.stats.examples import pythia
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> gap = delta_se_interval(models["2.8B"], models["6.9B"], weights)
    >>> round(float(gap.estimate), 4)
    0.5258
    """
    check_paired(base, trained)
    gap = paired_interval(base.pass_at_k(k) - trained.pass_at_k(1), weights, prob)[0]
    if 4 * k > base.reach:
        far = f"pass@{k} of the base is taken from n = {base.reach}: fewer than four draws"
        gap = replace(gap, notes=(*gap.notes, far))
    return gap


def _band(
    differences: NDArray[np.float64],
    replicates: NDArray[np.float64],
    weights: ProblemWeights,
    prob: float,
) -> Interval:
    """Sup-t band: one multiple of the standard error that holds at all k together."""
    mean = differences.mean(axis=0)
    raw = weights.standard_error(differences)
    varies = (raw > _TINY) & np.isfinite(raw)
    if varies.any():
        excess = np.abs(replicates - mean)[:, varies] / raw[varies]
        critical = float(np.quantile(excess.max(axis=1), prob)) * weights.inflation
    else:
        critical = float(special.ndtri((1 + prob) / 2))
    # The bootstrap's maximum has normal tails; few units have Student's.
    level = special.ndtr(critical)
    critical = float(special.stdtrit(max(weights.units - 1, 1), level))
    half = critical * paired_error(differences, weights, 1.0)
    method = "paired problem bootstrap, sup-t with two pseudo-problems"
    return around(mean, half, method, prob, np.asarray(weights.units >= 20))


def _sign_flip_p(differences: NDArray[np.float64], weights: ProblemWeights) -> float:
    """Share of sign flips whose largest t, over all k, is at least the observed one.

    If nothing moved, a problem's two arms could be exchanged, which turns the sign of its whole
    difference curve: the p-value is then exact for any number of problems.
    """
    has_value = ~np.isnan(differences).any(axis=0)
    d = differences[:, has_value]
    squares = (d**2).sum(axis=0)
    varies = squares > _TINY
    if not varies.any():
        return 1.0
    d, squares, problems = d[:, varies], squares[varies], len(d)
    pseudo = 2 * np.maximum.accumulate(np.abs(d).max(axis=0)) ** 2

    def largest_t(means: NDArray[np.float64]) -> NDArray[np.float64]:
        rest = np.maximum(squares - problems * means**2, 0) + pseudo
        return np.asarray((np.abs(means) / np.sqrt(rest)).max(axis=-1))

    observed = largest_t(d.mean(axis=0))
    flipped = largest_t(weights.signs.astype(np.float64) @ d / problems)
    return float((1 + (flipped >= observed * (1 - 1e-9)).sum()) / (1 + len(flipped)))
