"""Pairs of true success rates in which it is known what was lost and gained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats import Counts

Rates = NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], tuple[Rates, Rates]]


@dataclass(frozen=True)
class Truth:
    """Two models on problems like these.

    Attributes
    ----------
    name, problems, n
        Of the study.
    rates
        Draws the true rates of base and trained model.
    """

    name: str
    problems: int
    n: int
    rates: Draw


def times(p: Rates, factor: float) -> Rates:
    """Rates of a model that needs 1/factor times the samples."""
    return -np.expm1(factor * np.log1p(-np.minimum(p, 1 - 1e-12)))


def some(problems: int, rng: np.random.Generator) -> Rates:
    """Rates of a base that never solves 15 % of the problems."""
    return np.where(rng.random(problems) < 0.15, 0.0, rng.beta(0.3, 2, problems))


def nothing_moved(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Both models the same."""
    base = some(problems, rng)
    return base, base


def trap(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Easy problems six times as quick, hard ones four times slower; nobody loses a problem."""
    base = some(problems, rng)
    return base, np.where(base > 0.05, times(base, 6), times(base, 0.25))


def lost(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """A tenth of the problems are lost for good, wherever the base stood."""
    base = some(problems, rng)
    return base, np.where(rng.random(problems) < 0.1, 0.0, base)


def gained(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """The mirror image of :func:`lost`."""
    base, trained = lost(problems, rng)
    return trained, base


def expansion(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """One problem in twenty, which the base never solves, is solved once in 10 to 100 samples."""
    new = rng.random(problems) < 0.05
    base = np.where(new | (rng.random(problems) < 0.3), 0.0, rng.beta(0.8, 1.5, problems))
    return base, np.where(new, np.exp(rng.uniform(np.log(0.01), np.log(0.1), problems)), base)


def churn(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Three in a hundred problems lost, three gained."""
    which, there = rng.random(problems), rng.beta(0.5, 3, problems)
    base = some(problems, rng)
    trained = np.where(which < 0.03, 0.0, np.where(which > 0.97, there, base))
    return np.where(which < 0.03, there, np.where(which > 0.97, 0.0, base)), trained


TRUTHS = {
    "nothing moved": Truth("nothing moved", 500, 1024, nothing_moved),
    "trap": Truth("trap", 500, 1024, trap),
    "lost": Truth("lost", 128, 256, lost),
    "gained": Truth("gained", 128, 256, gained),
    "expansion": Truth("expansion", 500, 128, expansion),
    "churn": Truth("churn", 500, 256, churn),
}


def truth(name: str) -> Truth:
    """Look a truth up by name."""
    return TRUTHS[name]


def draw(case: Truth, rng: np.random.Generator) -> tuple[Counts, Counts]:
    """Draw the counts of one study."""
    base, trained = case.rates(case.problems, rng)
    return (
        Counts.of(case.n, rng.binomial(case.n, base)),
        Counts.of(case.n, rng.binomial(case.n, trained)),
    )
