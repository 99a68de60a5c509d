"""Images of a request: bytes in, pictures out."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING

from rlbhpc.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


# The samples of a problem are asked for one after the other.
@lru_cache(maxsize=16)
def opened(images: tuple[bytes, ...]) -> tuple[Image, ...]:
    """Decode images to RGB; transparent places become white, as paper is."""
    from PIL import Image, UnidentifiedImageError

    out = []
    for number, data in enumerate(images, 1):
        try:
            picture = Image.open(io.BytesIO(data)).convert("RGBA")
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
            raise UserError(f"image {number} of the problem cannot be read: {error}") from None
        paper = Image.new("RGBA", picture.size, "white")
        out.append(Image.alpha_composite(paper, picture).convert("RGB"))
    return tuple(out)
