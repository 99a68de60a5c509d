"""Mark the problems that are answered now and then without reasoning.

An arm with the prompt ``no-think`` asks a model for its answer alone. A problem that the untrained
model answers so at a low but nonzero rate is guessed from a small set of answers, and at large k
any model "solves" it. The mark is a coordinate over the problems of every group of the same set,
whatever its arm, so that any statistic can leave these problems out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.stats.counts import Counts
from rlbhpc.store.cube_schema import GUESSABLE, SOME_END_EARLY
from rlbhpc.verify.audit.guess import LOW_RATE, guessable

if TYPE_CHECKING:
    import zarr

#: Key of a group's provenance, true where its prompt asks for the answer alone.
NO_THINK: Final = "no_think"

_YES: Final = 1
_NO: Final = 0


class Guesses(NamedTuple):
    """What one model said without reasoning: samples and right ones, a number per problem."""

    problem_set: str
    problems: Iterable[str]
    n: ArrayLike
    right: ArrayLike


class Marks:
    """Marks by problem set and problem.

    Where several arms were asked without reasoning, one that guesses a problem is enough.

    ``guesses``: those of each arm. ``below``: rates from 0 to here, both ends excluded, mark a
    problem.
    """

    def __init__(self, guesses: Iterable[Guesses], below: float = LOW_RATE) -> None:
        self._known: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for guess in guesses:
            n = np.maximum(np.asarray(guess.n), 0)  # the cube has −1 where nothing is known
            marked = guessable(n, np.maximum(np.asarray(guess.right), 0), below)
            marks = self._known[guess.problem_set]
            for problem, samples, guessed in zip(guess.problems, n, marked, strict=True):
                if samples:
                    word = _YES if guessed else _NO
                    marks[str(problem)] = max(word, marks.get(str(problem), GUESSABLE.fill))

    def of(self, problem_set: str, problems: Iterable[str]) -> NDArray[np.int8]:
        """Marks of some problems, in their order."""
        known = self._known.get(problem_set, {})
        marks = [known.get(str(problem), GUESSABLE.fill) for problem in problems]
        return np.array(marks, GUESSABLE.dtype)


def write(root: zarr.Group) -> None:
    """Fill in the marks of a cube whose samples and counts are written."""
    from rlbhpc.store import cube, lazy

    for path, data in mark(lazy.datasets(root)).items():
        if GUESSABLE.name in data.coords:
            cube.write(root[path], GUESSABLE.name, data[GUESSABLE.name].values)  # type: ignore[arg-type]


def mark(datasets: Mapping[str, xr.Dataset], below: float = LOW_RATE) -> dict[str, xr.Dataset]:
    """Give the Datasets of a tree, by path, the coordinate ``guessable`` from their own counts."""
    groups = {path: data for path, data in datasets.items() if GUESSABLE.name in data.coords}
    marks = Marks((_guesses(data) for data in groups.values() if _guesses_blindly(data)), below)
    marked = {}
    for path, data in groups.items():
        values = marks.of(str(data["problem_set"].item()), data["problem"].values)
        attrs = dict(GUESSABLE.attrs)
        coordinate = xr.Variable(("problem",), values, attrs, fastpath=True)  # see lazy.of_array
        marked[path] = data.assign_coords({GUESSABLE.name: coordinate})
    return {**datasets, **marked}


def _guesses_blindly(data: xr.Dataset) -> bool:
    """Whether a group has the untrained model under a prompt that forbids reasoning."""
    return json.loads(data.attrs["provenance"]).get(NO_THINK) is True and 0 in data["step"].values


def _guesses(data: xr.Dataset) -> Guesses:
    # Stored counts are read at once; but where problems end early they hold more than is fair.
    early = SOME_END_EARLY & json.loads(data.attrs["provenance"]).keys()
    counts = (data.rlb.counts() if early else data[["n", "c"]]).sel(step=0)
    n, c = counts["n"].values, counts["c"].values
    if "stop_after" in counts.coords:
        n, c = Counts.of(n, c, int(counts["stop_after"]), int(counts["n_max"])).places
    return Guesses(str(data["problem_set"].item()), data["problem"].values, n, c)
