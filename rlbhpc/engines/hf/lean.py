"""A lean decoding step for decoders with RMSNorm, rotary positions, grouped heads and SwiGLU.

The same arithmetic as the transformers module (its own forward pass still does prefill and
scoring), with a fraction of the operations: projections that share an input are one matrix
product, the rotation is one complex multiplication, mask and scale are part of the score product.
For a model of a few million parameters that is twice the tokens per second.

On processors a layer is run by TorchScript: batches that are sampled side by side, one core each,
then do not wait for one another's turn in the Python interpreter at every one of its thirty
operations. The operations stay as they are written, and so do the bits. (TorchScript reads types,
so annotations are not postponed here.)
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, rms_norm
from torch.nn.functional import linear, silu

from rlbhpc.engines.hf.backend import Backend, attend, near_sight
from rlbhpc.engines.hf.slots import Layers, Window

# Families of this shape; whatever else a model's configuration asks for is checked in `fits`.
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}


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


def _without_interpreter(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # Deprecated, for compilers that a login node or a small image does not have. Where PyTorch has
    # dropped it, or cannot read these lines, the function runs as it is: slower, the same bits.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.script(function)
    except (AttributeError, OSError, RuntimeError):
        return function


decode_on_processors = _without_interpreter(decode)


def fits(module: Any) -> bool:
    """Whether a module has the shape that :class:`LeanBackend` computes."""
    config = module.config
    if config.model_type not in FAMILIES or config.hidden_act != "silu":
        return False
    if near_sight(config) is not None:
        return False
    rope = config.rope_parameters or {}
    if rope.get("rope_type", "default") in ("dynamic", "longrope"):
        return False  # their frequencies change with the length
    layer = module.model.layers[0]
    return layer.self_attn.o_proj.bias is None and layer.mlp.down_proj.bias is None


class LeanBackend(Backend):
    """:class:`Backend` whose decoding step is written out."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        attention = module.model.layers[0].self_attn
        self.shape = Shape(
            heads=self.config.num_attention_heads,
            kv_heads=self.config.num_key_value_heads,
            head_dim=attention.head_dim,
            scale=attention.scaling,
            epsilon=self.config.rms_norm_eps,
        )
        # The fusers that TorchScript has for GPUs would change bits, and compile for every width.
        self._decode = decode_on_processors if self.device.type == "cpu" else decode
        self.layers = [_fuse(layer) for layer in module.model.layers]
        self._table = torch.empty(0, device=self.device)

    def prefill(self, ids: Tensor, **shown: Tensor) -> tuple[Tensor, Layers]:
        """Prefill through the module; keys are reordered to the pairs that :meth:`step` rotates."""
        hidden, layers = super().prefill(ids, **shown)
        return hidden, [(_pairs(key), value) for key, value in layers]

    def step(self, tokens: Tensor, window: Window) -> Tensor:
        """Feed one token per row at the window's positions; the hidden states ``[rows, d]``."""
        model, kv_heads = self.module.model, self.shape.kv_heads
        hidden = model.embed_tokens(tokens)
        step = Step(
            turn=self._rotations(window.width)[window.turns][:, None],
            mask=window.additive(self.dtype).repeat_interleave(kv_heads, 0),
            cells=window.cells(kv_heads),
            width=window.width,
        )
        for layer, (keys, values) in zip(self.layers, window.slots.layers, strict=True):
            hidden = self._decode(hidden, layer, self.shape, step, keys, values)
        return rms_norm(hidden, hidden.shape[-1:], model.norm.weight, self.shape.epsilon)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states; these families have a plain linear output layer."""
        return linear(hidden, self.module.lm_head.weight)

    def _rotations(self, width: int) -> Tensor:
        """e^(i·position·frequency), scaled, for the first ``width`` positions."""
        if len(self._table) < width:
            rotary = self.module.model.rotary_emb
            positions = torch.arange(2 * width, device=self.device, dtype=torch.float32)
            angles = positions[:, None] * rotary.inv_freq.float()
            self._table = torch.polar(torch.ones_like(angles), angles) * rotary.attention_scaling
        return self._table


def _fuse(layer: Any) -> Layer:
    """A layer's weights; the module's own projections become views into the fused ones."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    has_bias = attention.q_proj.bias is not None
    has_norm = hasattr(attention, "q_norm")
    return Layer(
        norm_attention=layer.input_layernorm.weight,
        qkv=_share([p.weight for p in projections]),
        qkv_bias=_share([p.bias for p in projections]) if has_bias else None,
        norm_query=attention.q_norm.weight if has_norm else None,
        norm_key=attention.k_norm.weight if has_norm else None,
        out=attention.o_proj.weight,
        norm_mlp=layer.post_attention_layernorm.weight,
        gate_up=_share([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
    )


def _share(parameters: list[Any]) -> Tensor:
    """Stack parameters into one tensor and make each a view of its part of it."""
    fused = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, fused.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return fused


def _pairs(key: Tensor) -> Tensor:
    """Put the two halves of each head side by side, element by element, as complex numbers lie."""
    return key.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
