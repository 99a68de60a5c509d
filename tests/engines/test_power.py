"""Power sampling: moves lead to p^α, and samples follow it, on a model that is enumerated."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from rlbhpc.engines import driver, power
from rlbhpc.engines.completion import NOT_READY, Completion, Finish, Request
from rlbhpc.engines.distribution import uniforms
from rlbhpc.engines.engine import Engine
from rlbhpc.study.keys import Power, Sampling, sample_seed
from tests.engines.support import Truth, requests, same

pytestmark = pytest.mark.core

ALPHA = 4.0
N_TOKENS = 4
END = 0
Text = tuple[int, ...]


class Enumerated:
    """A random model of four tokens, one of which ends a response, and the engine on it."""

    max_length = 64
    tokens = None

    def __init__(self, longest: int, spread: float = 1.0) -> None:
        self.longest = longest
        self.spread = spread

    def log_distribution(self, prefix: Text, temperature: float = 1.0) -> np.ndarray:
        rng = np.random.default_rng([7, *prefix])
        logits = self.spread * rng.standard_normal(N_TOKENS) / temperature
        return logits - np.logaddexp.reduce(logits)

    def texts(self) -> list[Text]:
        """Every response: all that have ended, and those that are as long as they may be."""
        others = range(1, N_TOKENS)
        ended = [
            (*words, END)
            for length in range(self.longest)
            for words in itertools.product(others, repeat=length)
        ]
        return ended + list(itertools.product(others, repeat=self.longest))

    def complete(self, ids: Text, start: int = 0) -> Completion:
        """A response as the engine measures it, from its token ``start`` on."""
        numbers = {1.0: [], 1 / ALPHA: []}
        for place in range(start, len(ids)):
            for temperature, logprobs in numbers.items():
                logprobs.append(self.log_distribution(ids[:place], temperature)[ids[place]])
        model, drawn = (np.array(values, np.float32) for values in numbers.values())
        finish = Finish.EOS if ids[-1:] == (END,) else Finish.LENGTH
        ids_drawn = np.array(ids[start:], np.int32)
        return Completion(0, ids_drawn, model, model, "", finish, drawn_logprobs=drawn)

    def generate(self, asked: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Draw one response after the other; the first token of every prompt stands for it."""
        for request in asked:
            assert request is not NOT_READY, "what is in flight is finished before more is asked"
            ids = request.prompt_ids[1:]
            start = len(ids)
            for uniform in uniforms(request.seed, request.max_tokens):
                weights = np.exp(self.log_distribution(ids, sampling.drawing_temperature))
                ids = (*ids, int(np.searchsorted(weights.cumsum(), uniform)))
                if ids[-1] == END:
                    break
            yield replace(self.complete(ids, start), tag=request.tag)

    def target(self) -> np.ndarray:
        """p^α / Z over :meth:`texts`."""
        logs = [self.complete(ids).logprobs.sum(dtype=float) for ids in self.texts()]
        weights = np.exp(ALPHA * np.array(logs))
        return weights / weights.sum()


