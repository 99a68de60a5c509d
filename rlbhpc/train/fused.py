"""Layers of the plain kind, with each chain of small operations written as one.

Between its matrix products a decoder layer does little arithmetic on a lot of memory. Autograd runs
that as a dozen passes over whole arrays and keeps what each of them made; here a chain is run on a
piece of the array that fits a processor's cache, keeps nothing that it can make again, and has its
gradient written out. The operations and their order are those of transformers' own layers: in
float32 the tests find no bit that differs, in what comes out or in any gradient, but for that of
the norms over heads (Qwen3), which is added up in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from rlbhpc.engines.hf.backend import near_sight
from rlbhpc.engines.hf.lean import FAMILIES
from rlbhpc.train.attention import attend_tables

# Elements of a piece for each core, of which PyTorch gives a thread no fewer: a few arrays of this
# size stay in the cache that a core has for itself.
PIECE = 1 << 16


def fuse_layers(body: Any) -> None:
    """Let the layers of a transformers body run as written here, where they are of this kind."""
    config = body.config
    plain = config.model_type in FAMILIES and config.hidden_act == "silu"
    # Mistral's attention has a window whatever its layers are called.
    window = config.sliding_window if config.model_type == "mistral" else near_sight(config)
    if not plain or window is not None:
        return
    for layer in body.layers:
        # The modules stay who they are: hooks of ZeRO, adapters and recomputing hold on to them.
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.forward = MethodType(_norm, norm)
        layer.self_attn.forward = MethodType(_attention, layer.self_attn)
        layer.mlp.forward = MethodType(_mlp, layer.mlp)
        layer.forward = MethodType(_layer, layer)


def _layer(self: Any, hidden_states: Tensor, **told: Any) -> Tensor:
    hidden, normed = self.input_layernorm(hidden_states)
    hidden, normed = self.post_attention_layernorm(hidden, self.self_attn(normed, **told))
    return hidden + self.mlp(normed)


def _norm(self: Any, hidden: Tensor, update: Tensor | None = None) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = AddAndNorm.apply(
        hidden, update, self.weight, self.variance_epsilon
    )
    return found


def _attention(
    self: Any,
    hidden: Tensor,
    *,
    position_embeddings: tuple[Tensor, Tensor],
    rows: tuple[Tensor, ...],
    home: Tensor,
    **_: Any,
) -> Tensor:
    heads = (*hidden.shape[1:-1], -1, self.head_dim)
    query, key, value = (
        project(hidden).view(heads) for project in (self.q_proj, self.k_proj, self.v_proj)
    )
    if hasattr(self, "q_norm"):
        query, key = self.q_norm(query), self.k_norm(key)
    cos, sin = (x[0] for x in position_embeddings)
    tables = [Rotate.apply(query, cos, sin), Rotate.apply(key, cos, sin), value]
    dropout = self.attention_dropout if self.training else 0.0
    seen = attend_tables(self, tables, rows, home, dropout=dropout, scaling=self.scaling)
    out: Tensor = self.o_proj(seen.flatten(1)[None])
    return out


def _mlp(self: Any, x: Tensor) -> Tensor:
    out: Tensor = self.down_proj(Gate.apply(self.gate_proj(x), self.up_proj(x)))
    return out


def pieces(first: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Arrays of as many rows in pieces of as many rows; whole where that would gain nothing."""
    rows = len(first)
    size = PIECE * max(4, torch.get_num_threads())
    step = max(1, size * rows // max(1, first.numel()))
    if first.device.type != "cpu" or isinstance(first, FakeTensor) or step >= rows:
        yield first, *others
    else:
        yield from zip(*(x.split(step) for x in (first, *others)), strict=True)


class AddAndNorm(torch.autograd.Function):
    """The residual stream h = x + u (or x), and w · h / √(mean h² + ε); RMSNorm, as transformers'.

    With r = 1/√(mean h² + ε), n = h·r and gradients g of h and e of w·n: that of w is Σ e·n, and
    that of h is g + r·e·w − h·r³·mean(h·e·w).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, update: Tensor | None, weight: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Hidden states and normed hidden states, (1, cells, hidden)."""
        hidden = x.view_as(x) if update is None else torch.empty_like(x)
        normed = torch.empty_like(x)
        scale = x.new_empty(x.shape[1], 1, dtype=torch.float32)
        added = x if update is None else update
        for old, new, h, n, r in pieces(x[0], added[0], hidden[0], normed[0], scale):
            if update is not None:
                torch.add(old, new, out=h)
            wide = h.float()
            r.copy_(torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon))
            torch.mul(weight, (wide * r).to(x.dtype), out=n)
        ctx.save_for_backward(hidden, scale, weight)
        ctx.updated = update is not None
        return hidden, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, e: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, update and weight."""
        hidden, scale, weight = ctx.saved_tensors
        found, product = torch.empty_like(g), torch.empty_like(e)
        for h, r, g_h, e_n, out, en in pieces(hidden[0], scale, g[0], e[0], found[0], product[0]):
            wide = h.float()
            if ctx.needs_input_grad[2]:
                torch.mul(e_n, (wide * r).to(e.dtype), out=en)
            due = (e_n * weight).float()
            mean = (due * wide).sum(-1, keepdim=True).mul_(-1).mul_(r.pow(3))
            mean.div_(h.shape[-1])
            torch.add(due.mul_(r).add_(g_h), wide * mean, out=out)
        of_weight = product.sum((0, 1)) if ctx.needs_input_grad[2] else None
        return found, found if ctx.updated else None, of_weight, None


class Rotate(torch.autograd.Function):
    """Rotary positions: the halves (a, b) of each head become (a·c − b·s, b·c + a·s)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate (cells, heads, size) by (cells, size)."""
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, back=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Rotate back."""
        return _rotated(gradient, *ctx.saved_tensors, back=True), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    half = x.shape[-1] // 2
    # Laid out so that one product makes what each half gives to the other.
    given = sin if back else sin.roll(half, -1)
    for part, o, c, s in pieces(x, out, cos[:, None], given[:, None]):
        torch.mul(part, c, out=o)
        from_a, from_b = (part * s).split(half, -1)
        if back:
            o[..., :half].add_(from_b)
            o[..., half:].sub_(from_a)
        else:
            o[..., :half].sub_(from_b)
            o[..., half:].add_(from_a)
    return out


class Gate(torch.autograd.Function):
    """The gated unit silu(a) · b."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Gate (1, cells, size)."""
        ctx.save_for_backward(a, b)
        out = torch.empty_like(a)
        for a_p, b_p, o in pieces(a[0], b[0], out[0]):
            torch.mul(silu(a_p), b_p, out=o)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of both."""
        a, b = ctx.saved_tensors
        of_a, of_b = torch.empty_like(a), torch.empty_like(b)
        for a_p, b_p, g, o_a, o_b in pieces(a[0], b[0], gradient[0], of_a[0], of_b[0]):
            torch.mul(g, silu(a_p), out=o_b)
            torch.ops.aten.silu_backward(g * b_p, a_p, grad_input=o_a)
        return of_a, of_b
