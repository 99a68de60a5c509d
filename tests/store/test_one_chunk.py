"""A selection in one chunk is read without Zarr, and as Zarr reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import rlbhpc
from rlbhpc.errors import UserError
from rlbhpc.store import cube, cube_schema, one_chunk
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, journal, samples

GROUP = f"{ARM}/{SET}"
ALL = slice(None)


@pytest.fixture(params=["on disk", "in memory"])
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    journal(layout, samples(range(5), 7, (0, 1, 2)), "a")
    if request.param == "on disk":
        compact(layout)
    return layout


@pytest.mark.parametrize("name", ["verdict", "answer", "logprob_sum", "n"])
def test_a_step_is_read_without_zarr(
    layout: Layout, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = rlbhpc.open_cube(layout.root)[GROUP].to_dataset()[name].load()
    opened = rlbhpc.open_cube(layout.root)[GROUP].to_dataset()[name]
    monkeypatch.setattr(zarr.Array, "__getitem__", None)
    for step in range(3):
        values = opened.isel(step=step).values
        np.testing.assert_array_equal(values, truth.isel(step=step).values)
        assert values.dtype == truth.dtype
        assert values.flags.writeable


@pytest.mark.parametrize(
    "key",
    [
        (ALL, ALL, 1),
        (2, 3, 1),
        (slice(1, 4), 3, slice(1, 2)),
        (slice(0, 5, 2), slice(1, 6, 3), 2),
        (slice(4, 5), ALL, slice(2, 9)),
    ],
)  # fmt: skip
def test_selections_are_those_of_zarr(tmp_path: Path, key: tuple[Any, ...]) -> None:
    array, store = made(tmp_path, chunks=(5, 7, 1))
    read = one_chunk.read(array, key, lambda path: (store / path).read_bytes())
    assert read is not None
    np.testing.assert_array_equal(read, array[key])
    assert read.shape == np.shape(array[key])


@pytest.mark.parametrize(
    "key",
    [
        (ALL, ALL, ALL),
        (slice(1, 3), 0, 0),
        (slice(0, 0), 0, 0),
        (slice(1, None, -1), 0, 0),
        (-1, 0, 0),
        (0, 7, 0),
    ],
)
def test_all_else_is_left_to_zarr(tmp_path: Path, key: tuple[Any, ...]) -> None:
    array, store = made(tmp_path, chunks=(2, 3, 1))
    assert one_chunk.read(array, key, lambda path: (store / path).read_bytes()) is None


@pytest.mark.parametrize("how", ["sharded", "uncompressed", "other order", "transposed"])
def test_other_codecs_are_left_to_zarr(tmp_path: Path, how: str) -> None:
    more: dict[str, Any] = {
        "sharded": {"shards": (5, 7, 3)},
        "uncompressed": {"compressors": None},
        "other order": {"serializer": zarr.codecs.BytesCodec(endian="big")},
        "transposed": {"filters": zarr.codecs.TransposeCodec(order=(2, 1, 0))},
    }[how]
    array, store = made(tmp_path, chunks=(5, 7, 1), **more)
    values = one_chunk.read(array, (ALL, ALL, 0), lambda path: (store / path).read_bytes())
    assert values is None


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_damage_is_the_error_that_it_was(tmp_path: Path, damage: str) -> None:
    layout = Layout(tmp_path)
    journal(layout, samples(range(5), 7, (0, 1)), "a")
    compact(layout)
    chunk = layout.cube / GROUP / "verdict/c/0/0/1"
    data = bytearray(chunk.read_bytes())
    if damage == "gone":
        chunk.unlink()
    else:
        data[len(data) // 2] ^= 4
        chunk.write_bytes(data if damage == "flipped" else data[:3])
    opened = rlbhpc.open_cube(layout.root)[GROUP].to_dataset().verdict
    words = "is not there any more" if damage == "gone" else "a chunk cannot be read"
    with pytest.raises(UserError, match=words):
        opened.isel(step=1).load()
    assert (opened.isel(step=0) >= 0).all()


def made(folder: Path, **options: Any) -> tuple[Any, Path]:
    """An array of a cube's codecs, or others, and the folder of its store."""
    root = cube.create(folder / "made.zarr")
    values = np.arange(105, dtype=np.int32).reshape(5, 7, 3)
    settings = {"compressors": cube_schema.codecs(values.dtype)} | options
    root.create_array("values", shape=values.shape, dtype=values.dtype, **settings)[:] = values
    return root["values"], folder / "made.zarr"