def kernel(model: Enumerated) -> np.ndarray:
    """Chance of each response to follow each other after one move."""
    texts = model.texts()
    index = {ids: number for number, ids in enumerate(texts)}
    whole = [model.complete(ids) for ids in texts]
    moves = np.zeros((len(texts), len(texts)))
    for number, ids in enumerate(texts):
        for start in range(len(ids)):
            for other in texts:
                if other[:start] != ids[:start] or len(other) <= start:
                    continue
                proposal = whole[index[other]]
                chance = np.exp(proposal.drawn_logprobs[start:].sum(dtype=float)) / len(ids)
                accepted = power.acceptance(whole[number], proposal, start, ALPHA)
                moves[number, index[other]] += chance * accepted
                moves[number, number] += chance * (1 - accepted)
    return moves


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Total variation."""
    return float(abs(a - b).sum() / 2)


def test_moves_lead_to_the_power_of_the_model() -> None:
    model = Enumerated(longest=5)
    target = model.target()
    moves = kernel(model)
    assert moves.sum(1) == pytest.approx(np.ones(len(target)), abs=1e-5)
    assert distance(target @ moves, target) < 1e-6
    first = np.array([np.exp(model.complete(ids).drawn_logprobs.sum()) for ids in model.texts()])
    distances = [
        distance(first @ np.linalg.matrix_power(moves, number), target) for number in (0, 4, 16, 64)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.02 and distances[-1] < 1e-3


def test_without_the_lengths_the_moves_lead_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Enumerated(longest=5)
    monkeypatch.setattr(power.math, "log", lambda lengths: 0.0)
    assert distance(model.target() @ kernel(model), model.target()) > 1e-2


SAMPLING = Sampling(1.0, 1.0, 4, power=Power(ALPHA, 12, 2))


class Words:
    """Reads nothing: a response of the enumerated model is its tokens."""

    def complete(self, request: Request, *arrays: np.ndarray) -> Completion:
        return Completion(request.tag, *arrays, "", Finish.EOS)


@pytest.mark.slow
def test_samples_follow_the_power_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "StopText", lambda tokens, sampling: Words())
    model = Enumerated(longest=SAMPLING.max_tokens)
    n = 4_000
    batch = [Request(tag, (9,), sample_seed(3, ("", 0, "", tag))) for tag in range(n)]  # type: ignore[arg-type]
    done = list(driver.draw(model, batch, SAMPLING))  # type: ignore[arg-type]
    assert sorted(sample.tag for sample in done) == list(range(n))
    seen = Counter(tuple(sample.token_ids.tolist()) for sample in done)
    shares = np.array([seen[ids] for ids in model.texts()]) / n
    target = model.target()
    plain = np.exp([model.complete(ids).logprobs.sum() for ids in model.texts()])
    # Noise of so many samples, and far from the model itself.
    assert distance(shares, target) < np.sqrt(target / n).sum() / 2 + 0.01
    assert distance(plain, target) > 0.2
    counts = json.loads(done[0].trace)
    assert 0 <= counts["n_moves_accepted"] <= counts["n_moves"] == 2 * 12
    assert counts["n_tokens_drawn"] > counts["n_moves"]


def test_a_request_that_fails_ends_its_sample_and_no_other() -> None:
    def process(request: Request) -> driver.Process:
        first = yield request
        second = yield replace(request, seed=first.tag)
        return replace(second, text="whole")

    class Failing(Enumerated):
        def generate(self, asked: Iterable[Request], _: Sampling) -> Iterator[Completion]:
            for request in asked:
                failed = request.tag == 1 and request.seed == 1
                finish = Finish.ERROR if failed else Finish.EOS
                yield replace(self.complete((1, END)), tag=request.tag, finish=finish)

    batch = [Request(tag, (9,), 50) for tag in range(3)]
    done = driver.drive(Failing(2), batch, SAMPLING, process)  # type: ignore[arg-type]
    assert {sample.tag: (sample.text, sample.finish) for sample in done} == {
        0: ("whole", Finish.EOS), 1: ("", Finish.ERROR), 2: ("whole", Finish.EOS),
    }  # fmt: skip


@pytest.mark.engine
def test_engines_measure_the_model_and_what_they_draw_from(tiny: object, engine: Engine) -> None:
    truth = Truth(tiny)  # type: ignore[arg-type]
    sampling = replace(SAMPLING, max_tokens=12)
    for sample in requests(6):
        request = replace(sample, max_tokens=7)
        (done,) = engine.generate([request], sampling)
        assert len(done.token_ids) <= 7
        truth.check(request, done, 1.0)
        drawn = replace(done, logprobs=done.drawn_logprobs)
        ids = done.token_ids.tolist()
        expected = truth.logp(request.prompt_ids, ids, 1 / ALPHA)
        assert drawn.logprobs == pytest.approx(expected[range(len(ids)), ids], abs=1e-3)


@pytest.mark.engine
def test_samples_depend_on_their_seed_alone(hf: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 20, power=Power(2.0, 3, 8))
    asked = requests(12)
    together = {sample.tag: sample for sample in driver.draw(hf, asked, sampling)}
    for request in asked[::4]:
        (alone,) = driver.draw(hf, [request], sampling)
        assert same(alone, together[request.tag])
        assert alone.trace == together[request.tag].trace
    assert any(json.loads(sample.trace)["n_moves_accepted"] for sample in together.values())


@pytest.mark.engine
def test_a_prompt_that_leaves_no_room_is_refused_at_once(hf: Engine) -> None:
    sampling = Sampling(1.0, 1.0, hf.max_length, power=Power(2.0, 1, 8))
    (done,) = driver.draw(hf, requests(1), sampling)
    assert done.finish is Finish.ERROR and "max_tokens" in done.error
