r"""More samples: how many until the answer is decided, and where to spend them.

Both questions are answered by simulation from what is known: the two rates of each problem are
drawn from what its counts leave open under the joint distribution (:mod:`rlbhpc.stats.joint`),
further samples are drawn from the rates, and the grown data are answered again. The answer is a
forecast, model-based as the fit is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.decision import MARGIN, Word, decide
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.joint import Joint
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.weights import ProblemWeights


@dataclass(frozen=True)
class Forecast:
    """Chance that a study of a given size is decided.

    Attributes
    ----------
    n
        Samples per problem.
    decided
        Share of simulated studies of this size whose word leaves nothing open at large k.
    words
        Share of each word.
    """

    n: int
    decided: float
    words: dict[Word, float]


def forecast(
    base: Counts,
    trained: Counts,
    weights: ProblemWeights,
    sizes: Sequence[int],
    rng: np.random.Generator,
    studies: int = 50,
    margin: float = MARGIN,
) -> list[Forecast]:
    """Simulate how a study would come out with more samples of the same problems.

    Parameters
    ----------
    base, trained
        Counts so far; sampling must not have stopped at successes.
    weights
        Bootstrap weights of the report.
    sizes
        Samples per problem to forecast, none below what exists.
    rng
        Generator of the simulation.
    studies
        Simulated studies per size.
    margin
        What counts as the same.
    """
    check_paired(base, trained)
    have = int(max(base.n.max(), trained.n.max()))
    if not sizes or min(sizes) < have:
        raise UserError(f"forecast for {list(sizes)} samples, but {have} exist; ask for more")
    for arm in (base, trained):
        arm.refuse_stopped("a forecast")
    joint = Joint(base, trained, min(base.reach, trained.reach))
    best = joint.fit()
    result = []
    for size in sizes:
        drawn: list[Word] = []
        for _ in range(studies):
            rates = joint.draw(best, rng)
            grown = [
                Counts.of(size, arm.c + rng.binomial(size - arm.n, rate))
                for arm, rate in zip((base, trained), rates, strict=True)
            ]
            curve = difference_curve(grown[0], grown[1], weights)
            drawn.append(decide(curve, margin).word)
        shares = {word: drawn.count(word) / studies for word in Word if word in drawn}
        decided = sum(not word.open for word in drawn) / studies
        result.append(Forecast(size, decided, shares))
    return result


def samples_until_decided(forecasts: Sequence[Forecast], chance: float = 0.8) -> int | None:
    """Give the least forecast n that is decided with a given chance; None where none is."""
    enough = [f.n for f in forecasts if f.decided >= chance]
    return min(enough) if enough else None


def where_to_spend(counts: Counts, more: int) -> NDArray[np.float64]:
    r"""Give the chance per problem that ``more`` samples solve it for the first time.

    .. math:: 1 - E[(1-p_i)^m \mid c_i = 0], \qquad 0 \text{ where } c_i > 0

    Coverage at large k gains by sampling the problems with the largest chance first; those solved
    already gain nothing. Record what was done as the stopping rule of the row, or sample all
    problems up to one n for unbiased pass@k.

    Examples
    --------
    >>> chance = where_to_spend(Counts.of([64, 512, 64, 64], [0, 0, 3, 20]), 256)
    >>> bool(chance[0] > chance[1] > 0), chance[2:]
    (True, array([0., 0.]))
    """
    if more < 1:
        raise UserError(f"{more} more samples solve nothing; ask about one at least")
    prior = fit_prior(counts, zero_inflated=True)
    return np.where(counts.solved, 0.0, 1 - prior.fail(counts.n, counts.c, more))
