r"""Which problems are solved at least once by which models: the four cells of two, sets of many.

Accuracy histograms: how many problems are never, sometimes and always solved.

Support metrics: how much of what the base solves is kept, and how much is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.exact import mcnemar_exact
from rlbhpc.stats.interval import (
    PROB,
    Interval,
    ProblemWeights,
    paired_interval,
)


@dataclass(frozen=True)
class Coverage:
    """The 2 × 2 table of "solved at least once", each cell as positions of problems.

    The table is a fact about the samples drawn. ``p_value`` is about problems like these.

    ``both, base_only, trained_only, neither``: positions of the problems, rising.
    """

    both: NDArray[np.int64]
    base_only: NDArray[np.int64]
    trained_only: NDArray[np.int64]
    neither: NDArray[np.int64]

    @property
    def counts(self) -> dict[str, int]:
        """Number of problems per cell."""
        return {name: len(getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def shares(self) -> dict[str, float]:
        """Share of problems per cell."""
        total = sum(self.counts.values())
        return {name: count / total for name, count in self.counts.items()}

    @property
    def p_value(self) -> float:
        """Exact two-sided McNemar p of the two discordant cells."""
        return mcnemar_exact(len(self.base_only), len(self.trained_only))


def coverage(base: ArrayLike, trained: ArrayLike) -> Coverage:
    """Sort problems by which of two models solved them at least once.

    ``base, trained``: right samples per problem (or whether it was solved), the same problems in
    the same order and out of the same number of samples.

    >>> table = coverage([3, 1, 0, 0], [5, 0, 2, 0])
    >>> table.counts
    {'both': 1, 'base_only': 1, 'trained_only': 1, 'neither': 1}
    >>> table.base_only
    array([1])
    """
    a, b = np.asarray(base), np.asarray(trained)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise UserError(
            f"coverage compares {a.shape} with {b.shape} problems; give one entry per problem for "
            "the same problems of both models"
        )
    if (a < 0).any() or (b < 0).any():
        raise UserError("coverage got a negative count; drop problems that were not sampled")
    return _sorted(a > 0, b > 0)


def rarest_first(cell: NDArray[np.int64], c: ArrayLike) -> NDArray[np.int64]:
    """Order the problems of a cell by how rarely the model that solves them does.

    Those with a single right sample come first: they are what a lost boundary consists of, and
    what a lenient verifier makes up.
    """
    rare = np.asarray(c)[cell]
    return np.asarray(cell[np.argsort(rare, kind="stable")])


def _sorted(base: NDArray[np.bool_], trained: NDArray[np.bool_]) -> Coverage:
    cells = (base & trained, base & ~trained, ~base & trained, ~base & ~trained)
    return Coverage(*(np.flatnonzero(cell) for cell in cells))


#: Exactly 0; nine tenths, each open below and closed above; above .9 but not all; exactly 1.
BINS: Final = (
    "0", "(0, .1]", "(.1, .2]", "(.2, .3]", "(.3, .4]", "(.4, .5]",
    "(.5, .6]", "(.6, .7]", "(.7, .8]", "(.8, .9]", "(.9, 1)", "1",
)  # fmt: skip


def accuracy_histogram(n: ArrayLike, c: ArrayLike) -> NDArray[np.int64]:
    """Count problems by accuracy, in the twelve bins {0}, (0, .1], …, (.9, 1), {1}.

    ``n, c``: samples and right samples per problem: ``*counts.exchangeable``.

    Figures 5 and 14 of Yue et al. (2025), arXiv:2504.13837.

    >>> accuracy_histogram(8, [0, 0, 1, 8])
    array([2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    counts = Counts.of(n, c)
    # Whole numbers decide, so that an accuracy of exactly .3 never slips over an edge.
    tenth = -(-10 * counts.c // np.maximum(counts.n, 1))  # ceiling of 10 c / n
    always = (counts.c == counts.n) & (counts.n > 0)
    return np.bincount(np.where(always, 11, tenth), minlength=len(BINS))


def never_solved_shift(
    base: Counts, trained: Counts, weights: ProblemWeights, prob: float = PROB
) -> Interval:
    """Change in the share of problems never solved, trained minus base, paired over problems."""
    check_paired(base, trained)
    lost = (~trained.solved).astype(np.float64) - ~base.solved
    return paired_interval(lost[:, None], weights, prob)[0]


@dataclass(frozen=True)
class SupportMetrics:
    """The four support metrics of P problems preserved, E expanded and S shrunk.

    ``srr``: support retention rate P/(P + S): share of what the base solves that the trained model
    keeps. ``ndr``: net discovery rate E/(P + E): share of what the trained model solves that is
    new. ``sds``: support dynamics score: harmonic mean of the two. ``nscr``: net support change
    rate (E − S)/(P + E + S), from −1 (all lost) to +1 (all new). NaN where a denominator is 0.
    """

    srr: float
    ndr: float
    sds: float
    nscr: float


def support_metrics(preserved: int, expanded: int, shrunk: int) -> SupportMetrics:
    """Support metrics from the counts of a coverage table.

    ``preserved, expanded, shrunk``: problems that both models, only the trained one, and only the
    base solve.

    Wu et al. (2025), "The invisible leash", arXiv:2507.14843.

    >>> metrics = support_metrics(preserved=19, expanded=0, shrunk=4)
    >>> round(metrics.srr, 3), metrics.ndr, round(metrics.nscr, 3)
    (0.826, 0.0, -0.174)
    """
    cells = np.asarray([preserved, expanded, shrunk], np.float64)
    if (cells < 0).any() or (cells != np.floor(cells)).any():
        raise UserError(f"support counts are {cells.tolist()}; each is a number of problems")
    return SupportMetrics(*map(float, _metrics(cells)))


def _metrics(cells: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    kept, new, lost = cells
    with np.errstate(divide="ignore", invalid="ignore"):
        srr, ndr = kept / (kept + lost), new / (kept + new)
        sds = np.where(srr + ndr > 0, 2 * srr * ndr / (srr + ndr), 0.0)
        sds = np.where(np.isnan(srr) | np.isnan(ndr), np.nan, sds)
        return srr, ndr, sds, (new - lost) / (kept + new + lost)
