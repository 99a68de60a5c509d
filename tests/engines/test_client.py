"""What a client sends to a server, when it asks again, and what it makes of each answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from rlbhpc import __version__
from rlbhpc.engines import endpoint
from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.endpoint import completion, stand_in_id
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

KEY = "not-a-secret-for-tests"


class Server:
    """Answers as it is told to, the last answer again and again, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.connections: set[Any] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.connections.add(self.client_address)
                server.requests.append((self.path, dict(self.headers), json.loads(body)))
                many = len(server.answers) > 1
                status, answer = server.answers.pop(0) if many else server.answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(endpoint, "FIRST_DELAY", 0.0)
    monkeypatch.setenv("TEST_KEY", f" {KEY}\n")
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def engine_at(server: Server, **settings: Any) -> Engine:
    """With a slash too many behind the address, as users write it."""
    return make_engine("endpoint", "m", **{"url": f"{server.url}/", "concurrency": 1, **settings})


PLAIN = Sampling(0.5, 0.75, 9)


def ask(engine: Engine, sampling: Sampling = PLAIN) -> Completion:
    request = Request(3, engine.tokens.encode("1 + 1?"), 77)
    (done,) = engine.generate([request], sampling)
    return done


CHOSEN = {"finish_reason": "stop", "text": " 2", "logprobs": None}
WHOLE = json.dumps({"choices": [CHOSEN], "usage": {"completion_tokens": 2}}).encode()


@pytest.mark.parametrize(
    ("settings", "path", "more"),
    [
        ({}, "/v1/completions", {"prompt": "1 + 1?", "logprobs": 5}),
        ({"top_logprobs": 0}, "/v1/completions", {"prompt": "1 + 1?"}),
        (
            {"chat": True, "top_logprobs": 3},
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "1 + 1?"}],
                "logprobs": True,
                "top_logprobs": 3,
            },
        ),
        (
            {"chat": True, "top_logprobs": 0, "key_env": "TEST_KEY"},
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "1 + 1?"}]},
        ),
    ],
)
def test_a_request_as_it_is_sent(
    server: Server, settings: dict[str, Any], path: str, more: dict[str, Any]
) -> None:
    server.answers = [(200, WHOLE)]
    engine = engine_at(server, **settings)
    ask(engine)
    common = {"model": "m", "temperature": 0.5, "top_p": 0.75, "max_tokens": 9, "seed": 77}
    ((sent_to, headers, body),) = server.requests
    assert (sent_to, body) == (path, {**common, **more})
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"rlbhpc/{__version__}"
    assert headers.get("Authorization") == (f"Bearer {KEY}" if "key_env" in settings else None)
    sampling = Sampling(0.5, 0.75, 9, stop=("END",), top_k=4, min_tokens=2)
    ask(engine, sampling)
    assert server.requests[1][2] == {
        **common, **more, "top_k": 4, "min_tokens": 2, "stop": ["END"]
    }  # fmt: skip
    engine.close()


@pytest.mark.parametrize("passing", [408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529])
def test_what_passes_by_itself_is_asked_again(server: Server, passing: int) -> None:
    server.answers = [(passing, b"busy"), (200, b"cut off {"), (200, b"[]"), (200, WHOLE)]
    assert ask(engine_at(server)).text == " 2"
    assert len(server.requests) == 4 and len(server.connections) == 1


@pytest.mark.parametrize(
    ("status", "tries", "asked", "error"),
    [
        (503, 3, 3, "no answer in 3 tries; the last: status 503: busy [key] now"),
        (200, 2, 2, "no answer in 2 tries; the last: status 200: busy [key] now"),
        (400, 3, 1, "status 400: busy [key] now"),
        (201, 3, 1, "status 201: busy [key] now"),
        (501, 3, 1, "status 501: busy [key] now"),
    ],
)
def test_a_request_that_is_given_up_says_why(
    server: Server, status: int, tries: int, asked: int, error: str
) -> None:
    server.answers = [(status, f"busy\n {KEY} now".encode())]
    done = ask(engine_at(server, tries=tries, key_env="TEST_KEY"))
    assert (done.finish, done.error) == (Finish.ERROR, error)
    assert len(server.requests) == asked
    server.answers = [(400, b"x" * 999)]
    assert ask(engine_at(server)).error == f"status 400: {'x' * 300}"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "it does not accept the key"),
        (403, "the key may not use this model"),
        (404, "there is no such address or model"),
    ],
)
def test_what_is_wrong_with_every_request_ends_all(server: Server, status: int, why: str) -> None:
    server.answers = [(status, b"no")]
    with pytest.raises(UserError) as refused:
        ask(engine_at(server))
    assert str(refused.value) == f"endpoint {server.url}: {why} (status {status})"


