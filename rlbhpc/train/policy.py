"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (α / r) · B A, of which A and B learn.

Adapters live inside the trainer alone. Rollouts and checkpoints get whole weights with the product
added, so sampling, scoring and any later training read a model like every other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, linear
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rlbhpc.engines import hf_model as backend
from rlbhpc.engines.folder import staged
from rlbhpc.engines.hf_model import SEEING, Sight, loading, model_kind, near_sight, read_config
from rlbhpc.errors import UserError
from rlbhpc.train.batch import MicroBatch

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


# ---- policy --------------------------------------------------------------------------------------
# The modules that are trained: a policy that gives log-probs, and a critic that gives values.


# ---- attention -----------------------------------------------------------------------------------
# Attention over responses that stand in one line and share their prompts.
#
# Everything else in a transformer looks at one token at a time and can read the line as it is.
# Attention is given its rows back: a prompt's keys and values are laid before each of its
# responses, which is then plain causal attention; without a window it needs no mask, and for that
# the fastest kernels are made. What rows are padded with stands on their right, where under causal
# attention no token looks.

ROW_ATTENTION = "responses"
REFUSED = (
    "{} models cannot be trained here: {}; take one of plain attention layers, such as qwen2, "
    "qwen3, llama or mistral"
)
# What models call a change of their logits behind the output layer; 1 and None change nothing.
BEHIND = (
    "logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier",
    "output_multiplier",
)  # fmt: skip


def attend_in_rows(model: PreTrainedModel) -> None:
    """Let a transformers model attend with :func:`attention`, or refuse what that would change."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    plain = kinds <= {"full_attention", "sliding_attention"} and not model._is_stateful
    if not plain or not model._supports_sdpa or getattr(config, "attn_logit_softcapping", None):
        why = "a layer is more than plain attention (a recurrent state, capped scores, sinks)"
        raise UserError(REFUSED.format(config.model_type, why))
    if any(getattr(config, name, None) not in (None, 1) for name in BEHIND):
        raise UserError(REFUSED.format(config.model_type, "its logits are scaled or capped"))
    # A vision tower looks both ways, at one image at a time: PyTorch's own attention does.
    sees = "vision_config" in model.config.sub_configs
    by_part = {"text_config": ROW_ATTENTION, "vision_config": "sdpa"}
    model.set_attn_implementation(by_part if sees else ROW_ATTENTION)
    if model.config.get_text_config()._attn_implementation != ROW_ATTENTION:
        raise UserError(REFUSED.format(config.model_type, "it has an attention of its own"))


def hidden_states(body: nn.Module, batch: MicroBatch, sight: Sight | None) -> Tensor:
    """Last hidden state of each response token's predicting cell, (response tokens, hidden)."""
    read: Any = {"input_ids": batch.input_ids}
    if batch.images:
        assert sight is not None
        read = {"inputs_embeds": _with_images(body, batch, sight)}
    # What is told of rows is for the layers that read the line, not for a vision tower.
    reader = getattr(body, "language_model", body)
    hidden = reader(
        **read, position_ids=batch.positions, use_cache=False, rows=batch.rows, home=batch.home
    ).last_hidden_state
    return embedding(batch.cells, hidden[0])


