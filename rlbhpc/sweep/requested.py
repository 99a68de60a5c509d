"""What is requested in all: the study's blocks, with the n of each problem after top-ups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.study.block import Block
from rlbhpc.study.layout import Layout
from rlbhpc.sweep import topup


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
    """Add the top-ups that are kept beside the results. They only ever raise an n."""
    extra = topup.read(layout)
    requests = []
    for block in blocks:
        n = np.full(len(block.problems), block.n, np.int64)
        index = {name: i for i, name in enumerate(block.problems)}
        for more in extra:
            if (more.arm, more.set_name, more.step) == (block.arm, block.set_name, block.step):
                places = [index[name] for name in more.problems if name in index]
                n[places] = np.maximum(n[places], more.n)
        requests.append(Requested(block, n))
    return requests
