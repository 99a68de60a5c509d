"""A lean decoding step for decoders with RMSNorm, rotary positions, grouped heads and SwiGLU.

The same arithmetic as the transformers module (its own forward pass still does prefill and
scoring), with a fraction of the operations: projections that share an input are one matrix
product, the rotation is one complex multiplication, mask and scale are part of the score product.
For a model of a few million parameters that is twice the tokens per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import linear, rms_norm, silu

from rlbhpc.engines.hf.backend import Backend, attend, near_sight
from rlbhpc.engines.hf.slots import Layers, Window

# Families of this shape; whatever else a model's configuration asks for is checked in `fits`.
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}


@dataclass(frozen=True)
class _Layer:
    """Weights of one layer; the module's own projections are views into the fused ones."""

    norm_attention: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    norm_heads: tuple[torch.Tensor, torch.Tensor] | None
    out: torch.Tensor
    norm_mlp: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


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
        self.head_dim: int = attention.head_dim
        self.heads: int = self.config.num_attention_heads
        self.kv_heads: int = self.config.num_key_value_heads
        self.scale: float = attention.scaling
        self.eps: float = self.config.rms_norm_eps
        self.layers = [self._fuse(layer) for layer in module.model.layers]
        self._table = torch.empty(0, self.head_dim // 2, dtype=torch.complex64, device=self.device)

    @staticmethod
    def _fuse(layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        has_bias = attention.q_proj.bias is not None
        has_norm = hasattr(attention, "q_norm")
        return _Layer(
            norm_attention=layer.input_layernorm.weight,
            qkv=_share([p.weight for p in projections]),
            qkv_bias=_share([p.bias for p in projections]) if has_bias else None,
            norm_heads=(attention.q_norm.weight, attention.k_norm.weight) if has_norm else None,
            out=attention.o_proj.weight,
            norm_mlp=layer.post_attention_layernorm.weight,
            gate_up=_share([mlp.gate_proj.weight, mlp.up_proj.weight]),
            down=mlp.down_proj.weight,
        )

    def prefill(self, ids: torch.Tensor) -> tuple[torch.Tensor, Layers]:
        """Prefill through the module; keys are reordered to the pairs that :meth:`step` rotates."""
        hidden, layers = super().prefill(ids)
        return hidden, [(_pairs(key), value) for key, value in layers]

    def step(self, tokens: torch.Tensor, window: Window) -> torch.Tensor:
        """Feed one token per row at the window's positions; the hidden states ``[rows, d]``."""
        rows = len(tokens)
        hidden = self.module.model.embed_tokens(tokens)
        turn = self._rotations(window.width)[window.turns][:, None]
        mask = window.additive(self.dtype).repeat_interleave(self.kv_heads, 0)
        split = (self.heads + self.kv_heads) * self.head_dim
        for i, layer in enumerate(self.layers):
            normed = rms_norm(hidden, hidden.shape[-1:], layer.norm_attention, self.eps)
            qkv = linear(normed, layer.qkv, layer.qkv_bias)
            qk = qkv[:, :split].view(rows, self.heads + self.kv_heads, self.head_dim)
            if layer.norm_heads is not None:
                qk = self._norm_heads(qk, *layer.norm_heads)
            qk = _rotate(qk, turn)
            value = qkv[:, split:].view(rows, self.kv_heads, self.head_dim)
            window.write(i, qk[:, self.heads :], value)
            out = attend(qk[:, : self.heads], *window.read(i), mask, self.scale)
            hidden = torch.addmm(hidden, out.view(rows, -1), layer.out.T)
            normed = rms_norm(hidden, hidden.shape[-1:], layer.norm_mlp, self.eps)
            gate, up = linear(normed, layer.gate_up).chunk(2, -1)
            hidden = torch.addmm(hidden, silu(gate).mul_(up), layer.down.T)
        return rms_norm(hidden, hidden.shape[-1:], self.module.model.norm.weight, self.eps)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states; these families have a plain linear output layer."""
        return linear(hidden, self.module.lm_head.weight)

    def _norm_heads(self, qk: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        shape = (self.head_dim,)
        return torch.cat(
            (
                rms_norm(qk[:, : self.heads], shape, q, self.eps),
                rms_norm(qk[:, self.heads :], shape, k, self.eps),
            ),
            1,
        )

    def _rotations(self, width: int) -> torch.Tensor:
        """e^(i·position·frequency), scaled, for the first ``width`` positions."""
        if len(self._table) < width:
            rotary = self.module.model.rotary_emb
            positions = torch.arange(2 * width, device=self.device, dtype=torch.float32)
            angles = positions[:, None] * rotary.inv_freq.float()
            self._table = torch.polar(torch.ones_like(angles), angles) * rotary.attention_scaling
        return self._table


def _share(parameters: list[Any]) -> torch.Tensor:
    """Stack parameters into one tensor and make each a view of its part of it."""
    fused = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, fused.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return fused


def _pairs(key: torch.Tensor) -> torch.Tensor:
    """Put the two halves of each head side by side, element by element, as complex numbers lie."""
    return key.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)


def _rotate(heads: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotate ``[rows, heads, dim]`` by the rows' positions; the result lies in pairs."""
    first, second = heads.float().chunk(2, -1)
    turned = torch.view_as_real(torch.complex(first, second) * turn)
    return turned.flatten(-2).to(heads.dtype)
