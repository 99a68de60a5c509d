"""Bytes that a learner holds after a step, beside those that were foretold; run as a program."""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import numpy as np
import torch
from transformers import AutoConfig

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train.algorithms.grpo import GRPO
from rlbhpc.train.batch import MAX_LENGTH_RATIO, Response, pack_responses
from rlbhpc.train.forecast import count_memory, make_policy_without_data
from rlbhpc.train.learner import Learner
from rlbhpc.train.policy import Policy, add_adapters
from rlbhpc.train.settings import Settings

ROWS, WIDTH = 8, 64


def held() -> int:
    """Bytes of all storages that a tensor somewhere refers to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
        tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def kept_by_autograd(policy: Policy, responses: list[Response]) -> int:
    """Bytes that the graph of one forward pass keeps, weights left out."""
    own = {p.untyped_storage().data_ptr() for p in policy.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy(pack_responses(responses, np.arange(len(responses))), 1.0)
    return sum(t.untyped_storage().nbytes() for p, t in kept.items() if p not in own)


def case(width: int, **changes: Any) -> tuple[Settings, list[Response]]:
    """A learner's settings, and the micro-batch that takes most under them."""
    settings = Settings(
        steps=2, prompts_per_step=2 * ROWS, samples_per_prompt=1, max_tokens=width,
        micro_tokens=ROWS * width, **changes,
    )  # fmt: skip
    # The most padding that rows are given: one response is half as long again as the others.
    shorter = math.ceil(width / MAX_LENGTH_RATIO)
    lengths = [width] + [shorter] * ((ROWS - 1) * width // shorter)
    responses = [Response((i,), np.zeros(n, np.int32)) for i, n in enumerate(lengths)]
    assert len(pack_responses(responses, np.arange(len(responses))).attention_rows) == 1
    return settings, responses


def foretold(model: Path, settings: Settings) -> dict[str, int]:
    shapes = make_policy_without_data(AutoConfig.from_pretrained(model), settings)
    return count_memory(shapes, settings, GRPO(), ranks=1, rows=1)


def peak_of_a_step(model: Path, width: int) -> tuple[int, int]:
    """Bytes of tensors that CUDA held at most in a learner's second step, and those foretold."""
    settings, responses = case(width, dtype="bfloat16", rollouts="vllm")
    learner = Learner(model, settings, GRPO())
    learner.imitate(responses, 1)  # after which the optimiser's moments are there
    torch.cuda.reset_peak_memory_stats()
    learner.imitate(responses, 2)
    return torch.cuda.max_memory_allocated(), sum(foretold(model, settings).values())


def rates_of_a_step(model: Path, width: int, n: int) -> tuple[dict[str, float], int, int]:
    """Operations a second by phase of a learner that recomputes, its peak, and that foretold."""
    settings = Settings(
        steps=3, prompts_per_step=n, samples_per_prompt=1, max_tokens=width, micro_tokens=width,
        dtype="bfloat16", recompute=True, rollouts="vllm",
    )  # fmt: skip
    draw = np.random.default_rng(0)
    words = AutoConfig.from_pretrained(model).vocab_size
    texts = draw.integers(0, words, (n, width - 1), np.int32)
    responses = [Response((i,), text) for i, text in enumerate(texts)]
    learner = Learner(model, settings, GRPO())
    shape = learner.policy.module.model.config
    weights = sum(p.numel() for p in learner.policy.module.parameters())
    # Of a token: the products with all weights, and attention to the tokens before it.
    reading = 2.0 * weights + 2.0 * shape.num_hidden_layers * shape.hidden_size * width
    rates = {}
    for phase, passes, work in (
        ("reading", 1, lambda: learner.logprobs(learner.policy, responses)),
        ("training", 4, lambda: learner.imitate(responses, 1)),
    ):
        work()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()  # whose last words are numbers on the host: the device has done it all
        rates[phase] = passes * reading * n * width / (time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return rates, peak, sum(foretold(model, settings).values())


def rate_of_products(size: int, dtype: torch.dtype, device: str) -> float:
    """Operations a second of one large matrix product after another."""
    left, right = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    product = left @ right
    float(product[0, 0])
    start = time.perf_counter()
    for _ in range(10):
        product = left @ right
    float(product[0, 0])
    return 10 * 2.0 * size**3 / (time.perf_counter() - start)


def bytes_held(folder: Path, stage: int, dtype: str, lora_rank: int) -> dict[str, Any]:
    """Bytes of a learner on processors, tensor by tensor."""
    model = make_tiny_model(
        folder / "model", hidden_size=256, intermediate_size=512, num_hidden_layers=4
    )
    settings, responses = case(WIDTH, zero_stage=stage, dtype=dtype, lora_rank=lora_rank)
    before = held()
    learner = Learner(model, settings, GRPO())
    learner.imitate(responses, 1)
    after = held()
    policy = Policy.load(model, getattr(torch, dtype))
    if lora_rank:
        add_adapters(policy.model, lora_rank, 0)
    parts = foretold(model, settings)
    return {
        "held": after - before,
        "foretold": {k: v for k, v in parts.items() if k.startswith("policy")},
        "activations": kept_by_autograd(policy, responses),
        "activations foretold": parts["activations"],
    }


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(bytes_held(Path(words[0]), int(words[1]), words[2], int(words[3]))))
