"""From sample rows to the arrays of a *band*: one chunk of problems at one step, all samples.

A band is a pure function of the set of its rows; their order makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def build(
    rows: pa.Table,
    problems: Sequence[str],
    fingerprints: Sequence[int],
    n: int,
    block: int,
) -> dict[str, NDArray[Any]]:
    """Arrays of a band, each with the step as its last dimension of size one.

    ``rows``: samples of one step with :data:`COLUMNS`, each key once. Those of other problems, or
    with another fingerprint than the one that is asked for, do not count. ``problems,
    fingerprints``: the problems of the band and what is asked for of each. ``n, block``: length of
    the sample axis, and of a chunk along it.
    """
    places, kept = positions(rows["problem"], problems)
    required = np.asarray(fingerprints, np.int64)
    kept &= np.asarray(rows["fingerprint"]) == required[places]
    rows, places = rows.filter(pa.array(kept)), places[kept]
    cell = places * n + np.asarray(rows["sample"]).astype(np.int64)

    arrays: dict[str, NDArray[Any]] = {}
    for variable in cube_schema.SAMPLE_VARIABLES:
        flat = np.full(len(problems) * n, variable.fill, variable.dtype)
        if variable.name != "answer":
            flat[cell] = np.asarray(rows[variable.name])
        arrays[variable.name] = flat.reshape(len(problems), n, 1)
    blocks = max(1, -(-n // block))
    arrays["vocabulary"] = np.full((len(problems), blocks, 1), "", STRING)
    _write_answers(rows["answer"], cell, block, arrays["answer"], arrays["vocabulary"])
    arrays["n"], arrays["c"] = counts(arrays["verdict"], axis=1)
    arrays["fingerprint"] = required[:, None]
    return arrays


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


def _write_answers(
    column: pa.ChunkedArray,
    cell: NDArray[np.int64],
    block: int,
    ids: NDArray[np.int64],
    words: NDArray[Any],
) -> None:
    """Fill in answer ids and, per problem and block of samples, what they stand for.

    That is JSON in the order of the ids, its texts shortened for show.
    """
    if len(column) == 0:
        return
    encoded = pc.dictionary_encode(column.combine_chunks())
    texts: list[str] = encoded.dictionary.to_pylist()
    id_of = np.array([cube_schema.answer_id(t) if t else -1 for t in texts], np.int64)
    codes = np.asarray(encoded.indices).astype(np.int64)
    ids.ravel()[cell] = id_of[codes]

    n = ids.shape[1]
    place = (cell // n) * words.shape[1] + (cell % n) // block
    distinct = np.unique(place * len(texts) + codes)
    answers_at: dict[int, dict[int, str]] = {}
    for pair in distinct.tolist():
        position, code = divmod(pair, len(texts))
        if texts[code]:
            answers_at.setdefault(position, {})[int(id_of[code])] = texts[code]
    flat = words.ravel()
    for position, answers in answers_at.items():
        texts_shown = {str(i): cube_schema.shown(answers[i]) for i in sorted(answers)}
        flat[position] = json.dumps(texts_shown, ensure_ascii=False, separators=(",", ":"))
