"""Every sample that counts, with its text and per-token values: Parquet, one row each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc.store import files, left_out, schema
from rlbhpc.store.cube_schema import STOP_AFTER
from rlbhpc.store.left_out import Note
from rlbhpc.store.reader import purged
from rlbhpc.store.sources import Group, Sources
from rlbhpc.store.view import View
from rlbhpc.study.layout import Layout

#: Columns with types that any tool reads, and the right sample at which a problem's sampling ends:
#: where it is not 0, the share of right rows is no estimate of pass@1.
PLAIN: Final = pa.schema(
    [
        *(
            (f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
            for f in schema.ROWS
        ),
        (STOP_AFTER.name, pa.int32()),
    ]
)
# Problems whose samples are held at once.
_PROBLEMS: Final = 64


def write_parquet(layout: Layout, sink: files.Sink) -> int:
    """Write one row a sample."""
    written = 0
    with pq.ParquetWriter(sink, PLAIN, compression="zstd") as writer:
        for table in whole_rows(layout):
            writer.write_table(table)
            written += table.num_rows
    return written


def whole_rows(layout: Layout) -> Iterator[pa.Table]:
    """Whole rows that count, some problems of an arm at a time; what is left out is told."""
    sources = Sources.survey(layout)
    notes = [*sources.notes, *purged(sources)]
    for group in sources.groups:
        for table in _samples(sources, group, notes):
            yield table.cast(PLAIN)
    left_out.tell(layout.root, notes)


def _samples(sources: Sources, group: Group, notes: list[Note]) -> Iterator[pa.Table]:
    """Whole rows that count, some problems at a time."""
    rows = sources.rows[group]
    grid = rows.grid
    stop_after = grid.provenance.get(STOP_AFTER.name, 0)
    for step in grid.steps:
        for first in range(0, len(grid.problems), _PROBLEMS):
            problems = set(grid.problems[first : first + _PROBLEMS])
            view = View(rows.now, None, problems=problems, steps={step})
            if counted := list(rows.counted(view).values()):
                table = view.read(np.concatenate(counted))
                yield table.append_column(STOP_AFTER.name, [[stop_after] * len(table)])
            notes.extend(view.notes)
