"""Matrix products in float32 on processors, by whichever of PyTorch's two libraries is faster.

PyTorch leaves them to MKL. oneDNN, which it has as well and takes for bfloat16, is faster on
processors of AMD, by a seventh for long batches and a third for a few dozen rows, where both sides
of the weights are long; where they are short its preparations cost more than they gain. Its rows
depend as little on their neighbours as MKL's do.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

# PyTorch for other processors than x86 comes without MKL.
HAS_MKL = hasattr(torch.ops.mkl, "_mkl_linear")
HAS_ONEDNN = HAS_MKL and hasattr(torch.ops.mkldnn, "_linear_pointwise")
# Length of the shorter side of the weights from which on oneDNN is the faster.
LONG = 256


def is_onednns(weight: Tensor) -> bool:
    """Whether x·Wᵀ is left to oneDNN; for all rows alike, whatever their number."""
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    return HAS_ONEDNN and plain and min(weight.shape) >= LONG


def multiply_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b, without a gradient."""
    whole = None if bias is None else bias.contiguous()  # oneDNN reads it as if it were
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, whole, "none", [], None)
    return out


class Times(torch.autograd.Function):
    """x·Wᵀ + b with its gradient; that of the weights stays with MKL, which is the faster there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply (…, in) to (…, out)."""
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return multiply_by_onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of batch, weights and bias."""
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        lines = gradient.reshape(-1, gradient.shape[-1])
        return (
            multiply_by_onednn(gradient, weight.t()) if needs_x else None,
            lines.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None,
            lines.sum(0) if needs_bias else None,
        )


def speed_up_products(model: nn.Module) -> None:
    """Let the linear layers of a model that will learn take the faster library."""
    for module in model.modules():
        if type(module) is nn.Linear and is_onednns(module.weight):
            module.forward = MethodType(_forward, module)


def _forward(self: nn.Linear, x: Tensor) -> Tensor:
    # DeepSpeed may have moved the layer to a device since; a forecast's tensors have no data.
    if isinstance(x, FakeTensor) or x.device.type != "cpu" or x.dtype != torch.float32:
        return linear(x, self.weight, self.bias)
    out: Tensor = Times.apply(x, self.weight, self.bias)
    return out