def _with_images(body: nn.Module, batch: MicroBatch, sight: Sight) -> Tensor:
    """Embeddings of the line, those of images from the vision tower."""
    tokens: Tensor = body.get_input_embeddings()(batch.input_ids)
    pixels, grids = (x.to(tokens.device) for x in sight.pixels(batch.images))
    seen = body.get_image_features(pixels, grids, return_dict=True).pooler_output
    return tokens[0].index_copy(0, batch.seen, torch.cat(seen).to(tokens.dtype))[None]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    rows: tuple[Tensor, ...] | None = None,
    home: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend row by row; takes (1, heads, cells, size) and gives (1, cells, heads, size)."""
    if rows is None or home is None or attention_mask is not None:
        raise UserError(REFUSED.format(type(module).__name__, "it is not told of rows"))
    if "sliding_window" not in options and near_sight(module.config) is not None:
        raise UserError(REFUSED.format(type(module).__name__, "it is not told of its window"))
    tables = [x[0].transpose(0, 1) for x in (query, key, value)]
    heads, size = query.shape[1], value.shape[-1]
    window: int | None = options.pop("sliding_window", None)
    attended = []
    for group in rows:
        laid = [_lay_in_rows(table, group) for table in tables]
        mask = _window_mask(group.shape[1], window, home.device)
        out, _ = sdpa_attention_forward(module, *laid, mask, **options)
        attended.append(out.reshape(-1, heads * size))
    line = attended[0] if len(attended) == 1 else torch.cat(attended)
    return embedding(home, line).view(1, -1, heads, size), None


def _lay_in_rows(table: Tensor, group: Tensor) -> Tensor:
    """Cells of a table laid out in rows: (rows, heads, width, size).

    ``embedding`` is the one gather whose gradient is added up in parallel and in a fixed order.
    """
    line = embedding(group, table.reshape(len(table), -1))
    return line.unflatten(-1, table.shape[1:]).transpose(1, 2)


def _window_mask(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Mask of a sliding window that is narrower than the rows; None where causal is all."""
    if window is None or window >= width:
        return None
    square = torch.ones(width, width, dtype=torch.bool, device=device)
    return square.tril().triu(1 - window)[None, None]


AttentionInterface.register(ROW_ATTENTION, attention)


# ---- head ----------------------------------------------------------------------------------------
# Log-probs and entropies of tokens, without the logits of all of them at once.
#
# A response of 16,384 tokens over a vocabulary of 152,000 is 10 GB of logits in 32 bits, several
# times over. Here the output layer and what is made of its logits are one operation, which works on
# some rows at a time, keeps one number a token, and multiplies again when the gradient is due: an
# output layer's work more, a third of its whole.


# Logits that are there at a time: 256 MiB in 32 bits.
LOGITS: Final = 1 << 26
# Bytes of one of them at the worst moment: as they come, in 32 bits, as probabilities, and back.
BYTES_PER_LOGIT: Final = 16


def score_in_chunks(head: nn.Module) -> None:
    """Let an output layer give (log-probs, entropies) of targets.

    The module stays, since ZeRO-3 gathers its weights once for each of its calls.
    """
    head.forward = lambda hidden, *rest: TokenScores.apply(hidden, head.weight, head.bias, *rest)


