"""Chains written as one are transformers' own, in what comes out and in every gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train import fused
from rlbhpc.train.batch import MicroBatch, Response, assemble
from rlbhpc.train.policy import Policy, recompute_layers

pytestmark = pytest.mark.engine

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen3": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 24},
    "llama": {"num_attention_heads": 2, "num_key_value_heads": 2},
    "mistral": {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": None},
}


def micro_batch() -> MicroBatch:
    """Two prompts with several responses of 1 to 60 tokens."""
    rng = np.random.default_rng(3)
    responses = [
        Response((5, 6, 7 + i % 2), rng.integers(0, 250, n).astype(np.int32))
        for i, n in enumerate([1, 60, 9, 31, 12, 12, 44])
    ]
    return assemble(responses, np.arange(len(responses)))


def learnt(policy: Policy) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs, and the gradient that an uneven loss of them gives each weight."""
    batch = micro_batch()
    found = policy(batch, 0.9).logprobs
    weigh = torch.from_numpy(np.random.default_rng(8).normal(size=len(found))).to(found.dtype)
    (found * weigh).sum().backward()
    named = policy.model.named_parameters()
    return found.detach(), {name: p.grad for name, p in named if p.grad is not None}


def both(
    folder: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, recompute: bool = False
) -> tuple[tuple[Tensor, dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]:
    """What is learnt with layers as written here, and with transformers' own."""
    quick = Policy.load(folder, dtype)
    assert quick.model.base_model.layers[0].forward.__func__ is fused._layer
    with monkeypatch.context() as patch:
        patch.setattr("rlbhpc.train.policy.fuse_layers", lambda body: None)
        plain = Policy.load(folder, dtype)
    for policy in (quick, plain):
        # Norms start at 1 and biases at 0: a factor or a term left out would not show.
        draw = torch.Generator().manual_seed(5)
        for p in policy.parameters():
            if p.dim() == 1:
                nn.init.normal_(p, 1.0, 0.3, generator=draw)
        if recompute:
            recompute_layers(policy.model)
    return learnt(quick), learnt(plain)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("piece", [100, 1 << 17])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_nothing_differs_by_a_bit(
    family: str, piece: int, recompute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_model(
        tmp_path / "tiny", family, hidden_size=64, num_hidden_layers=3, **FAMILIES[family]
    )
    monkeypatch.setattr(fused, "PIECE", piece)
    ours, theirs = both(folder, torch.float32, monkeypatch, recompute=recompute)
    assert torch.equal(ours[0], theirs[0])
    assert ours[1].keys() == theirs[1].keys()
    for name, gradient in ours[1].items():
        assert gradient.abs().max() > 0, name
        if name.split(".")[-2] in (
            "q_norm",
            "k_norm",
        ):  # the sum over cells and heads goes over them in another order
            torch.testing.assert_close(gradient, theirs[1][name], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(gradient, theirs[1][name]), name


def test_in_bfloat16_the_gradient_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_model(tmp_path / "tiny", "qwen3", hidden_size=64, **FAMILIES["qwen3"])
    ours, theirs = both(folder, torch.bfloat16, monkeypatch)
    exact, _ = both(folder, torch.float32, monkeypatch)

    def error(found: tuple[Tensor, dict[str, Tensor]]) -> float:
        apart = [(g.float() - exact[1][name]).norm() for name, g in found[1].items()]
        return float(torch.stack(apart).norm())

    assert error(ours) < 1.1 * error(theirs)


def test_layers_of_another_kind_are_left_alone(tmp_path: Path) -> None:
    for name, family, more in (
        ("window", "mistral", {"sliding_window": 8, "num_attention_heads": 2}),
        ("gelu", "llama", {"hidden_act": "gelu", "num_attention_heads": 2}),
        ("other", "gpt2", {"num_attention_heads": 2}),
    ):
        folder = make_tiny_model(tmp_path / name, family, hidden_size=32, **more)
        model = Policy.load(folder, torch.float32).model
        assert not any("forward" in vars(module) for module in model.modules())
        assert torch.isfinite(Policy(model)(micro_batch(), 1.0).logprobs).all()
