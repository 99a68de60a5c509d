"""Find whole samples, with their texts, wherever they are: in parts or in journals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc.store import left_out, schema, snapshot
from rlbhpc.store.left_out import Note
from rlbhpc.store.reader import purged
from rlbhpc.store.sample import Sample
from rlbhpc.store.sources import Group, Rows, Sources
from rlbhpc.store.view import View
from rlbhpc.study.layout import Layout


class Found(NamedTuple):
    """A sample, and the file below the run folder that it was read from."""

    sample: Sample
    origin: str


def find(
    layout: Layout,
    arm: str,
    problem: str,
    *,
    samples: Collection[int] | None = None,
    steps: Collection[int] | None = None,
) -> list[Found]:
    """Read samples of a problem that count, ordered by step and sample."""
    group = Group(arm, problem.partition("/")[0])
    return _find(layout, group, {problem: samples}, steps)


def find_many(
    layout: Layout, group: Group, step: int, samples: Mapping[str, Collection[int]]
) -> list[Found]:
    """Read some samples of several problems at one step, by problem, in one pass over the files."""
    return _find(layout, group, samples, {step})


def _find(
    layout: Layout,
    group: Group,
    samples: Mapping[str, Collection[int] | None],
    steps: Collection[int] | None,
) -> list[Found]:
    def read() -> list[Found]:
        rows = Rows(layout, group)
        required = rows.grid().fingerprints
        view = View(rows.now, None, problems=set(samples), steps=steps)
        keys = view.keys
        which = np.flatnonzero(_chosen(keys, samples))
        found = list(schema.to_samples(view.read(which)))
        notes[:] = [*rows.notes, *view.notes]
        # Samples of which no copy can be read are not among those found.
        names = ("step", "problem", "sample", "fingerprint")
        columns = [keys[name].take(which).to_pylist() for name in names]
        paths = dict(zip(zip(*columns, strict=True), view.origins(which), strict=True))
        return [
            Found(
                s,
                paths[s.key.step, s.key.problem, s.key.sample, s.fingerprint]
                .relative_to(layout.root)
                .as_posix(),
            )
            for s in found
            if required.get((s.key.step, s.key.problem)) == s.fingerprint
        ]

    notes: list[Note] = []
    samples_found = snapshot.steady(read)
    if not samples_found:
        notes += purged(Sources.survey(layout))
    left_out.tell(layout.root, notes)
    return samples_found


def _chosen(keys: pa.Table, samples: Mapping[str, Collection[int] | None]) -> NDArray[np.bool_]:
    """Which rows are asked for: all samples of a problem where it has None."""
    chosen = np.zeros(keys.num_rows, bool)
    for problem, numbers in samples.items():
        rows = pc.equal(keys["problem"], problem).to_numpy(zero_copy_only=False)
        if numbers is not None:
            rows = rows & np.isin(keys["sample"].to_numpy(), list(numbers))
        chosen |= rows
    return chosen


def columns(
    layout: Layout,
    arm: str,
    problem_set: str,
    step: int,
    problems: Collection[str],
    names: Sequence[str],
) -> pa.Table:
    """Read columns of the samples of some problems at one step that answer what is asked."""

    def read() -> pa.Table:
        rows = Rows(layout, Group(arm, problem_set))
        required = rows.grid().fingerprints
        wanted = pa.array(
            [required[step, p] for p in problems if (step, p) in required], pa.int64()
        )
        band = rows.read([*names, "fingerprint"], problems=problems, steps={step})
        notes[:] = [*rows.notes, *band.notes]
        return band.table.filter(pc.is_in(band.table["fingerprint"], value_set=wanted))

    notes: list[Note] = []
    table = snapshot.steady(read)
    left_out.tell(layout.root, notes)
    return table
