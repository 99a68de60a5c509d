"""Tables of counts and of samples, and training curves."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
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
from rlbhpc.store.tables import log_lines
from rlbhpc.study.layout import Layout

_COLUMNS: Final = ("arm", "model", "problem_set", "step", "problem", "n", "c")


def write_csv(layout: Layout, sink: files.Sink) -> int:
    """Write the counts of every problem and step as a CSV; return the number of rows.

    `_count_rows` gives, for each problem and step, how many samples there are and how many are
    right.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    rows = list(_count_rows(layout))
    table.writerows(rows)
    sink.write(text.getvalue().encode())
    return len(rows)


def _count_rows(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield samples ``n`` and right ones ``c`` of every problem and step that has samples.

    The cube is a tree; a node of kind ``samples`` or ``counts`` is one arm on one problem set.
    Where sampling a problem ended at its first right samples (``stop_after``), n and c alone would
    mislead, so that is refused. ``group.rlb.counts()`` gives n and c by step and problem.
    ``layout`` gives the paths of the run's folder.
    """
    for node in open_cube(layout.root).subtree:
        group = node.to_dataset()
        if group.attrs.get("kind") not in {"samples", "counts"}:
            continue
        arm, model, problem_set = (str(group[x].item()) for x in ("arm", "model", "problem_set"))
        counts = group.rlb.counts()
        if "stop_after" in counts.coords:
            raise UserError(
                f"{arm}/{problem_set}: its problems stop at {int(counts['stop_after'])} right "
                "samples, which n and c alone cannot say; export its samples instead"
            )
        for step in group["step"].values.tolist():
            at_step = counts.sel(step=step)
            table = zip(
                group["problem"].values.tolist(), at_step["n"].values, at_step["c"].values,
                strict=True,
            )  # fmt: skip
            for problem, n, c in table:
                if n > 0:
                    values = (arm, model, problem_set, step, problem, int(n), int(c))
                    yield dict(zip(_COLUMNS, values, strict=True))


#: Columns with types that any tool reads, and the right sample at which a problem's sampling ends:
#: where it is not 0, the share of right rows is no estimate of pass@1.
SAMPLE_SCHEMA: Final = sample_rows.PLAIN.append(pa.field(STOP_AFTER.name, pa.int32()))
# Problems whose samples are held at once.
_PROBLEM_BATCH: Final = 64


def write_parquet(layout: Layout, sink: files.Sink) -> int:
    """Write the samples that count as a Parquet file, a row each; return the number of rows.

    `read_counted_samples` gives these samples as tables of some megabytes each.
    """
    row_count = 0
    with pq.ParquetWriter(sink, SAMPLE_SCHEMA, compression="zstd") as writer:
        for table in read_counted_samples(layout):
            writer.write_table(table)
            row_count += table.num_rows
    return row_count


def read_counted_samples(layout: Layout) -> Iterator[pa.Table]:
    """Yield tables of all samples that count, some megabytes at a time.

    A *grid* says what is asked for of one arm on one problem set: its problems, its training steps,
    and a fingerprint of each request. A sample counts if its fingerprint is that of the grid;
    `requested_by_cell` gives the rows of these samples by request. A column is added with
    ``stop_after``, the right samples at which sampling a problem ends (0 for never). What is
    damaged and left out is told in a warning at the end. ``layout`` gives the paths of the run's
    folder.
    """
    sources = Sources.survey(layout, strict=False)
    notes = [*sources.notes, *purged_notes(sources)]
    for files_of_group in sources.files.values():
        grid = files_of_group.grid
        stop_after = grid.provenance.get(STOP_AFTER.name, 0)
        batch_starts = range(0, len(grid.problems), _PROBLEM_BATCH)
        for step, start in itertools.product(grid.steps, batch_starts):
            problems = set(grid.problems[start : start + _PROBLEM_BATCH])
            samples = DistinctSamples(
                files_of_group.snapshot, None, problems=problems, steps={step}
            )
            counted_rows = list(files_of_group.requested_by_cell(samples).values())
            if counted_rows:
                for _, table in samples.read_batches(np.concatenate(counted_rows)):
                    column = [[stop_after] * len(table)]
                    yield table.append_column(STOP_AFTER.name, column).cast(SAMPLE_SCHEMA)
            notes.extend(samples.notes)
    left_out.warn_left_out(layout.root, notes)


# Training curves as event files of TensorBoard, a folder a model, made from the step logs.
# ``tensorboard --logdir`` lays the models over each other.


def write_tensorboard(layout: Layout, folder: Path) -> int:
    """Write the training curves of every model that the run trains; return the number of steps.

    ``layout.dynamics()`` gives each model's log, which has a line of numbers per step. The times
    that a step took are in ``timings.jsonl`` beside it; supervised training has none.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    step_count = 0
    for model, log_file in sorted(layout.dynamics().items()):
        writer = EventFileWriter(str(folder / model))
        timing_lines = log_lines(log_file.with_name("timings.jsonl"))
        timings = {row.pop("step"): row for row in timing_lines}
        for row in log_lines(log_file):
            step = row.pop("step")
            curves = row | timings.get(step, {})
            values = [Summary.Value(tag=name, simple_value=value) for name, value in curves.items()]
            writer.add_event(Event(step=step, summary=Summary(value=values)))
            step_count += 1
        writer.close()
    return step_count
