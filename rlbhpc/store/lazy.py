"""Arrays of an opened cube, read chunk by chunk on demand.

A chunk file that is not there, or whose checksum does not match, is an error here. Zarr alone
would show the first as missing samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from rlbhpc.errors import UserError
from rlbhpc.store.derive import Place

if TYPE_CHECKING:
    import zarr

#: First and last-but-one index along every dimension.
Region = tuple[tuple[int, int], ...]


class LazyArray(BackendArray):
    """What xarray indexes; ``read`` gives the values of a region."""

    def __init__(
        self,
        read: Callable[[Region], NDArray[Any]],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._read = read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read by integers and slices; xarray takes the rest from the result."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._basic
        )

    def _basic(self, key: tuple[int | slice, ...]) -> Any:
        region, local = [], []
        for index, size in zip(key, self.shape, strict=True):
            if isinstance(index, slice):
                start, stop, step = index.indices(size)
                region.append((start, max(start, stop)))
                local.append(slice(None, None, step))
            else:
                first = int(index) % size
                region.append((first, first + 1))
                local.append(0)  # type: ignore[arg-type]
        # Strings as other readers give them: netCDF, plots and dask know no StringDType.
        return self._read(tuple(region))[tuple(local)].astype(self.dtype, copy=False)


class Stored:
    """A Zarr array that may be shorter than the axes of the view on it."""

    def __init__(self, array: zarr.Array[Any], folder: Path) -> None:
        self.array = array
        self._folder = folder

    def whole(self) -> NDArray[Any]:
        """Read all of it."""
        return self(tuple((0, size) for size in self.array.shape))

    def __call__(self, region: Region) -> NDArray[Any]:
        """Read a region; beyond the stored extent everything is missing."""
        shape = self.array.shape
        clipped = tuple(
            (start, max(start, min(stop, size)))
            for (start, stop), size in zip(region, shape, strict=True)
        )
        if clipped == region:
            return self._load(region)
        values = np.full(
            [stop - start for start, stop in region], self.array.fill_value, self.array.dtype
        )
        if all(stop > start for start, stop in clipped):
            inside = tuple(slice(stop - start) for start, stop in clipped)
            values[inside] = self._load(clipped)
        return values

    def _load(self, region: Region) -> NDArray[Any]:
        self._refuse_lost_chunks(region)
        try:
            values = self.array[tuple(slice(*bounds) for bounds in region)]
        except Exception as error:
            # Every layer between here and the disk has its own exception for damaged bytes.
            raise UserError(
                f"{self._folder}: a chunk cannot be read ({error}); `rlbhpc check` on the cube "
                "finds which, `rlbhpc compact --rebuild` derives it anew"
            ) from error
        return np.asarray(values, self.array.dtype)

    def _refuse_lost_chunks(self, region: Region) -> None:
        spans = [
            range(start // size, -(-stop // size))
            for (start, stop), size in zip(region, self.array.chunks, strict=True)
        ]
        for place in np.ndindex(*map(len, spans)):
            key = [str(span[i]) for span, i in zip(spans, place, strict=True)]
            if not self._folder.joinpath("c", *key).exists():
                raise UserError(
                    f"{self._folder}/c/{'/'.join(key)} is not there any more; open the cube again "
                    "if it was compacted meanwhile, else run `rlbhpc compact --rebuild`"
                )


def variable(
    dims: tuple[str, ...], array: LazyArray, attrs: dict[str, Any], chunks: tuple[int, ...]
) -> xr.Variable:
    """Wrap a lazy array as xarray's own readers do: read once, copied before it is changed."""
    lazy: Any = indexing.LazilyIndexedArray(array)
    data = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(lazy))  # type: ignore[no-untyped-call]
    encoding = {"preferred_chunks": dict(zip(dims, chunks, strict=True))}
    return xr.Variable(dims, data, attrs, encoding)


class Layered:
    """An array of a growing run: some bands from the cube, the others derived in memory.

    Parameters
    ----------
    memory
        The array that was derived; it has the shape of the whole.
    below
        The cube's array; None if there is none.
    kept
        Bands that the cube's array holds: (row of chunks, position of the step).
    rows
        Problems in a row of chunks.
    """

    def __init__(
        self, memory: zarr.Array[Any], below: Stored | None, kept: Collection[Place], rows: int
    ) -> None:
        self.array = memory
        self._below = below
        self._kept = kept
        self._rows = rows

    def __call__(self, region: Region) -> NDArray[Any]:
        """Read a region."""
        values = np.asarray(self.array[tuple(slice(*bounds) for bounds in region)])
        (start, stop), *middle, (first, last) = region
        for row, step in self._kept:
            assert self._below is not None
            low = max(start, row * self._rows)
            high = min(stop, (row + 1) * self._rows)
            if low < high and first <= step < last:
                band = self._below(((low, high), *middle, (step, step + 1)))
                values[low - start : high - start, ..., step - first : step - first + 1] = band
        return values
