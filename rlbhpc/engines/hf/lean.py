"""A lean decoding step for decoders with RMSNorm, rotary positions, grouped heads and SwiGLU.

The same arithmetic as the transformers module (its own forward pass still does prefill and
scoring), with a fraction of the operations: projections that share an input are one matrix
product, the rotation is one complex multiplication, mask and scale are part of the score product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, rms_norm
from torch.nn.functional import linear, silu

from rlbhpc.engines.hf.backend import Backend, attend, near_sight
from rlbhpc.engines.hf.slots import Layers, Window

# Families of this shape; whatever else a model's configuration asks for is checked in `fits`.
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}


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


class Layer:
    """Weights of one layer; projections that share an input lie one below the other.

    The module's own projections become views into the fused ones.
    """

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        has_bias = attention.q_proj.bias is not None
        self.norm_attention = layer.input_layernorm.weight
        self.qkv = _share([p.weight for p in projections])
        self.qkv_bias = _share([p.bias for p in projections]) if has_bias else None
        has_norm = hasattr(attention, "q_norm")
        self.head_norms = (attention.q_norm.weight, attention.k_norm.weight) if has_norm else None
        self.out = attention.o_proj.weight
        self.norm_mlp = layer.post_attention_layernorm.weight
        self.gate_up = _share([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.down = mlp.down_proj.weight


class LeanBackend(Backend):
    """:class:`Backend` whose decoding step is written out."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.heads = self.config.num_attention_heads
        self.kv_heads = self.config.num_key_value_heads
        self.head_dim = module.model.layers[0].self_attn.head_dim
        self.scale = module.model.layers[0].self_attn.scaling
        self.layers = [Layer(layer) for layer in module.model.layers]
        self._table = torch.empty(0, device=self.device)

    def prefill(self, ids: Tensor, **shown: Tensor) -> tuple[Tensor, Layers]:
        """Prefill through the module; keys are reordered to the pairs that :meth:`step` rotates."""
        hidden, layers = super().prefill(ids, **shown)
        return hidden, [(_pairs(key), value) for key, value in layers]

    def step(self, tokens: Tensor, window: Window) -> Tensor:
        """Feed one token per row at the window's positions; the hidden states ``[rows, d]``."""
        model = self.module.model
        hidden = model.embed_tokens(tokens)
        turn = self._rotations(window.width)[window.turns][:, None]
        mask = window.additive(self.dtype).repeat_interleave(self.kv_heads, 0)
        for i, layer in enumerate(self.layers):
            query, key, value = self._heads(hidden, layer, turn)
            visible = window.write(i, key, value)
            out = attend(query, *visible, mask, self.scale)
            hidden.addmm_(out.view(len(hidden), -1), layer.out.t())
            gate, up = linear(self._normed(hidden, layer.norm_mlp), layer.gate_up).chunk(2, -1)
            hidden.addmm_(silu(gate).mul_(up), layer.down.t())
        return self._normed(hidden, model.norm.weight)

    def _heads(self, hidden: Tensor, layer: Layer, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of each row's token, (rows, heads, dim)."""
        normed = self._normed(hidden, layer.norm_attention)
        heads = linear(normed, layer.qkv, layer.qkv_bias).view(len(hidden), -1, self.head_dim)
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], 1)
        if layer.head_norms is not None:
            query = self._normed(query, layer.head_norms[0])
            key = self._normed(key, layer.head_norms[1])
        return _rotate(query, turn), _rotate(key, turn), value

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps)

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


def _rotate(heads: Tensor, turn: Tensor) -> Tensor:
    """Rotate (rows, heads, dim) by the rows' positions; the result lies in pairs."""
    first, second = heads.float().chunk(2, -1)
    turned = torch.view_as_real(torch.complex(first, second) * turn)
    return turned.flatten(-2).to(heads.dtype)


def _share(parameters: list[Any]) -> Tensor:
    """Stack parameters into one tensor and make each a view of its part of it."""
    fused = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, fused.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return fused


def _pairs(key: Tensor) -> Tensor:
    """Put the two halves of each head side by side, element by element, as complex numbers lie."""
    return key.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
