"""The endpoint engine against a real server, behind a proxy that fails on purpose."""

from __future__ import annotations

import http.client
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.endpoint import completion, entropy_lower_bound
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling
from tests.engines.server import serving
from tests.engines.support import Truth

KEY = "not-a-secret-for-tests"
FAULTS = ["429", "500", "silence", "half"]


# --- reading answers -----------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=12), st.integers(1, 12))
def test_the_bound_is_never_above_the_entropy(weights: list[float], known: int) -> None:
    p = np.array(weights) / np.sum(weights)
    entropy = -(p * np.log(p)).sum()
    found = entropy_lower_bound(np.log(p[:known]))
    assert found <= entropy + 1e-9
    if known >= len(p) - 1:
        assert found == pytest.approx(entropy)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{"text": "a", "finish_reason": "stop"}]},  # neither log-probs nor usage
        {"choices": [{"text": "a", "finish_reason": "content_filter"}]},
        {"choices": [{"text": 3, "finish_reason": "stop", "logprobs": {"tokens": ["a"]}}]},
        {
            "choices": [
                {
                    "text": "ab", "finish_reason": "stop",
                    "logprobs": {"tokens": ["a", "b"], "token_logprobs": [0.0]},
                }
            ]
        },
        {"error": {"message": "no"}},
    ],
)  # fmt: skip
def test_an_answer_out_of_the_protocol_is_a_failure_with_a_reason(answer: dict[str, Any]) -> None:
    done = completion(Request(7, (1,), 1), answer, ())
    assert (done.tag, done.finish) == (7, Finish.ERROR)
    assert done.error


