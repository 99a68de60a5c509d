"""What every engine must agree on: definitions, distributions, endings, streaming."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.distribution import log_distribution
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from tests.engines.support import SECOND_END, Truth, by_tag, check_draws, nucleus, requests

pytestmark = [pytest.mark.engine, pytest.mark.core]

SETTINGS = [
    Sampling(1.0, 1.0, 24),
    Sampling(0.6, 0.8, 24),
    Sampling(1.7, 1.0, 24),
    Sampling(0, 1, 24),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_logprobs_and_entropies_are_those_before_top_p_at_the_sampling_temperature(
    tiny: Path, engine: Engine, sampling: Sampling
) -> None:
    truth = Truth(tiny)
    asked = requests(40)
    done = by_tag(engine, asked, sampling)
    for request in asked[:16]:
        truth.check(request, done[request.tag], sampling.temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_are_those_of_a_separate_softmax(
    tiny: Path, engine: Engine, temperature: float
) -> None:
    texts = [(r.prompt_ids, requests(40, seed=7)[r.tag].prompt_ids) for r in requests(12)]
    truth = Truth(tiny)
    for (prompt, response), score in zip(texts, engine.score(texts, temperature), strict=True):
        logp = truth.logp(prompt, response, temperature)
        expected = logp[range(len(response)), list(response)]
        np.testing.assert_allclose(score.logprobs, expected, atol=1e-4, rtol=0)
        entropies = -(np.exp(logp) * logp).sum(-1)
        np.testing.assert_allclose(score.entropies, entropies, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Sampling(1.0, 1.0, 1), Sampling(0.6, 0.8, 1)], ids=str)
def test_samples_follow_the_distribution(
    tiny: Path, engine: Engine, sampling: Sampling, soak: bool
) -> None:
    n = 100_000 if soak else 10_000
    prompt = (77, 12, 200)
    asked = (Request(i, prompt, sample_seed(0, SampleKey("arm", 0, "set/1", i))) for i in range(n))
    p = np.exp(Truth(tiny).logp(prompt, [0], sampling.temperature)[0])
    expected = nucleus(p, sampling.top_p) * n if sampling.top_p < 1 else p * n
    found = np.zeros(len(p))
    for done in engine.generate(asked, sampling):
        found[done.token_ids[0]] += 1
    assert found.sum() == n
    assert not found[expected == 0].any(), "a token outside the nucleus was drawn"
    rare = expected < 10
    pooled = [np.append(a[~rare], a[rare].sum()) for a in (found, expected)]
    keep = pooled[1] > 0
    assert chisquare(pooled[0][keep], pooled[1][keep]).pvalue > 1e-3


def test_the_same_seed_gives_the_same_tokens_alone_and_in_a_batch(engine: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 16)
    asked = requests(32)
    whole = by_tag(engine, asked, sampling)
    for request in asked[:4]:
        (alone,) = engine.generate([request], sampling)
        np.testing.assert_array_equal(alone.token_ids, whole[request.tag].token_ids)
    other = [Request(r.tag, r.prompt_ids, r.seed ^ 1) for r in asked]
    again = by_tag(engine, other, sampling)
    assert all(again[r.tag].token_ids.tolist() != whole[r.tag].token_ids.tolist() for r in asked)


@pytest.mark.parametrize("sampling", [Sampling(1.0, 1.0, 24), Sampling(0.6, 0.8, 24)], ids=str)
def test_a_token_is_the_one_that_its_seeds_number_falls_on(
    tiny: Path, engine: Engine, sampling: Sampling
) -> None:
    asked = requests(40)
    check_draws(Truth(tiny), asked, by_tag(engine, asked, sampling), sampling)


def test_every_ending_is_named_and_leaves_its_text(engine: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 60, stop=("a", "zz"))
    done = by_tag(engine, requests(300), sampling)
    for c in done.values():
        assert len(c.token_ids) == len(c.logprobs) == len(c.entropies) > 0
        text = engine.tokens.decode(c.token_ids.tolist())
        cut = [at for at in map(text.find, sampling.stop) if at >= 0]
        assert c.text == (text[: min(cut)] if cut else text)
        assert "<|endoftext|>" not in c.text
        ended = int(c.token_ids[-1]) in engine.tokens.eos
        if c.finish is Finish.STOP_STRING:
            assert cut
            assert not any(s in engine.tokens.decode(c.token_ids[:-1]) for s in sampling.stop)
        else:
            assert not cut
            assert c.finish is (Finish.EOS if ended else Finish.LENGTH)
            assert ended or len(c.token_ids) == sampling.max_tokens
    assert {c.finish for c in done.values()} == {Finish.EOS, Finish.STOP_STRING, Finish.LENGTH}
    ends = {int(c.token_ids[-1]) for c in done.values() if c.finish is Finish.EOS}
    assert ends == engine.tokens.eos and SECOND_END in ends
    # An end that was sampled is a token to learn from like any other.
    assert all(SECOND_END not in c.token_ids[:-1] for c in done.values())


def test_a_request_that_does_not_fit_fails_alone(engine: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 8)
    asked = requests(20)
    asked[3] = Request(3, (1,) * (engine.max_length - 7), 1)
    asked[5] = Request(5, (), 1)
    done = by_tag(engine, asked, sampling)
    assert {tag for tag, c in done.items() if c.finish is Finish.ERROR} == {3, 5}
    assert "lower max_tokens to at most 7" in done[3].error
    asked[3] = Request(3, (1,) * (engine.max_length - 8), 1)
    assert by_tag(engine, asked[3:4], sampling)[3].finish is not Finish.ERROR


def test_what_is_too_long_to_score_is_refused(engine: Engine) -> None:
    """vLLM wants to sample one token more."""
    longest = engine.max_length - (not engine.deterministic)
    (score,) = engine.score([((1,) * (longest - 2), (2, 3))])
    assert len(score.logprobs) == len(score.entropies) == 2
    with pytest.raises(UserError, match=rf"^score: {longest + 1} tokens.* {engine.max_length}"):
        list(engine.score([((1,) * (longest - 1), (2, 3))]))


def test_a_text_is_scored_a_few_rows_at_a_time(
    vllm: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the log-probs of a whole text vLLM has left no room beside its cache."""
    from rlbhpc.engines import vllm_worker as worker

    text, rows = ((1, 2, 3), tuple(range(5, 25))), []

    def noted(logits: torch.Tensor, temperature: float) -> torch.Tensor:
        rows.append(len(logits))
        return log_distribution(logits, temperature)

    (whole,) = vllm.score([text], 0.6)
    monkeypatch.setattr(worker, "log_distribution", noted)
    monkeypatch.setattr(worker, "CHUNK", 8 * 259)
    (score,) = vllm.score([text], 0.6)
    assert rows == [8, 8, 6]
    np.testing.assert_array_equal(score.logprobs, whole.logprobs)
    np.testing.assert_array_equal(score.entropies, whole.entropies)


def test_requests_are_pulled_lazily_and_closing_drops_what_runs(engine: Engine) -> None:
    pulled = 0

    def endless() -> Iterator[Request]:
        nonlocal pulled
        for i in itertools.count():
            pulled += 1
            yield Request(i, (1, 2, 3), i)

    stream = engine.generate(endless(), Sampling(1.0, 1.0, 30))
    tags = {next(stream).tag for _ in range(100)}
    assert len(tags) == 100
    stream.close()  # type: ignore[attr-defined]
    before = pulled
    assert before < 5000
    # The engine is free again, and nothing of the dropped requests comes back.
    done = by_tag(engine, requests(8), SETTINGS[0])
    assert len(done) == 8
    assert pulled == before


def test_an_error_in_the_requests_reaches_the_reader(engine: Engine) -> None:
    def broken() -> Iterator[Request]:
        yield from requests(3)
        raise RuntimeError("no more prompts")

    with pytest.raises(RuntimeError, match="no more prompts"):
        list(engine.generate(broken(), SETTINGS[0]))
    assert len(by_tag(engine, requests(4), SETTINGS[0])) == 4
