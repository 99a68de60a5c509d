r"""Several trainings of one recipe as one trained arm, with the spread between them.

The difference of problem i in the training of seed j is :math:`m + a_i + b_j + e_{ij}`: the mean,
what is particular to the problem, to the training, and the rest. The variance of the mean over P
problems and S seeds is

.. math:: \frac{\sigma_a^2}{P} + \frac{\sigma_b^2}{S} + \frac{\sigma_e^2}{PS},

with the components of a two-way analysis of variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.stats.counts import Counts
from rlbhpc.stats.difference import DifferenceCurve, difference_curve
from rlbhpc.stats.interval import PROB, ProblemWeights, carriers, paired_error, pseudo_weight


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a difference.

    ``problems, seeds, rest``: between problems, between trainings, and of what is particular to
    both, noise included.
    """

    problems: float
    seeds: float
    rest: float


def spread(differences: NDArray[np.float64]) -> Spread:
    """Split the variance of differences ``[seed, problem]``.

    >>> found = spread(np.array([[0.1, 0.3], [0.2, 0.4]]))
    >>> round(found.problems, 3), round(found.seeds, 3), round(found.rest, 3)
    (0.141, 0.071, 0.0)
    """
    seeds, problems = differences.shape
    by_problem, by_seed, rest = (float(v[0]) for v in _mean_squares(differences[:, :, None]))
    return Spread(
        float(np.sqrt(max((by_problem - rest) / seeds, 0.0))),
        float(np.sqrt(max((by_seed - rest) / problems, 0.0))),
        float(np.sqrt(rest)),
    )


def stacked(base: Counts, seeds: Sequence[Counts]) -> tuple[Counts, Counts]:
    """Lay the trainings under each other, the base beside each: rows are seeds × problems."""
    return _under_each_other([base] * len(seeds)), _under_each_other(seeds)


def _under_each_other(arms: Sequence[Counts]) -> Counts:
    names = ("n", "c", "stop_after", "n_max")
    columns = {name: np.concatenate([getattr(arm, name) for arm in arms]) for name in names}
    return replace(arms[0], **columns)


def seeds_curve(
    base: Counts,
    seeds: Sequence[Counts],
    rng: np.random.Generator,
    replicates: int,
    k: ArrayLike | None = None,
    prob: float = PROB,
    clusters: ArrayLike | None = None,
) -> DifferenceCurve:
    """Trained minus base pass@k, with the trainings of one recipe as the trained arm.

    ``base, seeds``: counts of the base and of each training, the same problems in the same order.
    ``rng, replicates``: of the bootstrap, which takes whole problems. ``k, prob``: as for one
    training. ``clusters``: a label per problem, where problems share a source.
    """
    ours, theirs = stacked(base, seeds)
    labels = np.arange(len(base)) if clusters is None else np.asarray(clusters)
    weights = ProblemWeights.draw(len(ours), rng, replicates, np.tile(labels, len(seeds)))
    return pooled_curve(ours, theirs, weights, len(seeds), k, prob)


def pooled_curve(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    number: int,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> DifferenceCurve:
    """Trained minus base, with ``number`` trainings under each other in the counts."""
    curve = difference_curve(base, trained, weights, k, prob)
    differences = curve.differences
    problems = len(base) // number
    columns = slice(problems)
    by_unit = replace(
        weights,
        weights=weights.weights[:, columns],
        signs=weights.signs[:, columns],
        unit=weights.unit[columns],
    )
    table = differences.reshape(number, problems, -1)
    mean = table.mean(axis=0)
    carried = carriers(mean, by_unit)
    by_problem = paired_error(mean, by_unit, pseudo_weight(carried)) ** 2
    pointwise = curve.pointwise
    # Each part with the quantile of its own degrees of freedom: with three seeds that holds 94 to
    # 97 %, and Satterthwaite's 90 to 95 %, since the variance of few seeds often comes out as 0.
    half = np.sqrt(
        special.stdtrit(max(by_unit.units - 1, 1), (1 + prob) / 2) ** 2 * by_problem
        + special.ndtri((1 + prob) / 2) ** 2 * seed_variance(table, prob)
    )
    return replace(
        curve,
        pointwise=replace(
            pointwise,
            lower=np.maximum(pointwise.estimate - half, -1.0),
            upper=np.minimum(pointwise.estimate + half, 1.0),
            method=f"two-way analysis of variance, {number} seeds, Student t",
        ),
        carriers=carried,
        seeds=number,
    )


def seed_variance(table: NDArray[np.float64], prob: float = PROB) -> NDArray[np.float64]:
    """Variance of the mean that the spread between seeds brings, widened to a normal variable's.

    ``table``: ``[seed, problem, k]``. ``prob``: of the interval that it goes into.
    """
    seeds, problems = table.shape[:2]
    freedom = max(seeds - 1, 1)
    wide = special.stdtrit(freedom, (1 + prob) / 2) / special.ndtri((1 + prob) / 2)
    _, by_seed, rest = _mean_squares(table)
    return np.asarray(np.maximum(by_seed - rest, 0) / (seeds * problems) * wide**2)


def _mean_squares(
    table: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    seeds, problems = table.shape[:2]
    mean = table.mean(axis=(0, 1))
    of_problem, of_seed = table.mean(axis=0), table.mean(axis=1)
    rest = table - of_problem - of_seed[:, None] + mean
    return (
        seeds * ((of_problem - mean) ** 2).sum(axis=0) / max(problems - 1, 1),
        problems * ((of_seed - mean) ** 2).sum(axis=0) / max(seeds - 1, 1),
        (rest**2).sum(axis=(0, 1)) / max((problems - 1) * (seeds - 1), 1),
    )