def test_without_log_probs_the_number_of_tokens_is_still_known() -> None:
    answer = {
        "choices": [{"message": {"content": "2 END 3"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 5},
    }
    done = completion(Request(1, (1,), 1), answer, ("END",))
    assert done.token_ids.tolist() == [-1] * 5
    assert np.isnan(done.logprobs).all() and np.isnan(done.entropies).all()
    assert done.text == "2 "


# --- the real thing ------------------------------------------------------------------------------


class Proxy:
    """Hands requests on to a server, but fails a share of them in every way that a network can."""

    def __init__(self, port: int, share: float) -> None:
        self.port, self.share = port, share
        self.rng = random.Random(8)
        self.faults: Counter[str] = Counter()
        self.seen: list[bytes] = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy.handle(self)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self.lock:
            fault = self.rng.choice(FAULTS) if self.rng.random() < self.share else ""
            self.faults[fault] += 1
        if fault == "silence":
            self.over.wait(30)
            handler.close_connection = True
            return
        if fault in ("429", "500"):
            handler.send_response(int(fault))
            handler.send_header("Retry-After", "0")
            handler.send_header("Content-Length", "4")
            handler.end_headers()
            handler.wfile.write(b"busy")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        upstream.request("POST", handler.path, body, dict(handler.headers))
        response = upstream.getresponse()
        data = response.read()
        upstream.close()
        handler.send_response(response.status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if fault == "half":
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        handler.wfile.write(data)

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with one end, so that a text leads back to its tokens, and no wishes of its own.

    A server takes sampling settings that no request names from generation_config.json.
    """
    return make_tiny_model(tmp_path_factory.mktemp("models") / "qwen2", initializer_range=0.1)


@pytest.fixture(scope="module")
def port(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of `vllm serve` on loopback; it is ended with all that it started."""
    with serving(tiny, tmp_path_factory.mktemp("server"), KEY, "tiny") as chosen:
        yield chosen


@pytest.fixture
def proxy(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("TEST_KEY", KEY)
    made = Proxy(port, 0.0)
    yield made
    made.close()


def engine_at(proxy: Proxy, **settings: Any) -> Engine:
    kept = {"key_env": "TEST_KEY", "timeout": 3.0, "concurrency": 16} | settings
    return make_engine("endpoint", "tiny", url=proxy.url, **kept)


def asked(engine: Engine, n: int) -> list[Request]:
    rng = random.Random(3)
    prompts = [engine.tokens.encode(text) for text in ("Count: 1 2 3", "αβγ 🙂", "x" * 50)]
    return [Request(i, prompts[i % 3], rng.getrandbits(63)) for i in range(n)]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chat", [False, True])
def test_faults_lose_and_double_nothing(tiny: Path, proxy: Proxy, chat: bool, soak: bool) -> None:
    sampling = Sampling(1.0, 1.0, 24)
    engine = engine_at(proxy, chat=chat)
    requests = asked(engine, 4000 if soak else 400)
    proxy.share = 0.0
    calm = {c.tag: c for c in engine.generate(requests[:48], sampling)}
    proxy.share = 0.05
    done = list(engine.generate(iter(requests), sampling))
    engine.close()
    assert set(FAULTS) <= set(proxy.faults), proxy.faults
    assert sorted(c.tag for c in done) == list(range(len(requests)))
    assert all(c.finish in (Finish.EOS, Finish.LENGTH) for c in done)
    by_tag = {c.tag: c for c in done}
    # The same seed gives the same text, also where the first answer was lost on the way.
    assert all(by_tag[tag].text == c.text for tag, c in calm.items())
    assert len({c.text for c in done}) > len(done) / 2
    # Only where the text gives the tokens back can they be held against the model: few, so all.
    tokens, truth, held = Tokens(tiny), Truth(tiny), 0
    for c in done:
        assert len(c.token_ids) == len(c.logprobs) == len(c.entropies)
        ids = (*tokens.encode(c.text), *sorted(tokens.eos))[: len(c.token_ids)]
        if len(c.token_ids) != len(tokens.encode(c.text)) + (c.finish is Finish.EOS):
            continue
        prompt = tokens.encode(engine.tokens.decode(requests[c.tag].prompt_ids))
        logp = truth.logp(prompt, ids, 1.0)
        np.testing.assert_allclose(c.logprobs, logp[range(len(ids)), list(ids)], atol=1e-4)
        entropies = -(np.exp(logp) * logp).sum(-1)
        assert (c.entropies <= entropies + 1e-4).all()
        assert (c.entropies > 0).all()
        held += 1
    assert held > 0


@pytest.mark.engine
@pytest.mark.slow
def test_what_the_server_refuses_for_good_is_not_tried_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sampling = Sampling(1.0, 1.0, 5000)
    (done,) = engine_at(proxy).generate(asked(engine_at(proxy), 1), sampling)
    assert done.finish is Finish.ERROR
    assert "status 400" in done.error
    assert sum(proxy.faults.values()) == 1
    monkeypatch.setenv("TEST_KEY", "a-wrong-key")
    with pytest.raises(UserError, match="does not accept the key") as refused:
        list(engine_at(proxy).generate(asked(engine_at(proxy), 40), Sampling(1.0, 1.0, 4)))
    assert "a-wrong-key" not in str(refused.value) + "".join(capfd.readouterr())


def test_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    with pytest.raises(UserError, match="TEST_KEY is not set"):
        make_engine("endpoint", "m", url="http://127.0.0.1:9/v1", key_env="TEST_KEY")


def test_a_server_that_is_away_is_a_failure_of_the_request_and_closing_does_not_wait() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        engine = make_engine("endpoint", "m", url=url, concurrency=2, timeout=600.0)
        stream = engine.generate([Request(0, (65,), 1)] * 4, Sampling(1.0, 1.0, 4))
        threading.Timer(0.3, engine._end_requests).start()  # type: ignore[attr-defined]
        assert list(stream) == []
    engine = make_engine("endpoint", "m", url=url, tries=2)
    (done,) = engine.generate([Request(0, (65,), 1)], Sampling(1.0, 1.0, 4))
    assert done.finish is Finish.ERROR
    assert "no answer in 2 tries" in done.error
