"""Top-k, min-p, penalties, least length and stop tokens: both engines against the definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from tests.engines.support import Truth, by_tag, requests

pytestmark = [pytest.mark.engine, pytest.mark.core]


def penalised(
    logits: np.ndarray, sampling: Sampling, prompt: list[int], written: list[int], ends: set[int]
) -> np.ndarray:
    """vLLM's documented definition, by a loop over tokens in float64."""
    logits = logits.copy()
    if len(written) < sampling.min_tokens:
        logits[sorted(ends)] = -np.inf
    for token in {*prompt, *written}:
        if logits[token] > 0:
            logits[token] /= sampling.repetition_penalty
        else:
            logits[token] *= sampling.repetition_penalty
    for token in set(written):
        logits[token] -= sampling.presence_penalty
        logits[token] -= sampling.frequency_penalty * written.count(token)
    return logits


def distribution(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Temperature, then min-p, then top-k, then top-p of what these leave."""
    p = np.exp((logits - logits.max()) / sampling.temperature)
    p /= p.sum()
    p[p < sampling.min_p * p.max()] = 0
    order = np.argsort(-p, kind="stable")
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0
    p /= p.sum()
    kept = int(np.searchsorted(np.cumsum(p[order]), sampling.top_p)) + 1
    p[order[kept:]] = 0
    return p / p.sum()


DRAWS = [
    Sampling(1.0, 1.0, 1, top_k=5),
    Sampling(1.3, 1.0, 1, min_p=0.2),
    Sampling(0.8, 0.7, 1, top_k=12, min_p=0.05),
    Sampling(1.0, 0.9, 1, repetition_penalty=1.8, top_k=40),
]


@pytest.mark.parametrize("sampling", DRAWS, ids=str)
def test_draws_follow_the_exact_distribution(
    tiny: Path, engine: Engine, sampling: Sampling, soak: bool
) -> None:
    n = 50_000 if soak else 3_000
    prompt = (77, 12, 200)
    truth = Truth(tiny)
    logits = truth.logits(prompt, [0])[0]
    expected = distribution(penalised(logits, sampling, list(prompt), [], set()), sampling)
    logp = truth.logp(prompt, [0], sampling.temperature)[0]
    drawn = np.zeros(len(logp))
    keys = (SampleKey("arm", 0, "set/1", i) for i in range(n))
    batch = [Request(i, prompt, sample_seed(0, key)) for i, key in enumerate(keys)]
    for done in engine.generate(batch, sampling):
        drawn[done.token_ids[0]] += 1
        assert done.logprobs[0] == pytest.approx(logp[done.token_ids[0]], abs=1e-4)
    assert not drawn[expected == 0].any(), "a token that the setting leaves out was drawn"
    common = expected * n >= 5
    observed, probable = (np.append(a[common], a[~common].sum()) for a in (drawn, expected * n))
    likely = probable > 0
    assert chisquare(observed[likely], probable[likely]).pvalue > 1e-3


GREEDY = [
    Sampling(0, 1, 24, repetition_penalty=1.5),
    Sampling(0, 1, 24, presence_penalty=1.5),
    Sampling(0, 1, 24, frequency_penalty=0.8, presence_penalty=-0.3),
    Sampling(0, 1, 24, min_tokens=20, repetition_penalty=1.2, frequency_penalty=0.5),
]


@pytest.mark.parametrize("sampling", GREEDY, ids=str)
def test_greedy_takes_the_likeliest_token_after_penalties(
    tiny: Path, engine: Engine, sampling: Sampling
) -> None:
    truth = Truth(tiny)
    plain = by_tag(engine, requests(10), Sampling(0, 1, 24))
    changed = 0
    for request in requests(10):
        done = by_tag(engine, [request], sampling)[request.tag]
        ids = done.token_ids.tolist()
        for i, logits in enumerate(truth.logits(request.prompt_ids, ids)):
            after = penalised(
                logits, sampling, list(request.prompt_ids), ids[:i], engine.tokens.eos
            )
            assert after[ids[i]] >= after.max() - 1e-3
        truth.check(request, done, 1.0)  # log-probs stay those of the model itself
        assert len(ids) >= sampling.min_tokens
        changed += ids != plain[request.tag].token_ids.tolist()
    assert changed


def test_rows_that_move_keep_what_they_have_written(hf: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 40, frequency_penalty=1.0, repetition_penalty=1.3)
    together = by_tag(hf, requests(200), sampling)
    for request in requests(200)[::40]:
        (alone,) = hf.generate([request], sampling)
        assert alone.token_ids.tobytes() == together[request.tag].token_ids.tobytes()


def test_what_a_cut_leaves_may_be_as_good_as_impossible(vllm: Engine) -> None:
    from rlbhpc.engines.vllm_worker import log_softmax_at

    scaled = torch.tensor([[0.0, -200.0]])
    weights, tokens = torch.softmax(scaled, -1), torch.tensor([[1]])
    assert log_softmax_at(tokens, scaled, weights).tolist() == [[-200.0]]


def test_a_stop_token_ends_a_response_and_leaves_no_text(engine: Engine) -> None:
    common = {65, 101, 32, 97}
    sampling = Sampling(1.0, 1.0, 60, stop_token_ids=tuple(sorted(common)))
    done = by_tag(engine, requests(100), sampling).values()
    ended = [c for c in done if int(c.token_ids[-1]) in common]
    assert ended
    for completion in ended:
        assert completion.finish is Finish.EOS
        assert completion.text == engine.tokens.decode(completion.token_ids[:-1].tolist())
    assert not any(common & set(c.token_ids[:-1].tolist()) for c in done)


def test_a_stop_token_that_the_model_does_not_have_is_refused(engine: Engine) -> None:
    size = len(engine.tokens.tokenizer)
    sampling = Sampling(1.0, 1.0, 60, stop_token_ids=(65, size))
    with pytest.raises(UserError, match=f"has no token {size}; allowed: 0 to {size - 1}"):
        list(engine.generate(requests(1), sampling))
