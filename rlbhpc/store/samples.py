"""Read samples as rows, each once, wherever they are: in parts or in journals.

Where a key is there twice, a sample that did not fail counts before one that failed, then the
smaller digest; where the chosen copy is damaged, another one. What is left out is told.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import left_out, parts, sample_rows
from rlbhpc.store.grid import seal_units
from rlbhpc.store.left_out import Note
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.reader import purged_notes
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.snapshot import DistinctSamples, retry_while_changing
from rlbhpc.store.sources import Group, GroupFiles, Sources
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Reading, Status, Verdict


class StoredSample(NamedTuple):
    """A sample, and the file below the run folder that it was read from."""

    sample: Sample
    origin: str


#: Chooses samples by their numbers among the distinct ones of a group.
Choice = Callable[[GroupFiles, DistinctSamples], NDArray[np.intp]]


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

    ``group``: an arm on a problem set. ``problems, steps``: keep to these; None means all.
    ``below`` bounds the indices of the samples. For those who add what is not there yet: a file
    that cannot be read is an error here, and left out everywhere else.
    """

    def choose(files: GroupFiles, samples: DistinctSamples) -> NDArray[np.intp]:
        if below is None:
            return np.arange(samples.count)
        return np.flatnonzero(samples.keys["sample"].to_numpy() < below)

    chosen = _read(layout, group, columns, choose, problems=problems, steps=steps, strict=True)
    return chosen.table


def read_current_rows(
    layout: Layout,
    group: Group,
    step: int | None,
    problems: Collection[str] | None,
    columns: Sequence[str],
) -> pa.Table:
    """Read columns of the samples of some problems at one step that answer what is asked.

    ``step, problems``: None means all. Samples of an earlier request, with another prompt or
    setting, are left out, and so are damaged ones, which this finds by reading every sample.
    """
    steps = None if step is None else {step}
    chosen = _read(
        layout, group, columns, _choose_requested, problems=problems, steps=steps, verify=True
    )
    return chosen.table


def find_samples(
    layout: Layout,
    group: Group,
    sample_indices: Mapping[str, Collection[int] | None],
    steps: Collection[int] | None = None,
) -> list[StoredSample]:
    """Read whole samples that answer what is asked, ordered by step, problem and sample.

    ``group``: an arm on a problem set. ``sample_indices``: by problem, which samples; None where
    all are meant. Each comes with the path of its file. If none is found, a warning tells of
    samples that the cube has and whose files are gone.
    """

    def choose(files: GroupFiles, samples: DistinctSamples) -> NDArray[np.intp]:
        """Choose the wanted samples among those that answer what is asked, by their numbers.

        ``samples`` are numbered from 0; a *cell* is one problem at one step, under one request.
        """
        indices = samples.keys["sample"].to_numpy()
        chosen = [np.empty(0, np.intp)]
        for cell, numbers in files.requested_by_cell(samples).items():
            wanted = sample_indices[cell.problem]
            if wanted is not None:
                numbers = numbers[np.isin(indices[numbers], list(wanted))]
            chosen.append(numbers)
        return np.concatenate(chosen)

    chosen = _read(layout, group, None, choose, problems=set(sample_indices), steps=steps)
    matches = []
    for sample in sample_rows.to_samples(chosen.table):
        path = chosen.paths[sample.key.step, sample.key.problem, sample.key.sample]
        matches.append(StoredSample(sample, path.relative_to(layout.root).as_posix()))
    if not matches:
        left_out.warn_left_out(layout.root, purged_notes(Sources.survey(layout)))
    return matches


def count_graders(layout: Layout, group: Group) -> Counter[str]:
    """Count the verdicts of each grader among the samples that answer what is asked."""
    graders = read_current_rows(layout, group, None, None, ["grader"])["grader"]
    # A generation that failed was not judged: it has no grader.
    counts = {row["values"]: row["counts"] for row in graders.value_counts().to_pylist()}
    counts.pop("", None)
    return Counter(counts)


class _ChosenRows(NamedTuple):
    """Rows that were read, and the file of each sample by (step, problem, sample)."""

    table: pa.Table
    paths: Mapping[tuple[int, str, int], Any]


