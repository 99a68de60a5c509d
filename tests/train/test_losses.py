"""Losses against worked examples, exact enumeration and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rlbhpc.train.algorithms.algorithm import (
    log_ratios,
    off_policy_weights,
    reference_penalty,
    responses_in_band,
    row_weights,
    surrogate,
)
from rlbhpc.train.algorithms.ppo import PPO

pytestmark = [pytest.mark.engine, pytest.mark.core]

LOSS = torch.tensor([[1.0, 2, 0, 0], [3, 4, 5, 6], [7, 0, 0, 0]])
LENGTHS = torch.tensor([2, 4, 1])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token", 4.0), ("sequence", 4.333333), ("sequence-sum", 9.333333), ("constant", 1.166667)],
)
def test_aggregation(mode: str, expected: float) -> None:
    weights = row_weights(LENGTHS, mode, total_tokens=7, total_rows=3, max_length=8)
    assert float((weights[:, None] * LOSS).sum()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mode", ["token", "sequence", "sequence-sum", "constant"])
@pytest.mark.parametrize("split", [[3], [1, 2], [2, 1], [1, 1, 1]])
def test_aggregation_does_not_depend_on_the_micro_batches(mode: str, split: list[int]) -> None:
    whole = (row_weights(LENGTHS, mode, 7, 3, 8)[:, None] * LOSS).sum()
    parts = zip(LENGTHS.split(split), LOSS.split(split), strict=True)
    total = sum((row_weights(n, mode, 7, 3, 8)[:, None] * x).sum() for n, x in parts)
    assert float(total) == pytest.approx(float(whole), rel=1e-6)


@pytest.mark.parametrize(
    ("rho", "advantage", "high", "dual", "loss"),
    [
        (1.25, 1.0, 0.2, None, -1.2),
        (1.25, 1.0, 0.28, None, -1.25),
        (1.5, 1.0, 0.2, None, -1.2),
        (1.5, 1.0, 0.28, None, -1.28),
        (0.5, -1.0, 0.2, None, 0.8),
        (1.5, -1.0, 0.2, None, 1.5),
        (5.0, -1.0, 0.2, None, 5.0),
        (5.0, -1.0, 0.2, 3.0, 3.0),
        (1.0, 0.5, 0.2, 3.0, -0.5),
        (math.exp(30), -1.0, 0.2, None, math.exp(20)),  # far is far
        (0.0, 1.0, 0.2, None, -math.exp(-20)),
    ],
)
def test_clipping(
    rho: float, advantage: float, high: float, dual: float | None, loss: float
) -> None:
    log_ratio = torch.tensor([[math.log(rho or 1e-30)]])
    out = surrogate(
        log_ratio, torch.tensor([[advantage]]), torch.ones(1, 1), 0.2, high, dual
    )  # fmt: skip
    assert float(out) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ("token", [1.105171, 0.818731, 1.491825]),
        ("geometric", [1.105171] * 3),
        ("sequence", [1.349859] * 3),
    ],
)
def test_ratios(ratio: str, expected: list[float]) -> None:
    """Golden values of each level; cells behind a response count for nothing and get nothing."""
    logp, mask = torch.tensor([[0.1, -0.2, 0.4, 5.0]]), torch.tensor([[1.0, 1, 1, 0]])
    levels = log_ratios(logp, torch.zeros(1, 4), mask, ratio)
    out = surrogate(levels, torch.ones(1, 4), mask, 9, 9)
    assert (-out[0]).tolist() == pytest.approx([*expected, 0.0], abs=6e-7)


def test_a_geometric_ratio_moves_as_a_ratio_of_tokens_does_on_policy() -> None:
    """The mean over tokens in the exponent meets the sum over tokens outside."""
    slopes = []
    for level in ("token", "geometric"):
        logp = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -3.0, 0.0]], requires_grad=True)
        mask = torch.tensor([[1.0, 1, 1], [1, 1, 0]])
        signal = torch.tensor([[2.0], [-1.0]]) * mask
        surrogate(
            log_ratios(logp, logp.detach(), mask, level), signal, mask, 0.2, 0.2
        ).sum().backward()
        slopes.append(logp.grad)
    assert torch.allclose(slopes[0], slopes[1], atol=1e-7)


def test_on_policy_loss_is_zero_and_its_gradient_is_not() -> None:
    logp = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    log_ratio = logp - logp.detach()
    out = surrogate(log_ratio, torch.tensor([[1.0], [-1.0]]), torch.ones(2, 1), 0.2, 0.2)
    out.sum().backward()
    assert float(out.detach().sum()) == 0
    assert logp.grad is not None
    assert logp.grad.tolist() == [[-1], [1]]


@pytest.mark.parametrize(
    ("kind", "value", "slope"), [("k2", 0.125, 0.5), ("k3", 0.106531, 0.393469)]
)
def test_reference_penalties(kind: str, value: float, slope: float) -> None:
    logp = torch.tensor(-1.0, requires_grad=True)
    out = reference_penalty(logp, torch.tensor(-1.5), kind)
    out.backward()
    assert float(out.detach()) == pytest.approx(value, abs=6e-7)
    assert float(logp.grad) == pytest.approx(slope, abs=6e-7)


@pytest.mark.parametrize("apart", [-109.0, 109.0, -1e4])
def test_k3_far_from_its_reference_is_finite(apart: float) -> None:
    logp = torch.tensor([-110.0], requires_grad=True)
    out = reference_penalty(logp, logp.detach() - apart, "k3")
    out.backward()
    assert torch.isfinite(out).all()
    assert logp.grad is not None
    assert float(logp.grad) == 0


@pytest.mark.parametrize(
    ("delta", "value"),
    [
        (-2.3, 6.674182),
        (-2.7, 10.0),
        (5.0, 4.006738),
        (10.9, 9.900018),
        (11.1, 10.0),
        (-30.0, 10.0),
    ],
)
def test_k3_is_at_most_ten_as_in_verl(delta: float, value: float) -> None:
    """e^{-Δ} - 1 + Δ, then verl's clamp of the value to [-10, 10]."""
    logp = torch.tensor([delta], requires_grad=True)
    out = reference_penalty(logp, torch.zeros(1), "k3")
    out.backward()
    assert float(out.detach()) == pytest.approx(value, abs=1e-5)
    assert logp.grad is not None
    assert (float(logp.grad) == 0) == (value == 10.0)


