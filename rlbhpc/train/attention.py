"""Attention over responses that stand in one line and share their prompts.

Everything else in a transformer looks at one token at a time and can read the line as it is.
Attention is given its rows back: a prompt's keys and values are laid before each of its responses,
which is then plain causal attention; without a window it needs no mask, and for that the fastest
kernels are made. What rows are padded with stands on their right, where under causal attention no
token looks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rlbhpc.engines.hf.backend import near_sight
from rlbhpc.engines.hf.sight import Sight
from rlbhpc.errors import UserError
from rlbhpc.train.batch import MicroBatch

NAME = "responses"
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
    model.set_attn_implementation({"text_config": NAME, "vision_config": "sdpa"} if sees else NAME)
    if model.config.get_text_config()._attn_implementation != NAME:
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
        laid = [_laid(table, group) for table in tables]
        mask = _window(group.shape[1], window, home.device)
        out, _ = sdpa_attention_forward(module, *laid, mask, **options)
        attended.append(out.reshape(-1, heads * size))
    line = attended[0] if len(attended) == 1 else torch.cat(attended)
    return embedding(home, line).view(1, -1, heads, size), None


def _laid(table: Tensor, group: Tensor) -> Tensor:
    """Cells of a table laid out in rows: (rows, heads, width, size).

    ``embedding`` is the one gather whose gradient is added up in parallel and in a fixed order.
    """
    line = embedding(group, table.reshape(len(table), -1))
    return line.unflatten(-1, table.shape[1:]).transpose(1, 2)


def _window(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Mask of a sliding window that is narrower than the rows; None where causal is all."""
    if window is None or window >= width:
        return None
    square = torch.ones(width, width, dtype=torch.bool, device=device)
    return square.tril().triu(1 - window)[None, None]


AttentionInterface.register(NAME, attention)
