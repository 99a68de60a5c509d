"""The modules that are trained: a policy that gives log-probs, and a critic that gives values."""

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

from rlbhpc.engines.folder import staged
from rlbhpc.engines.hf_model import (
    IMAGE_MODELS,
    ImageProcessor,
    explain_loading_errors,
    model_class,
    named_weights,
    read_config,
    sliding_window_of,
)
from rlbhpc.errors import UserError
from rlbhpc.train.batch import MicroBatch


class TokenScores(NamedTuple):
    """Log-probability and entropy of each response token, flat, at the sampling temperature."""

    logprobs: Tensor
    entropies: Tensor


class Policy(nn.Module):
    """A causal language model that returns only what the losses need.

    The output layer runs on response positions alone: prompts never meet the vocabulary, which for
    short prompts and large vocabularies is most of the memory. ``entropy_gradient`` asks for
    entropies; without it they are 0, for the sampler has measured them already.
    """

    def __init__(
        self, model: PreTrainedModel, image_processor: ImageProcessor | None = None
    ) -> None:
        """Give the model attention in rows and an output layer in chunks, for training."""
        super().__init__()
        attend_in_rows(model)
        score_in_chunks(model.get_output_embeddings())
        self.model = model
        self.image_processor = image_processor
        self.entropy_gradient = False

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Policy:
        """Read a Hugging Face folder."""
        return cls(read_model(path, dtype), image_processor_of(path))

    def forward(self, batch: MicroBatch, temperature: float) -> TokenScores:
        """Score the response tokens of one micro-batch."""
        hidden = predicting_states(self.model.base_model, batch, self.image_processor)
        head = self.model.get_output_embeddings()
        return TokenScores(*head(hidden, batch.targets, temperature, self.entropy_gradient))


class Critic(nn.Module):
    """A policy's body with one output a token: the value before it."""

    def __init__(
        self, body: PreTrainedModel, image_processor: ImageProcessor | None = None
    ) -> None:
        """Put an output layer of one number, the value, on the transformer ``body``."""
        super().__init__()
        attend_in_rows(body)
        self.body = body
        self.image_processor = image_processor
        self.head = nn.Linear(body.config.get_text_config().hidden_size, 1, bias=False)
        # Start at 0: before it has learnt anything a critic should not bias a single advantage.
        nn.init.zeros_(self.head.weight)

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Critic:
        """Make a critic that starts from the body of the model in a folder."""
        return cls(read_model(path, dtype).base_model, image_processor_of(path)).to(dtype)

    def forward(self, batch: MicroBatch) -> Tensor:
        """Value before each response token, flat."""
        hidden = predicting_states(self.body, batch, self.image_processor)
        return self.head(hidden).squeeze(-1).float()


