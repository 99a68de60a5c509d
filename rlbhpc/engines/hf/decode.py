"""One layer of a decoding step, from hidden states to hidden states, as one function of tensors.

On processors it is run by TorchScript: batches that are sampled side by side, one core each, then
do not wait for one another's turn in the Python interpreter at every one of its thirty operations,
which is a sixth of the time of a model of a few million parameters. The operations stay as they
are written, and so do the bits.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, rms_norm
from torch.nn.functional import linear, silu

from rlbhpc.engines.hf.backend import attend
from rlbhpc.engines.products import HAS_MKL, is_onednns


class Product(NamedTuple):
    """x·Wᵀ + b; with a copy of W in the order in which the processor reads it, if that helps."""

    weight: Tensor
    bias: Tensor | None = None
    copy: Tensor | None = None
    rows: int = 0
    onednn: bool = False


def product_of(weight: Tensor, bias: Tensor | None = None) -> Product:
    """A product as it is before it is packed."""
    return Product(weight, bias, onednn=is_onednns(weight))


class Layer(NamedTuple):
    """Weights of one layer."""

    norm_attention: Tensor
    qkv: Product
    norm_query: Tensor | None
    norm_key: Tensor | None
    out: Product
    norm_mlp: Tensor
    gate_up: Product
    down: Product


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


def packed(product: Product, rows: int) -> Product:
    """The product for batches of ``rows``, with the weights as they are now.

    For every product the libraries copy the weights into the order in which their kernels read
    them, which for a few dozen rows is a good part of the work. A copy that is kept gives the same
    bits where no sum is so long that it is cut. That depends on the processor: it is tried, and
    kept if so. MKL computes batches of other sizes from the weights themselves.
    """
    plain = product._replace(copy=None, rows=0)
    weight = plain.weight
    if not HAS_MKL or weight.dtype != torch.float32:
        return plain
    reorder = torch.ops.mkldnn._reorder_linear_weight
    if not product.onednn:
        reorder = torch.ops.mkl._mkl_reorder_linear_weight
    trial = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(0))
    found = plain._replace(copy=reorder(weight, rows), rows=rows)
    return found if torch.equal(multiply(trial, found), multiply(trial, plain)) else plain


if HAS_MKL:

    def multiply(x: Tensor, product: Product) -> Tensor:
        """Multiply a batch, (rows, in) to (rows, out)."""
        weight, bias, copy, rows, onednn = product
        if onednn:
            ordered = weight if copy is None else copy
            by_onednn: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, ordered, bias, "none", [], None
            )
            return by_onednn
        if copy is not None:
            by_mkl: Tensor = torch.ops.mkl._mkl_linear(x, copy, weight, bias, rows)
            return by_mkl
        return linear(x, weight, bias)

else:  # TorchScript looks up every operation, even those of a branch that is never taken.

    def multiply(x: Tensor, product: Product) -> Tensor:
        """Multiply a batch, (rows, in) to (rows, out)."""
        return linear(x, product.weight, product.bias)


def add_product(hidden: Tensor, x: Tensor, product: Product) -> Tensor:
    """Add a product to ``hidden``, in place.

    What is not TorchScript would take MKL's sum and product apart and round once more.
    """
    if product.onednn:
        return hidden.add_(multiply(x, product))
    return hidden.addmm_(x, product.weight.t())


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
    heads = multiply(normed, layer.qkv).view(rows, split + shape.kv_heads, dim)
    query, key = heads[:, : shape.heads], heads[:, shape.heads : split]
    norm_query, norm_key = layer.norm_query, layer.norm_key
    if norm_query is not None and norm_key is not None:
        query = rms_norm(query, [dim], norm_query, shape.epsilon)
        key = rms_norm(key, [dim], norm_key, shape.epsilon)
    query, key = rotate(query, step.turn), rotate(key, step.turn)
    keys.view(-1, dim).index_copy_(0, step.cells, key.view(-1, dim))
    values.view(-1, dim).index_copy_(0, step.cells, heads[:, split:].reshape(-1, dim))
    seen = keys[:rows, :, : step.width], values[:rows, :, : step.width]
    out = attend(query, seen[0], seen[1], step.mask, shape.scale)
    add_product(hidden, out.view(rows, -1), layer.out)
    normed = rms_norm(hidden, hidden.shape[-1:], layer.norm_mlp, shape.epsilon)
    gate, up = multiply(normed, layer.gate_up).chunk(2, -1)
    return add_product(hidden, silu(gate).mul_(up), layer.down)


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
