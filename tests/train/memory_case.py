"""Bytes that a learner holds after a step, beside those that were foretold; run as a program."""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import numpy as np
import torch
from transformers import AutoConfig

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train.algorithms.grpo import GRPO
from rlbhpc.train.batch import SPREAD, Response, assemble
from rlbhpc.train.forecast import memory_of, without_data
from rlbhpc.train.learner import Learner
from rlbhpc.train.lora import adapt
from rlbhpc.train.policy import Policy
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
        policy(assemble(responses, np.arange(len(responses))), 1.0)
    return sum(t.untyped_storage().nbytes() for p, t in kept.items() if p not in own)


def main(folder: Path, stage: int, dtype: str, lora_rank: int) -> None:
    model = make_tiny_model(
        folder / "model", hidden_size=256, intermediate_size=512, num_hidden_layers=4
    )
    settings = Settings(
        steps=1, prompts_per_step=2 * ROWS, samples_per_prompt=1, zero_stage=stage, dtype=dtype,  # type: ignore[arg-type]
        max_tokens=WIDTH, micro_tokens=ROWS * WIDTH, lora_rank=lora_rank,
    )  # fmt: skip
    # The most padding that rows are given: one response is half as long again as the others.
    shorter = math.ceil(WIDTH / SPREAD)
    lengths = [WIDTH] + [shorter] * ((ROWS - 1) * WIDTH // shorter)
    responses = [Response((i,), np.zeros(n, np.int32)) for i, n in enumerate(lengths)]
    assert len(assemble(responses, np.arange(len(responses))).rows) == 1
    before = held()
    learner = Learner(model, settings, GRPO())
    learner.imitate(responses, 1)
    after = held()
    policy = Policy.load(model, getattr(torch, dtype))
    if lora_rank:
        adapt(policy.model, lora_rank, 0)
    shapes = without_data(AutoConfig.from_pretrained(model), settings)
    foretold = memory_of(shapes, settings, GRPO(), ranks=1, rows=1)
    result = {
        "held": after - before,
        "foretold": {k: v for k, v in foretold.items() if k.startswith("policy")},
        "activations": kept_by_autograd(policy, responses),
        "activations foretold": foretold["activations"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
