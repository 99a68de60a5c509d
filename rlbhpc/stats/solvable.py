"""Solvable sets of any number of arms: which problems are solved by exactly which arms."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError


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