def chunk_rows(vocabulary: int) -> int:
    """Tokens whose logits are there at a time."""
    return max(1, LOGITS // vocabulary)


class TokenScores(torch.autograd.Function):
    """log p(target) and H under softmax((h·Wᵀ + b) / T), float32.

    With p the distribution, g and e the gradients of log-prob and entropy, that of the scaled
    logits is g·(1[target] − p) − e·p·(log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        entropies: bool,
    ) -> tuple[Tensor, Tensor]:
        """Score hidden states (tokens, d); entropies are 0 unless they are wanted."""
        rows = chunk_rows(len(weight))
        parts = []
        for h, target in zip(hidden.split(rows), targets.split(rows), strict=True):
            scaled = linear(h, weight, bias).float() / temperature
            norm = scaled.logsumexp(-1)
            logprob = scaled.gather(-1, target[:, None])[:, 0] - norm
            entropy = _entropy(scaled, norm) if entropies else torch.zeros_like(logprob)
            parts.append(torch.stack([logprob, entropy, norm]))
        logprobs, entropy, norms = torch.cat(parts, 1).unbind()
        ctx.save_for_backward(hidden, weight, bias, targets, norms, entropy)
        ctx.temperature, ctx.entropies = temperature, entropies
        return logprobs.clone(), entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, e: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, weight and bias."""
        hidden, weight, bias, *columns = ctx.saved_tensors
        rows = chunk_rows(len(weight))
        several = len(hidden) > rows
        of_hidden = torch.empty_like(hidden)
        # In 16 bits the sum over many chunks would no longer grow.
        wide = torch.float32 if several else weight.dtype
        of_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if ctx.needs_input_grad[2] else None
        pieces = (x.split(rows) for x in (hidden, of_hidden, *columns, g, e))
        for h, of_h, target, norm, entropy, g_part, e_part in zip(*pieces, strict=True):
            scaled = linear(h, weight, bias).float() / ctx.temperature
            logp = scaled.sub_(norm[:, None])
            due = logp.exp().mul_(-g_part[:, None])
            if ctx.entropies:
                due.sub_(logp.exp().mul_(e_part[:, None]).mul_(logp + entropy[:, None]))
            due.scatter_add_(1, target[:, None], g_part[:, None])
            narrow = due.div_(ctx.temperature).to(h.dtype)
            of_h.copy_(narrow @ weight)
            if of_weight is not None:
                product = narrow.t() @ h
                of_weight = of_weight.add_(product) if several else product
            if of_bias is not None:
                of_bias.add_(narrow.sum(0))
        # autograd itself rounds a gradient to the type of what it is of.
        return of_hidden, of_weight, of_bias, None, None, None


def _entropy(scaled: Tensor, norm: Tensor) -> Tensor:
    """H = −Σ p log p, from scaled logits and their log-sum-exp."""
    logp = scaled.sub_(norm[:, None])
    return -(logp.exp().mul_(logp)).sum(-1)


# ---- policy --------------------------------------------------------------------------------------
# The modules that are trained: a policy that gives log-probs, and a critic that gives values.


class Scored(NamedTuple):
    """Log-probability and entropy of each response token, flat, at the sampling temperature."""

    logprobs: Tensor
    entropies: Tensor


def read_model(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Read a Hugging Face folder, with its vision tower where it has one."""
    folder = staged(path)
    kind = model_kind(read_config(folder))
    with loading(folder):
        model: PreTrainedModel = kind.from_pretrained(folder, dtype=dtype)
    return model


@cache
def sight_of(path: Path) -> Sight | None:
    """The eyes of a model folder, if it has any; those who look share what they have seen."""
    return Sight(path) if read_config(path).model_type in SEEING else None


def recompute_layers(model: nn.Module) -> None:
    """Let a transformers model keep nothing of a layer but what goes into it.

    transformers does so in training mode alone, which would also wake dropout: a policy's log-probs
    must be those of the weights, so it is taken out.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


class Policy(nn.Module):
    """A causal language model that returns only what the losses need.

    The output layer runs on response positions alone: prompts never meet the vocabulary, which for
    short prompts and large vocabularies is most of the memory.
    """

    def __init__(self, model: PreTrainedModel, sight: Sight | None = None) -> None:
        super().__init__()
        attend_in_rows(model)
        score_in_chunks(model.get_output_embeddings())
        self.model = model
        self.sight = sight
        self.entropy_gradient = False

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Policy:
        """Read a Hugging Face folder."""
        return cls(read_model(path, dtype), sight_of(path))

    def forward(self, batch: MicroBatch, temperature: float) -> Scored:
        """Score the response tokens of one micro-batch.

        Entropies are computed where the loss wants their gradient (``entropy_gradient``) and are 0
        elsewhere: the sampler has measured them already.
        """
        hidden = hidden_states(self.model.base_model, batch, self.sight)
        head = self.model.get_output_embeddings()
        return Scored(*head(hidden, batch.targets, temperature, self.entropy_gradient))


class Critic(nn.Module):
    """The same body with one output a token: the value before it."""

    def __init__(self, body: PreTrainedModel, sight: Sight | None = None) -> None:
        super().__init__()
        attend_in_rows(body)
        self.body = body
        self.sight = sight
        self.head = nn.Linear(body.config.get_text_config().hidden_size, 1, bias=False)
        # Start at 0: before it has learnt anything a critic should not bias a single advantage.
        nn.init.zeros_(self.head.weight)

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Critic:
        """A critic that starts from the policy's own body."""
        return cls(read_model(path, dtype).base_model, sight_of(path)).to(dtype)

    def forward(self, batch: MicroBatch) -> Tensor:
        """Value before each response token, flat."""
        return self.head(hidden_states(self.body, batch, self.sight)).squeeze(-1).float()
