r"""Power before money: the smallest loss that a study of some size calls in four of five cases.

In a study in which a share s of the problems is lost for good, twice the log of the likelihood
ratio of "none is lost" grows in proportion to s. A few simulated studies say how fast, and from
that follows the share at which its root lies a normal quantile of the power above the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.joint import Joint

#: Share of studies that should call the loss.
CHANCE: Final = 0.8
#: Rates of a base model that nothing is known of yet: never solved, and Beta of the others.
NEVER: Final = 0.15
SHAPE: Final = (0.3, 2.0)
# Problems to simulate in each of two rounds of studies, and the share that the first of them lose.
_SIMULATED: Final = 2_000
_FIRST: Final = 0.15
# A larger study is extrapolated from one of this many problems: the share falls as 1/P.
_MOST: Final = 400


@dataclass(frozen=True)
class Power:
    """What a study can decide.

    ``share``: the smallest share of problems lost for good, or gained, that is called in 80 % of
    studies; NaN where even a loss of all of them is not.
    """

    problems: int
    n: int
    share: float

    @property
    def count(self) -> float:
        """The same in problems."""
        return float(np.ceil(self.share * self.problems))


def smallest_loss(
    problems: int,
    n: int,
    rng: np.random.Generator,
    comparisons: int = 1,
    rates: NDArray[np.float64] | None = None,
    stop_after: tuple[int, int] = (0, 0),
) -> Power:
    """Find the smallest loss that a study calls in 80 % of cases; the smallest gain is the same.

    ``problems, n``: size of the study, the same n in both arms. ``comparisons``: how many answers
    share the error. ``rates``: success rates of the base to draw from, such as c/n of its first
    samples; where not given, 15 % are 0 and the rest from Beta(0.3, 2). ``stop_after``: right
    samples at which a problem ends, in the base and in what is compared with it; 0 where none does.
    """
    if problems < 1 or n < 1:
        raise UserError(f"a study of {problems} problems with {n} samples; both must be above 0")
    size = min(problems, _MOST)
    studies = max(8, _SIMULATED // size)
    threshold = float(special.ndtri(1 - (1 - PROB) / (4 * comparisons)))
    needed = threshold + float(special.ndtri(CHANCE))
    share = _FIRST
    for _ in range(2):
        evidence = np.mean(
            [_evidence(size, n, share, rng, rates, stop_after) for _ in range(min(studies, 60))]
        )
        if evidence <= 0:
            return Power(problems, n, float("nan"))
        share = float(np.clip(share * needed**2 / evidence, 1 / size, 1.0))
    share *= size / problems
    return Power(problems, n, share if share < 1 else float("nan"))


def _evidence(
    problems: int,
    n: int,
    share: float,
    rng: np.random.Generator,
    rates: NDArray[np.float64] | None,
    stop_after: tuple[int, int],
) -> float:
    """Twice the log of the likelihood ratio of "none is lost" in one simulated study."""
    if rates is None:
        base = np.where(rng.random(problems) < NEVER, 0.0, rng.beta(*SHAPE, problems))
    else:
        base = rng.choice(rates, problems)
    trained = base.copy()
    trained[: max(1, round(share * problems))] = 0.0
    ours, theirs = stop_after
    joint = Joint(_drawn(base, n, ours, rng), _drawn(trained, n, theirs, rng), n)
    best = joint.fit()
    none = joint.fit(best.mass, joint.lost, 0.0)
    return max(2 * (best.log_likelihood - none.log_likelihood), 0.0)


def _drawn(rates: NDArray[np.float64], n: int, stop_after: int, rng: np.random.Generator) -> Counts:
    """Counts of an arm that ends each problem at its n-th sample or ``stop_after``-th right one."""
    if not stop_after:
        return Counts.of(n, rng.binomial(n, rates))
    so_far = (rng.random((len(rates), n)) < rates[:, None]).cumsum(axis=1)
    ended = so_far[:, -1] >= stop_after
    length = np.where(ended, (so_far >= stop_after).argmax(axis=1) + 1, n)
    return Counts.of(length, np.minimum(so_far[:, -1], stop_after), stop_after, n)
