"""Prompts with images, for models of the Qwen2-VL family.

A prompt marks an image with one token. Here that token becomes as many as the image has patches
after merging, the vision tower's features take their places, and positions run in three directions
(time, height, width) over an image. Behind it they are plain again, but lower than the column by a
*shift* that belongs to the prompt; a decoding step needs nothing else of the images.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoImageProcessor, DynamicCache

from rlbhpc.engines.completion import Request
from rlbhpc.engines.hf.backend import Backend
from rlbhpc.engines.hf.slots import Layers, prefix_layers, round_up
from rlbhpc.engines.pictures import opened
from rlbhpc.errors import UserError

# Problems whose pixels are kept for their next samples; a large image takes hundreds of megabytes.
KEPT = 4

#: Pixels as the vision tower takes them, and each image's patches in time, height and width.
Pixels = tuple[torch.Tensor, torch.Tensor]


class VisionBackend(Backend):
    """:class:`Backend` of a model that sees."""

    def __init__(self, module: Any, folder: Path) -> None:
        super().__init__(module)
        # Pillow's resizing everywhere: torchvision's differs by a few bits where it is installed.
        self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self._mark: int = module.config.image_token_id
        self._kept: OrderedDict[tuple[bytes, ...], Pixels] = OrderedDict()
        self._lock = threading.Lock()  # batches that run side by side share this

    def expand(self, request: Request) -> Request:
        """Give each image of a request as many tokens as the model sees of it."""
        marks = request.prompt_ids.count(self._mark)
        if marks != len(request.images):
            raise UserError(f"the prompt marks {marks} images and has {len(request.images)}")
        if not marks:
            return request
        _, grids = self._pixels(request.images)
        sizes = iter((grids.prod(-1) // self._processor.merge_size**2).tolist())
        ids: list[int] = []
        for token in request.prompt_ids:
            ids += [token] * (next(sizes) if token == self._mark else 1)
        return replace(request, prompt_ids=tuple(ids))

    def prefill_shown(
        self, ids: tuple[int, ...], images: tuple[bytes, ...]
    ) -> tuple[torch.Tensor, Layers, int]:
        """Run one expanded prompt with its images: hidden states, cache and shift."""
        pixels, grids = self._pixels(images)
        padded = torch.zeros((1, round_up(len(ids))), dtype=torch.long, device=self.device)
        padded[0, : len(ids)] = torch.tensor(ids)
        kinds = (padded == self._mark).int()
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

    def _pixels(self, images: tuple[bytes, ...]) -> Pixels:
        with self._lock:
            if images not in self._kept:
                try:
                    made = self._processor(images=list(opened(images)), return_tensors="pt")
                except ValueError as error:  # such as one that is 300 times as wide as high
                    raise UserError(f"an image that the model cannot be shown: {error}") from None
                self._kept[images] = made["pixel_values"], made["image_grid_thw"]
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(images)
            return self._kept[images]
