"""What identifies a sample: the nouns *Arm*, *SampleKey*, *Cell* and *Block*."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Settings that every stored sample has: temperature, top_p, max_tokens and stop.
_OLDEST_SETTINGS: Final = 4


@dataclass(frozen=True)
class Turns:
    """How a response may call tools: a sample is then an *episode* of several turns.

    ``limit``: most turns of the model. ``tools``: names, or functions in files of one's own.
    ``format``: ``blocks`` of Python and their output in plain text, or calls in the model's own
    ``chat`` format. ``characters``: longest result of a call; a longer one is cut in its middle.
    ``told``: whether each result ends with the number of turns that are left.
    """

    limit: int
    tools: tuple[str, ...]
    format: str = "chat"
    characters: int = 2000
    told: bool = False


@dataclass(frozen=True)
class Power:
    """How samples of p^alpha are drawn; see :mod:`rlbhpc.engines.power`.

    ``moves`` are tried each time that the response has grown by ``block`` tokens.
    """

    alpha: float
    moves: int
    block: int


@dataclass(frozen=True)
class Sampling:
    """One sampling setting; the part of an arm that an engine needs.

    ``temperature`` 0 means greedy. ``top_p`` 1 switches nucleus sampling off. ``stop`` strings end
    a response and are cut from its text. What follows has vLLM's names, meaning and order: the end
    tokens are barred below ``min_tokens``, then the penalties change the logits, then temperature,
    ``min_p``, ``top_k`` and ``top_p`` decide what may be drawn. ``stop_token_ids`` end a response
    as the model's own end tokens do. Log-probs and entropies are of the temperature alone, before
    any of these. With ``turns`` a response may call tools, and ``max_tokens`` counts what the model
    writes in all its turns. With ``power`` tokens are drawn at temperature 1/alpha instead.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    turns: Turns | None = None
    power: Power | None = None

    @property
    def drawing_temperature(self) -> float:
        """Temperature at which an engine draws tokens."""
        return self.temperature if self.power is None else 1 / self.power.alpha

    @property
    def penalises(self) -> bool:
        """Whether the logits depend on the tokens that are there already."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties)

    @property
    def draws_from_all_tokens(self) -> bool:
        """Whether any token may be drawn, with the probability that the temperature gives it."""
        changed_settings = self.extras().keys() - {"stop_token_ids", "turns", "power"}
        return self.temperature > 0 and self.top_p == 1 and not changed_settings

    def extras(self) -> dict[str, Any]:
        """Return the settings from ``top_k`` on that are switched on, by name.

        One that has its default is off and is left out, so that the fingerprints of samples from
        before these settings existed stay what they are. The first ``_OLDEST_SETTINGS`` fields
        always count.
        """
        changed = {}
        for field in fields(self)[_OLDEST_SETTINGS:]:
            value = getattr(self, field.name)
            if value != field.default:
                changed[field.name] = _json_ready(value)
        return changed

    def record(self) -> dict[str, Any]:
        """Return the setting as JSON-ready values by name, without what is switched off.

        `extras` adds the settings of the later fields that are switched on.
        """
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop),
            **self.extras(),
        }


def _json_ready(value: Any) -> Any:
    """A setting as JSON has it: of a group of settings those that differ from their defaults."""
    if isinstance(value, tuple):
        return list(value)
    if not is_dataclass(value):
        return value
    settings = {field.name: getattr(value, field.name) for field in fields(value)}
    defaults = {field.name: field.default for field in fields(value)}
    return {
        name: _json_ready(setting)
        for name, setting in settings.items()
        if setting != defaults[name]
    }


@dataclass(frozen=True)
class Arm:
    """A model line (its base and its checkpoints) sampled in one way.

    ``name`` is a path-safe slug, unique in the study; ``model`` names a model of the study and
    ``prompt`` a prompt template; ``steps`` are the checkpoints to sample (0 = the model itself),
    ``n`` the samples per problem.
    """

    name: str
    model: str
    prompt: str
    sampling: Sampling
    n: int
    steps: tuple[int, ...] = (0,)


def common_name(names: list[str]) -> str:
    """``rl`` for ``rl-s0`` and ``rl-s1``, or ``rl-seed0`` and ``rl-seed1``; else all names."""
    seedless_names = {re.sub(r"(.*)-s(?:eed)?\d+(?=-|$)", r"\1", name) for name in names}
    return seedless_names.pop() if len(seedless_names) == 1 else ", ".join(names)


# The nouns *SampleKey*, *Cell* and *Block*, and the seed and fingerprint that follow from a key.
#
# A key says *which* sample is meant and never changes when work is cut differently. Its
# fingerprint says *what was asked for*: when the prompt, the model's content, the sampling setting
# or the problem's text changes, so does the fingerprint, and the stored sample no longer counts.


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
    return _hash_to_63_bits([study_seed, *key])


def follow_up_seed(seed: int, number: int) -> int:
    """Seed of one request of a sample that takes several: a hash of its seed and a number."""
    return _hash_to_63_bits([seed, number])


def fingerprint(request: Mapping[str, Any]) -> int:
    """63-bit fingerprint of all that determines a sample besides its seed.

    ``request`` is a JSON-like mapping (model content digest, prompt, sampling setting, problem
    content hash); key order does not matter.
    """
    return _hash_to_63_bits(request)


def _hash_to_63_bits(content: Any) -> int:
    """The first 63 bits of SHA-256 over the compact JSON text of some values."""
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    first_bytes = hashlib.sha256(text.encode()).digest()[:8]
    # One bit less than eight bytes, so that it fits a signed 64-bit column.
    return int.from_bytes(first_bytes, "big") >> 1
