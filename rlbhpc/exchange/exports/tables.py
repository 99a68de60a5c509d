"""Tables: counts of every problem, and every sample that counts."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store import left_out, sample_rows
from rlbhpc.store.cube_schema import STOP_AFTER
from rlbhpc.store.reader import open_cube, purged_notes
from rlbhpc.store.snapshot import DistinctSamples
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout

_COLUMNS: Final = ("arm", "model", "problem_set", "step", "problem", "n", "c")


def write_csv(layout: Layout, sink: files.Sink) -> int:
    """Write a table with a header line."""
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    rows = list(_count_rows(layout))
    table.writerows(rows)
    sink.write(text.getvalue().encode())
    return len(rows)


def write_json(layout: Layout, sink: files.Sink) -> int:
    """Write a list of objects."""
    rows = list(_count_rows(layout))
    sink.write(json.dumps(rows, ensure_ascii=False, indent=1).encode())
    return len(rows)


def _count_rows(layout: Layout) -> Iterator[dict[str, Any]]:
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
            yield dict(zip(_COLUMNS, row, strict=True))


#: Columns with types that any tool reads, and the right sample at which a problem's sampling ends:
#: where it is not 0, the share of right rows is no estimate of pass@1.
PLAIN: Final = sample_rows.PLAIN.append(pa.field(STOP_AFTER.name, pa.int32()))
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
    """Whole rows that count, some megabytes at a time; what is left out is told."""
    sources = Sources.survey(layout, strict=False)
    notes = [*sources.notes, *purged_notes(sources)]
    for files_of_group in sources.files.values():
        grid = files_of_group.grid
        stop_after = grid.provenance.get(STOP_AFTER.name, 0)
        starts = range(0, len(grid.problems), _PROBLEMS)
        for step, first in itertools.product(grid.steps, starts):
            problems = set(grid.problems[first : first + _PROBLEMS])
            samples = DistinctSamples(
                files_of_group.snapshot, None, problems=problems, steps={step}
            )
            counted = list(files_of_group.requested_by_cell(samples).values())
            if counted:
                for _, table in samples.read_batches(np.concatenate(counted)):
                    stops = [[stop_after] * len(table)]
                    yield table.append_column(STOP_AFTER.name, stops).cast(PLAIN)
            notes.extend(samples.notes)
    left_out.warn_left_out(layout.root, notes)