def test_expected_gradients_of_the_penalties_by_enumeration() -> None:
    """On a three-token policy: k2's gradient is ∇KL(π‖ref), k3's is −∇ of KL(ref‖π)."""
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.1, 0.4, -0.3], dtype=torch.float64).log_softmax(0)

    def expected_gradient(kind: str) -> torch.Tensor:
        logp = theta.log_softmax(0)
        estimate = (logp.detach().exp() * reference_penalty(logp, ref, kind)).sum()
        return torch.autograd.grad(estimate, theta)[0]

    logp = theta.log_softmax(0)
    reverse = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), theta)[0]
    logp = theta.log_softmax(0)
    forward = torch.autograd.grad((ref.exp() * (ref - logp)).sum(), theta)[0]
    assert torch.allclose(expected_gradient("k2"), reverse, atol=1e-12)
    assert torch.allclose(expected_gradient("k3"), forward, atol=1e-12)


def test_off_policy_weights_are_truncated_and_detached() -> None:
    logp = torch.tensor([0.2, -1.0, 1.1], requires_grad=True)
    free = off_policy_weights(logp, 100)
    assert free.tolist() == pytest.approx([1.221403, 0.367879, 3.004166], abs=6e-7)
    assert not free.requires_grad
    capped = off_policy_weights(logp, 2.0)
    assert capped.tolist() == pytest.approx([1.221403, 0.367879, 2.0], abs=6e-7)


def test_icepop_drops_what_lies_outside_of_its_band() -> None:
    """M(k) of the paper's equation, in NumPy: k within [.5, 5], else 0."""
    log_ratio = torch.tensor([[0.0, 1.5, 1.7, -0.6, -0.8, 30.0, math.log(0.5) + 1e-6]])
    k = np.exp(log_ratio.numpy())
    expected = np.where((k >= 0.5) & (k <= 5.0), k, 0.0)
    found = off_policy_weights(log_ratio, cap=1.1, band=[0.5, 5.0])
    assert found.numpy() == pytest.approx(expected, rel=1e-6)
    assert (found == 0).sum() == 3


def test_a_response_is_left_out_by_its_geometric_mean_and_not_by_its_length() -> None:
    random = np.random.default_rng(0)
    lengths = np.array([1, 4, 40, 40])
    gaps = random.normal(0, 0.01, (4, 40)) + np.array([[0.3], [0.0], [0.01], [-0.4]])
    mask = np.arange(40) < lengths[:, None]
    old = random.normal(-2, 1, (4, 40))
    ratio = np.exp((gaps * mask).sum(1) / lengths)
    kept = responses_in_band(
        torch.tensor(old), torch.tensor(old - gaps), torch.tensor(mask), [0.9, 1.1]
    )
    assert kept[:, 0].tolist() == [0.9 <= r <= 1.1 for r in ratio] == [False, True, True, False]


@pytest.mark.parametrize(
    ("value", "clip", "expected"),
    [(0.65, 0.2, 0.045), (0.65, 0.5, 0.00125), (1.3, 0.2, 0.18), (-0.2, 0.1, 0.405)],
)
def test_value_loss(value: float, clip: float, expected: float) -> None:
    """Of a critic that had said 0.2 where 0.7 was due; the worse of value and clipped value."""
    values = torch.tensor([value, 0.2, 0.7])
    assert float(PPO(value_clip=clip).critic_loss(*values)) == pytest.approx(expected)


def test_per_token_weight_of_short_and_long_responses() -> None:
    """Token mean treats tokens alike; a sequence mean gives a short response's tokens more."""
    lengths = torch.tensor([1, 10])
    token = row_weights(lengths, "token", 11, 2, 16)
    sequence = row_weights(lengths, "sequence", 11, 2, 16)
    assert float(token[0] / token[1]) == 1
    assert float(sequence[0] / sequence[1]) == pytest.approx(10)
