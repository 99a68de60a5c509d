"""Read samples as rows, each once, wherever they are: in parts or in journals.

Where a key is there twice, a sample that did not fail counts before one that failed, then the
smaller digest; where the chosen copy is damaged, another one. What is left out is told.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import left_out, parts, sample_rows, snapshot
from rlbhpc.store.grid import seal_units
from rlbhpc.store.left_out import Note
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.reader import purged_notes
from rlbhpc.store.sample import Sample
from rlbhpc.store.snapshot import DistinctSamples
from rlbhpc.store.sources import Group, Rows, Sources
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Reading, Status, Verdict

T = TypeVar("T")


class StoredSample(NamedTuple):
    """A sample, and the file below the run folder that it was read from."""

    sample: Sample
    origin: str


def read_rows(
    layout: Layout,
    group: Group,
    columns: Sequence[str],
    *,
    problems: Collection[str] | None = None,
    steps: Collection[int] | None = None,
    below: int | None = None,
) -> pa.Table:
    """Read rows sorted by step, problem, fingerprint and sample, older requests' included.

    ``below`` bounds the indices of the samples. For those who add what is not there yet: a file
    that cannot be read is an error here, and left out everywhere else.
    """

    def read(files: Rows) -> tuple[pa.Table, DistinctSamples]:
        view = DistinctSamples(files.now, columns, problems=problems, steps=steps)
        which = np.arange(view.count)
        if below is not None:
            which = which[view.keys["sample"].to_numpy() < below]
        return view.read(which, columns), view

    return _steadily(layout, group, read, strict=True)


def read_current_rows(
    layout: Layout, group: Group, step: int, problems: Collection[str], columns: Sequence[str]
) -> pa.Table:
    """Read columns of the samples of some problems at one step that answer what is asked."""
    return _answering(layout, group, columns, problems=problems, steps={step}, verify=True)


def find_samples(
    layout: Layout,
    group: Group,
    samples: Mapping[str, Collection[int] | None],
    steps: Collection[int] | None = None,
) -> list[StoredSample]:
    """Read whole samples that answer what is asked, ordered by step, problem and sample.

    ``samples``: numbers of the samples of each problem; None where all are meant.
    """

    def read(files: Rows) -> tuple[list[StoredSample], DistinctSamples]:
        view = DistinctSamples(files.now, None, problems=set(samples), steps=steps)
        number = view.keys["sample"].to_numpy()
        chosen = []
        for cell, of_cell in files.counted(view).items():
            numbers = samples[cell.problem]
            in_lot = True if numbers is None else np.isin(number[of_cell], list(numbers))
            chosen.append(of_cell[np.broadcast_to(in_lot, len(of_cell))])
        which = _joined(chosen)
        table = view.read(which)
        # Samples of which no copy can be read are not among those that were read.
        keys = zip(*(view.keys[name].take(which).to_pylist() for name in _PLACE), strict=True)
        paths = dict(zip(keys, view.origins(which), strict=True))
        matches = [
            StoredSample(
                sample,
                paths[sample.key.step, sample.key.problem, sample.key.sample]
                .relative_to(layout.root)
                .as_posix(),
            )
            for sample in sample_rows.to_samples(table)
        ]
        return matches, view

    matches = _steadily(layout, group, read)
    if not matches:
        left_out.warn_left_out(layout.root, purged_notes(Sources.survey(layout)))
    return matches


def count_graders(layout: Layout, group: Group) -> Counter[str]:
    """Count the verdicts of each grader among the samples that answer what is asked."""
    counted = _answering(layout, group, ["grader"])["grader"].value_counts().to_pylist()
    # A generation that failed was not judged.
    return Counter({found["values"]: found["counts"] for found in counted if found["values"]})


_PLACE = ("step", "problem", "sample")


def _answering(layout: Layout, group: Group, columns: Sequence[str], **some: Any) -> pa.Table:
    def read(files: Rows) -> tuple[pa.Table, DistinctSamples]:
        view = DistinctSamples(files.now, columns, **some)
        return view.read(_joined(files.counted(view).values()), columns), view

    return _steadily(layout, group, read)


def _steadily(
    layout: Layout,
    group: Group,
    read: Callable[[Rows], tuple[T, DistinctSamples]],
    *,
    strict: bool = False,
) -> T:
    """Give what a read of a group gives, and tell what was left out."""

    def attempt() -> T:
        files = Rows(layout, group, strict=strict)
        result, view = read(files)
        notes[:] = [*files.notes, *view.notes]
        return result

    notes: list[Note] = []
    result = snapshot.steady(attempt)
    left_out.warn_left_out(layout.root, notes)
    return result


def _joined(rows_of_cells: Collection[NDArray[np.intp]]) -> NDArray[np.intp]:
    return np.concatenate([np.empty(0, np.intp), *rows_of_cells])


# --- writing with other verdicts -----------------------------------------------------------------
#
# Samples on disk never change, so a new grader does not touch them: what it says goes into a run
# of its own, which compacts, merges and reports like any other and can stand beside the first.


# What a verdict says of a sample.
_JUDGED: Final = ("verdict", "strict", "lenient", "answer", "rule", "grader")

#: Gives the verdicts on the samples of one problem at one step; None leaves one as it is.
Judge = Callable[[pa.Table], Sequence[Verdict | None]]


def tables_by_cell(layout: Layout, group: Group, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read the samples that count, the samples of one problem at one step at a time."""
    rows = Rows(layout, group)
    view = DistinctSamples(rows.now, columns)
    for which in rows.counted(view).values():
        yield view.read(which, columns)
    left_out.warn_left_out(layout.root, [*rows.notes, *view.notes])


