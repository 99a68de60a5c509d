"""Distributions of true success rates, over problems and over pairs of models, to simulate from."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Rates = NDArray[np.float64]


def one_model(name: str, problems: int, rng: np.random.Generator) -> Rates:
    """True rates of one model. The first two are those of the method notes, the rest harder."""
    if name == "beta":
        return rng.beta(0.25, 2, problems)
    if name == "fifth unsolvable":
        return np.where(rng.random(problems) < 0.2, 0, rng.beta(0.6, 2, problems))
    if name == "hard":
        return rng.beta(0.1, 4, problems)
    if name == "skewed":
        return rng.beta(0.25, 8, problems)
    if name == "alike":
        return np.full(problems, 0.1)
    if name == "nearly solved":
        return rng.beta(2, 0.5, problems)
    raise KeyError(name)


def two_models(name: str, problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """True rates of the base and the trained model."""
    if name == "nothing moved":
        p = rng.beta(0.3, 2, problems)
        return p, p
    if name == "nothing moved, fifth unsolvable":
        p = one_model("fifth unsolvable", problems, rng)
        return p, p
    if name == "nothing moved, hard":
        p = one_model("hard", problems, rng)
        return p, p
    if name == "shrinks":
        # Likely answers get likelier and rare ones rarer: the curves cross at k = 42.
        p = rng.beta(0.3, 2, problems)
        return p, expit(2 * logit(np.clip(p, 1e-12, 1 - 1e-12)) + 4)
    if name == "expands":
        # Three times as quick everywhere, and half of all problems get a rate of .02 at least,
        # among them half of the 30 % that the base never solves.
        p = np.where(rng.random(problems) < 0.3, 0, rng.beta(0.3, 2, problems))
        q = 1 - (1 - p) ** 3
        return p, np.where(rng.random(problems) < 0.5, np.maximum(q, 0.02), q)
    if name == "only sharpens":
        # Six times as quick on what the base can solve, nothing on the quarter that it cannot.
        p = np.maximum(rng.beta(1.5, 20, problems), 0.02)
        p = np.where(rng.random(problems) < 0.25, 0, p)
        return p, 1 - (1 - p) ** 6
    if name == "crosses twice":
        # Easy problems gain, middling ones lose, hard ones become solvable.
        kind = rng.random(problems)
        easy, hard = kind < 0.35, kind >= 0.7
        p = np.where(easy, rng.beta(6, 12, problems), rng.beta(2, 60, problems))
        p = np.where(hard, 0, p)
        q = np.where(easy, 1 - (1 - p) ** 4, p / 8)
        return p, np.where(hard, np.where(kind < 0.95, 0.006, 0), q)
    raise KeyError(name)


def mean_pass(rates: Rates, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """True pass@k, mean over problems."""
    log_fail = np.log1p(-np.minimum(rates, 1 - 1e-15))
    return np.asarray([-np.expm1(size * log_fail).mean() for size in k.tolist()])


@cache
def population_curve(name: str, k: tuple[int, ...]) -> NDArray[np.float64]:
    """True pass@k of one model over all problems there could be."""
    rates = one_model(name, 2_000_000, np.random.default_rng(9))
    return mean_pass(rates, np.asarray(k))


@cache
def population_difference(name: str, k: tuple[int, ...]) -> NDArray[np.float64]:
    """True difference of two models over all problems there could be."""
    base, trained = two_models(name, 1_000_000, np.random.default_rng(9))
    sizes = np.asarray(k)
    return mean_pass(trained, sizes) - mean_pass(base, sizes)
