"""A remedy for the one thing that made two runs on the same CPU differ in their bits.

On a CPU PyTorch gives large arrays to MKL's vector functions, a piece to each thread. MKL chooses
its kernel when a function is first called, and does not guard the choice: now and then, in about
one process of a hundred, a thread computes its piece of that first call with a kernel of some
thousand times the error, and never again (pytorch/pytorch#188792, open in MKL 2024.2). A model's
first such call are the cosines of its rotary positions. Called once before by one thread, the
functions have made their choice.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch

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
