"""The noun *Block*: the samples of one arm, problem set and step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.study.keys import SampleKey


@dataclass(frozen=True, eq=False)
class Block:
    """All samples of one arm, problem set and step: the grain in which keys are handled.

    ``fingerprints`` has one entry per problem; the samples 0 … n−1 of a problem share it. Where
    ``stop_after`` is not 0, a problem needs no samples behind that many right ones.
    """

    arm: str
    set_name: str
    step: int
    problems: tuple[str, ...]
    n: int
    fingerprints: NDArray[np.int64]
    stop_after: int = 0

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self.problems) * self.n

    def keys(self) -> Iterator[SampleKey]:
        """Return the keys one by one, problem by problem."""
        for problem in self.problems:
            for sample in range(self.n):
                yield SampleKey(self.arm, self.step, problem, sample)
