"""A layer's decoding step: it depends on nothing beside, and new weights are taken whole."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling
from tests.engines.support import by_tag, requests, same

pytestmark = pytest.mark.engine


def test_samples_of_longer_layers_depend_on_nothing_beside(tmp_path: Path) -> None:
    folder = make_tiny_model(
        tmp_path / "long", hidden_size=256, intermediate_size=512, initializer_range=0.1
    )
    sampling, every = Sampling(1.0, 0.95, 40), requests(100)
    whole = by_tag(make_engine("hf", folder, rows=64), every, sampling)
    shuffled = random.Random(1).sample(every, len(every))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in (16, 96):
            other = by_tag(make_engine("hf", folder, rows=rows), shuffled, sampling)
            assert all(same(whole[r.tag], other[r.tag]) for r in every)
    finally:
        torch.set_num_threads(before)


def test_weights_that_are_refused_half_way_leave_one_model(tmp_path: Path) -> None:
    engine: Any = make_engine("hf", make_tiny_model(tmp_path, "qwen2"), rows=64)
    gate = engine._backend.module.model.layers[0].mlp.gate_proj.weight
    prompt = requests(1)
    (before,) = engine.generate(prompt, Sampling(1.0, 1.0, 8))
    with pytest.raises(UserError, match="are missing"):
        weights = [("model.layers.0.mlp.gate_proj.weight", torch.zeros_like(gate))]
        engine.load_weights(weights)
    assert not gate.any()
    # The cache of the prompt is computed anew as well.
    (after,) = engine.generate(prompt, Sampling(1.0, 1.0, 8))
    (score,) = engine.score([(prompt[0].prompt_ids, tuple(after.token_ids))])
    assert (before.logprobs != after.logprobs).any()
    torch.testing.assert_close(torch.tensor(after.logprobs), torch.tensor(score.logprobs))


MANY_NUMBERS_OF_ROWS = """
import resource
import rlbhpc.engines
import torch
weight = torch.ones(512, 512, dtype=torch.bfloat16)
for rows in range(1, 601):
    torch.ones(rows, 512, dtype=torch.bfloat16) @ weight
    if rows == 100:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_each_new_number_of_rows() -> None:
    # In a process of its own: how much is kept is read once, and this one has multiplied before.
    done = subprocess.run(
        [sys.executable, "-c", MANY_NUMBERS_OF_ROWS], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) / 1024 < 100
