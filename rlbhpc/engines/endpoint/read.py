"""From what a server answers to a completion, in both protocols."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import failed


class Token(NamedTuple):
    """One token as a server tells of it: text, log-prob, and those of the likeliest tokens."""

    text: str
    logprob: float
    top: tuple[float, ...]


def completion(request: Request, answer: dict[str, Any], stop: Sequence[str]) -> Completion:
    """Turn a server's answer into a completion; a malformed one is a failure that says so."""
    try:
        return _completion(request, answer, stop)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return failed(request, f"the answer is not in the protocol: {type(error).__name__} {error}")


def _completion(request: Request, answer: dict[str, Any], stop: Sequence[str]) -> Completion:
    choice = answer["choices"][0]
    chat = "message" in choice
    text = (choice["message"].get("content") if chat else choice["text"]) or ""
    why = choice.get("finish_reason")
    if why not in ("stop", "length"):
        return failed(request, f"the server ended the response for the reason {why!r}")
    tokens = list(_chat_tokens(choice) if chat else _text_tokens(choice))
    if tokens:
        ids = [token_id(token.text) for token in tokens]
    else:
        # Only their number is known.
        ids = [-1] * int(answer["usage"]["completion_tokens"])
    nan = np.full(len(ids), np.nan, np.float32)
    return Completion(
        tag=request.tag,
        token_ids=np.array(ids, np.int32),
        logprobs=np.array([token.logprob for token in tokens], np.float32) if tokens else nan,
        entropies=np.array([bound(token.top) for token in tokens], np.float32) if tokens else nan,
        text=_cut(text, stop),
        finish=_finish(why, choice, tokens, stop),
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


def _finish(
    why: str, choice: dict[str, Any], tokens: Sequence[Token], stop: Sequence[str]
) -> Finish:
    """Tell an end of text from a stop string, which the protocol calls by one name."""
    if why == "length":
        return Finish.LENGTH
    whole = "".join(token.text for token in tokens)
    named = isinstance(choice.get("stop_reason"), str)
    return Finish.STOP_STRING if named or any(s in whole for s in stop) else Finish.EOS


def _cut(text: str, stop: Sequence[str]) -> str:
    starts = [start for start in map(text.find, stop) if start >= 0]
    return text[: min(starts)] if starts else text
