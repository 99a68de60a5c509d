"""Products by oneDNN are products, row by row, and only where they are faster."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import linear

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.hf.decode import multiply, packed, product_of
from rlbhpc.engines.products import (
    HAS_ONEDNN,
    LONG,
    Times,
    is_onednns,
    multiply_by_onednn,
    speed_up_products,
)
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.study.arm import Sampling
from tests.engines.support import by_tag, requests, same

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not HAS_ONEDNN, reason="PyTorch for x86 processors only"),
]


def some(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("biased", [False, True])
def test_the_product_and_its_gradients_are_those_of_a_linear_layer(biased: bool) -> None:
    given = [some(2, 50, 300), some(260, 300, seed=1), some(260, seed=2) if biased else None]
    due = some(2, 50, 260, seed=3)

    def learnt(multiplied: object, kind: torch.dtype) -> list[torch.Tensor]:
        made = [None if x is None else x.to(kind).requires_grad_() for x in given]
        out = multiplied(*made)  # type: ignore[operator]
        return [out, *torch.autograd.grad(out, [x for x in made if x is not None], due.to(kind))]

    found, exact = learnt(Times.apply, torch.float32), learnt(linear, torch.float64)
    assert len(found) == len(exact) == 3 + biased
    for one, truth in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), truth, rtol=1e-5, atol=1e-4)


def test_what_does_not_learn_gets_no_gradient_and_keeps_no_batch() -> None:
    x, held = some(40, 300).requires_grad_(), some(260, 300, seed=1)
    kept: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        out = Times.apply(x, held, None)
    out.sum().backward()
    torch.testing.assert_close(x.grad, held.sum(0).expand(40, 300), rtol=1e-5, atol=1e-4)
    assert held.grad is None and kept == [held.shape]


def test_a_bias_may_lie_anyhow() -> None:
    x, weight, bias = some(40, 300), some(260, 300, seed=1), some(520, seed=2)[::2]
    plain = linear(x, weight, bias)
    torch.testing.assert_close(multiply_by_onednn(x, weight, bias), plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [256, 704, 4864])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_row_does_not_depend_on_its_neighbours(size: int, cores: int) -> None:
    weight, x = some(300, size), some(2000, size, seed=1)
    every = multiply_by_onednn(x, weight)
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        for rows in (16, 32, 48, 112, 1000):
            assert torch.equal(multiply_by_onednn(x[-rows:], weight), every[-rows:])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("inner", [256, 704, 4096])
@pytest.mark.parametrize("biased", [False, True])
def test_packing_leaves_its_bits(inner: int, biased: bool) -> None:
    plain = product_of(some(300, inner), some(300, seed=1) if biased else None)
    known = packed(plain, 32)
    assert plain.onednn and known.copy is not None
    for rows in (16, 32, 48):
        x = some(rows, inner, seed=rows)
        assert torch.equal(multiply(x, known), multiply(x, plain))


def test_samples_of_longer_layers_depend_on_nothing_beside(tmp_path: Path) -> None:
    folder = make_tiny_model(
        tmp_path / "long", hidden_size=LONG, intermediate_size=2 * LONG, initializer_range=0.1
    )
    sampling, asked = Sampling(1.0, 0.95, 40), requests(100)
    whole = by_tag(make_engine("hf", folder, rows=64), asked, sampling)
    shuffled = random.Random(1).sample(asked, len(asked))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in (16, 96):
            other = by_tag(make_engine("hf", folder, rows=rows), shuffled, sampling)
            assert all(same(whole[r.tag], other[r.tag]) for r in asked)
    finally:
        torch.set_num_threads(before)


MANY_NUMBERS_OF_ROWS = """
import resource
import rlbhpc.engines
import torch
from rlbhpc.engines.products import multiply_by_onednn
short, kept = torch.ones(512, 512, dtype=torch.bfloat16), torch.ones(512, 512)
for rows in range(1, 601):
    torch.ones(rows, 512, dtype=torch.bfloat16) @ short
    multiply_by_onednn(torch.ones(rows, 512), kept)
    if rows == 100:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_each_new_number_of_rows() -> None:
    # In a process of its own: how much is kept is read once, and this one has multiplied before.
    made = subprocess.run(
        [sys.executable, "-c", MANY_NUMBERS_OF_ROWS], capture_output=True, text=True, check=True
    )
    # 28 MiB; 650 where oneDNN and PyTorch keep 1,024 products each, 480 or 430 if one of them does.
    assert int(made.stdout) / 1024 < 150


def test_only_long_weights_of_float32_on_processors_are_onednns() -> None:
    assert is_onednns(torch.empty(LONG, LONG))
    assert not is_onednns(torch.empty(LONG, LONG - 1))
    assert not is_onednns(torch.empty(LONG, LONG, dtype=torch.bfloat16))
    assert not is_onednns(torch.empty(LONG, LONG, device="meta"))


def test_a_layer_that_has_moved_to_another_type_multiplies_as_it_is() -> None:
    layers = nn.Sequential(nn.Linear(LONG, LONG), nn.Linear(LONG, 8))
    speed_up_products(layers)
    assert [("forward" in vars(layer)) for layer in layers] == [True, False]
    x = some(20, LONG)
    plain = linear(linear(x, *layers[0].parameters()), *layers[1].parameters())
    torch.testing.assert_close(layers(x), plain, rtol=1e-5, atol=1e-5)
    assert layers.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert layers.float()(mode.from_tensor(x)).shape == (20, 8)
