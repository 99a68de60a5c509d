"""From sample rows to the arrays of a *band*: one chunk of problems at one step, all samples.

A band is a pure function of the set of its rows; their order makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc.store import cube_schema, sample
from rlbhpc.store.cube_schema import STRING
from rlbhpc.verify.verdict import Status

#: Columns of a row that a band needs.
COLUMNS: Final = (
    "problem",
    "sample",
    "fingerprint",
    *(name for name, column in sample.COLUMNS.items() if column.cube),
)

# Plain integers: NumPy compares bytes with an enum as 64-bit integers, at a quarter of the speed.
_RIGHT: Final = int(Status.RIGHT)
_LAST_JUDGED: Final = int(max(cube_schema.JUDGED))


class Band(NamedTuple):
    """Arrays of a band, the step as their last dimension of size one, and its table of answers."""

    arrays: dict[str, NDArray[Any]]
    answers: dict[str, NDArray[Any]]


def build(
    rows: pa.Table, problems: Sequence[str], fingerprints: Sequence[int], step: int, n: int
) -> Band:
    """Put the samples of a band in their places.

    ``rows``: samples of one step with :data:`COLUMNS`, each key once. Those of other problems, or
    with another fingerprint than the one that is asked for, do not count. ``problems,
    fingerprints``: the problems of the band and what is asked for of each. ``n``: length of the
    sample axis.
    """
    places, kept = positions(rows["problem"], problems)
    required = np.asarray(fingerprints, np.int64)
    kept &= np.asarray(rows["fingerprint"]) == required[places]
    rows, places = rows.filter(pa.array(kept)), places[kept]
    cell = places * n + np.asarray(rows["sample"]).astype(np.int64)

    answer_ids, answered, answers = _count_answers(rows["answer"], places)
    answers["problem"] = np.array(problems, STRING)[answered]
    answers["step"] = np.full(len(answered), step)
    right = cube_schema.RIGHT_BY_VERDICT[np.asarray(rows["verdict"])]
    derived = {"answer": answer_ids, "right": right}
    arrays: dict[str, NDArray[Any]] = {}
    for variable in cube_schema.SAMPLE_VARIABLES:
        name = variable.name
        flat = np.full(len(problems) * n, variable.fill, variable.dtype)
        flat[cell] = derived[name] if name in derived else np.asarray(rows[name])
        arrays[name] = flat.reshape(len(problems), n, 1)
    arrays["n"], arrays["c"] = counts(arrays["verdict"], axis=1)
    arrays["fingerprint"] = required[:, None]
    arrays["n_answers"] = np.bincount(answered, minlength=len(problems))[:, None]
    return Band(arrays, answers)


def up_to_stop(verdict: NDArray[np.int8], stop_after: int) -> NDArray[np.int8]:
    """Keep the samples up to the ``stop_after``-th right one, along the last axis.

    In the order of the index, and none behind a missing one: what counts follows from the samples
    and not from which of them came first. Those left out become missing. 0 keeps all.
    """
    if not stop_after:
        return verdict
    right = verdict == _RIGHT
    kept = np.cumsum(right, axis=-1) - right < stop_after
    kept &= np.logical_and.accumulate(verdict != Status.MISSING, axis=-1)
    return np.where(kept, verdict, np.int8(Status.MISSING))


def counts(verdict: NDArray[np.int8], axis: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count judged samples and right ones along an axis of verdict codes."""
    # Along the last axis NumPy sums several times faster.
    rows = np.ascontiguousarray(np.moveaxis(verdict, axis, -1))
    # JUDGED is 0 … 3, so one unsigned comparison also drops −1.
    n: NDArray[np.int32] = np.sum(rows.view(np.uint8) <= _LAST_JUDGED, axis=-1, dtype=np.int32)
    return n, np.sum(rows == _RIGHT, axis=-1, dtype=np.int32)


def positions(
    column: pa.ChunkedArray, names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find where each value stands in ``names``, and whether it does (0 where not)."""
    if len(column) == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    column = column.unify_dictionaries().combine_chunks()
    place: Mapping[str, int] = {name: i for i, name in enumerate(names)}
    of_value = np.array([place.get(v, -1) for v in column.dictionary.to_pylist()], np.int64)
    places = of_value[np.asarray(column.indices)]
    return np.maximum(places, 0), places >= 0


def _count_answers(
    column: pa.ChunkedArray, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Give ids of answers, −1 for none, and a row for each answer to a problem, by its position.

    ``places``: the position of each answer's problem. Rows are in the order of problems and ids.
    """
    encoded = pc.dictionary_encode(column.combine_chunks())
    codes = np.asarray(encoded.indices)
    texts = encoded.dictionary.to_pylist()
    id_of = np.array([cube_schema.answer_id(text) if text else -1 for text in texts], np.int64)
    ids, rank_of = np.unique(id_of, return_inverse=True)
    answered = np.flatnonzero(id_of[codes] >= 0)
    pairs = places[answered] * len(ids) + rank_of[codes[answered]]
    pairs, first, count = np.unique(pairs, return_index=True, return_counts=True)
    problem, rank = np.divmod(pairs, len(ids))
    shown = np.array([cube_schema.shown(text) for text in texts], STRING)
    rows = {"answer": ids[rank], "text": shown[codes[answered[first]]], "count": count}
    return id_of[codes], problem, rows
