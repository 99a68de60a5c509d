"""The nouns *SampleKey*, *Cell* and *Block*, and the seed and fingerprint that follow from a key.

A key says *which* sample is meant and never changes when work is cut differently. Its fingerprint
says *what was asked for*: when the prompt, the model's content, the sampling setting or the
problem's text changes, so does the fingerprint, and the stored sample no longer counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class SampleKey(NamedTuple):
    """Identity of one sample.

    ``arm`` is an arm's name, ``step`` the training step of the model (0 = the base), ``problem``
    a problem id of the form ``"<set>/<local id>"`` and ``sample`` the index 0 … n−1.
    """

    arm: str
    step: int
    problem: str
    sample: int

    @property
    def set_name(self) -> str:
        """The problem set of this sample."""
        return self.problem.partition("/")[0]


class Cell(NamedTuple):
    """What all samples of one problem under one request share."""

    arm: str
    step: int
    problem: str
    fingerprint: int


@dataclass(frozen=True, eq=False)
class Block:
    """All samples of one arm, problem set and step: the grain in which keys are handled.

    ``fingerprints`` has one entry per problem; the samples 0 … n−1 of a problem share it. Where
    ``stop_after`` is not 0, a problem needs no samples behind that many right ones.
    """

    arm: str
    set_name: str
    step: int
    problems: tuple[str, ...]
    n: int
    fingerprints: NDArray[np.int64]
    stop_after: int = 0

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self.problems) * self.n


def sample_seed(study_seed: int, key: SampleKey) -> int:
    """Seed of one sample: 63 bits of SHA-256 over (study seed, key).

    Nothing about shards, ranks or attempts enters, so a sample that is drawn again after a crash
    is the same sample.
    """
    text = json.dumps([study_seed, *key], ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def fingerprint(request: Mapping[str, Any]) -> int:
    """63-bit fingerprint of all that determines a sample besides its seed.

    ``request`` is a JSON-like mapping (model content digest, prompt, sampling setting, problem
    content hash); key order does not matter.
    """
    text = json.dumps(request, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
