"""Next-token distributions: what every engine measures of them, and how a token is drawn.

Log-probs and entropies are exact (no top-k truncation) and belong to softmax(logits / temperature),
before any nucleus is cut. Temperature 0 (greedy) counts as 1: a point mass has no useful entropy.
There is one stream of uniform numbers for each seed. All engines draw with them: where their logits
are the same, so are their texts.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

# Elements of a batch of logits that are worked on at once, which bounds the scratch memory.
CHUNK = 2**24
# Weights of a block, a power of two.
BLOCK = 32


def log_distribution(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Full-vocabulary log-probabilities in float32 at a temperature."""
    logits = logits.float()
    if temperature not in (0.0, 1.0):
        logits = logits / temperature
    return torch.log_softmax(logits, dim=-1)


def entropy(logp: torch.Tensor) -> torch.Tensor:
    """H = −Σ p log p over the last dimension, in nats; a probability of zero adds nothing.

    The probabilities come from softmax and not from ``exp``: an elementwise function runs over the
    whole batch in vector steps and ends with a scalar routine that rounds differently, so the last
    row's bits would depend on the number of rows. Softmax works on each row by itself.
    """
    rows = max(1, CHUNK // logp.shape[-1])
    return torch.cat([_entropy(part) for part in logp.split(rows)])


def _entropy(logp: torch.Tensor) -> torch.Tensor:
    finite = logp.clamp(min=torch.finfo(logp.dtype).min)
    return -(torch.softmax(logp, dim=-1) * finite).sum(-1)


def uniforms(seed: int, n: int) -> NDArray[np.float64]:
    """``n`` uniform numbers in [0, 1): the stream that belongs to one seed.

    Philox is counter-based: the i-th number is a function of (seed, i) and nothing else. The 53
    high bits of the raw stream are used because NumPy promises to keep the raw stream.
    """
    raw = np.random.Philox(key=seed).random_raw(n)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def invert(weight: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """First index at which each row's running sum of ``weight`` exceeds ``uniform`` × its total.

    This draws a token: ``weight`` (rows, vocabulary) need not sum to 1, and ``uniform`` has a
    random number in [0, 1) for each row. The sum runs over blocks of tokens and then within one: a
    running sum of a whole vocabulary is slow. Blocks are summed by halves: elementwise, so that a
    row's bits depend on no other row. ``_first_exceeding`` gives the first index, (rows, 1), at
    which a running sum is above its target.
    """
    # What is missing to whole blocks.
    n_padding = -weight.shape[-1] % BLOCK
    if n_padding:
        weight = torch.nn.functional.pad(weight, (0, n_padding))
    blocks = weight.view(len(weight), -1, BLOCK)
    halves = blocks
    while halves.shape[-1] > 1:
        left, right = halves.chunk(2, dim=-1)
        halves = left + right
    block_sums = halves[..., 0].double()
    running_sums = block_sums.cumsum(-1)
    target = uniform[:, None] * running_sums[:, -1:]
    block = _first_exceeding(running_sums, target)
    rows = torch.arange(len(weight), device=block.device)
    weights_in_block = blocks[rows, block[:, 0]]
    # In this order of operations, on which the drawn tokens depend.
    target_in_block = target - running_sums.gather(1, block) + block_sums.gather(1, block)
    running_in_block = weights_in_block.cumsum(-1, dtype=torch.float64)
    index_in_block = _first_exceeding(running_in_block, target_in_block)
    return (block * BLOCK + index_in_block)[:, 0]


def _first_exceeding(running_sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """First index of each row at which the running sum exceeds the target, (rows, 1)."""
    total = running_sums[:, -1:]
    # Rounding may lift a target to the total itself, which no index exceeds.
    below_total = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(running_sums, torch.minimum(target, below_total), right=True)


# A remedy for the one thing that made two runs on the same CPU differ in their bits.
#
# On a CPU PyTorch gives large arrays to MKL's vector functions, a piece to each thread. MKL
# chooses its kernel when a function is first called, and does not guard the choice: now and then,
# in about one process of a hundred, a thread computes its piece of that first call with a kernel
# of some thousand times the error, and never again (pytorch/pytorch#188792, open in MKL 2024.2). A
# model's first such call are the cosines of its rotary positions. Called once before by one
# thread, the functions have made their choice.


# Those of PyTorch's functions that it hands to MKL.
FUNCTIONS: Final = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin",
    "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


@cache
def settle_vector_math() -> None:
    """Call each vector function once on one number; do so before a process runs a model."""
    for dtype in (torch.float32, torch.float64):
        number = torch.tensor([0.5], dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(number)
