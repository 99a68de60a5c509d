"""The ``endpoint`` engine: responses from a server, many requests at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlbhpc.engines.ahead import Ahead, Shared
from rlbhpc.engines.completion import Completion, Request
from rlbhpc.engines.endpoint.client import Client, RefusedError, StoppedError, key_of
from rlbhpc.engines.endpoint.read import completion
from rlbhpc.engines.engine import Score, failed
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import Prompt
from rlbhpc.study.arm import Sampling

if TYPE_CHECKING:
    import torch

# Completions that wait for a slow reader.
AHEAD: Final = 1024
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
        ahead = Ahead([self._serve(c, shared, sampling) for c in self._clients], AHEAD)
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
