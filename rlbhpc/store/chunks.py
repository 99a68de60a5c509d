"""Read values of a cube straight from its chunk files.

Zarr is made for chunks of many megabytes in stores far away. Through it a chunk of a cube takes
three times as long, and a report reads thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    chosen = [range(size)[part] for size, part in zip(array.shape, key, strict=True)]
    forwards = [range(c, c + 1) if isinstance(c, int) else c[:: np.sign(c.step)] for c in chosen]
    parts = list(product(*map(_parts, forwards, array.chunks)))
    values = _room(list(map(len, forwards)), array.chunks, array.dtype)
    for part in parts:
        place, within, target = zip(*part, strict=True) if part else ((), (), ())
        chunk = _decoded(bytes_of(f"{array.path}/{metadata.encode_chunk_key(place)}"), array)
        inside = chunk[(*within, ...)]
        if len(parts) == 1 and inside.size == chunk.size:
            values = inside
        else:
            values[(*target, ...)] = inside
    # An integer drops its dimension, and a slice may go backwards.
    last: list[Any] = [
        0 if isinstance(c, int) else slice(None, None, np.sign(c.step)) for c in chosen
    ]
    return values[(*last, ...)]


def _parts(chosen: range, length: int) -> Iterator[tuple[int, slice, slice]]:
    """Chunks along a dimension with chosen positions: which, where in it, and where these go."""
    begin = 0
    while begin < len(chosen):
        number = chosen[begin] // length
        first = number * length
        end = min(len(chosen), begin - (chosen[begin] - first - length) // chosen.step)
        inside = slice(chosen[begin] - first, chosen[end - 1] - first + 1, chosen.step)
        yield number, inside, slice(begin, end)
        begin = end


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
