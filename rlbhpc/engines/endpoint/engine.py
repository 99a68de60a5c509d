"""The ``endpoint`` engine: responses from a server, many requests at a time."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rlbhpc.engines.ahead import Ahead, Shared
from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.endpoint.client import Client, RefusedError, StoppedError, key_of
from rlbhpc.engines.engine import Score, failed
from rlbhpc.engines.stop import before_stop
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import Prompt
from rlbhpc.study.arm import Sampling

if TYPE_CHECKING:
    import torch

# More than any model holds: the server alone knows.
UNKNOWN: Final = 1 << 30


class TextTokens(Tokens):
    """Stands for the tokeniser, which only the server has: a prompt's tokens are its characters."""

    def __init__(self) -> None:
        self.eos = set()

    def encode_all(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Encode prompts."""
        return [tuple(map(ord, text)) for text in texts]

    def check_prompt(self, prompt: Prompt, rendered: str) -> None:
        """The server alone knows its model's format."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a prompt."""
        return "".join(map(chr, ids))


class EndpointEngine:
    """A model behind a server.

    Log-probs are those that the server reports (as a rule at temperature 1, whatever the sampling
    temperature), and entropies are lower bounds from the ``top_logprobs`` likeliest tokens: a
    server tells no full distribution. Whether a seed is honoured, it decides as well.
    ``url`` goes up to and with ``/v1``; ``chat`` sends the prompt as a user's message; ``key_env``
    names the environment variable with the key; ``context`` is what the model holds, prompt and
    response together; ``concurrency`` requests are under way at a time. The rest is the
    :class:`Client`'s.
    """

    deterministic = False
    sees = False

    def __init__(
        self, model: str | Path, *, url: str, chat: bool = False, key_env: str | None = None,
        context: int | None = None, concurrency: int = 32, tries: int = 8, timeout: float = 1800.0,
        top_logprobs: int = 5,
    ) -> None:  # fmt: skip
        self.tokens: Tokens = TextTokens()
        self.max_length = context or UNKNOWN
        self._model = str(model)
        self._chat = chat
        self._top = top_logprobs
        self._stop = threading.Event()
        key = key_of(key_env)
        self._clients = [Client(url, key, tries, timeout, self._stop) for _ in range(concurrency)]

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield completions as they come; see :class:`Engine`."""
        shared = Shared(iter(requests))
        self._stop.clear()
        ahead = Ahead([self._serve(c, shared, sampling) for c in self._clients])
        try:
            yield from ahead
        finally:
            self._end_requests()
            ahead.close()

    def _end_requests(self) -> None:
        self._stop.set()
        for client in self._clients:
            client.stop()

    def _serve(
        self, client: Client, requests: Iterator[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        path = "/chat/completions" if self._chat else "/completions"
        try:
            for request in requests:
                if request.images:
                    yield failed(request, "an endpoint is sent text only; the problem has images")
                    continue
                try:
                    answer = client.post(path, self._body(request, sampling))
                except RefusedError as error:
                    yield failed(request, str(error))
                else:
                    yield completion(request, answer, sampling.stop)
        except StoppedError:
            return
        except UserError:
            self._end_requests()  # it is the same for all, so nobody need wait for an answer
            raise
        finally:
            client.close()

    def _body(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        text = self.tokens.decode(request.prompt_ids)
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed,
            # Beyond the protocol most of these are vLLM's; a server that has them not refuses.
            **sampling.extras(),
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._chat:
            body["messages"] = [{"role": "user", "content": text}]
            return body | ({"logprobs": True, "top_logprobs": self._top} if self._top else {})
        return body | {"prompt": text} | ({"logprobs": self._top} if self._top else {})

    def score(
        self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float = 1.0
    ) -> Iterator[Score]:
        """Refuse: the protocol has no way to ask for the probability of a given text."""
        raise UserError(
            f"model {self._model} is served at an endpoint, which cannot score given texts; name a "
            "model that is a folder"
        )

    def load_weights(self, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Refuse: the weights are the server's."""
        raise UserError(f"model {self._model} is served at an endpoint; its weights stay there")

    def rest(self) -> None:
        """Do nothing: what the server holds is its own."""

    def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            client.close()


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
    why = choice.get("finish_reason")
    if why not in ("stop", "length"):
        return failed(request, f"the server ended the response for the reason {why!r}")
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
    if why == "length":
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
    listed = choice.get("logprobs")
    if not listed or not listed.get("tokens"):
        return
    tops = listed.get("top_logprobs") or [{}] * len(listed["tokens"])
    for text, logprob, top in zip(listed["tokens"], listed["token_logprobs"], tops, strict=True):
        yield Token(text, float(logprob), tuple(map(float, (top or {text: logprob}).values())))


def _chat_tokens(choice: dict[str, Any]) -> Iterable[Token]:
    listed = choice.get("logprobs")
    for entry in (listed or {}).get("content") or ():
        logprob = float(entry["logprob"])
        # By text, since the sampled token may be listed twice: as itself and among the likeliest.
        top = {t["token"]: float(t["logprob"]) for t in entry.get("top_logprobs") or ()}
        yield Token(entry["token"], logprob, tuple((top or {entry["token"]: logprob}).values()))
