from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlbhpc.engines.completion import Request
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.vllm_engine import _set_environment
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

pytestmark = pytest.mark.engine

TEXT = [((5, 80, 33, 7), (9, 200, 31, 4, 77, 256))]


def two_models(folder: Path, **sizes: object) -> tuple[Path, Path]:
    return (
        make_tiny_model(folder / "old", seed=1, initializer_range=0.1, **sizes),
        make_tiny_model(folder / "new", seed=2, initializer_range=0.1, **sizes),
    )


def logprobs(engine: Engine) -> np.ndarray:
    (score,) = engine.score(TEXT)
    return score.logprobs


def expected(folder: Path) -> np.ndarray:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt, response = TEXT[0]
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1)[range(len(response)), list(response)].numpy()


def named(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    # What is tied comes once.
    yield from ((name, weight.detach()) for name, weight in model.named_parameters())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["hf", "vllm"])
def test_swapped_weights_are_the_new_model(tmp_path: Path, kind: str, tied: bool) -> None:
    old, new = two_models(tmp_path, tie_word_embeddings=tied)
    engine = make_engine(kind, old, rows=16)
    np.testing.assert_allclose(logprobs(engine), expected(old), atol=1e-5)
    engine.load_weights(new)
    np.testing.assert_allclose(logprobs(engine), expected(new), atol=1e-5)
    engine.load_weights(named(old))
    np.testing.assert_allclose(logprobs(engine), expected(old), atol=1e-5)
    engine.close()


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_swapped_experts_are_the_new_model(tmp_path: Path, family: str) -> None:
    """In memory the experts of a layer are one tensor, and their router may have another name."""
    sizes = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_local_experts": 4}
    old, new = two_models(tmp_path, family=family, **sizes)
    engine = make_engine("vllm", old, rows=16)
    for weights, folder in ((new, new), (named(old), old)):
        engine.load_weights(weights)
        np.testing.assert_allclose(logprobs(engine), expected(folder), atol=1e-5)
    left_out = "model.layers.1.mlp.experts.down_proj"
    with pytest.raises(UserError, match=f"1 are missing, among them {left_out}"):
        engine.load_weights((name, weight) for name, weight in named(new) if name != left_out)
    engine.close()


def spoil(worker: Any) -> None:
    """Do to the weights what sleep does on a GPU; a CPU keeps them."""
    for weight in worker.model_runner.get_model().parameters():
        weight.data.fill_(float("nan"))


@pytest.mark.parametrize("tied", [False, True])
def test_an_engine_that_rested_works_with_the_next_weights(
    tmp_path: Path, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_models(tmp_path, tie_word_embeddings=tied)
    engine: Any = make_engine("vllm", old, rows=16)
    done: list[str] = []
    wake_up = engine._engine.wake_up
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    monkeypatch.setattr(engine._engine, "wake_up", lambda tags: wake_up(done.extend(tags) or tags))
    for weights in (new, old):
        engine.rest()
        engine.rest()
        engine._engine.collective_rpc(spoil)
        with pytest.raises(RuntimeError, match="no weights before load_weights"):
            logprobs(engine)
        engine.load_weights(named(weights))
        np.testing.assert_allclose(logprobs(engine), expected(weights), atol=1e-5)
    # Older versions of vLLM leave to torch what the learner has let go of, and finds no room.
    assert done == 2 * ["emptied", "weights", "emptied", "kv_cache"]
    engine.close()


def test_vllm_samples_on_the_device_that_it_was_made_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = make_engine("vllm", make_tiny_model(tmp_path), rows=16)
    chosen = []
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda device: chosen.append((device, get_ident()))
    )
    engine._device = 3  # as where there is a GPU
    asked = [Request(0, (5, 80, 33, 7), 0)]
    assert len(list(engine.generate(asked, Sampling(1.0, 1.0, 4)))) == 1
    ((device, thread),) = chosen
    # A GPU is chosen for each thread anew, and sampling has its own.
    assert device == 3 and thread != get_ident()
    with pytest.raises(TypeError, match=r"unknown sampler .*MeasuringSampler"):
        engine._engine.collective_rpc("measure")
    engine.close()


def test_a_start_on_a_gpu_asks_nothing_of_flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_environment("auto")
    from vllm.v1.sample.ops import topk_topp_sampler

    monkeypatch.setattr(topk_topp_sampler.current_platform, "is_cuda", lambda: True)
    # It is not installed here: vLLM 0.32 would fail, and else compile what is not drawn with.
    assert not topk_topp_sampler.flashinfer_sampler_supported()


@pytest.mark.parametrize("kind", ["hf", "vllm"])
def test_a_half_loaded_model_is_refused(tmp_path: Path, kind: str) -> None:
    old, new = two_models(tmp_path)
    engine = make_engine(kind, old, rows=16)
    weights = dict(named(new))
    with pytest.raises(UserError, match="are missing"):
        engine.load_weights(list(weights.items())[:-1])
    engine.close()


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    engine = make_engine("hf", make_tiny_model(tmp_path), rows=16)
    with pytest.raises(UserError, match="no 'model_x'"):
        engine.load_weights([("model_x", torch.zeros(1))])
    name = "model.norm.weight"
    with pytest.raises(UserError, match=rf"{name} is \(3,\)"):
        engine.load_weights([(name, torch.zeros(3))])


def test_vllm_without_its_kernels_says_what_is_missing(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=64)
    # The loader takes this one, finds no library in it, and vLLM goes on without its kernels.
    (tmp_path / "libnuma.so.1").touch()
    lines = [
        "from rlbhpc.engines.engine import make_engine",
        f"make_engine('vllm', {str(model)!r})",
    ]
    folders = f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], check=False, capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": folders}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rlbhpc.errors.UserError: engine vllm")
    assert "apt-get install libnuma1" in last