def read_model(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Read a Hugging Face folder, with its vision tower where it has one."""
    folder = staged(path)
    config = read_config(folder)
    with explain_loading_errors(folder):
        model: PreTrainedModel = model_class(config).from_pretrained(folder, dtype=dtype)
    return model


@cache
def image_processor_of(path: Path) -> ImageProcessor | None:
    """The one image processor of a model folder; None if the model cannot be shown images."""
    return ImageProcessor(path) if read_config(path).model_type in IMAGE_MODELS else None


def recompute_layers(model: nn.Module) -> None:
    """Let a transformers model keep only each layer's input until the gradient is due.

    The rest of a layer is computed again then, which saves most of the memory. transformers does so
    in training mode alone, which would also switch dropout on. A policy's log-probs must be those
    of the weights, so dropout is set to 0.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


# ---- attention -----------------------------------------------------------------------------------
# Attention over responses that are packed into one sequence and share their prompts.
#
# Everything else in a transformer looks at one token at a time and can read the sequence as it is.
# Attention is given rows: a prompt's keys and values are laid before each of its responses, which
# is then plain causal attention; without a window it needs no mask, and for that the fastest
# kernels are made. Rows are padded on their right, where under causal attention no token looks.

ROW_ATTENTION = "responses"
UNTRAINABLE = (
    "{} models cannot be trained here: {}; take one of plain attention layers, such as qwen2, "
    "qwen3, llama or mistral"
)
# What models call a change of their logits behind the output layer; 1 and None change nothing.
LOGIT_SCALES = (
    "logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier",
    "output_multiplier",
)  # fmt: skip


def attend_in_rows(model: PreTrainedModel) -> None:
    """Let a transformers model use :func:`row_attention`, or refuse one that this would change.

    ``row_attention`` is plain causal attention within each packed response. A model with recurrent
    state, capped or scaled numbers, or an attention of its own would compute something else with
    it.
    """
    config = model.config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    is_plain = (
        layer_types <= {"full_attention", "sliding_attention"}
        and not model._is_stateful
        and model._supports_sdpa
        and not getattr(config, "attn_logit_softcapping", None)
    )
    if not is_plain:
        reason = "a layer is more than plain attention (a recurrent state, capped scores, sinks)"
        raise UserError(UNTRAINABLE.format(config.model_type, reason))
    if any(getattr(config, name, None) not in (None, 1) for name in LOGIT_SCALES):
        raise UserError(UNTRAINABLE.format(config.model_type, "its logits are scaled or capped"))
    if "vision_config" in model.config.sub_configs:
        # A vision tower attends in both directions within one image, as PyTorch's attention does.
        model.set_attn_implementation({"text_config": ROW_ATTENTION, "vision_config": "sdpa"})
    else:
        model.set_attn_implementation(ROW_ATTENTION)
    if model.config.get_text_config()._attn_implementation != ROW_ATTENTION:
        raise UserError(UNTRAINABLE.format(config.model_type, "it has an attention of its own"))


def predicting_states(
    body: nn.Module, batch: MicroBatch, image_processor: ImageProcessor | None
) -> Tensor:
    """Last hidden state of the cell that predicts each response token, (tokens, hidden size).

    ``body`` is the transformer without its output layer. A *cell* is a place in the packed sequence
    of ``batch``; ``predicting_cells`` has, for each response token, the cell before it.
    """
    inputs: Any = {"input_ids": batch.input_ids}
    if batch.images:
        assert image_processor is not None
        inputs = {"inputs_embeds": _embed_with_images(body, batch, image_processor)}
    # A vision tower has no use for rows, so the language model is called without it.
    language_model = getattr(body, "language_model", body)
    output = language_model(
        **inputs,
        position_ids=batch.positions,
        use_cache=False,
        attention_rows=batch.attention_rows,
        row_slots=batch.row_slots,
    )
    return embedding(batch.predicting_cells, output.last_hidden_state[0])


def _embed_with_images(
    body: nn.Module, batch: MicroBatch, image_processor: ImageProcessor
) -> Tensor:
    """Embeddings of the packed sequence, with the vision tower's features where images stand.

    ``image_cells`` are the places of image tokens in the sequence, in the order of the features.
    Returns (1, cells, hidden size).
    """
    embeddings: Tensor = body.get_input_embeddings()(batch.input_ids)
    pixels, patch_grids = image_processor.pixels(batch.images)
    device = embeddings.device
    features = body.get_image_features(
        pixels.to(device), patch_grids.to(device), return_dict=True
    ).pooler_output
    image_embeddings = torch.cat(features).to(embeddings.dtype)
    return embeddings[0].index_copy(0, batch.image_cells, image_embeddings)[None]


def row_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attention_rows: tuple[Tensor, ...] | None = None,
    row_slots: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend row by row; takes (1, heads, cells, size) and gives (1, cells, heads, size).

    A *cell* is a place in the sequence into which all prompts and responses are packed. A *row*
    lists the cells of one prompt and one response: attention is causal within a row and never
    crosses rows. ``attention_rows`` holds the rows in padded groups (rows, width). ``row_slots``
    has each cell's index into all rows laid end to end, from which its output is taken.
    ``embedding(i, x)`` is x[i] with a gradient that is added up in a fixed order.
    """
    layer = type(module).__name__
    if attention_rows is None or row_slots is None or attention_mask is not None:
        raise UserError(UNTRAINABLE.format(layer, "it is not told of rows"))
    if "sliding_window" not in options and sliding_window_of(module.config) is not None:
        raise UserError(UNTRAINABLE.format(layer, "it is not told of its window"))
    window: int | None = options.pop("sliding_window", None)
    heads, value_size = query.shape[1], value.shape[-1]
    # (cells, heads, size) each.
    by_cell = [states[0].transpose(0, 1) for states in (query, key, value)]
    outputs = []
    for rows in attention_rows:
        by_row = [_lay_in_rows(states, rows) for states in by_cell]
        mask = _window_mask(rows.shape[1], window, row_slots.device)
        output, _ = sdpa_attention_forward(module, *by_row, mask, **options)
        # One line for each place in the rows, padding included.
        outputs.append(output.reshape(-1, heads * value_size))
    by_slot = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return embedding(row_slots, by_slot).view(1, -1, heads, value_size), None


def _lay_in_rows(by_cell: Tensor, rows: Tensor) -> Tensor:
    """Lay (cells, heads, size) out in rows: (rows, heads, width, size).

    ``embedding`` is the one gather whose gradient is added up in parallel and in a fixed order.
    """
    flat = embedding(rows, by_cell.reshape(len(by_cell), -1))
    return flat.unflatten(-1, by_cell.shape[1:]).transpose(1, 2)


def _window_mask(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Mask of a sliding window, (1, 1, width, width); None where the window holds whole rows."""
    if window is None or window >= width:
        return None
    all_pairs = torch.ones(width, width, dtype=torch.bool, device=device)
    return all_pairs.tril().triu(1 - window)[None, None]


AttentionInterface.register(ROW_ATTENTION, row_attention)


# ---- output layer --------------------------------------------------------------------------------
# Log-probs and entropies of tokens, without the logits of all of them at once.
#
# A response of 16,384 tokens over a vocabulary of 152,000 is 10 GB of logits in 32 bits, several
# times over. Here the output layer and what is made of its logits are one operation, which works on
# a chunk of tokens at a time, keeps one number a token, and multiplies again when the gradient is
# due: an output layer's work more, a third of its whole.

# Logits that are there at a time: 256 MiB in 32 bits.
CHUNK_LOGITS: Final = 1 << 26
# Bytes of one of them at the worst moment: as they come, in 32 bits, as probabilities, and back.
BYTES_PER_LOGIT: Final = 16


def score_in_chunks(head: nn.Module) -> None:
    """Make an output layer return (log-probs, entropies) of target tokens instead of logits.

    Its ``forward`` is replaced. The module stays, because ZeRO-3 gathers its weights once for each
    of its calls.
    """

    def forward(hidden: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        scores: tuple[Tensor, Tensor] = ScoreTokens.apply(
            hidden, head.weight, head.bias, *arguments
        )
        return scores

    head.forward = forward


def tokens_per_chunk(vocabulary: int) -> int:
    """Tokens whose logits are there at a time."""
    return max(1, CHUNK_LOGITS // vocabulary)


class ScoreTokens(torch.autograd.Function):
    """log p(target) and H under p = softmax((h·Wᵀ + b) / T), float32.

    With g and e the gradients of log-prob and entropy, that of the scaled logits is
    g·(1[target] − p) − e·p·(log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        with_entropies: bool,
    ) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy of each target token, from hidden states (tokens, d).

        ``weight`` and ``bias`` are the output layer's. Only ``n_chunk`` tokens have their logits in
        memory at a time. ``log_total`` is log Σ exp(logits): it and the entropies are saved for
        ``backward``, which multiplies again instead of keeping logits. Entropies are 0 unless asked
        for.
        """
        n_chunk = tokens_per_chunk(len(weight))
        chunks = []
        for states, target in zip(hidden.split(n_chunk), targets.split(n_chunk), strict=True):
            scaled = linear(states, weight, bias).float() / temperature
            log_total = scaled.logsumexp(-1)
            logprob = scaled.gather(-1, target[:, None])[:, 0] - log_total
            entropy = torch.zeros_like(logprob)
            if with_entropies:
                log_p = scaled.sub_(log_total[:, None])
                entropy = -(log_p.exp().mul_(log_p)).sum(-1)
            chunks.append(torch.stack([logprob, entropy, log_total]))
        logprobs, entropies, log_totals = torch.cat(chunks, 1).unbind()
        ctx.save_for_backward(hidden, weight, bias, targets, log_totals, entropies)
        ctx.temperature = temperature
        ctx.with_entropies = with_entropies
        return logprobs.clone(), entropies.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, logprob_gradients: Tensor, entropy_gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, weight and bias; the other inputs have none.

        The inputs are gradients of the loss by each token's log-prob (g) and entropy (e). Chunk by
        chunk the logits are computed again; with probabilities p and entropy H, their gradient is
        g·(1[target] − p) − e·p·(log p + H), divided by the temperature.
        """
        hidden, weight, bias, targets, log_totals, entropies = ctx.saved_tensors
        n_chunk = tokens_per_chunk(len(weight))
        has_several_chunks = len(hidden) > n_chunk
        # In 16 bits the sum over many chunks would no longer grow.
        sum_dtype = torch.float32 if has_several_chunks else weight.dtype
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = bias_gradient = None
        if ctx.needs_input_grad[1]:
            weight_gradient = torch.zeros_like(weight, dtype=sum_dtype)
        if ctx.needs_input_grad[2]:
            bias_gradient = torch.zeros_like(bias, dtype=sum_dtype)
        for start in range(0, len(hidden), n_chunk):
            chunk = slice(start, start + n_chunk)
            states = hidden[chunk]
            g = logprob_gradients[chunk, None]
            scaled = linear(states, weight, bias).float() / ctx.temperature
            log_p = scaled.sub_(log_totals[chunk, None])
            logit_gradient = log_p.exp().mul_(-g)
            if ctx.with_entropies:
                e = entropy_gradients[chunk, None]
                of_entropy = log_p.exp().mul_(e).mul_(log_p + entropies[chunk, None])
                logit_gradient.sub_(of_entropy)
            logit_gradient.scatter_add_(1, targets[chunk, None], g)
            # By the unscaled logits, in the type of the weights.
            narrow = logit_gradient.div_(ctx.temperature).to(states.dtype)
            hidden_gradient[chunk] = narrow @ weight
            if weight_gradient is not None:
                product = narrow.t() @ states
                weight_gradient = weight_gradient.add_(product) if has_several_chunks else product
            if bias_gradient is not None:
                bias_gradient.add_(narrow.sum(0))
        # autograd itself rounds a gradient to the type of what it is of.
        return hidden_gradient, weight_gradient, bias_gradient, None, None, None


# ---- adapters ------------------------------------------------------------------------------------
# Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (α / r) · B A, of which A and B learn.
#
# Adapters live inside the trainer alone. Rollouts and checkpoints get whole weights with the
# product added, so sampling, scoring and any later training read a model like every other.

# Constant, so that the best learning rate depends little on the rank (Schulman et al. 2025, "LoRA
# Without Regret"). Adam makes any other α much the same as another learning rate.
ALPHA = 32.0
# Share of a body's matrices that must be in linear layers, lest adapters train but a corner of it.
MIN_ADAPTED_SHARE = 0.9


class LowRank(nn.Module):
    """A frozen linear layer beside a learning product of rank ``rank``: ``up`` is B, ``down`` A."""

    def __init__(self, plain: nn.Linear, rank: int, generator: torch.Generator) -> None:
        """Freeze the linear layer ``plain`` and give it a low-rank product that learns.

        ``down`` (rank, inputs) starts at random and ``up`` (outputs, rank) at 0.
        """
        super().__init__()
        self.plain = plain.requires_grad_(False)
        self.scale = ALPHA / rank
        bound = 1 / math.sqrt(plain.in_features)
        down = torch.empty(rank, plain.in_features).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down.to(plain.weight))
        # At 0 the product is 0, too: training starts from the model as it was given.
        self.up = nn.Parameter(plain.weight.new_zeros(plain.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Apply layer and product."""
        return self.plain(x) + linear(linear(x, self.down), self.up * self.scale)

    def merged_weight(self, name: str) -> Tensor:
        """Weight, called ``name``, of the one linear layer that does the same."""
        product = self.up.float() @ self.down.float() * self.scale
        merged = self.plain.weight.float() + product
        if self.plain.weight.dtype == torch.bfloat16:
            return round_stochastically(merged, name)
        return merged


def round_stochastically(exact: Tensor, name: str) -> Tensor:
    """Round float32 to bfloat16, up or down with the odds that keep the mean.

    Rounding to nearest would drop whatever is less than half of a weight's last digit, which for
    a product that has learnt a few steps is nearly all of it: samples would be another model's.
    The random numbers depend on the weight's ``name`` alone, so that a run that goes on after a
    kill rounds as it would have.
    """
    generator = torch.Generator(exact.device).manual_seed(crc32(name.encode()))
    # bfloat16 is the first half of a float32's bits: a random number is added to the second half,
    # which is then cut off.
    noise = torch.randint(1 << 16, exact.shape, generator=generator, device=exact.device)
    bits = exact.view(torch.int32) + noise.int()
    return (bits & -(1 << 16)).view(torch.float32).bfloat16()


def add_adapters(model: PreTrainedModel, rank: int, seed: int) -> None:
    """Freeze a transformer and give every linear layer of its body a low-rank adapter.

    All of them, not attention's alone, which would learn less (Schulman et al. 2025), and those of
    a vision tower. Embeddings, of patches too, norms and the output layer stand still. A model
    whose matrices are mostly outside plain linear layers is refused, since adapters would train
    little of it.
    """
    body = model.base_model
    # Numbers in matrices; those of embeddings are taken off below.
    n_weights = sum(p.numel() for p in body.parameters() if p.dim() > 1)
    for module in body.modules():
        if isinstance(module, (nn.Embedding, nn.Conv3d)):
            n_weights -= module.weight.numel()
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    n_adapted = 0
    for parent in list(body.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:  # a subclass may do more, as some routers do
                n_adapted += child.weight.numel()
                setattr(parent, name, LowRank(child, rank, generator))
    if n_adapted < MIN_ADAPTED_SHARE * n_weights:
        raise UserError(
            f"lora_rank: of the {n_weights:,} weights of a {model.config.model_type} model that "
            f"adapters are for, only {n_adapted:,} are in plain linear layers; leave it out"
        )


def count_base_parameters(module: nn.Module) -> int:
    """Number of parameters without those of adapters."""
    n_parameters = sum(parameter.numel() for parameter in module.parameters())
    for layer in module.modules():
        if isinstance(layer, LowRank):
            n_parameters -= layer.down.numel() + layer.up.numel()
    return n_parameters


def weights_with_adapters(module: nn.Module) -> Iterator[tuple[str, list[Tensor], LowRank | None]]:
    """Each weight's name without adapters, the parameters that make it, and its adapter if any.

    An adapted layer ``x`` holds its frozen layer as ``x.plain`` beside its two factors: these
    become one weight ``x.weight``. Saved buffers are weights, too, such as a router's bias.
    """
    adapters = {name: layer for name, layer in module.named_modules() if isinstance(layer, LowRank)}
    for full_name, weight in named_weights(module).items():
        layer_name, _, leaf = full_name.rpartition(".")
        if layer_name in adapters:
            continue  # A or B, which is merged into the weight that it adapts
        layer_name = layer_name.removesuffix(".plain")
        adapter = adapters.get(layer_name)
        if adapter is None:
            yield full_name, [weight], None
        elif leaf == "weight":
            yield f"{layer_name}.weight", [*adapter.parameters()], adapter
        else:
            yield f"{layer_name}.{leaf}", [weight], None
