"""The row that the store keeps: one sample with its completion and verdict.

Each value is declared here once; struct formats, the Arrow schema, the cube's variables, checks
and the tables of ``docs/`` follow from that. To add one: a line in :class:`Sample`, ``since`` the
next :data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Final, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.study.keys import SampleKey
from rlbhpc.verify.verdict import Status

#: The oldest version of which parts are read: raised whenever a column changes its meaning or goes.
OLDEST: Final = 2

NAME: Final = "name"
TEXT: Final = "text"
_LIST: Final = "[]"
_CODES: Final = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}


@dataclass(frozen=True)
class Column:
    """How one value of a sample is stored.

    ``kind``: NumPy type of a number, with ``[]`` behind it of a list of numbers; ``text``; or
    ``name``, a text that repeats over thousands of rows and is held once. ``meaning``: what it is,
    for the pages and as ``long_name`` in the cube. ``cube``: NumPy type in the cube; empty where
    the cube leaves it out. ``attrs``: more attributes in the cube. ``since``: schema version that
    it came with; rows of parts before hold its default.
    """

    kind: str
    meaning: str
    cube: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    since: int = OLDEST

    @property
    def is_number(self) -> bool:
        """Whether it has a fixed width."""
        return self.kind not in {NAME, TEXT} and not self.is_list

    @property
    def is_text(self) -> bool:
        """Whether it is a string."""
        return self.kind in {NAME, TEXT}

    @property
    def is_list(self) -> bool:
        """Whether it has one number per token."""
        return self.kind.endswith(_LIST)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Little-endian type of a number, or of the numbers in a list."""
        return np.dtype(self.kind.removesuffix(_LIST)).newbyteorder("<")

    @property
    def code(self) -> str:
        """Format of a number for :mod:`struct`."""
        return _CODES[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """Type in tables."""
        if self.kind == TEXT:
            return pa.string()
        if self.kind == NAME:
            return pa.dictionary(pa.int32(), pa.string())
        number = pa.from_numpy_dtype(self.dtype)
        return pa.list_(number) if self.is_list else number


def flags(codes: type[IntEnum], meanings: Mapping[int, str]) -> dict[str, Any]:
    """CF attributes of an integer code, with −1 for missing."""
    values = sorted({-1, *codes})
    words = {-1: "missing"} | {int(code): code.name.lower() for code in codes} | dict(meanings)
    return {
        "flag_values": [int(value) for value in values],
        "flag_meanings": " ".join(words[value] for value in values),
    }


_VERDICTS: Final = flags(
    Status,
    {
        Status.TIMEOUT: "verifier_timeout",
        Status.FAILED: "generation_failed",
        Status.ERROR: "verifier_error",
    },
)
_FINISHES: Final = flags(Finish, {})
_MASKED: Final = {"comment": "-1 is no sample, and no wrong one: take `right` for a mean"}
_NATS: Final = {"units": "nat"}
_ANSWER_ID: Final = {"long_name": "id of the canonical answer, see the group answers"}


@dataclass(frozen=True)
class Sample:
    """One finished sample, as it is journaled, sealed and read back.

    Only what the same request always gives again stands here, so that a store that was
    interrupted holds the same bytes as one that was not. Times, hosts and attempts live in
    attempt records. Where an engine gives no log-probabilities, their sums are NaN. ``verdict`` is
    the one of ``strict`` and ``lenient`` that decides in the study; these are −1 where a sample was
    not judged so.
    """

    key: SampleKey
    fingerprint: Annotated[
        int, Column("i8", "what was asked for: model, prompt, sampling, problem")
    ]
    seed: Annotated[int, Column("i8", "seed the sample was drawn with", "i8")]
    verdict: Annotated[int, Column("i1", "verdict", "i1", _VERDICTS | _MASKED)]
    finish: Annotated[int, Column("i1", "why the response ended", "i1", _FINISHES)]
    paper: Annotated[
        int, Column("i1", "verdict of the published study's lenient grader", "i1", _VERDICTS)
    ] = field(default=-1, kw_only=True)
    strict: Annotated[
        int, Column("i1", "verdict on an answer that the response states", "i1", _VERDICTS, since=3)
    ] = field(default=-1, kw_only=True)
    lenient: Annotated[
        int,
        Column(
            "i1",
            "verdict that else takes the last value of a finished response",
            "i1",
            _VERDICTS,
            since=3,
        ),
    ] = field(default=-1, kw_only=True)
    n_tokens: Annotated[int, Column("i4", "response tokens, end-of-text included", "i4")]
    logprob_sum: Annotated[
        float,
        Column("f8", "sum of log-probabilities of the response tokens", "f4", _NATS),
    ]
    entropy_sum: Annotated[
        float, Column("f8", "sum of next-token entropies over the response", "f4", _NATS)
    ]
    answer: Annotated[str, Column(TEXT, "canonical answer", "i8", _ANSWER_ID)] = ""
    rule: Annotated[str, Column(NAME, "rule that decided")] = ""
    grader: Annotated[str, Column(NAME, "fingerprint of the grader")] = ""
    text: Annotated[str, Column(TEXT, "the response")] = ""
    error: Annotated[str, Column(TEXT, "why generation or verification failed")] = ""
    token_ids: Annotated[NDArray[np.int32], Column("i4[]", "token ids of the response")] = field(
        default_factory=lambda: np.empty(0, np.int32)
    )
    logprobs: Annotated[NDArray[np.float16], Column("f2[]", "log-probability of each token")] = (
        field(default_factory=lambda: np.empty(0, np.float16))
    )
    entropies: Annotated[NDArray[np.float16], Column("f2[]", "entropy before each token")] = field(
        default_factory=lambda: np.empty(0, np.float16)
    )


def _columns() -> dict[str, Column]:
    """Columns of a row: the key, what was asked, a hash over everything, then the sample."""
    declared = {
        name: hint.__metadata__[0]
        for name, hint in get_type_hints(Sample, include_extras=True).items()
        if name != "key"
    }
    key = {
        "arm": Column(NAME, "model line under one prompt and sampling setting"),
        "step": Column("i4", "training step of the model; 0 is the base"),
        "problem": Column(NAME, "problem id"),
        "sample": Column("i4", "index of the sample, from 0"),
    }
    request = {name: declared.pop(name) for name in ("fingerprint", "seed")}
    digest = {"digest": Column("i8", "hash of the whole sample as it was drawn")}
    return key | request | digest | declared


#: Columns of a sample row by name, in their order. ``digest`` is 63 bits of a hash over the whole
#: sample as it was generated: two rows with one key and one fingerprint are the same sample exactly
#: when their digests agree, also where a part no longer keeps the per-token values.
COLUMNS: Final = _columns()
#: Kept in every part and cube.
SCHEMA_VERSION: Final = max(column.since for column in COLUMNS.values())
