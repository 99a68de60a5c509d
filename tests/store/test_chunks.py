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

from rlbhpc.store import cube_schema, reader

# Shape and chunks by type.
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "int8": ((7, 5, 3), (3, 2, 1)),
    "float32": ((4, 9, 2), (4, 4, 1)),
    "int64": ((5, 6), (5, 1)),
    "int32": ((), ()),
    "string": ((6, 3), (4, 1)),
    "string of one": ((), ()),
}


@cache
def stored(dtype: str) -> tuple[zarr.Array[Any], dict[str, Any]]:
    shape, lengths = LAYOUTS[dtype]
    above: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(above))
    real = np.dtypes.StringDType() if dtype.startswith("string") else np.dtype(dtype)
    array = group.create_array(
        "x", shape=shape, chunks=lengths, dtype=real,
        compressors=cube_schema.codecs(real),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    array[...] = rng.integers(-100, 100, shape).astype(real)
    return array, above


def keys(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int | slice, ...]]:
    of_each = [st.integers(0, size - 1) | st.slices(size) | st.just(slice(None)) for size in shape]
    return st.tuples(*of_each)


@pytest.mark.parametrize("dtype", LAYOUTS)
@given(data=st.data())
def test_every_choice_is_what_zarr_reads(dtype: str, data: st.DataObject) -> None:
    array, above = stored(dtype)
    key = data.draw(keys(array.shape))
    found = reader.read_chunks(array, key, lambda name: above[name].to_bytes())
    expected = np.asarray(array[...], array.dtype)[(*key, ...)]  # Zarr goes only forwards
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_only_chunks_with_chosen_values_are_read() -> None:
    array, above = stored("float32")
    seen: list[str] = []

    def bytes_of(name: str) -> bytes:
        seen.append(name)
        return bytes(above[name].to_bytes())

    reader.read_chunks(array, (0, slice(None, None, 5), slice(1, None, -1)), bytes_of)
    assert seen == [f"x/c/0/{sample}/{step}" for sample in (0, 1) for step in (0, 1)]
    seen.clear()
    reader.read_chunks(array, (0, slice(None, None, 8), slice(0, 2, 2)), bytes_of)
    assert seen == ["x/c/0/0/0", "x/c/0/2/0"]


def test_a_small_choice_keeps_no_chunk_in_memory() -> None:
    array, above = stored("float32")
    kept = reader.read_chunks(array, (0, 1, 1), lambda name: above[name].to_bytes())
    while kept.base is not None:
        kept = kept.base
    assert kept.size == 1


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_a_flipped_bit_is_an_error(dtype: str) -> None:
    array, above = stored(dtype)

    def flipped(name: str) -> bytes:
        data = bytearray(above[name].to_bytes())
        data[len(data) // 2] ^= 1
        return bytes(data)

    with pytest.raises(ValueError, match="checksum"):
        reader.read_chunks(array, (slice(None),) * array.ndim, flipped)


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_a_chunk_of_another_array_is_an_error(dtype: str) -> None:
    array, _ = stored(dtype)
    other = "float32" if dtype != "float32" else "int64"
    _, theirs = stored(other)
    chunk = next(value for key, value in theirs.items() if "/c/" in key)
    with pytest.raises((ValueError, RuntimeError)):
        reader.read_chunks(array, (slice(None),) * array.ndim, lambda _: chunk.to_bytes())
