"""The noun *Arm*: a model line under one prompt and one sampling setting."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Sampling:
    """One sampling setting; the part of an arm that an engine needs.

    ``temperature`` 0 means greedy. ``top_p`` 1 switches nucleus sampling off. ``stop`` strings end
    a response and are cut from its text. What follows has vLLM's names, meaning and order: the end
    tokens are barred below ``min_tokens``, then the penalties change the logits, then temperature,
    ``min_p``, ``top_k`` and ``top_p`` decide what may be drawn. ``stop_token_ids`` end a response
    as the model's own end tokens do. Log-probs and entropies are of the temperature alone, before
    any of these.
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

    @property
    def penalises(self) -> bool:
        """Whether the logits depend on the tokens that are there already."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties)

    @property
    def whole(self) -> bool:
        """Whether any token may be drawn, as likely as the temperature makes it."""
        ends = {"stop_token_ids": list(self.stop_token_ids)}
        return self.temperature > 0 and self.top_p == 1 and self.extras().items() <= ends.items()

    def extras(self) -> dict[str, Any]:
        """The settings from ``top_k`` on that differ from "off", by name.

        What is off is left out, so that samples of before there were such settings stay valid.
        """
        defaults = {field.name: field.default for field in fields(self)[4:]}
        values = asdict(self)
        changed = {name: values[name] for name, off in defaults.items() if values[name] != off}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items()}

    def record(self) -> dict[str, Any]:
        """The setting by name, without what is off."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop),
            **self.extras(),
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
    """``rl`` for ``rl-s0`` and ``rl-s1``, or ``rl-seed0`` and ``rl-seed1``."""
    stems = {re.sub(r"(.*)-s(?:eed)?\d+(?=-|$)", r"\1", name) for name in names}
    return stems.pop() if len(stems) == 1 else ", ".join(names)
