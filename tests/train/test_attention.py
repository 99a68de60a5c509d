"""Responses in one line, prompts shared, score as each alone does in plain transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.train.batch import Response, pack_responses
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
    batch = pack_responses(every, np.arange(len(every)))
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
    found = critic(pack_responses(every, np.arange(len(every))))
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
        *(
            (family, {"num_attention_heads": 2, "num_key_value_heads": 2, name: 3.0})
            for family, name in (
                ("granite", "logits_scaling"), ("cohere2", "logit_scale"),
                ("nanochat", "final_logit_softcapping"),
            )
        ),
        ("falcon", {"num_attention_heads": 2}),  # has an attention of its own, whatever it is told
        (
            "stablelm",
            {"num_attention_heads": 2, "num_key_value_heads": 2},
        ),  # hands nothing on to its attention
        ("qwen2_moe", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ],
)  # fmt: skip
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
        with torch.device("meta"):
            batch = pack_responses([Response((1, 2), np.array([3, 4], np.int32))], np.arange(1))
        with pytest.raises(UserError, match="cannot be trained here"):
            Policy(model)(batch, 1.0)
