"""Which problems are solved at least once by which models: the four cells of two, sets of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.mcnemar import mcnemar_exact


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


def solvable_sets(c: Mapping[str, ArrayLike]) -> dict[frozenset[str], NDArray[np.int64]]:
    """Split the problems by the exact set of arms that solve them at least once.

    ``c``: right samples per problem of each arm, the same problems in the same order. Maps the set
    of arms to positions of problems; only sets that occur, the largest groups first. The empty set
    holds what no arm solves. The groups are disjoint and complete.

    >>> groups = solvable_sets({"base": [1, 2, 0], "grpo": [4, 0, 0], "ppo": [1, 0, 0]})
    >>> {tuple(sorted(arms)): problems.tolist() for arms, problems in groups.items()}
    {('base', 'grpo', 'ppo'): [0], ('base',): [1], (): [2]}
    """
    if not c:
        raise UserError("solvable sets need at least one arm")
    solved = {arm: np.asarray(right) > 0 for arm, right in c.items()}
    for (first, a), (second, b) in pairwise(solved.items()):
        if a.shape != b.shape or a.ndim != 1:
            raise UserError(
                f"arms {first!r} and {second!r} have {a.shape} and {b.shape} problems; "
                "give one entry per problem for the same problems"
            )
    arms = list(solved)
    matrix = np.stack([solved[arm] for arm in arms], axis=1)
    patterns, group = np.unique(matrix, axis=0, return_inverse=True)
    by_problem = {
        frozenset(arm for arm, member in zip(arms, pattern, strict=True) if member): np.flatnonzero(
            group.ravel() == i
        )
        for i, pattern in enumerate(patterns)
    }
    order = sorted(by_problem, key=lambda members: (-len(by_problem[members]), -len(members)))
    return {members: by_problem[members] for members in order}


def _sorted(base: NDArray[np.bool_], trained: NDArray[np.bool_]) -> Coverage:
    cells = (base & trained, base & ~trained, ~base & trained, ~base & ~trained)
    return Coverage(*(np.flatnonzero(cell) for cell in cells))
