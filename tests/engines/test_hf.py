from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlbhpc.engines import hf_engine
from rlbhpc.engines.completion import Completion, Request
from rlbhpc.engines.distribution import uniforms
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.hf_engine import ROWS_PER_KEPT_PROMPT, BatchSampler
from rlbhpc.engines.hf_model import ATTENTION, MIN_COLUMNS, STRIDE, round_up
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling
from tests.engines.support import Truth, by_tag, requests, same

pytestmark = pytest.mark.engine


def test_bits_do_not_depend_on_the_batch(tiny: Path, hf: Engine) -> None:
    assert hf.deterministic
    sampling = Sampling(1.0, 0.95, 40)
    asked = requests(200)
    whole = by_tag(hf, asked, sampling)
    shuffled = random.Random(1).sample(asked, len(asked))
    again = by_tag(hf, shuffled, sampling)
    wide = by_tag(make_engine("hf", tiny, rows=224), shuffled, sampling)
    for request in asked:
        assert same(whole[request.tag], again[request.tag])
        assert same(whole[request.tag], wide[request.tag])
    narrow = make_engine("hf", tiny, rows=16)
    for request in asked[:8]:
        (alone,) = narrow.generate([request], sampling)
        assert same(alone, whole[request.tag])


@pytest.mark.parametrize("heads, kv_heads, dim", [(2, 1, 32), (4, 4, 16), (14, 2, 64), (8, 2, 128)])
def test_bits_do_not_depend_on_masked_columns(heads: int, kv_heads: int, dim: int) -> None:
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(16, heads, 1, dim, generator=draw)
    key, value = torch.randn(2, 16, kv_heads, 256, dim, generator=draw)
    for seen in (5, 16, MIN_COLUMNS):
        found = []
        for width in range(MIN_COLUMNS, 257, STRIDE):
            mask = torch.zeros(16, 1, 1, width)
            mask[..., seen:] = -torch.inf
            narrow = key[:, :, :width], value[:, :, :width]
            found.append(ALL_ATTENTION_FUNCTIONS[ATTENTION](None, query, *narrow, mask)[0])
        assert all(torch.equal(one, found[0]) for one in found)


def test_bits_do_not_depend_on_the_number_of_cores(tiny: Path, hf: Engine) -> None:
    sampling = Sampling(1.0, 0.95, 40)
    asked = requests(60)
    cores = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = by_tag(make_engine("hf", tiny, rows=32), asked, sampling)
    finally:
        torch.set_num_threads(cores)
    two = by_tag(hf, asked, sampling)
    assert all(same(one[r.tag], two[r.tag]) for r in asked)


@pytest.mark.parametrize(("small", "batches", "rows"), [(10**9, 3, 48), (1, 1, 112)])
def test_of_a_small_model_each_core_runs_a_batch(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, small: int, batches: int, rows: int
) -> None:
    monkeypatch.setattr(hf_engine, "SMALL_MODEL", small)
    # vLLM takes it from a process that it runs in, such as that of tests before this one.
    monkeypatch.setattr(torch, "set_num_threads", torch._C.set_num_threads)
    cores = torch.get_num_threads()
    threads = set()

    def watched() -> Iterator[Request]:  # each batch pulls its requests in a thread of its own
        for request in requests(100):
            threads.add(torch.get_num_threads())
            yield request

    try:
        torch.set_num_threads(3)
        engine: Any = make_engine("hf", tiny, rows=100)
        assert len(list(engine.generate(watched(), Sampling(1.0, 1.0, 2)))) == 100
        assert [sampler.rows for sampler in engine._samplers] == [rows] * batches
        assert threads == {3 // batches} and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(cores)


def test_a_batch_shrinks_as_its_rows_end(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = make_engine("hf", tiny, rows=96)
    engine._samplers = [BatchSampler(engine._backend, 96, engine.max_length)]
    head, sizes = engine._backend.logits, []
    monkeypatch.setattr(
        engine._backend, "logits", lambda hidden: sizes.append(len(hidden)) or head(hidden)
    )
    done = by_tag(engine, requests(96), Sampling(1.0, 1.0, 400))
    lengths = np.array([len(completion.token_ids) for completion in done.values()])
    running = [int((lengths > step).sum()) for step in range(lengths.max())]
    assert sizes[0] == 96 and len(sizes) == len(running)
    for size, n in zip(sizes[1:], running[1:], strict=True):
        assert n <= size and size // 2 < round_up(n), "half of it stands empty"
    engine.close()


def test_prompts_longer_than_those_before_make_the_slots_grow(tiny: Path, hf: Engine) -> None:
    sampling = Sampling(1.0, 1.0, 12)
    rng = random.Random(3)
    asked = [
        Request(i, tuple(rng.randrange(256) for _ in range(length)), i)
        for i, length in enumerate([4, 5, 70, 4, 300, 6] * 12)
    ]
    truth = Truth(tiny)
    done = by_tag(make_engine("hf", tiny, rows=16), asked, sampling)
    for request in asked[:12]:
        truth.check(request, done[request.tag], 1.0)


# Shapes that differ in what a step must get right: biases, head norms, tied weights, grouped heads,
# a head size that is not hidden/heads, scaled rotary frequencies, learnt positions, capped scores,
# near-sighted layers, experts and sinks.
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen2-grouped": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen3": {"head_dim": 48},
    "llama": {"num_key_value_heads": 2},
    "llama-scaled": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        }
    },
    "mistral": {"sliding_window": None, "tie_word_embeddings": True},
    "gpt2": {"n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 512},
    "mistral-near": {"sliding_window": 24},
    "gemma3_text": {"head_dim": 32, "sliding_window": 24, "num_hidden_layers": 6},
    "gemma2": {"head_dim": 32, "sliding_window": 24, "query_pre_attn_scalar": 32},
    "phi": {},
    "granite": {"logits_scaling": 3.0},
    "llama-gelu": {"hidden_act": "gelu"},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "gpt_oss": {
        "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 24,
    },
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 64},
}  # fmt: skip