def rewrite(
    layout: Layout,
    into: Layout,
    group: Group,
    judge: Judge,
    policy: TokenPolicy,
    decides: Reading = "strict",
) -> int:
    """Write all samples of a group into another run as parts; return how many.

    ``policy`` says whose per-token values to keep, of those that are still there. ``decides``: the
    reading of a response that gives its ``verdict``. The same call again writes the same files, so
    an interrupted one is simply given again.
    """
    rows = Rows(layout, group)
    view = DistinctSamples(rows.now)
    by_cell = rows.counted(view)
    written = 0
    for unit in seal_units(group.arm, rows.grid):
        tables = [
            _rejudged(view.read(by_cell[cell]), judge, policy, decides)
            for cell in unit
            if cell in by_cell
        ]
        if rows_of_unit := sum(table.num_rows for table in tables):
            parts.write(into.parts(*group), tables, policy)
            written += rows_of_unit
    left_out.warn_left_out(layout.root, [*rows.notes, *view.notes])
    return written


def _rejudged(table: pa.Table, judge: Judge, policy: TokenPolicy, decides: Reading) -> pa.Table:
    """The samples of a problem with new verdicts, and a new digest where one differs."""
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in _JUDGED}
    digests = table["digest"].to_pylist()
    for index, new in enumerate(judge(table)):
        if new is None:
            continue
        values = {
            "verdict": int(new.under(decides)),
            "strict": int(new.strict),
            "lenient": int(new.status),
            "answer": new.canonical,
            "rule": new.rule,
            "grader": new.grader,
        }
        if all(columns[name][index] == value for name, value in values.items()):
            continue
        digests[index] = _digest_with(digests[index], values)
        for name, value in values.items():
            columns[name][index] = value
    for name, values_of in {**columns, "digest": digests}.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(values_of, field.type))
    right = columns["verdict"].count(int(Status.RIGHT))
    return parts.apply_policy(table, policy, right, table.num_rows)


def _digest_with(digest: int, values: Mapping[str, Any]) -> int:
    """63 bits over a sample as it was, by its digest, and what is said of it now."""
    text = repr((digest, *values.values())).encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> 1
