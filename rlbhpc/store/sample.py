"""The row that the store keeps: one sample with its completion and verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlbhpc.study.keys import SampleKey


def _no_ids() -> NDArray[np.int32]:
    return np.empty(0, np.int32)


def _no_values() -> NDArray[np.float16]:
    return np.empty(0, np.float16)


@dataclass(frozen=True)
class Sample:
    """One finished sample, as it is journaled, sealed and read back.

    Only what the same request always gives again stands here, so that a store that was
    interrupted holds the same bytes as one that was not. Times, hosts and attempts live in
    attempt records.

    Attributes
    ----------
    key, fingerprint, seed
        Which sample (:class:`SampleKey`), what was asked for, and the seed it was drawn with.
    verdict, finish
        Integer codes of ``verify.verdict.Status`` and ``engines.completion.Finish``.
    logprob_sum, entropy_sum
        Sums over the response tokens in nats (NaN where the engine gives none).
    answer, rule, grader
        Canonical answer, the rule that decided and the grader's fingerprint.
    text, token_ids, logprobs, entropies
        The response itself; per-token values are float16.
    error
        Why generation or verification failed; empty otherwise.
    paper
        What the published study's lenient grader says of it, as a code like ``verdict``; −1 where
        nobody asked.
    """

    key: SampleKey
    fingerprint: int
    seed: int
    verdict: int
    finish: int
    n_tokens: int
    logprob_sum: float
    entropy_sum: float
    answer: str = ""
    rule: str = ""
    grader: str = ""
    text: str = ""
    error: str = ""
    paper: int = -1
    token_ids: NDArray[np.int32] = field(default_factory=_no_ids)
    logprobs: NDArray[np.float16] = field(default_factory=_no_values)
    entropies: NDArray[np.float16] = field(default_factory=_no_values)
