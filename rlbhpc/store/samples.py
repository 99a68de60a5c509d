"""Read samples as rows, each once, wherever they are: in parts or in journals.

Where a key is there twice, a sample that did not fail counts before one that failed, then the
smaller digest; where the chosen copy is damaged, another one. What is left out is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import left_out, schema, snapshot
from rlbhpc.store.left_out import Note
from rlbhpc.store.reader import purged
from rlbhpc.store.sample import Sample
from rlbhpc.store.sources import Group, Rows, Sources
from rlbhpc.store.view import View
from rlbhpc.study.layout import Layout

T = TypeVar("T")


class Found(NamedTuple):
    """A sample, and the file below the run folder that it was read from."""

    sample: Sample
    origin: str


def rows(
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

    def read(files: Rows) -> tuple[pa.Table, View]:
        view = View(files.now, columns, problems=problems, steps=steps)
        which = np.arange(view.count)
        if below is not None:
            which = which[view.keys["sample"].to_numpy() < below]
        return view.read(which, columns), view

    return _steadily(layout, group, read, strict=True)


def answering(
    layout: Layout, group: Group, step: int, problems: Collection[str], columns: Sequence[str]
) -> pa.Table:
    """Read columns of the samples of some problems at one step that answer what is asked."""
    return _answering(layout, group, columns, problems=problems, steps={step}, verify=True)


def find(
    layout: Layout,
    group: Group,
    samples: Mapping[str, Collection[int] | None],
    steps: Collection[int] | None = None,
) -> list[Found]:
    """Read whole samples that answer what is asked, ordered by step, problem and sample.

    ``samples``: numbers of the samples of each problem; None where all are meant.
    """

    def read(files: Rows) -> tuple[list[Found], View]:
        view = View(files.now, None, problems=set(samples), steps=steps)
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
            Found(
                sample,
                paths[sample.key.step, sample.key.problem, sample.key.sample]
                .relative_to(layout.root)
                .as_posix(),
            )
            for sample in schema.to_samples(table)
        ]
        return matches, view

    matches = _steadily(layout, group, read)
    if not matches:
        left_out.tell(layout.root, purged(Sources.survey(layout)))
    return matches


def graders(layout: Layout, group: Group) -> Counter[str]:
    """Count the verdicts of each grader among the samples that answer what is asked."""
    counted = _answering(layout, group, ["grader"])["grader"].value_counts().to_pylist()
    # A generation that failed was not judged.
    return Counter({found["values"]: found["counts"] for found in counted if found["values"]})


_PLACE = ("step", "problem", "sample")


def _answering(layout: Layout, group: Group, columns: Sequence[str], **some: Any) -> pa.Table:
    def read(files: Rows) -> tuple[pa.Table, View]:
        view = View(files.now, columns, **some)
        return view.read(_joined(files.counted(view).values()), columns), view

    return _steadily(layout, group, read)


def _steadily(
    layout: Layout, group: Group, read: Callable[[Rows], tuple[T, View]], *, strict: bool = False
) -> T:
    """Give what a read of a group gives, and tell what was left out."""

    def attempt() -> T:
        files = Rows(layout, group, strict=strict)
        result, view = read(files)
        notes[:] = [*files.notes, *view.notes]
        return result

    notes: list[Note] = []
    result = snapshot.steady(attempt)
    left_out.tell(layout.root, notes)
    return result


def _joined(rows_of_cells: Collection[NDArray[np.intp]]) -> NDArray[np.intp]:
    return np.concatenate([np.empty(0, np.intp), *rows_of_cells])
