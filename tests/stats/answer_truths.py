"""Pairs of true success rates in which it is known what was lost and gained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats import Counts
from rlbhpc.stats.joint import FACTOR

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
        Draws the true rates of base and trained model; the latter ``[seed, problem]`` where one
        recipe was trained several times.
    base_n
        Samples of the base, where they are not n.
    stragglers
        Problems with five samples only.
    """

    name: str
    problems: int
    n: int
    rates: Draw
    base_n: int = 0
    stragglers: int = 0


def times(p: Rates, factor: float | Rates) -> Rates:
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


def churn(problems: int, rng: np.random.Generator, share: float = 0.03) -> tuple[Rates, Rates]:
    """A share of the problems lost and as many gained, some of them rarely."""
    which, there = rng.random(problems), rng.beta(0.5, 3, problems)
    base = some(problems, rng)
    trained = np.where(which < share, 0.0, np.where(which > 1 - share, there, base))
    return np.where(which < share, there, np.where(which > 1 - share, 0.0, base)), trained


def much_churn(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Twice the churn, so that both shares lie well above the margin."""
    return churn(problems, rng, 0.06)


def hard(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Both models the same, and hardly ever right."""
    base = rng.beta(0.1, 4, problems)
    return base, base


def slower(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Rates of a few in n samples, all four times slower; the easy half six times as quick."""
    is_hard = rng.random(problems) < 0.5
    rare = np.exp(rng.uniform(np.log(0.004), np.log(0.12), problems))
    base = np.where(is_hard, rare, rng.uniform(0.1, 0.5, problems))
    return base, np.where(is_hard, times(base, 0.25), times(base, 6))


def edge(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Everything 9.9 times slower: by the definition nothing is lost, by a hair."""
    base = np.exp(rng.uniform(np.log(0.01), np.log(0.3), problems))
    return base, times(base, 1 / 9.9)


def quicker(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Six times as quick on what the base solves, and nothing else."""
    base = np.maximum(rng.beta(1.5, 20, problems), 0.02)
    base = np.where(rng.random(problems) < 0.25, 0.0, base)
    return base, times(base, 6)


def lost_and_quicker(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """A tenth lost for good, everything else four times as quick."""
    base = some(problems, rng)
    return base, np.where(rng.random(problems) < 0.1, 0.0, times(base, 4))


def three_seeds(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Three trainings that lose 2 to 12 % for good, at other speeds."""
    base = some(problems, rng)
    trained = [
        np.where(
            rng.random(problems) < rng.uniform(0.02, 0.12),
            0.0,
            times(base, 2 * np.exp(0.2 * rng.normal())),
        )
        for _ in range(3)
    ]
    return base, np.array(trained)


def three_quiet_seeds(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Three trainings that move nothing on average: some are a little quicker, some slower."""
    base = some(problems, rng)
    return base, np.array([times(base, np.exp(0.1 * rng.normal())) for _ in range(3)])


def contest_lost(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Problems of a contest: a third lost."""
    base = np.where(rng.random(problems) < 0.1, 0.0, rng.beta(0.35, 2.5, problems))
    return base, np.where(rng.random(problems) < 0.35, 0.0, base)


def contest_gained(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Problems of a contest: a third new."""
    base, trained = contest_lost(problems, rng)
    return trained, base


def ceiling(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Nearly all solved nearly always, a tenth lost."""
    base = rng.beta(3, 0.3, problems)
    return base, np.where(rng.random(problems) < 0.1, 0.0, base)


def floor(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Nearly nothing solved, a tenth gained."""
    base = rng.beta(0.05, 8, problems)
    new = rng.random(problems) < 0.1
    return base, np.where(new, rng.beta(1, 6, problems), base)


def little_lost_little_gained(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """1.2 % lost, and as many gained: both below the margin."""
    base = some(problems, rng)
    trained = base.copy()
    which, rates = rng.random(problems), rng.uniform(0.05, 0.5, problems)
    lost, gained = which < 0.012, which > 0.988
    base[lost], trained[lost] = rates[lost], 0.0
    base[gained], trained[gained] = 0.0, rates[gained]
    return base, trained


def little_lost_all_quicker(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """A nearly solved set: .8 % lost, everything else six times as quick."""
    base = rng.beta(2, 0.5, problems)
    return base, np.where(rng.random(problems) < 0.008, 0.0, times(base, 6))


def better_at_the_margin(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """2 % lost, everything else four times as quick: the net is a gain."""
    base = some(problems, rng)
    return base, np.where(rng.random(problems) < 0.02, 0.0, times(base, 4))


#: Truths in which too little is lost, or too much is open, for a word about both sides.
NEAR_THE_MARGIN = {
    truth.name: truth
    for truth in (
        Truth("little lost, little gained", 300, 128, little_lost_little_gained),
        Truth("little lost, all quicker", 1319, 128, little_lost_all_quicker),
        Truth("better at the margin", 300, 128, better_at_the_margin),
    )
}
TRUTHS = {
    truth.name: truth
    for truth in (
        Truth("nothing moved", 500, 1024, nothing_moved),
        Truth("nothing moved, 30 problems", 30, 1024, nothing_moved),
        Truth("nothing moved, hard", 128, 256, hard),
        Truth("trap", 500, 1024, trap),
        Truth("slower", 500, 128, slower),
        Truth("edge", 500, 256, edge),
        Truth("quicker", 500, 256, quicker),
        Truth("lost", 128, 256, lost),
        Truth("gained", 128, 256, gained),
        Truth("lost and quicker", 128, 256, lost_and_quicker),
        Truth("contest, lost", 30, 1024, contest_lost),
        Truth("contest, gained", 30, 1024, contest_gained),
        Truth("ceiling", 128, 256, ceiling),
        Truth("floor", 128, 256, floor),
        Truth("expansion", 500, 128, expansion),
        Truth("churn", 500, 256, churn),
        Truth("much churn", 500, 256, much_churn),
        Truth("unequal n", 128, 256, lost, 1024),
        Truth("stragglers", 128, 256, gained, stragglers=2),
        Truth("three seeds", 128, 256, three_seeds),
        Truth("three quiet seeds", 128, 256, three_quiet_seeds),
    )
}


def truth(name: str) -> Truth:
    """Look a truth up by name."""
    return (TRUTHS | NEAR_THE_MARGIN)[name]


def draw(case: Truth, rng: np.random.Generator) -> tuple[Counts, list[Counts]]:
    """Draw the counts of one study: the base, and each training."""
    base, trained = case.rates(case.problems, rng)
    n = np.full(case.problems, case.n)
    n[: case.stragglers] = 5
    return (
        Counts.of(case.base_n or n, rng.binomial(case.base_n or n, base)),
        [Counts.of(n, rng.binomial(n, rates)) for rates in np.atleast_2d(trained)],
    )


@dataclass(frozen=True)
class Population:
    """What is true of problems like these, at k."""

    lost: float
    gained: float
    net: float
    efficiency: float


@cache
def population(name: str) -> Population:
    """Shares and differences over a great many problems."""
    case = truth(name)
    rng = np.random.default_rng(99)
    parts = [_population(case, *case.rates(20_000, rng)) for _ in range(40)]
    return Population(*np.mean(parts, axis=0).tolist())


def _population(case: Truth, base: Rates, trained: Rates) -> tuple[float, float, float, float]:
    ours, theirs = (-np.log1p(-np.minimum(p, 1 - 1e-12)) for p in (base, trained))
    solved = 10 ** (1 / 3) / case.n
    difference = (1 - base) ** case.n - (1 - trained) ** case.n
    return (
        float(((ours >= solved) & (theirs < solved) & (theirs <= ours / FACTOR)).mean()),
        float(((theirs >= solved) & (ours < solved) & (ours <= theirs / FACTOR)).mean()),
        float(difference.mean()),
        float((trained - base).mean()),
    )
