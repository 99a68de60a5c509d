"""What a model of the Qwen2-VL family makes of images: pixels, tokens, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoImageProcessor

from rlbhpc.engines.pictures import KEPT, keep, opened
from rlbhpc.errors import UserError

#: Pixels as the vision tower takes them, and each image's patches in time, height and width.
Pixels = tuple[torch.Tensor, torch.Tensor]


class Sight:
    """The eyes of one model folder.

    A prompt marks an image with one token. Here that token becomes as many as the image has patches
    after merging; the vision tower's features take their places.
    """

    def __init__(self, folder: Path) -> None:
        # Pillow's resizing everywhere: torchvision's differs by a few bits where it is installed.
        self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.mark: int = AutoConfig.from_pretrained(folder).image_token_id
        self._kept: dict[tuple[bytes, ...], Pixels] = {}
        self._lock = Lock()  # batches that run side by side share one pair of eyes

    def expand(self, prompt_ids: Sequence[int], images: tuple[bytes, ...]) -> tuple[int, ...]:
        """Give each image of a prompt as many tokens as the model sees of it."""
        marks = prompt_ids.count(self.mark)
        if marks != len(images):
            raise UserError(f"the prompt marks {marks} images and has {len(images)}")
        if not images:
            return tuple(prompt_ids)
        patches = self.pixels(images)[1].prod(dim=1)
        sizes = iter((patches // self._processor.merge_size**2).tolist())
        ids: list[int] = []
        for token in prompt_ids:
            ids += [token] * (next(sizes) if token == self.mark else 1)
        return tuple(ids)

    def positions(self, expanded: Sequence[int], images: tuple[bytes, ...]) -> NDArray[np.int64]:
        """Where the tokens of an expanded prompt stand in time, height and width, (3, tokens).

        Text counts on in all three. An image stands still in time and counts its rows and columns
        from there; what follows it stands behind the larger of the two (Wang et al. 2024,
        arXiv 2409.12191, section 2.1).
        """
        parts: list[NDArray[np.int64]] = []
        sizes = iter((self.pixels(images)[1][:, 1:] // self._processor.merge_size).tolist())
        index, start = 0, 0
        while index < len(expanded):
            if expanded[index] == self.mark:
                height, width = next(sizes)
                grid = np.indices((1, height, width)).reshape(3, -1)
                parts.append(grid + start)
                index, start = index + height * width, start + max(height, width)
            else:
                parts.append(np.full((3, 1), start))
                index, start = index + 1, start + 1
        return np.concatenate(parts, axis=1)

    def pixels(self, images: tuple[bytes, ...]) -> Pixels:
        """Images as the vision tower takes them, one after the other."""
        with self._lock:
            if images not in self._kept:
                try:
                    inputs = self._processor(images=list(opened(images)), return_tensors="pt")
                except ValueError as error:  # such as one that is 300 times as wide as high
                    raise UserError(f"an image that the model cannot be shown: {error}") from None
                fresh = inputs["pixel_values"], inputs["image_grid_thw"]
                keep(self._kept, images, fresh, lambda pixels: pixels[0].nbytes, KEPT)
            return self._kept[images]
