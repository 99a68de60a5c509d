"""What is requested in all: the study's blocks, with the n of each problem after looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.study.block import Block
from rlbhpc.study.layout import Layout
from rlbhpc.sweep import looks


@dataclass(frozen=True)
class Requested:
    """A block with the number of samples that each of its problems should have."""

    block: Block
    n: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Samples in all."""
        return int(self.n.sum())


def requested(layout: Layout, blocks: Iterable[Block]) -> list[Requested]:
    """Add what looks at the results ask for. They only ever raise an n."""
    records = looks.read(layout)
    requests = []
    for block in blocks:
        raised = looks.raised(records, block.arm, block.set_name, block.step)
        n = [max(block.n, raised.get(problem, 0)) for problem in block.problems]
        requests.append(Requested(block, np.array(n, np.int64)))
    return requests
