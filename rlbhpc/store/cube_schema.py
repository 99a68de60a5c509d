"""What stands in the cube: names, dimensions, types, fill values, attributes, codecs.

The one-page description for readers is ``docs/storage-schema.md``. Values of a sample are declared
in :mod:`rlbhpc.store.sample_rows`, which has a version of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rlbhpc.problems import problem
from rlbhpc.store import sample_rows
from rlbhpc.store.sample_rows import COLUMNS
from rlbhpc.verify.verdict import Status

# Changes of names, types or meanings here, beside those of a sample's values.
_CHANGES: Final = 1
SCHEMA_VERSION: Final = sample_rows.SCHEMA_VERSION + _CHANGES
#: Name of this schema in the root attributes.
SCHEMA: Final = "rlbhpc-cube"

#: Top-level groups that are not arms.
SCORES: Final = "scores"
TRAINING: Final = "training"
ROLLOUTS: Final = "rollouts"
ANSWERS: Final = "answers"
RESERVED: Final = {SCORES, TRAINING, ROLLOUTS, ANSWERS}

STRING: Final = np.dtypes.StringDType()

SAMPLES: Final = ("problem", "sample", "step")
CELLS: Final = ("problem", "step")

#: Verdicts that count as an attempt at the problem. A generation that failed and an error of the
#: verifier itself say nothing about the model; they are missing from n and visible in ``verdict``.
JUDGED: Final = (Status.WRONG, Status.RIGHT, Status.NO_ANSWER, Status.TIMEOUT)

# What the table of answers shows of one; the whole of it stands in the parts.
_ANSWER_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Variable:
    """One array of a group."""

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    fill: Any
    attrs: Mapping[str, Any] = field(default_factory=dict)


def _variable(name: str, dims: tuple[str, ...], dtype: str, meaning: str, **attrs: Any) -> Variable:
    """Describe an array of numbers; a missing one is NaN, or -1 among integers."""
    number_type = np.dtype(dtype)
    fill = float("nan") if number_type.kind == "f" else -1
    return Variable(name, dims, number_type, fill, {"long_name": meaning} | attrs)


def _text(name: str, dims: tuple[str, ...], long_name: str) -> Variable:
    return Variable(name, dims, STRING, "", {"long_name": long_name})


#: Which problems are solved by guessing at large k, see :mod:`rlbhpc.store.reader`.
GUESSABLE: Final = _variable(
    "guessable",
    ("problem",),
    "i1",
    "answered now and then without reasoning",
    flag_values=[-1, 0, 1],
    flag_meanings="unknown no yes",
)

#: Coordinates of a group of samples or counts.
COORDINATES: Final = (
    _text("problem", ("problem",), "problem id, <set>/<local id>"),
    _variable("step", ("step",), "i4", "training step of the model; 0 is the base"),
    _text("arm", (), "name of the arm"),
    _text("model", (), "name of the model line"),
    _text("problem_set", (), "name of the problem set"),
    GUESSABLE,
)

#: Key of a group's provenance: which of the two verdicts, strict or lenient, is its ``verdict``.
DECIDES: Final = "decides"
#: Key of a group's provenance, true where its prompt asks for the answer alone.
NO_THINK: Final = "no_think"
#: Key of a grid's provenance: the file with the questions of its problems.
QUESTIONS: Final = "questions"

#: Which samples a selection holds, and which of two arms are the same.
SAMPLE_NUMBER: Final = _variable("sample", ("sample",), "i8", "number of the sample, from 0")

#: Key of a grid's provenance: by name of a stratum the word of each problem that has one.
STRATA_KEY: Final = "strata"
#: Coordinates of a group whose problem set says how hard its problems are, or what they are about.
STRATA: Final = tuple(
    _text(name, ("problem",), f"{name} of the problem, as its set says; empty if it does not")
    for name in problem.STRATA
)

#: Coordinate of a group whose problems end at so many right samples; absent elsewhere.
STOP_AFTER: Final = _variable(
    "stop_after", (), "i4", "right samples at which the samples of a problem end"
)

#: Key of a group's provenance: the n that every problem has, and who has more, since looks at the
#: results asked for it.
LOOKS: Final = "looks"
#: Coordinate with that n of a group that was opened: arms that are joined keep it.
N_OF_ALL: Final = "n_of_all"
#: Keys of the provenance of a group whose problems may have unequally many samples by design.
SOME_END_EARLY: Final = {STOP_AFTER.name, LOOKS}

#: By verdict, the missing one at −1: 1 right, 0 not right, −1 where it says nothing of the model.
RIGHT_BY_VERDICT: Final = np.array([0, 1, 0, 0, -1, -1, -1], np.int8)
#: What xarray gives as float32, NaN where missing: a mean of it is of judged samples alone. Its
#: ``missing_value`` is masked as a ``_FillValue`` would be, with which xarray 2025.3 fails.
RIGHT: Final = _variable(
    "right",
    SAMPLES,
    "i1",
    "1 where the verdict is right, 0 where it is 0, 2 or 3; missing where it is -1, 4 or 5",
    missing_value=-1,
)

#: One value per sample.
SAMPLE_VARIABLES: Final = (
    *(
        _variable(name, SAMPLES, column.cube, column.meaning, **column.attrs)
        for name, column in COLUMNS.items()
        if column.cube
    ),
    RIGHT,
)

#: Numbers of a sample's trace, by the sampling setting that gives them. Only groups that were
#: sampled so have them.
TRACED: Final = {
    "power": (
        _variable("n_tokens_drawn", SAMPLES, "i4", "tokens drawn, rejected ones included"),
        _variable("n_moves", SAMPLES, "i4", "proposed moves"),
        _variable("n_moves_accepted", SAMPLES, "i4", "moves that were accepted"),
    ),
    "turns": (
        _variable("n_turns", SAMPLES, "i4", "turns that the model wrote"),
        _variable("n_tool_calls", SAMPLES, "i4", "calls of tools, failed ones included"),
        _variable("n_tool_tokens", SAMPLES, "i4", "tokens of the tools' results"),
        _variable("n_failed_calls", SAMPLES, "i4", "calls that failed, hung or were no call"),
    ),
}


def traced_variables(provenance: Mapping[str, Any]) -> list[Variable]:
    """Variables over samples that a group has beside those of all, by its sampling settings."""
    sampling = provenance.get("sampling", {})
    variables: list[Variable] = []
    for setting, traced in TRACED.items():
        if setting in sampling:
            variables += traced
    return variables


#: Counts over the samples of a problem at a step.
COUNT_VARIABLES: Final = (
    _variable("n", CELLS, "i4", "samples with a verdict of 0, 1, 2 or 3"),
    _variable("c", CELLS, "i4", "samples with verdict 1 (right)"),
)

#: The rest of a group of samples.
CELL_VARIABLES: Final = (
    *COUNT_VARIABLES,
    _variable("fingerprint", CELLS, "i8", "fingerprint of what was asked for"),
    _variable("n_answers", CELLS, "i4", "different answers: rows in the table of answers"),
)

#: What the answers of a group of samples are, in a group ``answers/<arm>/<set>``: a row for each
#: answer to a problem at a step, ordered as steps and problems are there, then by id.
ANSWER_VARIABLES: Final = (
    _text("problem", ("row",), "problem id, <set>/<local id>"),
    _variable("step", ("row",), "i4", "training step of the model; 0 is the base"),
    _variable("answer", ("row",), "i8", "id of the canonical answer, as the samples have it"),
    _text("text", ("row",), "the canonical answer, shortened to 200 characters"),
    _variable("count", ("row",), "i4", "samples with this answer"),
)

#: Log-probability of responses, or of texts of a file, under a scoring model.
SCORE_DIMS: Final = ("problem", "sample", "step", "scorer_step")
SCORE_COORDINATES: Final = (
    _text("problem", ("problem",), "problem id, <set>/<local id>"),
    _variable("step", ("step",), "i4", "step of the model that wrote the texts; 0 for a file"),
    _variable("scorer_step", ("scorer_step",), "i4", "step of the scoring model"),
    _text("source", (), "arm that wrote the texts, or name of a file of texts"),
    _text("scorer", (), "scoring model"),
    _text("problem_set", (), "name of the problem set"),
)
SCORE_VARIABLES: Final = (
    _variable("n_tokens", SCORE_DIMS, "i4", "scored tokens, end-of-text included, prompt excluded"),
    _variable(
        "logprob_sum",
        SCORE_DIMS,
        "f4",
        "sum of log-probabilities under the scoring model, given the prompt, at temperature 1",
        units="nat",
    ),
    _variable(
        "entropy_sum",
        SCORE_DIMS,
        "f4",
        "sum of full-vocabulary entropies of the scoring model, at temperature 1",
        units="nat",
    ),
)

#: Training dynamics: one float64 array per metric over this dimension.
TRAINING_COORDINATES: Final = (
    _variable("train_step", ("train_step",), "i8", "optimizer step"),
    _text("model", (), "name of the model line"),
)


#: Every response that a training sampled. ``verdict``, ``answer``, ``n_tokens`` and the sums are as
#: those of samples, at the rollouts' temperature.
ROLLOUT_DIMS: Final = ("problem", "rollout", "train_step")
ROLLOUT_COORDINATES: Final = (
    _text("problem", ("problem",), "<set>/<local id>"),
    *TRAINING_COORDINATES,
)
ROLLOUT_VARIABLES: Final = (
    _variable("group", ROLLOUT_DIMS, "i8", "number of the prompt's draw in the whole run"),
    _variable("verdict", ROLLOUT_DIMS, "i1", "verdict", **COLUMNS["verdict"].attrs),
    _variable("answer", ROLLOUT_DIMS, "i8", "id of the canonical answer"),
    _variable("n_tokens", ROLLOUT_DIMS, "i4", "response tokens, end-of-text included"),
    _variable("logprob_sum", ROLLOUT_DIMS, "f4", "the sampler's, of the response", units="nat"),
    _variable("entropy_sum", ROLLOUT_DIMS, "f4", "the sampler's, of the response", units="nat"),
    _variable("reward", ROLLOUT_DIMS, "f4", "what was learnt by; the plain reward where unused"),
    _variable("advantage", ROLLOUT_DIMS, "f4", "mean over tokens; NaN where nothing was learnt"),
)


def provenance(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what the samples of a group stand on; cubes of schema version 2 hold no text of it."""
    stored: str | Mapping[str, Any] = attributes.get("provenance", "{}")
    return json.loads(stored) if isinstance(stored, str) else stored


def training_variable(metric: str) -> Variable:
    """One metric of the training curve; Zarr would read a ``/`` in its name as a group."""
    return _variable(metric.replace("/", "."), ("train_step",), "f8", metric)


def codecs(dtype: np.dtype[Any]) -> list[Any]:
    """Compression of a chunk with a checksum around it.

    Blosc does not notice flipped bits, so crc32c comes last and covers all that is on disk.
    """
    from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

    if isinstance(dtype, np.dtypes.StringDType):
        return [ZstdCodec(level=3), Crc32cCodec()]
    return [BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"), Crc32cCodec()]


def answer_id(canonical: str) -> int:
    """48 bits of SHA-256 over a canonical answer.

    The id does not depend on what other answers there are, so that a new sample never renumbers
    old ones and ids compare across steps, arms and cubes; 48 bits stay exact in JSON and float64.
    """
    return int.from_bytes(hashlib.sha256(canonical.encode()).digest()[:6], "big")


def shorten_answer(answer: str) -> str:
    """Shorten an answer to what the table of answers holds of it."""
    if len(answer) <= _ANSWER_CHARACTERS:
        return answer
    return answer[: _ANSWER_CHARACTERS - 1] + "…"