def true_draws(folder: Path, engine: Engine, sampling: Sampling) -> dict[int, Completion]:
    """What an engine draws, of which some is compared with the model of transformers."""
    truth, asked = Truth(folder), requests(24)
    done = by_tag(engine, asked, sampling)
    for request in asked[:8]:
        truth.check(request, done[request.tag], sampling.temperature)
    return done


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_is_that_of_transformers(tmp_path: Path, name: str) -> None:
    folder = make_tiny_model(
        tmp_path, name.partition("-")[0], initializer_range=0.1, **SHAPES[name]
    )
    engine = make_engine("hf", folder, rows=32)
    sampling = Sampling(0.8, 1.0, 30)
    done = true_draws(folder, engine, sampling)
    (alone,) = engine.generate(requests(1), sampling)
    assert same(alone, done[0]) == (name not in ("mixtral", "qwen3_moe", "gpt_oss"))
    assert engine.deterministic == same(alone, done[0])


@pytest.mark.parametrize(
    ("family", "sizes"),
    [("mamba", {}), ("qwen3_next", {"num_hidden_layers": 4, "head_dim": 32, "num_experts": 2})],
)
def test_a_model_without_a_key_value_cache_is_refused(
    tmp_path: Path, family: str, sizes: dict[str, int]
) -> None:
    folder = make_tiny_model(tmp_path, family, **sizes)
    with pytest.raises(UserError, match="use the vllm engine"):
        make_engine("hf", folder)


def test_frequencies_are_those_of_texts_of_this_length(tmp_path: Path) -> None:
    """Longer ones would change what shorter ones are read as, whoever is in the batch first."""
    factors = {"short_factor": [1.0 + i / 10 for i in range(16)], "long_factor": [3.0] * 16}
    scaling = {"rope_type": "longrope", "rope_theta": 1e4, **factors}
    folder = make_tiny_model(
        tmp_path, "phi3", initializer_range=0.1, rope_parameters=scaling,
        original_max_position_embeddings=48,
    )  # fmt: skip
    engine = make_engine("hf", folder, rows=16)
    sampling, truth = Sampling(1.0, 1.0, 20), Truth(folder)
    done = by_tag(engine, requests(16), sampling)
    fits = [r for r in requests(16) if len(r.prompt_ids) + 20 <= 48]
    assert 0 < len(fits) < 16
    for request in fits:
        truth.check(request, done[request.tag], 1.0)
    errors = [c.error for c in done.values() if c.error]
    assert len(errors) == 16 - len(fits) and "exceeds the 48 that" in errors[0]


def test_a_row_is_drawn_from_a_stream_of_its_own() -> None:
    numbers = uniforms(2**63 - 1, 10_000)
    assert (numbers >= 0).all() and (numbers < 1).all()
    assert abs(numbers.mean() - 0.5) < 0.01
    np.testing.assert_array_equal(uniforms(2**63 - 1, 10), numbers[:10])
    assert (uniforms(2**63 - 2, 10_000) != numbers).all()
    # Stored samples must be drawn alike for ever, so the stream itself is held.
    np.testing.assert_array_equal(uniforms(1, 2), [0.3035680343067586, 0.8487087496857769])


def test_only_wide_numbers_on_a_processor_are_the_same_in_any_batch(tiny: Path) -> None:
    half = make_engine("hf", tiny, rows=16, dtype="bfloat16")
    assert not half.deterministic
    half.close()


def test_prompts_that_were_run_are_kept_up_to_a_bound(tiny: Path) -> None:
    engine: Any = make_engine("hf", tiny, rows=16)
    engine._samplers = engine._samplers[:1]
    prefixes = engine._samplers[0]._prefill
    sampling, asked = Sampling(1.0, 1.0, 4), requests(10)
    plain = by_tag(engine, asked, sampling)
    assert prefixes.cache_info().currsize == 16 // ROWS_PER_KEPT_PROMPT < 10
    last = requests(10)[9:] * 3
    hits = prefixes.cache_info().hits
    assert all(same(done, plain[9]) for done in engine.generate(last, sampling))
    assert prefixes.cache_info().hits > hits
    engine.rest()
    assert prefixes.cache_info().currsize == 0
    engine.close()
