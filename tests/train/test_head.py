"""Scores of tokens in chunks are those of all logits at once, and so are their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from rlbhpc.train import policy
from rlbhpc.train.policy import score_in_chunks

TOKENS, SIZE, VOCABULARY = 23, 16, 50


def plain(hidden: Tensor, layer: nn.Linear, targets: Tensor, heat: float) -> tuple[Tensor, Tensor]:
    """The same by autograd, all logits at once."""
    logp = (nn.functional.linear(hidden, layer.weight, layer.bias).float() / heat).log_softmax(-1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def case(dtype: torch.dtype, bias: bool) -> tuple[Tensor, nn.Linear, Tensor]:
    torch.manual_seed(0)
    layer = nn.Linear(SIZE, VOCABULARY, bias=bias).to(dtype)
    hidden = (3 * torch.randn(TOKENS, SIZE)).to(dtype).requires_grad_()
    return hidden, layer, torch.randint(VOCABULARY, (TOKENS,))


@pytest.mark.parametrize("rows", [1, 4, 23, 100])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("entropies", [False, True])
def test_scores_and_gradients_do_not_depend_on_the_chunks(
    rows: int, bias: bool, entropies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "CHUNK_LOGITS", rows * VOCABULARY)
    hidden, layer, targets = case(torch.float64, bias)
    learning = [hidden, *layer.parameters()]
    expected = plain(hidden, layer, targets, 0.7)
    due = torch.randn(2, TOKENS)
    loss = (expected[0] * due[0]).sum() + entropies * (expected[1] * due[1]).sum()
    truth = torch.autograd.grad(loss, learning)
    score_in_chunks(layer)
    logprobs, entropy = layer(hidden, targets, 0.7, entropies)
    torch.testing.assert_close(logprobs, expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy, expected[1] * entropies, rtol=1e-5, atol=1e-5)
    ours = torch.autograd.grad((logprobs * due[0]).sum() + (entropy * due[1]).sum(), learning)
    for found, exact in zip(ours, truth, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


def test_in_one_chunk_the_bits_are_those_of_autograd() -> None:
    hidden, layer, targets = case(torch.float32, bias=False)
    scaled = layer(hidden).float() / 0.7
    whole = scaled.gather(-1, targets[:, None])[:, 0] - scaled.logsumexp(-1)
    due = torch.randn(TOKENS)
    truth = torch.autograd.grad((whole * due).sum(), [hidden, layer.weight])
    score_in_chunks(layer)
    logprobs, _ = layer(hidden, targets, 0.7, False)
    ours = torch.autograd.grad((logprobs * due).sum(), [hidden, layer.weight])
    assert torch.equal(logprobs, whole)
    assert all(torch.equal(x, y) for x, y in zip(ours, truth, strict=True))


def test_in_bfloat16_the_weights_gradient_adds_up_over_many_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal terms: in 16 bits a sum no longer grows after 256 of them."""
    monkeypatch.setattr(policy, "CHUNK_LOGITS", VOCABULARY)
    hidden, layer, targets = case(torch.bfloat16, bias=False)
    score_in_chunks(layer)
    once, often = (
        torch.autograd.grad(
            layer(hidden[:1].expand(n, -1), targets[:1].expand(n), 1.0, False)[0].sum(),
            layer.weight,
        )[0].float()
        for n in (1, 1000)
    )
    torch.testing.assert_close(often, 1000 * once, rtol=0.01, atol=0.01)


def test_a_head_that_stands_still_gets_no_gradient_and_no_logits_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "CHUNK_LOGITS", 4 * VOCABULARY)
    hidden, layer, targets = case(torch.float32, bias=False)
    layer.requires_grad_(False)
    score_in_chunks(layer)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        logprobs, _ = layer(hidden, targets, 1.0, False)
    logprobs.sum().backward()
    assert layer.weight.grad is None and hidden.grad is not None
    assert max(sizes) == max(hidden.numel(), layer.weight.numel())


@pytest.mark.parametrize(
    ("logits", "temperature", "logprob", "entropy"),
    [
        ([2.0, 0.0], 1.0, -0.126928, 0.365334),
        ([2.0, 0.0], 0.5, -0.018150, 0.090095),
        ([0.0, 0.0, math.log(2)], 1.0, -1.386294, 1.039721),
    ],
)
def test_temperature_divides_the_logits(
    logits: list[float], temperature: float, logprob: float, entropy: float
) -> None:
    layer = nn.Linear(1, len(logits), bias=False)
    layer.weight.data = torch.tensor(logits)[:, None]
    score_in_chunks(layer)
    scores = layer(torch.ones(1, 1), torch.tensor([0]), temperature, True)
    assert [x.item() for x in scores] == pytest.approx([logprob, entropy], abs=2e-6)
