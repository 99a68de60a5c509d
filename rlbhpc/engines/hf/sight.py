"""What a model of the Qwen2-VL family makes of images: pixels, tokens, and where they stand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoImageProcessor

from rlbhpc.engines.pictures import opened
from rlbhpc.errors import UserError

# Bytes of pixels that are kept for an image's next samples; a large image takes some tens of them.
KEPT = 256 * 2**20

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
        self._kept: OrderedDict[bytes, Pixels] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # batches that run side by side share this

    def expand(self, prompt_ids: Sequence[int], images: tuple[bytes, ...]) -> tuple[int, ...]:
        """Give each image of a prompt as many tokens as the model sees of it."""
        marks = prompt_ids.count(self.mark)
        if marks != len(images):
            raise UserError(f"the prompt marks {marks} images and has {len(images)}")
        sizes = iter([height * width for height, width in self._merged(images)])
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
        sizes = iter(self._merged(images))
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
            every = [self._one(*given) for given in zip(images, opened(images), strict=True)]
        values, grids = zip(*every, strict=True)
        return torch.cat(values), torch.cat(grids)

    def _one(self, image: bytes, picture: Any) -> Pixels:
        if image not in self._kept:
            try:
                inputs = self._processor(images=[picture], return_tensors="pt")
            except ValueError as error:  # such as one that is 300 times as wide as high
                raise UserError(f"an image that the model cannot be shown: {error}") from None
            self._kept[image] = inputs["pixel_values"], inputs["image_grid_thw"]
            self._bytes += self._kept[image][0].nbytes
            while self._bytes > KEPT and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][0].nbytes
        self._kept.move_to_end(image)
        return self._kept[image]

    def _merged(self, images: tuple[bytes, ...]) -> list[tuple[int, int]]:
        """Height and width of each image in tokens."""
        if not images:
            return []
        side = self._processor.merge_size
        return [(int(h) // side, int(w) // side) for _, h, w in self.pixels(images)[1]]
