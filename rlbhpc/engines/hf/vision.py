"""Prompts with images, for models of the Qwen2-VL family.

Positions run in three directions over an image (:mod:`rlbhpc.engines.hf.sight`). Behind it they are
plain again, but lower than the column by a *shift* that belongs to the prompt; a decoding step
needs nothing else of the images.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from rlbhpc.engines.completion import Request
from rlbhpc.engines.hf.backend import Backend
from rlbhpc.engines.hf.sight import Sight
from rlbhpc.engines.hf.slots import Layers, prefix_layers, round_up


class VisionBackend(Backend):
    """:class:`Backend` of a model that sees."""

    def __init__(self, module: Any, folder: Path) -> None:
        super().__init__(module)
        self._sight = Sight(folder)

    def expand(self, request: Request) -> Request:
        """Give each image of a request as many tokens as the model sees of it."""
        return replace(request, prompt_ids=self._sight.expand(request.prompt_ids, request.images))

    def prefill_shown(
        self, ids: tuple[int, ...], images: tuple[bytes, ...]
    ) -> tuple[torch.Tensor, Layers, int]:
        """Run one expanded prompt with its images: hidden states, cache and shift."""
        pixels, grids = self._sight.pixels(images)
        padded = torch.zeros((1, round_up(len(ids))), dtype=torch.long, device=self.device)
        padded[0, : len(ids)] = torch.tensor(ids)
        kinds = (padded == self._sight.mark).int()
        model = self.module.base_model
        positions, deltas = model.get_rope_index(
            padded, mm_token_type_ids=kinds, image_grid_thw=grids
        )
        cache = DynamicCache()
        hidden = model(
            input_ids=padded,
            position_ids=positions,
            pixel_values=pixels.to(self.device, self.dtype),
            image_grid_thw=grids.to(self.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return hidden, prefix_layers(cache), int(deltas[0])

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states; the family has a plain linear output layer."""
        return torch.nn.functional.linear(hidden, self.module.lm_head.weight)
