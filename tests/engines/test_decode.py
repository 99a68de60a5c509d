"""A layer's decoding step: packed weights and TorchScript leave every bit as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.hf import decode
from rlbhpc.engines.hf.decode import Layer, Product, Shape, Step, multiply, packed, product_of
from rlbhpc.engines.hf.lean import LeanBackend
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError

pytestmark = pytest.mark.engine
ROWS, DIM, COLUMNS = 32, 16, 48


@pytest.mark.parametrize("inner", [64, 256, 704, 4096])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_product_is_the_plain_one(inner: int, biased: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(300, inner, generator=draw)
    plain = Product(weight, torch.randn(300, generator=draw) if biased else None)
    known = packed(plain, 32)
    for rows in (16, 32, 48):
        x = torch.randn(rows, inner, generator=draw)
        assert torch.equal(multiply(x, known), multiply(x, plain))


def test_packing_again_takes_the_new_weights() -> None:
    product = packed(Product(torch.ones(64, 64)), 32)
    product.weight.mul_(2)
    assert (multiply(torch.ones(32, 64), packed(product, 32)) == 128).all()


def test_processors_decode_without_the_interpreter() -> None:
    assert isinstance(decode.decode_on_processors, torch.jit.ScriptFunction)


def lean(path: Path) -> tuple[Any, LeanBackend, int]:
    """An engine, its model, and the rows of its batches."""
    engine: Any = make_engine("hf", path, rows=64)
    assert type(engine._backend) is LeanBackend
    return engine, engine._backend, engine._samplers[0].rows


def test_a_small_model_is_packed_for_its_batches(tmp_path: Path) -> None:
    _, backend, rows = lean(make_tiny_model(tmp_path, "qwen2"))
    for layer in backend.layers:
        for product in (layer.qkv, layer.gate_up):
            # Where packing would not give the same bits there is none: 0 on both sides.
            assert product.rows == packed(product, rows).rows


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("size", [64, 256])  # in float32 MKL's products, and oneDNN's
def test_what_runs_on_processors_is_what_is_written(
    kv_heads: int, kind: torch.dtype, normed: bool, size: int
) -> None:
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw).to(kind)

    wide = (4 + 2 * kv_heads) * DIM
    layer = Layer(
        norm_attention=some(size),
        qkv=packed(product_of(some(wide, size), some(wide)), ROWS),
        norm_query=some(DIM) if normed else None,
        norm_key=some(DIM) if normed else None,
        out=product_of(some(size, 4 * DIM)),
        norm_mlp=some(size),
        gate_up=packed(product_of(some(3 * size, size)), ROWS),
        down=product_of(some(size, 3 * size // 2)),
    )
    shape = Shape(4, kv_heads, DIM, DIM**-0.5, 1e-6)
    # TorchScript rewrites a function after the calls that it has watched.
    for rows, width in [(ROWS, 32), (ROWS, 32), (ROWS, 48), (16, 48), (ROWS, 48)]:
        first = torch.arange(rows * kv_heads) * COLUMNS
        step = Step(
            turn=torch.polar(
                torch.ones(rows, 1, DIM // 2), torch.rand(rows, 1, DIM // 2, generator=draw)
            ),
            mask=some(rows * kv_heads, 1, width),
            cells=first + 20,
            width=width,
        )
        hidden, *slots = some(rows, size), *(some(ROWS, kv_heads, COLUMNS, DIM) for _ in range(2))
        found = []
        for run in (decode.decode, decode.decode_on_processors):
            given = [x.clone() for x in (hidden, *slots)]
            with torch.inference_mode():
                out = run(given[0], layer, shape, step, given[1], given[2])
            found.append([out, *given[1:]])
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("size", [64, 256])  # MKL's products, and oneDNN's
def test_new_weights_are_packed(tmp_path: Path, size: int) -> None:
    old, new = (
        make_tiny_model(
            tmp_path / str(seed), seed=seed, hidden_size=size, initializer_range=0.1,
            intermediate_size=2 * size,
        )
        for seed in (1, 2)
    )  # fmt: skip
    engine, backend, rows = lean(old)
    engine.load_weights(new)
    _, fresh, _ = lean(new)
    for given, expected in zip(backend.layers, fresh.layers, strict=True):
        for name in ("qkv", "out", "gate_up", "down"):
            ours, theirs = getattr(given, name), getattr(expected, name)
            x = torch.ones(rows, ours.weight.shape[1])
            assert torch.equal(multiply(x, ours), multiply(x, theirs))


def test_weights_that_are_refused_half_way_leave_one_model(tmp_path: Path) -> None:
    engine, backend, rows = lean(make_tiny_model(tmp_path, "qwen2"))
    weight = torch.zeros_like(backend.layers[0].gate_up.weight[: backend.config.intermediate_size])
    with pytest.raises(UserError, match="are missing"):
        engine.load_weights([("model.layers.0.mlp.gate_proj.weight", weight)])
    product = backend.layers[0].gate_up
    x = torch.ones(rows, product.weight.shape[1])
    assert torch.equal(multiply(x, product), multiply(x, product._replace(copy=None)))
    assert not multiply(x, product)[:, : len(weight)].any()
