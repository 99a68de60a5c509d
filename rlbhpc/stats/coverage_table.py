r"""Which problems are solved at least once by which of two models, and how often.

Coverage is the 2 × 2 table of "solved at least once". Support metrics say how much of what the base
solves is kept, and how much is new. Accuracy histograms say how many problems are never, sometimes
and always solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.exact import mcnemar_exact

#: Exactly 0; nine tenths, each open below and closed above; above .9 but not all; exactly 1.
BINS: Final = (
    "0", "(0, .1]", "(.1, .2]", "(.2, .3]", "(.3, .4]", "(.4, .5]",
    "(.5, .6]", "(.6, .7]", "(.7, .8]", "(.8, .9]", "(.9, 1)", "1",
)  # fmt: skip


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
        return {cell: len(problems) for cell, problems in vars(self).items()}

    @property
    def shares(self) -> dict[str, float]:
        """Share of problems per cell."""
        total = sum(self.counts.values())
        return {cell: count / total for cell, count in self.counts.items()}

    @property
    def p_value(self) -> float:
        """Exact two-sided McNemar p of the two discordant cells."""
        return mcnemar_exact(len(self.base_only), len(self.trained_only))


def coverage(base: ArrayLike, trained: ArrayLike) -> Coverage:
    """Sort problems by which of two models solved them at least once.

    ``base, trained``: right samples per problem (or whether it was solved), the same problems in
    the same order and out of the same number of samples.

    A cell of the result holds the positions of its problems.

    >>> table = coverage([3, 1, 0, 0], [5, 0, 2, 0])
    >>> table.counts
    {'both': 1, 'base_only': 1, 'trained_only': 1, 'neither': 1}
    >>> table.base_only
    array([1])
    """
    base_right, trained_right = np.asarray(base), np.asarray(trained)
    if base_right.shape != trained_right.shape or base_right.ndim != 1 or not len(base_right):
        raise UserError(
            f"coverage compares {base_right.shape} with {trained_right.shape} problems; give one "
            "entry per problem for the same problems of both models"
        )
    if (base_right < 0).any() or (trained_right < 0).any():
        raise UserError("coverage got a negative count; drop problems that were not sampled")
    by_base, by_trained = base_right > 0, trained_right > 0
    return Coverage(
        both=np.flatnonzero(by_base & by_trained),
        base_only=np.flatnonzero(by_base & ~by_trained),
        trained_only=np.flatnonzero(~by_base & by_trained),
        neither=np.flatnonzero(~by_base & ~by_trained),
    )


def rarest_first(problems: NDArray[np.int64], c: ArrayLike) -> NDArray[np.int64]:
    """Order the problems of a cell by how rarely the model that solves them does.

    Those with a single right sample come first: they are what a lost boundary consists of, and
    what a lenient verifier makes up.

    ``problems``: positions. ``c``: right samples of every problem of that model.
    """
    right_samples = np.asarray(c)[problems]
    return np.asarray(problems[np.argsort(right_samples, kind="stable")])


def accuracy_histogram(n: ArrayLike, c: ArrayLike) -> NDArray[np.int64]:
    """Count problems by accuracy, in the twelve bins {0}, (0, .1], …, (.9, 1), {1}.

    ``n, c``: samples and right samples per problem: ``*counts.exchangeable``.

    Figures 5 and 14 of Yue et al. (2025), arXiv:2504.13837.

    >>> accuracy_histogram(8, [0, 0, 1, 8])
    array([2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    counts = Counts.of(n, c)
    # Whole numbers decide, so that an accuracy of exactly .3 never slips over an edge.
    tenths_rounded_up = -(-10 * counts.c // np.maximum(counts.n, 1))
    always_right = (counts.c == counts.n) & (counts.n > 0)
    bin_of_problem = np.where(always_right, len(BINS) - 1, tenths_rounded_up)
    return np.bincount(bin_of_problem, minlength=len(BINS))


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
    retention = _ratio(preserved, preserved + shrunk)
    discovery = _ratio(expanded, preserved + expanded)
    score = _ratio(2 * retention * discovery, retention + discovery)
    if retention + discovery == 0:
        score = 0.0
    change = _ratio(expanded - shrunk, preserved + expanded + shrunk)
    return SupportMetrics(srr=retention, ndr=discovery, sds=score, nscr=change)


def _ratio(numerator: float, denominator: float) -> float:
    """The ratio, NaN where the denominator is 0."""
    return numerator / denominator if denominator else float("nan")
