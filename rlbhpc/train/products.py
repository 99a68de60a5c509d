"""Products in float32 on AMD's processors, by the faster of two libraries that PyTorch brings.

PyTorch leaves them to MKL. On a Zen 5 oneDNN multiplies twice as fast, and a training step takes
two thirds of its time (docs/training.md, "Speed"). Narrow weights stay with MKL: on a Zen 4 their
models gained little, and published trainings of such models keep their bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

# The shorter side of weights that oneDNN multiplies.
WIDE: Final = 256


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b, without a gradient."""
    wide = min(weight.shape) >= WIDE and weight.dtype == torch.float32
    if not wide or weight.device.type != "cpu" or not is_onednn_faster():
        return linear(x, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], None)
    return product


class Product(torch.autograd.Function):
    """x·Wᵀ + b with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply (…, in) to (…, out)."""
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight and bias."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            multiply(gradient, weight.t()) if of_x else None,
            multiply(rows.t(), x.flatten(0, -2).t()) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


def multiply_faster(model: nn.Module) -> None:
    """Let the linear layers of a model that learns multiply by the faster library."""
    if torch.cuda.is_available() or not is_onednn_faster():
        return
    for layer in model.modules():
        if type(layer) is nn.Linear and min(layer.weight.shape) >= WIDE:
            layer.forward = lambda x, of=layer: Product.apply(x, of.weight, of.bias)


@cache
def is_onednn_faster() -> bool:
    """Whether this is a processor of AMD's on which PyTorch has both libraries."""
    about = Path("/proc/cpuinfo")
    amd = about.exists() and "AuthenticAMD" in about.read_text()
    return amd and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
