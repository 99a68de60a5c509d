"""The nouns of the engine interface: *Request* in, *Completion* out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Tokens, and the images that they mark.
Prompt = tuple[tuple[int, ...], tuple[bytes, ...]]


class Finish(IntEnum):
    """Why a response ended. The codes are stored."""

    EOS = 0
    LENGTH = 1
    STOP_STRING = 2
    ERROR = 3


def finish_name(code: int) -> str:
    """Name a stored code, as verifiers and tables are told it; empty where it is unknown (−1)."""
    return "" if code < 0 else Finish(code).name.lower()


@dataclass(frozen=True)
class Request:
    """One response to generate: prompt tokens, a seed of its own, and a tag that comes back.

    ``max_tokens``: tokens that it may have, where that is not the sampling setting's number (0).
    """

    tag: int
    prompt_ids: tuple[int, ...]
    seed: int
    images: tuple[bytes, ...] = ()
    max_tokens: int = 0

    @property
    def prompt(self) -> Prompt:
        """What the model is shown: the same for every sample of a problem."""
        return self.prompt_ids, self.images


#: Stands among requests for one that is not ready yet.
NOT_READY: Final = Request(-1, (), 0)


@dataclass(frozen=True)
class Completion:
    """One finished response.

    ``logprobs`` are those of the sampled tokens at the sampling temperature, before top-p is
    applied; ``entropies`` are full-vocabulary entropies (nats) of the same distribution. The
    end-of-text token, where one was sampled, is included in all arrays. ``drawn_logprobs`` are
    those of the distribution that the tokens were drawn from, where that is at another temperature
    (power sampling); else empty.

    A response may take several turns, with results of tools between them. Then the arrays have the
    tools' tokens too, with zeros for what was measured, and ``text`` is what the model wrote last.
    ``trace`` tells in JSON how a response of several turns or moves came about. It is empty for a
    plain response.
    """

    tag: int
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    text: str
    finish: Finish
    error: str = ""
    trace: str = ""
    drawn_logprobs: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @property
    def written_by_model(self) -> NDArray[np.bool_]:
        """Which of the tokens the model wrote, and no tool."""
        return written_by_model(self.trace, len(self.token_ids))


#: Name of the model in a trace; every other writer is a tool.
MODEL: Final = "model"


def written_by_model(trace: str, n_tokens: int) -> NDArray[np.bool_]:
    """Which of a response's tokens the model wrote; all of them where the trace is empty.

    ``trace``: JSON whose ``segments`` begin with who wrote the next tokens and how many they are.
    """
    segments = json.loads(trace).get("segments", ()) if trace else ()
    if not segments:
        return np.ones(n_tokens, bool)
    is_model = [writer == MODEL for writer, *_ in segments]
    counts = [count for _, count, *_ in segments]
    return np.repeat(is_model, counts)


class Turn(NamedTuple):
    """What the model, or a tool under its name, wrote before the other went on."""

    writer: str
    text: str


def read_turns(trace: str, last_text: str) -> list[Turn]:
    """The turns of a response in order; a plain response is the model's only one.

    ``trace`` has the text of every turn but the last, which the model wrote: ``last_text``.
    """
    segments = json.loads(trace).get("segments", ()) if trace else ()
    earlier = [Turn(writer, text) for writer, _, text in segments[:-1]]
    return [*earlier, Turn(MODEL, last_text)]


def as_conversation(trace: str, last_text: str) -> str:
    """A response as one text, each turn below the name of its writer; a plain one as it is."""
    turns = read_turns(trace, last_text)
    if len(turns) == 1:
        return last_text
    return "\n\n".join(f"[{turn.writer}]\n{turn.text}" for turn in turns)
