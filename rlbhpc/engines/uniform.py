"""One stream of uniform numbers for each seed, and the token that a number falls on.

All engines draw with them: where their logits are the same, so are their texts.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# Weights of a block, a power of two.
BLOCK = 32


def uniforms(seed: int, n: int) -> NDArray[np.float64]:
    """``n`` uniform numbers in [0, 1): the stream that belongs to one seed.

    Philox is counter-based: the i-th number is a function of (seed, i) and nothing else. The 53
    high bits of the raw stream are used because NumPy promises to keep the raw stream.
    """
    raw = np.random.Philox(key=seed).random_raw(n)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def invert(weight: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """First index at which the running sum of ``weight`` exceeds ``uniform`` × its total.

    The sum runs over blocks and then within one: a running sum of a whole vocabulary is slow.
    Blocks are summed by halves: elementwise, so that a row's bits depend on no other row.
    """
    short = -weight.shape[-1] % BLOCK
    blocks = torch.nn.functional.pad(weight, (0, short)) if short else weight
    blocks = blocks.view(len(weight), -1, BLOCK)
    sums = blocks
    while sums.shape[-1] > 1:
        sums = torch.add(*sums.chunk(2, dim=-1))
    sums = sums[..., 0].double()
    running = sums.cumsum(-1)
    target = uniform[:, None] * running[:, -1:]
    block = _exceeding(running, target)
    inner = blocks[torch.arange(len(weight), device=block.device), block[:, 0]]
    target = target - running.gather(1, block) + sums.gather(1, block)
    within = _exceeding(inner.cumsum(-1, dtype=torch.float64), target)
    return (block * BLOCK + within)[:, 0]


def _exceeding(running: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    total = running[:, -1:]
    # Rounding may lift a target to the total itself, which no index exceeds.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(running, target, right=True)
