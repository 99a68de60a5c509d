"""The row that the store keeps: one sample with its completion and verdict.

Each value is declared here once. To add one: a line in :class:`Sample` and the next
:data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish
from rlbhpc.store.column import NAME, TEXT, Column, flags
from rlbhpc.study.keys import SampleKey
from rlbhpc.verify.verdict import Status

#: Raised whenever a column changes its meaning, appears or goes. Kept in every part and cube.
SCHEMA_VERSION: Final = 2

_VERDICTS: Final = flags(
    Status,
    {
        Status.TIMEOUT: "verifier_timeout",
        Status.FAILED: "generation_failed",
        Status.ERROR: "verifier_error",
    },
)
_FINISHES: Final = flags(Finish, {})
_NATS: Final = {"units": "nat"}
_ANSWER_ID: Final = {"long_name": "id of the canonical answer, see vocabulary"}


def _no_ids() -> NDArray[np.int32]:
    return np.empty(0, np.int32)


def _no_values() -> NDArray[np.float16]:
    return np.empty(0, np.float16)


@dataclass(frozen=True)
class Sample:
    """One finished sample, as it is journaled, sealed and read back.

    Only what the same request always gives again stands here, so that a store that was
    interrupted holds the same bytes as one that was not. Times, hosts and attempts live in
    attempt records. Where an engine gives no log-probabilities, their sums are NaN.
    """

    key: SampleKey
    fingerprint: Annotated[
        int, Column("i8", "what was asked for: model, prompt, sampling, problem")
    ]
    seed: Annotated[int, Column("i8", "seed the sample was drawn with", "i8")]
    verdict: Annotated[int, Column("i1", "verdict", "i1", _VERDICTS)]
    finish: Annotated[int, Column("i1", "why the response ended", "i1", _FINISHES)]
    paper: Annotated[
        int, Column("i1", "verdict of the published study's lenient grader", "i1", _VERDICTS)
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
        default_factory=_no_ids
    )
    logprobs: Annotated[NDArray[np.float16], Column("f2[]", "log-probability of each token")] = (
        field(default_factory=_no_values)
    )
    entropies: Annotated[NDArray[np.float16], Column("f2[]", "entropy before each token")] = field(
        default_factory=_no_values
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