def _read(
    layout: Layout,
    group: Group,
    columns: Sequence[str] | None,
    choose: Choice,
    *,
    strict: bool = False,
    **selection: Any,
) -> _ChosenRows:
    """Read the samples of a group (an arm on a problem set) that ``choose`` takes.

    ``choose`` gets the group's files and its distinct samples, which are numbered, and gives
    numbers. ``columns``: None means all; only then the file of each sample is given, too.
    ``strict``: raise what keeps a file from being read. ``selection``: keywords of
    :class:`DistinctSamples`, such as the problems. What was left out is told in one warning.
    """
    notes: list[Note] = []

    def read_once() -> _ChosenRows:
        """Read from the files as they are now; run again if one vanishes meanwhile.

        ``notes`` are replaced as a whole, so that those of an earlier try don't stay.
        """
        files = GroupFiles(layout, group, strict=strict)
        samples = DistinctSamples(files.snapshot, columns, **selection)
        chosen = choose(files, samples)
        table = samples.read(chosen, columns)
        paths = {}
        if columns is None:
            keys = samples.keys.take(chosen).select(["step", "problem", "sample"]).to_pylist()
            for key, path in zip(keys, samples.paths_of(chosen), strict=True):
                paths[key["step"], key["problem"], key["sample"]] = path
        notes[:] = [*files.notes, *samples.notes]
        return _ChosenRows(table, paths)

    chosen_rows = retry_while_changing(read_once)
    left_out.warn_left_out(layout.root, notes)
    return chosen_rows


def _choose_requested(files: GroupFiles, samples: DistinctSamples) -> NDArray[np.intp]:
    """Choose all samples that answer what is asked."""
    numbers = files.requested_by_cell(samples).values()
    return np.concatenate([np.empty(0, np.intp), *numbers])


# --- writing with other verdicts -----------------------------------------------------------------
#
# Samples on disk never change, so a new grader does not touch them: what it says goes into a run
# of its own, which compacts, merges and reports like any other and can stand beside the first.


#: Gives the verdicts on the samples of one problem at one step; None leaves one as it is.
Judge = Callable[[pa.Table], Sequence[Verdict | None]]


def tables_by_cell(layout: Layout, group: Group, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read the samples that count, the samples of one problem at one step at a time."""
    files = GroupFiles(layout, group)
    samples = DistinctSamples(files.snapshot, columns)
    for numbers in files.requested_by_cell(samples).values():
        yield samples.read(numbers, columns)
    left_out.warn_left_out(layout.root, [*files.notes, *samples.notes])


def rewrite(
    layout: Layout,
    into: Layout,
    group: Group,
    judge: Judge,
    policy: TokenPolicy,
    decides: Reading = "strict",
) -> int:
    """Write all samples of a group into another run as parts, judged anew; return how many.

    ``group``: an arm on a problem set. ``judge`` gives the verdicts on the samples of one problem
    at one step (a *cell*), None for one to leave as it is. ``policy`` says whose per-token values
    to keep, of those that are still there. ``decides``: the reading of a response that gives its
    ``verdict``. A *unit* is the cells whose samples share one part, a file. The same call again
    writes the same files, so an interrupted one is simply given again.
    """
    files = GroupFiles(layout, group)
    samples = DistinctSamples(files.snapshot)
    numbers_by_cell = files.requested_by_cell(samples)
    written = 0
    for unit in seal_units(group.arm, files.grid):
        tables = []
        for cell in unit:
            if cell in numbers_by_cell:
                table = samples.read(numbers_by_cell[cell])
                tables.append(_with_verdicts(table, judge(table), policy, decides))
        rows_of_unit = sum(table.num_rows for table in tables)
        if rows_of_unit:
            parts.write(into.parts(*group), tables.copy, policy)
            written += rows_of_unit
    left_out.warn_left_out(layout.root, [*files.notes, *samples.notes])
    return written


# Columns that a verdict fills.
_VERDICT_COLUMNS: Final = ("verdict", "strict", "lenient", "answer", "rule", "grader")


def _with_verdicts(
    table: pa.Table, verdicts: Sequence[Verdict | None], policy: TokenPolicy, decides: Reading
) -> pa.Table:
    """The samples of a problem with new verdicts, and a new digest where one differs.

    ``verdicts``: one per row; None leaves the row as it is. A verdict has a strict and a lenient
    status; ``decides`` says which of them becomes ``verdict``. ``policy``: whose per-token values
    are kept, which may depend on how many samples are right.
    """
    columns = {name: table[name].to_pylist() for name in (*_VERDICT_COLUMNS, "digest")}
    for row, verdict in enumerate(verdicts):
        if verdict is None:
            continue
        values = {
            "verdict": int(verdict.under(decides)),
            "strict": int(verdict.strict),
            "lenient": int(verdict.status),
            "answer": verdict.canonical,
            "rule": verdict.rule,
            "grader": verdict.grader,
        }
        if all(columns[name][row] == value for name, value in values.items()):
            continue
        columns["digest"][row] = _digest_with(columns["digest"][row], values)
        for name, value in values.items():
            columns[name][row] = value
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        table = table.set_column(index, field, pa.array(column, field.type))
    right_count = columns["verdict"].count(int(Status.RIGHT))
    return parts.apply_policy(table, policy, right_count, table.num_rows)


def _digest_with(digest: int, values: Mapping[str, Any]) -> int:
    """63 bits of a hash over the digest of a sample and its new verdict."""
    text = repr((digest, *values.values())).encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> 1
