"""Responses in one line, prompts shared, score as each alone does in plain transformers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.train import short_rows
from rlbhpc.train.attention import attend_tables
from rlbhpc.train.batch import Response, assemble
from rlbhpc.train.policy import Critic, Policy, recompute_layers

pytestmark = pytest.mark.engine

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "llama": {"num_attention_heads": 2, "num_key_value_heads": 2},
    "mistral": {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 7},
    "gpt2": {"num_attention_heads": 2},  # positions are learned: wrong ones would show
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5},
}


def responses() -> list[Response]:
    """Three prompts with one to four responses each, as they are drawn: not side by side."""
    rng = np.random.default_rng(7)
    prompts = [tuple(rng.integers(0, 250, n).tolist()) for n in (11, 3, 6)]
    asked = [0, 1, 0, 2, 0, 1, 0]
    lengths = [9, 30, 1, 14, 9, 2, 21]
    return [
        Response(prompts[p], rng.integers(0, 250, n).astype(np.int32))
        for p, n in zip(asked, lengths, strict=True)
    ]


def alone(model: Any, response: Response, temperature: float) -> torch.Tensor:
    """Log-probs of one response, by a forward pass over nothing else."""
    ids = torch.tensor([[*response.prompt_ids, *response.token_ids.tolist()]])
    logits = model(ids).logits[0, len(response.prompt_ids) - 1 : -1] / temperature
    chosen = torch.from_numpy(response.token_ids).long()[:, None]
    return logits.log_softmax(-1).gather(1, chosen)[:, 0]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("family", SHAPES)
def test_log_probs_and_gradients_are_those_of_each_response_alone(
    family: str, recompute: bool, tmp_path: Path
) -> None:
    folder = make_tiny_model(
        tmp_path / "tiny", family, hidden_size=32, num_hidden_layers=2, **SHAPES[family]
    )
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    policy = Policy.load(folder, torch.float32)
    if recompute:
        recompute_layers(policy.model)
    every = responses()
    batch = assemble(every, np.arange(len(every)))
    assert batch.input_ids.shape[1] == 11 + 3 + 6 + sum(len(r.token_ids) - 1 for r in every)
    found = policy(batch, 0.7).logprobs
    expected = torch.cat([alone(plain, r, 0.7) for r in every])
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    weigh = torch.from_numpy(np.random.default_rng(8).normal(size=len(found))).float()
    (found * weigh).sum().backward()
    (expected * weigh).sum().backward()
    for (name, ours), theirs in zip(
        policy.model.named_parameters(), plain.parameters(), strict=True
    ):
        assert ours.grad is not None and theirs.grad is not None, name
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=2e-5)


def test_values_stand_before_each_token(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tiny", hidden_size=32)
    critic = Critic.load(folder, torch.float32)
    torch.nn.init.normal_(critic.head.weight)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).base_model
    every = responses()
    found = critic(assemble(every, np.arange(len(every))))
    expected = []
    for r in every:
        ids = torch.tensor([[*r.prompt_ids, *r.token_ids.tolist()]])
        hidden = plain(ids).last_hidden_state[0, len(r.prompt_ids) - 1 : -1]
        expected.append(critic.head(hidden)[:, 0])
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("gemma2", {"num_attention_heads": 2}),
        ("mamba", {}),
        ("gpt_oss", {}),
        ("falcon", {"num_attention_heads": 2}),  # has an attention of its own, whatever it is told
        (
            "stablelm",
            {"num_attention_heads": 2, "num_key_value_heads": 2},
        ),  # hands nothing on to its attention
        ("qwen2_moe", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ],
)
def test_a_model_of_other_layers_is_refused(family: str, sizes: dict[str, Any]) -> None:
    common = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 16, "pad_token_id": 0}
    if family == "qwen2_moe":
        common |= {
            "num_experts": 2,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "num_attention_heads": 2,
        }
        common |= {"num_key_value_heads": 2, "shared_expert_intermediate_size": 8}
    config = AutoConfig.for_model(family, **common, **sizes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        batch = assemble([Response((1, 2), np.array([3, 4], np.int32))], np.arange(1))
        with pytest.raises(UserError, match="cannot be trained here"):
            Policy(model)(batch.to(torch.device("meta")), 1.0)


def attended(
    every: list[Response],
    dtype: torch.dtype,
    heads: tuple[int, int],
    window: int | None = None,
    **options: Any,
) -> list[torch.Tensor]:
    """What comes out of attention over responses, and the gradients of what goes in."""
    batch = assemble(every, np.arange(len(every)))
    cells, draw = batch.input_ids.shape[1], torch.Generator().manual_seed(0)
    asks, answers = heads
    # Laid out as transformers hands them on, and values of another size.
    tables = [
        torch.randn(n, cells, size, generator=draw).bfloat16().to(dtype).transpose(0, 1)
        for n, size in ((asks, 16), (answers, 16), (answers, 8))
    ]
    tables = [table.requires_grad_() for table in tables]
    due = torch.randn(cells, asks, 8, generator=draw).bfloat16().to(dtype)
    module = torch.nn.Module()
    module.num_key_value_groups = asks // answers
    short_rows.cut.cache_clear()  # what is short has changed since
    out = attend_tables(module, tables, batch.rows, batch.home, sliding_window=window, **options)
    return [out, *torch.autograd.grad(out, tables, due)]


def drawn(prompts: int, each: int, longest: int) -> list[Response]:
    """Responses of 1 to ``longest`` tokens to prompts of different lengths."""
    rng = np.random.default_rng(longest)
    asked = [tuple(rng.integers(0, 250, n).tolist()) for n in rng.integers(2, 30, prompts)]
    return [
        Response(prompt, rng.integers(0, 250, n).astype(np.int32))
        for prompt in asked
        for n in rng.integers(1, longest + 1, each)
    ]


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Root mean square of what differs, as a share of the truth's."""
    gap, size = ((x.detach().pow(2).mean().sqrt()) for x in (found.float() - truth, truth))
    return float(gap / size)


