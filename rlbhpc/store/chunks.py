"""Read values of a cube straight from its chunk files.

Zarr is made for chunks of many megabytes in stores far away. Through it a chunk of a cube takes
three times as long, and a report reads thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numcodecs import blosc, zstd
from numcodecs.vlen import VLenUTF8
from numpy.typing import NDArray


def read(
    array: zarr.Array[Any], key: Sequence[int | slice], bytes_of: Callable[[str], bytes]
) -> NDArray[Any]:
    """Read what integers and slices choose of an array with the codecs of ``cube_schema.codecs``.

    ``bytes_of`` gives the bytes of a chunk by its key. Raises :class:`ValueError` where a chunk
    does not have the checksum that it was written with.
    """
    metadata: Any = array.metadata
    lengths: tuple[int, ...] = array.chunks
    chosen = [range(size)[part] for size, part in zip(array.shape, key, strict=True)]
    spans = [range(c, c + 1) if isinstance(c, int) else _hull(c) for c in chosen]
    along = (
        range(span.start // length, -(-span.stop // length))
        for span, length in zip(spans, lengths, strict=True)
    )
    places = list(product(*along))
    values = _room([len(span) for span in spans], lengths, array.dtype)
    for place in places:
        chunk = _decoded(bytes_of(f"{array.path}/{metadata.encode_chunk_key(place)}"), array)
        inside: list[Any] = []
        target: list[Any] = []
        for span, i, length in zip(spans, place, lengths, strict=True):
            start, stop = max(span.start, i * length), min(span.stop, (i + 1) * length)
            inside.append(slice(start - i * length, stop - i * length))
            target.append(slice(start - span.start, stop - span.start))
        if len(places) == 1:
            values = chunk[(*inside, ...)]
        else:
            values[tuple(target)] = chunk[tuple(inside)]
    # An integer drops its dimension; a slice may go in larger steps, or backwards.
    steps = (0 if isinstance(c, int) else slice(None, None, c.step) for c in chosen)
    return values[(*steps, ...)]


def _hull(chosen: range) -> range:
    return range(min(chosen), max(chosen) + 1) if chosen else range(0)


def _room(shape: Sequence[int], lengths: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Room for values in which those of a step, a chunk of its own, lie together."""
    order = sorted(range(len(shape)), key=lambda axis: lengths[axis] != 1)
    room = np.empty([shape[axis] for axis in order], dtype)
    return room.transpose(np.argsort(order))


def _decoded(data: bytes, array: zarr.Array[Any]) -> NDArray[Any]:
    data, checksum = data[:-4], data[-4:]
    if google_crc32c.value(data).to_bytes(4, "little") != checksum:
        raise ValueError("its checksum does not match")
    if isinstance(array.dtype, np.dtypes.StringDType):
        texts: NDArray[Any] = VLenUTF8().decode(zstd.decompress(data))
        return texts.astype(array.dtype).reshape(array.chunks)
    chunk = np.empty(array.chunks, array.dtype.newbyteorder("<"))
    # Blosc would leave the rest as it was; its header has the length, four bytes after four others.
    if int.from_bytes(data[4:8], "little") != chunk.nbytes:
        raise ValueError("it is a chunk of another array")
    blosc.decompress(data, chunk)
    return chunk
