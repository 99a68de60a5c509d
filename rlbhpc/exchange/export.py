"""Write results in formats that other tools read, one function per ending.

=========== ==============================================================================
``.parquet`` every sample that counts, with its text and per-token values, one row each
``.csv``     n and c per problem and step; ``rlbhpc import`` reads it back
``.json``    the same as a list of objects
``.nc``      the cube as netCDF-4, one group per arm and problem set
=========== ==============================================================================
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

from rlbhpc.errors import UserError
from rlbhpc.store import files, left_out, schema
from rlbhpc.store.left_out import Note
from rlbhpc.store.reader import open_cube, purged
from rlbhpc.store.sources import Group, Sources
from rlbhpc.store.view import View
from rlbhpc.study.layout import Layout

_COUNTS: Final = ("arm", "model", "problem_set", "step", "problem", "n", "c")
# Problems whose samples are held at once.
_PROBLEMS: Final = 64


def export(layout: Layout, path: Path) -> int:
    """Write a run's results to a file whose ending names the format; the number of rows.

    The file appears whole or not at all.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UserError(f"{path}: no format for this ending; there are {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; make it first")
    try:
        with files.making(path.parent) as partial:
            with files.Sink(partial) as sink:
                rows = writer(layout, sink)
            files.publish(partial, path)
    except FileNotFoundError:
        raise  # a journal that was read for this went away
    except OSError as error:
        if error.filename is not None and Path(error.filename).parent != path.parent:
            raise  # it is one of the files that are read
        raise files.explain(error, path) from error
    return rows


def counts(layout: Layout) -> Iterator[dict[str, Any]]:
    """Samples and right ones of every problem and step that has samples."""
    for node in open_cube(layout.root).subtree:
        group = node.to_dataset()
        if group.attrs.get("kind") not in {"samples", "counts"}:
            continue
        names = [str(group[name].item()) for name in ("arm", "model", "problem_set")]
        table = group.rlb.counts()
        if "stop_after" in table.coords:
            raise UserError(
                f"{'/'.join(names[::2])}: its problems stop at {int(table['stop_after'])} right "
                "samples, which n and c alone cannot say; export its samples instead"
            )
        n, c = table["n"].values, table["c"].values
        problems, steps = group["problem"].values.tolist(), group["step"].values.tolist()
        for j, i in np.argwhere(n.T > 0).tolist():
            row = (*names, steps[j], problems[i], int(n[i, j]), int(c[i, j]))
            yield dict(zip(_COUNTS, row, strict=True))


def _csv(layout: Layout, sink: files.Sink) -> int:
    text = io.StringIO()
    table = csv.DictWriter(text, _COUNTS, lineterminator="\n")
    table.writeheader()
    rows = list(counts(layout))
    table.writerows(rows)
    sink.write(text.getvalue().encode())
    return len(rows)


def _json(layout: Layout, sink: files.Sink) -> int:
    rows = list(counts(layout))
    sink.write(json.dumps(rows, ensure_ascii=False, indent=1).encode())
    return len(rows)


def _parquet(layout: Layout, sink: files.Sink) -> int:
    plain = pa.schema([(f.name, _plain(f.type)) for f in schema.ROWS])
    written = 0
    sources = Sources.survey(layout)
    notes = [*sources.notes, *purged(sources)]
    with pq.ParquetWriter(sink, plain, compression="zstd") as writer:
        for group in sources.groups:
            for table in _samples(sources, group, notes):
                writer.write_table(table.cast(plain))
                written += table.num_rows
    left_out.tell(layout.root, notes)
    return written


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _samples(sources: Sources, group: Group, notes: list[Note]) -> Iterator[pa.Table]:
    """Whole rows that count, some problems at a time."""
    rows = sources.rows(group)
    grid = rows.grid
    for step in grid.steps:
        for first in range(0, len(grid.problems), _PROBLEMS):
            problems = set(grid.problems[first : first + _PROBLEMS])
            view = View(rows.now, None, problems=problems, steps={step})
            if counted := list(rows.counted(view).values()):
                yield view.read(np.concatenate(counted))
            notes.extend(view.notes)


def _netcdf(layout: Layout, sink: files.Sink) -> int:
    try:
        import h5netcdf
    except ImportError as error:
        raise UserError(
            "netCDF needs the package h5netcdf: pip install 'rlbhpc[netcdf]'"
        ) from error
    from xarray.backends import H5NetCDFStore

    tree = open_cube(layout.root)
    # In memory first: where a disk is full, HDF5 ends the whole process.
    whole = io.BytesIO()
    with h5netcdf.File(whole, "w") as root:
        for node in tree.subtree:
            group = root if node.path == "/" else root.create_group(node.path)
            store = H5NetCDFStore(group, mode="a", autoclose=False)
            _compressed(node.to_dataset(inherit=False)).dump_to_store(store)
    sink.write(whole.getbuffer())
    return len(tree.leaves)


def _compressed(dataset: xr.Dataset) -> xr.Dataset:
    """A Dataset whose large arrays are compressed where they are written."""
    for variable in dataset.data_vars.values():
        if variable.ndim > 1 and variable.dtype != object:
            variable.encoding = {"zlib": True, "complevel": 1, "shuffle": True}
    return dataset


WRITERS: Final[Mapping[str, Callable[[Layout, files.Sink], int]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".nc": _netcdf,
}
