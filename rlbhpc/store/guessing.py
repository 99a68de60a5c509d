"""Mark the problems that are answered now and then without reasoning.

An arm with the prompt ``no-think`` asks a model for its answer alone. A problem that the untrained
model answers so at a low but nonzero rate is guessed from a small set of answers, and at large k
any model "solves" it. The mark is a coordinate over the problems of every group of the same set,
whatever its arm, so that any statistic can leave these problems out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from rlbhpc.stats.counts import Counts
from rlbhpc.store.cube_schema import GUESSABLE, SOME_END_EARLY, provenance
from rlbhpc.verify.audit.guess import LOW_RATE, guessable

if TYPE_CHECKING:
    import zarr

#: Key of a group's provenance, true where its prompt asks for the answer alone.
NO_THINK: Final = "no_think"


def write(root: zarr.Group) -> None:
    """Fill in the marks of a cube whose samples and counts are written."""
    from rlbhpc.store import cube, lazy

    for path, data in mark(lazy.datasets(root)).items():
        if GUESSABLE.name in data.coords:
            cube.write(root[path], GUESSABLE.name, data[GUESSABLE.name].values)  # type: ignore[arg-type]


def mark(datasets: Mapping[str, xr.Dataset], below: float = LOW_RATE) -> dict[str, xr.Dataset]:
    """Give the Datasets of a tree, by path, the coordinate ``guessable`` from their own counts.

    Where several arms were asked without reasoning, one that guesses a problem is enough.
    ``below``: rates from 0 to here, both ends excluded, mark a problem.
    """
    from rlbhpc.store import lazy

    groups = {path: data for path, data in datasets.items() if GUESSABLE.name in data.coords}
    known: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for data in groups.values():
        if _guesses_blindly(data):
            marks = known[str(data["problem_set"].item())]
            for problem, guessed in _guesses(data, below):
                marks[problem] = max(int(guessed), marks.get(problem, GUESSABLE.fill))
    marked = {}
    for path, data in groups.items():
        marks = known[str(data["problem_set"].item())]
        values = [marks.get(problem, GUESSABLE.fill) for problem in data["problem"].values.tolist()]
        attrs = dict(GUESSABLE.attrs)
        coordinate = lazy.of_array(("problem",), np.array(values, GUESSABLE.dtype), attrs)
        marked[path] = data.assign_coords({GUESSABLE.name: coordinate})
    return {**datasets, **marked}


def _guesses_blindly(data: xr.Dataset) -> bool:
    """Whether a group has the untrained model under a prompt that forbids reasoning."""
    return provenance(data.attrs).get(NO_THINK) is True and 0 in data["step"].values


def _guesses(data: xr.Dataset, below: float) -> Iterator[tuple[str, bool]]:
    """Each problem of which the untrained model has samples, and whether it was guessed."""
    # Stored counts are read at once; but where problems end early they hold more than is fair.
    early = SOME_END_EARLY & provenance(data.attrs).keys()
    counts = (data.rlb.counts() if early else data[["n", "c"]]).sel(step=0)
    n, c = counts["n"].values, counts["c"].values
    if "stop_after" in counts.coords:
        n, c = Counts.of(n, c, int(counts["stop_after"]), int(counts["n_max"])).places
    marked = guessable(n, c, below)
    for problem, samples, guessed in zip(data["problem"].values.tolist(), n, marked, strict=True):
        if samples:
            yield problem, bool(guessed)
