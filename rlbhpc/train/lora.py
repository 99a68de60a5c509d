"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (α / r) · B A, of which A and B learn.

Adapters live inside the trainer alone. Rollouts and checkpoints get whole weights with the product
added, so sampling, scoring and any later training read a model like every other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from rlbhpc.engines.hf import backend
from rlbhpc.errors import UserError

# Constant, so that the best learning rate depends little on the rank (Schulman et al. 2025, "LoRA
# Without Regret"). Adam makes any other α much the same as another learning rate.
ALPHA = 32.0
# Share of a body's matrices that must be in linear layers, lest adapters train but a corner of it.
ENOUGH = 0.9


class LowRank(nn.Module):
    """A linear layer whose own weights stand still beside a learning product of rank ``rank``."""

    def __init__(self, plain: nn.Linear, rank: int, random: torch.Generator) -> None:
        super().__init__()
        self.plain = plain.requires_grad_(False)
        self.scale = ALPHA / rank
        weight = plain.weight
        bound = 1 / math.sqrt(plain.in_features)
        down = torch.empty(rank, plain.in_features).uniform_(-bound, bound, generator=random)
        self.down = nn.Parameter(down.to(weight))
        # At 0 the product is, too: training starts from the model as it was given.
        self.up = nn.Parameter(weight.new_zeros(plain.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Apply layer and product."""
        return self.plain(x) + linear(linear(x, self.down), self.up * self.scale)

    def merged(self, name: str) -> Tensor:
        """Weights of the one layer that does the same and is called ``name``."""
        product = self.up.float() @ self.down.float() * self.scale
        whole = self.plain.weight.float() + product
        return round_by_odds(whole, name) if self.plain.weight.dtype == torch.bfloat16 else whole


def round_by_odds(exact: Tensor, name: str) -> Tensor:
    """Round to bfloat16, up or down with the odds that keep the mean.

    Rounding to nearest would drop whatever is less than half of a weight's last digit, which for
    a product that has learnt a few steps is nearly all of it: samples would be another model's.
    The odds of the weight called ``name`` are drawn alike at every step, so that a run that goes on
    after a kill rounds as it would have.
    """
    random = torch.Generator(exact.device).manual_seed(crc32(name.encode()))
    odds = torch.randint(1 << 16, exact.shape, generator=random, device=exact.device)
    bits = exact.view(torch.int32) + odds.int()
    # bfloat16 is the first half of a float32's bits: what is left of the others is cut off.
    return (bits & -(1 << 16)).view(torch.float32).bfloat16()


def adapt(model: PreTrainedModel, rank: int, seed: int) -> None:
    """Hold a transformer's weights and give every linear layer of its body an adapter.

    All of them, not attention's alone, which would learn less (Schulman et al. 2025), and those of
    a vision tower. Embeddings, of patches too, norms and the output layer stand still.
    """
    body = model.base_model
    matrices = sum(p.numel() for p in body.parameters() if p.dim() > 1) - sum(
        m.weight.numel() for m in body.modules() if isinstance(m, (nn.Embedding, nn.Conv3d))
    )
    model.requires_grad_(False)
    random = torch.Generator().manual_seed(seed)
    adapted = 0
    for parent in list(body.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:  # a kind of it may do more, as some routers do
                adapted += child.weight.numel()
                setattr(parent, name, LowRank(child, rank, random))
    if adapted < ENOUGH * matrices:
        raise UserError(
            f"lora_rank: of the {matrices:,} weights of a {model.config.model_type} model that "
            f"adapters are for, only {adapted:,} are in plain linear layers; leave it out"
        )


def plain_size(module: nn.Module) -> int:
    """Number of parameters without those of adapters."""
    adapters = [m for m in module.modules() if isinstance(m, LowRank)]
    extra = sum(m.down.numel() + m.up.numel() for m in adapters)
    return sum(p.numel() for p in module.parameters()) - extra


def whole_weights(module: nn.Module) -> Iterator[tuple[str, list[Tensor], LowRank | None]]:
    """Weights as they are called without adapters: name, what they are made of, the adapter.

    Buffers that are saved are weights, too, such as a router's bias.
    """
    layers = {name: m for name, m in module.named_modules() if isinstance(m, LowRank)}
    for name, weight in backend.whole_weights(module).items():
        inner, _, leaf = name.rpartition(".")
        if inner in layers:
            continue  # A and B are in the weights that they adapt
        called = inner.removesuffix(".plain")
        layer = layers.get(called)
        if layer is None:
            yield name, [weight], None
        elif leaf == "weight":
            yield f"{called}.weight", [*layer.parameters()], layer
        else:
            yield f"{called}.{leaf}", [weight], None
