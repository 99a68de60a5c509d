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
    """Standard deviations of differences (seeds, problems), split into three components.

    A difference is the mean, plus what is particular to the problem, to the training (seed), and a
    rest. The mean square between problems contains the rest, plus the problems' component times the
    number of seeds, and likewise between seeds: hence the subtraction and the division. A negative
    component is taken as 0.

    >>> found = spread(np.array([[0.1, 0.3], [0.2, 0.4]]))
    >>> round(found.problems, 3), round(found.seeds, 3), round(found.rest, 3)
    (0.141, 0.071, 0.0)
    """
    seeds, problems = differences.shape
    by_problem, by_seed, rest = (
        float(mean_square[0]) for mean_square in _mean_squares(differences[:, :, None])
    )
    return Spread(
        problems=float(np.sqrt(max((by_problem - rest) / seeds, 0.0))),
        seeds=float(np.sqrt(max((by_seed - rest) / problems, 0.0))),
        rest=float(np.sqrt(rest)),
    )


def stacked(base: Counts, trainings: Sequence[Counts]) -> tuple[Counts, Counts]:
    """Lay the trainings under each other, the base beside each (seeds × problems)."""
    return _under_each_other([base] * len(trainings)), _under_each_other(trainings)


def _under_each_other(arms: Sequence[Counts]) -> Counts:
    columns = {
        name: np.concatenate([getattr(arm, name) for arm in arms])
        for name in ("n", "c", "stop_after", "n_max")
    }
    return replace(arms[0], **columns)


def seeds_curve(
    base: Counts,
    trainings: Sequence[Counts],
    rng: np.random.Generator,
    replicates: int,
    k: ArrayLike | None = None,
    prob: float = PROB,
    clusters: ArrayLike | None = None,
) -> DifferenceCurve:
    """Trained minus base pass@k, with the trainings of one recipe as the trained arm.

    ``base, trainings``: counts of the base and of each training, the same problems in the same
    order. ``rng, replicates``: of the bootstrap, which takes whole problems. ``k, prob``: as for
    one training. ``clusters``: a label per problem, where problems share a source.

    The trainings are laid under each other, with a copy of the base beside each: row i of training
    j is problem i. All copies of a problem have one label, so that the bootstrap draws them
    together.
    """
    stacked_base, stacked_trained = stacked(base, trainings)
    labels = np.arange(len(base)) if clusters is None else np.asarray(clusters)
    stacked_labels = np.tile(labels, len(trainings))
    weights = ProblemWeights.draw(len(stacked_base), rng, replicates, stacked_labels)
    return pooled_curve(stacked_base, stacked_trained, weights, len(trainings), k, prob)


def pooled_curve(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    seeds: int,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> DifferenceCurve:
    """Trained minus base, with so many trainings under each other in the counts and weights.

    ``base, trained``: counts of (seeds × problems) rows, all problems of the first training first;
    the base is repeated. ``weights``: bootstrap weights of these rows; those of the first training
    are those of the problems. ``k``: draw sizes. ``prob``: nominal probability of the interval.

    The mean over trainings is treated as one arm; the variance between trainings is added to its
    interval, since another training would come out otherwise. ``paired_error`` gives the standard
    error over problems, ``carriers`` the effective number of problems behind the spread.
    """
    curve = difference_curve(base, trained, weights, k, prob)
    problems = len(base) // seeds
    weights_of_problems = replace(
        weights,
        weights=weights.weights[:, :problems],
        signs=weights.signs[:, :problems],
        unit=weights.unit[:problems],
    )
    by_seed = curve.differences.reshape(seeds, problems, -1)
    mean_over_seeds = by_seed.mean(axis=0)
    carrying = carriers(mean_over_seeds, weights_of_problems)
    error = paired_error(mean_over_seeds, weights_of_problems, pseudo_weight(carrying))
    # Each part with the quantile of its own degrees of freedom: with three seeds that holds 94 to
    # 97 %, and Satterthwaite's 90 to 95 %, since the variance of few seeds often comes out as 0.
    half_width = np.sqrt(
        weights_of_problems.student_quantile(prob) ** 2 * error**2
        + special.ndtri((1 + prob) / 2) ** 2 * seed_variance(by_seed, prob)
    )
    estimate = curve.pointwise.estimate
    pointwise = replace(
        curve.pointwise,
        lower=np.maximum(estimate - half_width, -1.0),
        upper=np.minimum(estimate + half_width, 1.0),
        method=f"two-way analysis of variance, {seeds} seeds, Student t",
    )
    return replace(curve, pointwise=pointwise, carriers=carrying, seeds=seeds)


def seed_variance(values: NDArray[np.float64], prob: float = PROB) -> NDArray[np.float64]:
    """Variance of the mean that the spread between seeds brings, widened to a normal variable's.

    ``values``: (seeds, problems, sizes). ``prob``: of the interval that it goes into.

    The mean square between seeds holds the rest too, which is taken off. Few seeds estimate their
    variance poorly, so it is widened by the squared ratio of Student's quantile to the normal one;
    multiplied by a normal quantile later, it gives Student's.
    """
    seeds, problems = values.shape[:2]
    student = special.stdtrit(max(seeds - 1, 1), (1 + prob) / 2)
    widening = student / special.ndtri((1 + prob) / 2)
    _, by_seed, rest = _mean_squares(values)
    variance = np.maximum(by_seed - rest, 0) / (seeds * problems)
    return np.asarray(variance * widening**2)


def _mean_squares(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean squares of a two-way analysis of variance: by problem, by seed, and of the rest.

    ``values``: (seeds, problems, sizes); each mean square is (sizes,). A mean square is a sum of
    squared deviations over its degrees of freedom; the rest is what neither the problem's nor the
    seed's mean explains.
    """
    seeds, problems = values.shape[:2]
    mean = values.mean(axis=(0, 1))
    problem_means, seed_means = values.mean(axis=0), values.mean(axis=1)
    residuals = values - problem_means - seed_means[:, None] + mean
    by_problem = seeds * ((problem_means - mean) ** 2).sum(axis=0) / max(problems - 1, 1)
    by_seed = problems * ((seed_means - mean) ** 2).sum(axis=0) / max(seeds - 1, 1)
    rest = (residuals**2).sum(axis=(0, 1)) / max((problems - 1) * (seeds - 1), 1)
    return by_problem, by_seed, rest