@pytest.mark.parametrize("key", ["", " ", "kéy", "a\x07b"])
def test_a_key_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("TEST_KEY", key)
    with pytest.raises(
        UserError, match=r"^endpoint: .*TEST_KEY .*export .* again$|export the key$"
    ):
        make_engine("endpoint", "m", url="http://127.0.0.1:9/v1", key_env="TEST_KEY")


def test_pauses_grow_up_to_a_minute_and_a_server_may_ask_for_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", endpoint.__name__)
    monkeypatch.setattr("random.uniform", lambda low, high: high - low)
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    waiting = endpoint.Client("http://127.0.0.1:9/v1", None, 9, 1.0, Stop())
    for attempt in range(9):
        waiting._wait_before_retry(attempt, "busy", None)
    assert caplog.messages[1] == "try 2: busy; the next in 1.0 s"
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60], "after the last try nothing is waited for"
    waits.clear()
    for after in ("7", " 7 ", "1000", "soon", ""):
        waiting._wait_before_retry(0, "", after)
    assert waits == [7.5, 7.5, 60.5, 0.5, 0.5]


def test_what_an_endpoint_cannot_do_it_says() -> None:
    engine = make_engine("endpoint", "m", url="http://127.0.0.1:9/v1")
    with pytest.raises(UserError) as refused:
        engine.score([])
    assert str(refused.value) == (
        "model m is served at an endpoint, which cannot score given texts; name a model that is a "
        "folder"
    )
    with pytest.raises(UserError, match=r"^model m is served at an endpoint; its weights stay th"):
        engine.load_weights([])
    (done,) = engine.generate([Request(1, (65,), 1, (b"x",))], Sampling(1.0, 1.0, 4))
    assert done.error == "an endpoint is sent text only; the problem has images"
    assert (engine.sees, engine.deterministic, engine.max_length) == (False, False, 1 << 30)
    assert make_engine("endpoint", "m", url="http://x/v1", context=512).max_length == 512
    engine.rest()


HALF, QUARTER = np.log([0.5, 0.25]).tolist()
# Of the two that are told and of all others, which are as likely as the second.
THREE = -1.5 * HALF
CHAT = {
    "finish_reason": "stop",
    "message": {"content": "ab END"},
    "logprobs": {
        "content": [
            {
                "token": "a", "logprob": HALF,
                "top_logprobs": [
                    {"token": "a", "logprob": HALF}, {"token": "c", "logprob": QUARTER},
                ],
            },
            {"token": "b END", "logprob": QUARTER},
        ]
    },
}  # fmt: skip
TEXT = {
    "finish_reason": "length",
    "text": "ab",
    "logprobs": {
        "tokens": ["a", "b"],
        "token_logprobs": [HALF, QUARTER],
        "top_logprobs": [{"a": HALF, "c": QUARTER}, None],
    },
}


@pytest.mark.parametrize(
    ("choice", "stop", "tokens", "text", "finish"),
    [
        (CHAT, (), ("a", "b END"), "ab END", Finish.EOS),
        (CHAT, ("END",), ("a", "b END"), "ab ", Finish.STOP_STRING),
        (TEXT, (), ("a", "b"), "ab", Finish.LENGTH),
        ({**TEXT, "finish_reason": "stop"}, (), ("a", "b"), "ab", Finish.EOS),
        # Where a server cuts the stop string off, it says which one it was.
        (
            {**TEXT, "finish_reason": "stop", "stop_reason": "END"},
            ("END",), ("a", "b"), "ab", Finish.STOP_STRING,
        ),
        ({**TEXT, "finish_reason": "stop", "stop_reason": 7}, (), ("a", "b"), "ab", Finish.EOS),
    ],
)  # fmt: skip
def test_an_answer_becomes_a_completion(
    choice: dict[str, Any],
    stop: tuple[str, ...],
    tokens: tuple[str, ...],
    text: str,
    finish: Finish,
) -> None:
    done = completion(Request(5, (1,), 1), {"choices": [choice]}, stop)
    assert (done.tag, done.text, done.finish, done.error) == (5, text, finish, "")
    assert done.token_ids.tolist() == [stand_in_id(token) for token in tokens]
    assert done.logprobs.tolist() == pytest.approx([HALF, QUARTER])
    alone = -0.25 * np.log(0.25) - 0.75 * np.log(0.75)
    assert done.entropies.tolist() == pytest.approx([THREE, alone])


def test_stand_ins_for_tokens_are_below_what_stands_for_none() -> None:
    assert [stand_in_id("a"), stand_in_id("\ud800")] == [-976088978, -124856652]


def test_log_probs_without_their_likeliest_tell_of_the_token_alone() -> None:
    listed = {"tokens": ["a"], "token_logprobs": [HALF]}
    choice = {"finish_reason": "length", "text": None, "logprobs": listed}
    done = completion(Request(5, (1,), 1), {"choices": [choice]}, ())
    assert done.text == "" and done.entropies.tolist() == pytest.approx([-HALF])
