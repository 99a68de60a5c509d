"""Sampling through a server with OpenAI's completions: its requests, and the engine on them."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import math
import os
import random
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from rlbhpc import __version__
from rlbhpc.engines.completion import NOT_READY, Completion, Finish, Request
from rlbhpc.engines.engine import IDLE_SECONDS, Ahead, Score, Shared, failed_completion
from rlbhpc.engines.tokens import Tokens, before_stop
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import Prompt
from rlbhpc.study.keys import Sampling

if TYPE_CHECKING:
    import torch


log = logging.getLogger(__name__)

# What passes by itself: busy, too many requests, and whatever a server or proxy stumbled over.
PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529))
# What is wrong with every request alike, so that going on makes no sense.
FOR_GOOD: Final = {
    401: "it does not accept the key",
    403: "the key may not use this model",
    404: "there is no such address or model",
}
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0
SHOWN: Final = 300


class RefusedError(Exception):
    """The server will not answer this request, or did not in all tries; the reason is its text."""


class StoppedError(Exception):
    """The client was stopped while it waited."""


class Client:
    """One connection to a server, which opens itself again after it was closed.

    ``url`` goes up to and with ``/v1``. ``key`` is sent as a bearer token and never enters a
    message. A try is given up after ``timeout`` seconds without a byte. ``stop`` is set from
    outside and ends waiting.
    """

    def __init__(
        self, url: str, key: str | None, tries: int, timeout: float, stop: threading.Event
    ) -> None:
        """Set up a connection to the server at ``url``, which is opened by the first request."""
        self._url = url.rstrip("/")
        self._key = key
        self._tries = tries
        self._stop = stop
        address = urlsplit(self._url)
        is_encrypted = address.scheme == "https"
        connection_class = (
            http.client.HTTPSConnection if is_encrypted else http.client.HTTPConnection
        )
        port = address.port or connection_class.default_port
        self._connection = connection_class(address.hostname or "", port, timeout=timeout)
        self._path = address.path

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request until it is answered, and return the answer.

        ``PASSING`` are the statuses that go away by themselves, such as busy: the request is tried
        again after a wait. ``FOR_GOOD`` are those that would meet every request, such as a wrong
        key. ``RefusedError`` says that this one request gets no answer.
        """
        data = json.dumps(body).encode()
        reason = ""
        for attempt in range(self._tries):
            try:
                status, headers, answer = self._post_once(path, data)
            except (OSError, http.client.HTTPException) as error:
                # Refused, reset, timed out, or closed before the whole answer had come.
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self.close()
                self._wait_before_retry(attempt, reason, None)
                continue
            reply = None
            with contextlib.suppress(ValueError, RecursionError):  # as after a cut connection
                reply = json.loads(answer)
            if status == 200 and isinstance(reply, dict):
                return reply
            reason = self._refusal_reason(status, answer)
            if status in FOR_GOOD:
                raise UserError(f"endpoint {self._url}: {FOR_GOOD[status]} (status {status})")
            if status != 200 and status not in PASSING:
                raise RefusedError(reason)
            self._wait_before_retry(attempt, reason, headers.get("Retry-After"))
        raise RefusedError(f"no answer in {self._tries} tries; the last: {reason}")

    def stop(self) -> None:
        """End a request that is being waited for, from another thread."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _post_once(self, path: str, data: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request and read its status, headers and body; no second try.

        Raises ``StoppedError`` if the client was stopped from outside.
        """
        if self._stop.is_set():
            raise StoppedError
        headers = {"Content-Type": "application/json", "User-Agent": f"rlbhpc/{__version__}"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._connection.request("POST", f"{self._path}{path}", data, headers)
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()

    def _wait_before_retry(self, attempt: int, reason: str, retry_after: str | None) -> None:
        """Wait before the next try: longer each time, and not in step with other clients.

        ``attempt`` counts the tries from 0. ``retry_after`` is the server's own wish in seconds.
        The wait ends with ``StoppedError`` if the client is stopped meanwhile.
        """
        longest = min(LONGEST_DELAY, FIRST_DELAY * 2.0**attempt)
        delay = random.uniform(0, longest)
        if retry_after is not None and retry_after.strip().isdigit():
            delay += min(float(retry_after), LONGEST_DELAY)
        log.debug("try %d: %s; the next in %.1f s", attempt + 1, reason, delay)
        if attempt + 1 < self._tries and self._stop.wait(delay):
            raise StoppedError

    def _refusal_reason(self, status: int, answer: bytes) -> str:
        text = " ".join(answer.decode("utf-8", "replace").split())
        if self._key is not None:
            text = text.replace(self._key, "[key]")
        return f"status {status}: {text[:SHOWN]}"


def key_of(variable: str | None) -> str | None:
    """Read the key from the environment variable, the only place where it is looked for.

    None if no variable is named: the server then asks for no key.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"endpoint: the environment variable {variable} is not set; export the key")
    if not key.isascii() or not key.isprintable():
        raise UserError(f"endpoint: {variable} holds characters that no key has; export it again")
    return key


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
        """Set up as many clients as requests may be under way at a time.

        ``model`` is the server's name of it. See the class for the other parameters.
        """
        self.tokens: Tokens = TextTokens()
        self.max_length = context or UNKNOWN
        self._model = str(model)
        self._chat = chat
        self._top = top_logprobs
        self._stop = threading.Event()
        key = key_of(key_env)
        self._clients = [Client(url, key, tries, timeout, self._stop) for _ in range(concurrency)]

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield completions as they come; see :class:`Engine`.

        Each client has a thread that takes the next request, shared with the others, once it is
        free. ``Ahead`` yields what the threads give.
        """
        shared = Shared(iter(requests))
        self._stop.clear()
        ahead = Ahead([self._serve_requests(c, shared, sampling) for c in self._clients])
        try:
            yield from ahead
        finally:
            self._end_requests()
            ahead.close()

    def _end_requests(self) -> None:
        self._stop.set()
        for client in self._clients:
            client.stop()

    def _serve_requests(
        self, client: Client, requests: Iterator[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        """Ask for one request after the other, over one connection.

        A request that the server refuses becomes a failed completion; what would meet all requests
        alike, such as a wrong key, ends the other connections, too.
        """
        path = "/chat/completions" if self._chat else "/completions"
        try:
            for request in requests:
                if request is NOT_READY:
                    time.sleep(IDLE_SECONDS)
                    continue
                if request.images:
                    yield failed_completion(
                        request, "an endpoint is sent text only; the problem has images"
                    )
                    continue
                try:
                    answer = client.post(path, self._request_body(request, sampling))
                except RefusedError as error:
                    yield failed_completion(request, str(error))
                else:
                    yield completion(request, answer, sampling.stop)
        except StoppedError:
            return
        except UserError:
            self._end_requests()  # it is the same for all, so nobody need wait for an answer
            raise
        finally:
            client.close()

    def _request_body(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        """Body of the HTTP request for one sample; a setting that is off is left to the server.

        ``sampling`` says how tokens are drawn; ``extras`` gives the settings, such as penalties,
        that are on. ``_chat`` sends the prompt as a user's message. ``_top`` is how many of the
        likeliest tokens the server should report with each token; at 0 it reports no log-probs.
        """
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


class ReportedToken(NamedTuple):
    """One token as a server reports it: text, log-prob, and log-probs of the likeliest tokens."""

    text: str
    logprob: float
    top_logprobs: tuple[float, ...]


def completion(request: Request, answer: dict[str, Any], stop: Sequence[str]) -> Completion:
    """Turn a server's answer into a completion; a malformed one is a failure that says so.

    ``stop`` are the stop strings that the server was sent.
    """
    try:
        return _make_completion(request, answer, stop)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return failed_completion(
            request, f"the answer is not in the protocol: {type(error).__name__} {error}"
        )


def _make_completion(request: Request, answer: dict[str, Any], stop: Sequence[str]) -> Completion:
    """Turn a server's answer into a completion; ``stop`` are the stop strings that it was sent.

    A server reports the text of tokens and not their ids, so ``stand_in_id`` gives a negative
    number for each text. Without log-probs only the number of tokens is known.
    ``entropy_lower_bound`` uses the likeliest tokens alone. The text is cut before the first stop
    string.
    """
    choice = answer["choices"][0]
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        return failed_completion(
            request, f"the server ended the response for the reason {reason!r}"
        )
    if "message" in choice:
        text = choice["message"].get("content")
        tokens = _read_chat_tokens(choice)
    else:
        text = choice["text"]
        tokens = _read_text_tokens(choice)
    if tokens:
        ids = [stand_in_id(token.text) for token in tokens]
        logprobs = [token.logprob for token in tokens]
        entropies = [entropy_lower_bound(token.top_logprobs) for token in tokens]
    else:
        n_tokens = int(answer["usage"]["completion_tokens"])
        ids = [-1] * n_tokens
        logprobs = entropies = [math.nan] * n_tokens
    text_before_stop, _ = before_stop(text or "", stop)
    return Completion(
        tag=request.tag,
        token_ids=np.array(ids, np.int32),
        logprobs=np.array(logprobs, np.float32),
        entropies=np.array(entropies, np.float32),
        text=text_before_stop,
        finish=_read_finish(choice, tokens, stop),
    )


def _read_finish(
    choice: dict[str, Any], tokens: Sequence[ReportedToken], stop: Sequence[str]
) -> Finish:
    """Why a response ended: the protocol calls an end of text and a stop string by one name.

    So the text of the ``tokens`` is searched for a stop string; vLLM names it as ``stop_reason``.
    """
    if choice["finish_reason"] == "length":
        return Finish.LENGTH
    text_with_stop = "".join(token.text for token in tokens)
    names_stop_string = isinstance(choice.get("stop_reason"), str)
    if names_stop_string or any(string in text_with_stop for string in stop):
        return Finish.STOP_STRING
    return Finish.EOS


def entropy_lower_bound(top_logprobs: Iterable[float]) -> float:
    """Lower bound of an entropy, in nats, from the log-probs of the likeliest tokens.

    It is the entropy of the distribution in which all other tokens are one,
    −Σ p log p − R log R with R = 1 − Σ p; grouping outcomes never raises an entropy.
    """
    probabilities = [math.exp(min(logprob, 0.0)) for logprob in top_logprobs]
    all_others = max(0.0, 1.0 - sum(probabilities))
    return -sum(p * math.log(p) for p in (*probabilities, all_others) if p > 0)


def stand_in_id(text: str) -> int:
    """Number in place of a token's id, which a server does not tell: negative, one per text."""
    return -2 - (zlib.crc32(text.encode("utf-8", "surrogatepass")) >> 2)


def _read_text_tokens(choice: dict[str, Any]) -> list[ReportedToken]:
    """Tokens of an answer of ``/completions``; none if the server reports no log-probs.

    ``choice`` is the one response in the answer. Each token has its log-prob and those of the
    likeliest tokens in its place, or its own alone where the server lists no others.
    """
    reported = choice.get("logprobs") or {}
    texts = reported.get("tokens") or []
    top_of_tokens = reported.get("top_logprobs") or [None] * len(texts)
    tokens = []
    for text, logprob, top in zip(
        texts, reported.get("token_logprobs") or [], top_of_tokens, strict=True
    ):
        likeliest = top or {text: logprob}
        top_logprobs = tuple(float(value) for value in likeliest.values())
        tokens.append(ReportedToken(text, float(logprob), top_logprobs))
    return tokens


def _read_chat_tokens(choice: dict[str, Any]) -> list[ReportedToken]:
    """Tokens of an answer of ``/chat/completions``; none if the server reports no log-probs.

    ``choice`` is the one response in the answer. Each token has its log-prob and those of the
    likeliest tokens in its place, or its own alone where the server lists no others.
    """
    reported = choice.get("logprobs") or {}
    tokens = []
    for entry in reported.get("content") or ():
        text, logprob = entry["token"], float(entry["logprob"])
        # By text, since the sampled token may be listed twice: as itself and among the likeliest.
        likeliest = {top["token"]: float(top["logprob"]) for top in entry.get("top_logprobs") or ()}
        top_logprobs = tuple((likeliest or {text: logprob}).values())
        tokens.append(ReportedToken(text, logprob, top_logprobs))
    return tokens
