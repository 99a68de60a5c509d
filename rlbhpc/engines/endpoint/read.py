"""From what a server answers to a completion, in both protocols."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import failed
from rlbhpc.engines.stop import before_stop


class Token(NamedTuple):
    """One token as a server tells of it: text, log-prob, and those of the likeliest tokens."""

    text: str
    logprob: float
    top: tuple[float, ...]


def completion(request: Request, answer: dict[str, Any], stop: Sequence[str]) -> Completion:
    """Turn a server's answer into a completion; a malformed one is a failure that says so."""
    try:
        choice = answer["choices"][0]
        why = choice.get("finish_reason")
        if why not in ("stop", "length"):
            return failed(request, f"the server ended the response for the reason {why!r}")
        return _completion(request, answer, choice, stop)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return failed(request, f"the answer is not in the protocol: {type(error).__name__} {error}")


def _completion(
    request: Request, answer: dict[str, Any], choice: dict[str, Any], stop: Sequence[str]
) -> Completion:
    if "message" in choice:
        text, tokens = choice["message"].get("content"), list(_chat_tokens(choice))
    else:
        text, tokens = choice["text"], list(_text_tokens(choice))
    ids = [token_id(token.text) for token in tokens]
    logprobs = [token.logprob for token in tokens]
    entropies = [bound(token.top) for token in tokens]
    if not tokens:  # only their number is known
        ids = [-1] * int(answer["usage"]["completion_tokens"])
        logprobs = entropies = [math.nan] * len(ids)
    # The protocol calls an end of text and a stop string by one name.
    whole = "".join(token.text for token in tokens)
    if choice["finish_reason"] == "length":
        finish = Finish.LENGTH
    elif isinstance(choice.get("stop_reason"), str) or any(s in whole for s in stop):
        finish = Finish.STOP_STRING
    else:
        finish = Finish.EOS
    return Completion(
        request.tag,
        np.array(ids, np.int32),
        np.array(logprobs, np.float32),
        np.array(entropies, np.float32),
        before_stop(text or "", stop)[0],
        finish,
    )


def bound(top: Iterable[float]) -> float:
    """Lower bound of an entropy from the log-probs of the likeliest tokens.

    It is the entropy of the distribution in which all other tokens are one,
    −Σ p log p − R log R with R = 1 − Σ p; grouping outcomes never raises an entropy.
    """
    probabilities = [math.exp(min(logprob, 0.0)) for logprob in top]
    rest = max(0.0, 1.0 - sum(probabilities))
    return -sum(p * math.log(p) for p in (*probabilities, rest) if p > 0)


def token_id(text: str) -> int:
    """Stand-in for a token's id, which a server does not tell: negative, equal for equal texts."""
    return -2 - (zlib.crc32(text.encode("utf-8", "surrogatepass")) >> 2)


def _text_tokens(choice: dict[str, Any]) -> Iterable[Token]:
    given = choice.get("logprobs")
    if not given or not given.get("tokens"):
        return
    tops = given.get("top_logprobs") or [{}] * len(given["tokens"])
    for text, logprob, top in zip(given["tokens"], given["token_logprobs"], tops, strict=True):
        yield Token(text, float(logprob), tuple(map(float, (top or {text: logprob}).values())))


def _chat_tokens(choice: dict[str, Any]) -> Iterable[Token]:
    given = choice.get("logprobs")
    for entry in (given or {}).get("content") or ():
        logprob = float(entry["logprob"])
        # By text, since the sampled token may be listed twice: as itself and among the likeliest.
        top = {t["token"]: float(t["logprob"]) for t in entry.get("top_logprobs") or ()}
        yield Token(entry["token"], logprob, tuple((top or {entry["token"]: logprob}).values()))