@pytest.mark.parametrize(("window", "scaling"), [(None, None), (9, 0.5)])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize(
    "every", [drawn(1, 16, 40), drawn(5, 6, 60), drawn(7, 1, 20), drawn(3, 4, 1)]
)
def test_short_rows_of_bfloat16_are_off_by_a_few_roundings(
    every: list[Response],
    heads: tuple[int, int],
    window: int | None,
    scaling: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth, ours = (
        attended(every, dtype, heads, window, scaling=scaling)
        for dtype in (torch.float32, torch.bfloat16)
    )
    for found, exact in zip(ours, truth, strict=True):
        assert found.dtype == torch.bfloat16
        # One rounding to bfloat16 is off by 0.0016 of a size.
        assert 0.0016 < error(found, exact) < 2**-8
    monkeypatch.setattr(short_rows, "SHORT", 0)
    assert not torch.equal(ours[0], attended(every, torch.bfloat16, heads, window)[0])


def test_gradients_of_a_prompt_are_added_up_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = drawn(1, 64, 40)
    truth, ours = (attended(every, dtype, (4, 2)) for dtype in (torch.float32, torch.bfloat16))
    monkeypatch.setattr(short_rows, "SHORT", 0)
    fused = attended(every, torch.bfloat16, (4, 2))
    for a, b, exact in list(zip(ours, fused, truth, strict=True))[2:]:
        assert error(a, exact) < 0.6 * error(b, exact)


@pytest.mark.parametrize("window", [None, 9])
def test_short_and_long_rows_find_back_to_one_line(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = drawn(4, 6, 60)
    truth = attended(every, torch.float32, (4, 2), window)
    widths = sorted({g.shape[1] for g in assemble(every, np.arange(len(every))).rows})
    assert len(widths) > 2
    seen = []
    for longest in (0, *widths):
        monkeypatch.setattr(short_rows, "SHORT", longest)
        seen.append(attended(every, torch.bfloat16, (4, 2), window))
        for found, exact in zip(seen[-1], truth, strict=True):
            assert error(found, exact) < 2**-6
    # Each time another group is taken, and only its cells come out otherwise.
    changed = [(a[0] != b[0]).flatten(1).any(1) for a, b in pairwise(seen)]
    assert all(some.any() for some in changed)
    assert (torch.stack(changed).sum(0) <= 1).all()


def test_how_rows_are_cut_does_not_change_what_they_see(monkeypatch: pytest.MonkeyPatch) -> None:
    every = drawn(5, 6, 60)
    truth = attended(every, torch.float32, (4, 2))
    for piece in (1, 1 << 12, 1 << 30):
        monkeypatch.setattr(short_rows, "PIECE", piece)
        for found, exact in zip(attended(every, torch.bfloat16, (4, 2)), truth, strict=True):
            assert error(found, exact) < 2**-7


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("family", ["qwen2", "gemma3_text", "gpt2"])
def test_models_in_bfloat16_learn_the_same_from_short_rows(
    family: str, recompute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_model(
        tmp_path / "tiny", family, hidden_size=32, num_hidden_layers=2, **SHAPES[family]
    )
    every = responses()
    weigh = torch.from_numpy(np.random.default_rng(8).normal(size=87)).float()

    def learnt(dtype: torch.dtype, longest: int) -> torch.Tensor:
        monkeypatch.setattr(short_rows, "SHORT", longest)
        short_rows.cut.cache_clear()
        policy = Policy.load(folder, dtype)
        if recompute:
            recompute_layers(policy.model)
        found = policy(assemble(every, np.arange(len(every))), 0.7).logprobs
        (found * weigh[: len(found)]).sum().backward()
        return torch.cat([p.grad.float().flatten() for p in policy.parameters()])

    exact, fused, ours = (
        learnt(torch.float32, 0),
        learnt(torch.bfloat16, 0),
        learnt(torch.bfloat16, 320),
    )
    assert not torch.equal(ours, fused)
    assert error(ours, exact) < 1.25 * error(fused, exact)


def test_queries_that_nobody_looks_at_are_left_out() -> None:
    every = drawn(1, 8, 40)
    batch = assemble(every, np.arange(8))
    pieces = short_rows.cut(batch.rows, batch.home, 2)
    known = torch.cat([piece.known for piece in pieces])
    assert sorted(known.tolist()) == list(range(batch.input_ids.shape[1]))
    prompt = len(every[0].prompt_ids)
    inside = [(piece.asked < prompt).any(1).sum() for piece in pieces]
    assert sum(inside) == 1, "the prompt is asked in one row alone"
