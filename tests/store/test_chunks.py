"""Values read straight from chunk files are those that Zarr reads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from rlbhpc.store import chunks, cube_schema

SHAPES = {"int8": (7, 5, 3), "float32": (4, 9, 2), "int64": (5, 6), "string": (6, 3), "int32": ()}
CHUNKS = {"int8": (3, 2, 1), "float32": (4, 4, 1), "int64": (5, 1), "string": (4, 1), "int32": ()}


@cache
def stored(dtype: str) -> tuple[zarr.Array[Any], dict[str, Any]]:
    above: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(above))
    real = np.dtypes.StringDType() if dtype == "string" else np.dtype(dtype)
    array = group.create_array(
        "x", shape=SHAPES[dtype], chunks=CHUNKS[dtype], dtype=real,
        compressors=cube_schema.codecs(real),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    array[...] = rng.integers(-100, 100, SHAPES[dtype]).astype(real)
    return array, above


def keys(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int | slice, ...]]:
    of_each = [
        st.integers(0, size - 1)
        | st.slices(size).filter(lambda chosen: (chosen.step or 1) > 0)
        | st.just(slice(None))
        for size in shape
    ]
    return st.tuples(*of_each)


@pytest.mark.parametrize("dtype", SHAPES)
@given(data=st.data())
def test_every_choice_is_what_zarr_reads(dtype: str, data: st.DataObject) -> None:
    array, above = stored(dtype)
    key = data.draw(keys(array.shape))
    found = chunks.read(array, key, lambda name: above[name].to_bytes())
    expected = np.asarray(array[key])
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", SHAPES)
def test_a_flipped_bit_is_an_error(dtype: str) -> None:
    array, above = stored(dtype)

    def flipped(name: str) -> bytes:
        data = bytearray(above[name].to_bytes())
        data[len(data) // 2] ^= 1
        return bytes(data)

    with pytest.raises(ValueError, match="checksum"):
        chunks.read(array, (slice(None),) * array.ndim, flipped)


@pytest.mark.parametrize("dtype", SHAPES)
def test_a_chunk_of_another_array_is_an_error(dtype: str) -> None:
    array, _ = stored(dtype)
    other = "float32" if dtype != "float32" else "int64"
    _, theirs = stored(other)
    chunk = next(value for key, value in theirs.items() if "/c/" in key)
    with pytest.raises((ValueError, RuntimeError)):
        chunks.read(array, (slice(None),) * array.ndim, lambda _: chunk.to_bytes())
