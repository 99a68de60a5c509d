"""Images of a request: bytes in, pictures out."""

from __future__ import annotations

import io
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rlbhpc.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


T = TypeVar("T")

# Bytes of pixels that are kept for the next samples of their prompts, beside those of the last one:
# a large image takes 25 MB and .2 s, the largest that these models are shown 300 MB.
KEPT = 128 * 2**20
BYTES_PER_PIXEL = 4  # Pillow gives a fourth byte to red, green and blue

_kept: dict[tuple[bytes, ...], tuple[Image, ...]] = {}
_lock = Lock()


def decode_images(images: tuple[bytes, ...]) -> tuple[Image, ...]:
    """Decode images to RGB; transparent places become white, as paper is."""
    with _lock:
        if images not in _kept:
            pictures = tuple(_decode_image(number, data) for number, data in enumerate(images, 1))
            keep(_kept, images, pictures, _decoded_bytes, KEPT)
        return _kept[images]


def keep(
    kept: dict[tuple[bytes, ...], T],
    images: tuple[bytes, ...],
    made: T,
    size: Callable[[T], int],
    limit: int,
) -> None:
    """Keep what was made of images, and of what was made before only what fits beside it."""
    while kept and sum(map(size, [made, *kept.values()])) > limit:
        del kept[next(iter(kept))]
    kept[images] = made


def _decoded_bytes(pictures: tuple[Image, ...]) -> int:
    return sum(BYTES_PER_PIXEL * picture.width * picture.height for picture in pictures)


def _decode_image(number: int, data: bytes) -> Image:
    """Decode one image to RGB, whatever its mode and transparency."""
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
