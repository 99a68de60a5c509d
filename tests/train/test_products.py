"""Products by oneDNN are the products of a linear layer, with its gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train import products
from rlbhpc.train.products import WIDE, Product, multiply, multiply_faster

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="a PyTorch without oneDNN"
    ),
]
BY_ONEDNN = "mkldnn::_linear_pointwise"


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the processor for one on which oneDNN is the faster."""
    monkeypatch.setattr(products, "is_onednn_faster", lambda: True)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def called(work: object) -> set[str]:
    """Names of the operations that some work calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()  # type: ignore[operator]
    return {event.name for event in profile.events()}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [(1, 1), (2, 50), (3, 300)])
def test_the_product_and_its_gradients_are_a_linear_layers(
    biased: bool, rows: tuple[int, int]
) -> None:
    operands = [normal(*rows, 300), normal(260, 300, seed=1)]
    operands += [normal(260, seed=2)] if biased else []
    due = normal(*rows, 260, seed=3)

    def results(product: object, kind: torch.dtype) -> list[Tensor]:
        leaves = [x.to(kind).requires_grad_() for x in operands]
        out = product(*leaves, *([] if biased else [None]))  # type: ignore[operator]
        return [out, *torch.autograd.grad(out, leaves, due.to(kind))]

    exact = results(linear, torch.float64)
    for result, truth in zip(results(Product.apply, torch.float32), exact, strict=True):
        torch.testing.assert_close(result.double(), truth, rtol=1e-5, atol=1e-4)


def test_frozen_weights_get_no_gradient_and_keep_no_rows() -> None:
    """With LoRA, rows that a layer kept would be most of the memory."""
    x, weight = normal(40, 300).requires_grad_(), normal(260, 300, seed=1)
    kept: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        out = Product.apply(x, weight, None)
    out.sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(40, 300), rtol=1e-5, atol=1e-4)
    assert weight.grad is None and kept == [weight.shape]


@pytest.mark.parametrize(
    ("shape", "dtype", "by_onednn"),
    [
        ((WIDE, WIDE), torch.float32, True),
        ((WIDE, WIDE - 1), torch.float32, False),
        ((WIDE - 1, WIDE), torch.float32, False),
        ((WIDE, WIDE), torch.float64, False),
    ],
)
def test_only_wide_weights_of_float32_go_to_onednn(
    shape: tuple[int, int], dtype: torch.dtype, by_onednn: bool
) -> None:
    weight = normal(*shape).to(dtype)
    assert (BY_ONEDNN in called(lambda: multiply(weight, weight))) is by_onednn


def test_a_processor_on_which_mkl_is_the_faster_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_onednn_faster", lambda: False)
    layers = nn.Sequential(nn.Linear(WIDE, WIDE))
    multiply_faster(layers)
    assert BY_ONEDNN not in called(lambda: layers(normal(20, WIDE)))


def test_layers_that_multiply_faster_follow_their_weights() -> None:
    """An optimiser, a cast and a copy of weights change what a layer multiplies by."""
    layers = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 8))
    multiply_faster(layers)
    x = normal(20, WIDE)
    assert BY_ONEDNN in called(lambda: layers(x))
    nn.init.ones_(layers[0].weight)
    expected = linear(linear(x, *layers[0].parameters()), *layers[1].parameters())
    torch.testing.assert_close(layers(x), expected, rtol=1e-5, atol=1e-4)
    assert layers.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
def test_a_training_step_is_the_same_by_either_library(
    recompute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.train.step_case import gradient, learner, update

    model = make_tiny_model(tmp_path / "wide", hidden_size=WIDE, intermediate_size=2 * WIDE)

    def step(faster: bool) -> tuple[float, Tensor]:
        monkeypatch.setattr(products, "is_onednn_faster", lambda: faster)
        trained = learner(model, 0, 150, recompute=recompute)
        norm = 0.0

        def work() -> None:
            nonlocal norm
            norm = trained.update(update(), 1)["actor/grad_norm"]

        assert (BY_ONEDNN in called(work)) is faster
        return norm, gradient(trained)

    norm, plain = step(faster=False)
    other_norm, other = step(faster=True)
    assert other_norm == pytest.approx(norm, rel=1e-5)
    assert (other - plain).abs().max() < 1e-6
