"""One layer of a decoding step, from hidden states to hidden states, as one function of tensors.

On processors it is run by TorchScript: batches that are sampled side by side, one core each, then
do not wait for one another's turn in the Python interpreter at every one of its thirty operations.
The operations stay as they are written, and so do the bits.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, rms_norm
from torch.nn.functional import linear, silu

from rlbhpc.engines.hf.backend import attend


class Layer(NamedTuple):
    """Weights of one layer; projections that share an input lie one below the other."""

    norm_attention: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    norm_query: Tensor | None
    norm_key: Tensor | None
    out: Tensor
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor


class Shape(NamedTuple):
    """What the layers of a model have in common."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    epsilon: float


class Step(NamedTuple):
    """What the layers of a step have in common: rotations, mask, cells to write, width to read."""

    turn: Tensor
    mask: Tensor
    cells: Tensor
    width: int


def rotate(heads: Tensor, turn: Tensor) -> Tensor:
    """Rotate (rows, heads, dim) by the rows' positions; the result lies in pairs."""
    first, second = heads.float().chunk(2, -1)
    turned = torch.view_as_real(torch.complex(first, second) * turn)
    return turned.flatten(-2).to(heads.dtype)


def decode(
    hidden: Tensor, layer: Layer, shape: Shape, step: Step, keys: Tensor, values: Tensor
) -> Tensor:
    """Run one token per row through a layer; ``hidden`` (rows, d) is written over.

    ``keys`` and ``values`` are the layer's slots, (capacity, kv heads, columns, dim).
    """
    rows, dim, split = hidden.shape[0], shape.head_dim, shape.heads + shape.kv_heads
    normed = rms_norm(hidden, hidden.shape[-1:], layer.norm_attention, shape.epsilon)
    heads = linear(normed, layer.qkv, layer.qkv_bias).view(rows, split + shape.kv_heads, dim)
    query, key = heads[:, : shape.heads], heads[:, shape.heads : split]
    norm_query, norm_key = layer.norm_query, layer.norm_key
    if norm_query is not None and norm_key is not None:
        query = rms_norm(query, [dim], norm_query, shape.epsilon)
        key = rms_norm(key, [dim], norm_key, shape.epsilon)
    query, key = rotate(query, step.turn), rotate(key, step.turn)
    keys.view(-1, dim).index_copy_(0, step.cells, key.view(-1, dim))
    values.view(-1, dim).index_copy_(0, step.cells, heads[:, split:].reshape(-1, dim))
    cached = keys[:rows, :, : step.width], values[:rows, :, : step.width]
    out = attend(query, cached[0], cached[1], step.mask, shape.scale)
    hidden.addmm_(out.view(rows, -1), layer.out.t())
    normed = rms_norm(hidden, hidden.shape[-1:], layer.norm_mlp, shape.epsilon)
    gate, up = linear(normed, layer.gate_up).chunk(2, -1)
    return hidden.addmm_(silu(gate).mul_(up), layer.down.t())


Decode = Callable[[Tensor, Layer, Shape, Step, Tensor, Tensor], Tensor]


def _without_interpreter(function: Decode) -> Decode:
    # Deprecated, for compilers that a login node or a small image does not have. Where PyTorch has
    # dropped it, or cannot read these lines, the function runs as it is: slower, the same bits.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            script: Any = torch.jit.script
            return cast(Decode, script(function))
    except (AttributeError, OSError, RuntimeError):
        return function


decode_on_processors = _without_interpreter(decode)
