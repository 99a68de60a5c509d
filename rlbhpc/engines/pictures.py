"""Images of a request: bytes in, pictures out."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rlbhpc.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


# The samples of a problem are asked for one after the other.
@lru_cache(maxsize=16)
def opened(images: tuple[bytes, ...]) -> tuple[Image, ...]:
    """Decode images to RGB; transparent places become white, as paper is."""
    return tuple(_opened(number, data) for number, data in enumerate(images, 1))


def _opened(number: int, data: bytes) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        read = Image.open(io.BytesIO(data))
        if read.mode.startswith("I"):
            # Sixteen bits of grey, which Pillow would cut off at 255: nearly all of it white.
            grey = np.clip(np.asarray(read, np.int64) // 257, 0, 255).astype(np.uint8)
            return Image.fromarray(grey).convert("RGB")
        if read.mode == "F":
            raise ValueError("its pixels are numbers without a scale")
        picture = read.convert("RGBA")
    except Exception as error:  # a decoder on bytes from anywhere may raise anything
        # Pillow's own words hold an address, and what is stored must be the same in every run.
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "it has no format that Pillow reads" if unknown else error
        raise UserError(f"image {number} of the problem cannot be read: {reason}") from None
    paper = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(paper, picture).convert("RGB")
