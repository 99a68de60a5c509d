"""Every sample that counts, with its text and per-token values, one row each.

As Parquet, or as a folder that ``datasets.load_from_disk`` opens, written without that package.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc import files
from rlbhpc.store import left_out, sample_rows
from rlbhpc.store.cube_schema import STOP_AFTER
from rlbhpc.store.reader import purged
from rlbhpc.store.snapshot import View
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout

#: Columns with types that any tool reads, and the right sample at which a problem's sampling ends:
#: where it is not 0, the share of right rows is no estimate of pass@1.
PLAIN: Final = sample_rows.PLAIN.append(pa.field(STOP_AFTER.name, pa.int32()))
# Problems whose samples are held at once.
_PROBLEMS: Final = 64
_DATA: Final = "data-00000-of-00001.arrow"


def write_parquet(layout: Layout, sink: files.Sink) -> int:
    """Write one row a sample."""
    written = 0
    with pq.ParquetWriter(sink, PLAIN, compression="zstd") as writer:
        for table in whole_rows(layout):
            writer.write_table(table)
            written += table.num_rows
    return written


def write_dataset(layout: Layout, folder: Path) -> int:
    """Write an Arrow stream and the two files that describe it; the features are its schema."""
    rows = 0
    with pa.OSFile(str(folder / _DATA), "wb") as file, pa.ipc.new_stream(file, PLAIN) as stream:
        for table in whole_rows(layout):
            stream.write_table(table)
            rows += table.num_rows
    state: dict[str, Any] = {
        "_data_files": [{"filename": _DATA}],
        "_fingerprint": files.sha256_of(folder / _DATA)[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"description": "", "features": None}))
    return rows


def whole_rows(layout: Layout) -> Iterator[pa.Table]:
    """Whole rows that count, some megabytes at a time; what is left out is told."""
    sources = Sources.survey(layout, strict=False)
    notes = [*sources.notes, *purged(sources)]
    for rows in sources.rows.values():
        grid = rows.grid
        stop_after = grid.provenance.get(STOP_AFTER.name, 0)
        starts = range(0, len(grid.problems), _PROBLEMS)
        for step, first in itertools.product(grid.steps, starts):
            problems = set(grid.problems[first : first + _PROBLEMS])
            view = View(rows.now, None, problems=problems, steps={step})
            if counted := list(rows.counted(view).values()):
                for _, table in view.batches(np.concatenate(counted)):
                    stops = [[stop_after] * len(table)]
                    yield table.append_column(STOP_AFTER.name, stops).cast(PLAIN)
            notes.extend(view.notes)
    left_out.tell(layout.root, notes)
