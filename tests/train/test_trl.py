"""Steps of TRL's own trainers and ours, on the same weights, completions and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals
from rlbhpc.train.batch import Response
from rlbhpc.train.learner import Learner, Update, pad_rows
from rlbhpc.train.settings import Settings
from tests.train.trl_sizes import GROUP, LONGEST, PROMPTS, RATE, STEPS

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# TRL's loss by name, and the aggregation that it is here.
CASES = {
    "grpo": "sequence", "dapo": "token", "dr_grpo": "constant", "rloo": "sequence",
    "grpo+tools": "sequence", "dapo+tools": "token",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", initializer_range=0.1)


def by_trl(model: Path, out: Path, case: str) -> dict[str, Any]:
    root = Path(__file__).parents[2]
    # A learner of this process leaves its rank for DeepSpeed to read.
    alone = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.trl_case", str(model), str(out), case],
        cwd=root, check=False, capture_output=True, text=True, timeout=280,
        env={**alone, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = torch.load(out, weights_only=True)
    return found


def algorithm(case: str) -> Algorithm:
    if case == "rloo":
        return make_algorithm("rloo", "trl", kl_beta=0.0)
    return make_algorithm("grpo", "trl", aggregation=CASES[case])


def update(
    algorithm: Algorithm, rows: list[tuple[list[int], list[int], float, list[int]]]
) -> Update:
    responses = [
        Response(tuple(prompt), np.array(ids, np.int32), None, np.array(mask, bool))
        for prompt, ids, _, mask in rows
    ]
    lengths = [len(response.model_ids) for response in responses]
    signals = Signals(
        rewards=torch.tensor([reward for _, _, reward, _ in rows], dtype=torch.float64),
        groups=torch.arange(len(rows)) // GROUP,
        lengths=torch.tensor(lengths),
    )
    return Update(
        responses=responses,
        advantages=algorithm.advantages(signals).float(),
        sampler_logprobs=pad_rows([np.zeros(length, np.float32) for length in lengths]),
        kept=torch.ones(len(rows), dtype=torch.bool),
    )


@pytest.mark.by_turns(3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_five_steps_end_at_the_same_weights(model: Path, tmp_path: Path, case: str) -> None:
    found = by_trl(model, tmp_path / "trl.pt", case)
    ours = algorithm(case)
    settings = Settings(
        steps=STEPS, prompts_per_step=PROMPTS, samples_per_prompt=GROUP, learning_rate=RATE,
        max_tokens=LONGEST, sampler_cap=0, micro_tokens=300,
    )  # fmt: skip
    learner = Learner(model, settings, ours)
    start = {name: p.clone() for name, p in learner.named_weights()}
    assert len(found["seen"]) == STEPS
    for step, rows in enumerate(found["seen"], 1):
        assert len(rows) == GROUP * PROMPTS
        assert ("+tools" in case) == any(0 in mask for *_, mask in rows)
        learner.update(update(ours, rows), step)
    ended = dict(learner.named_weights())
    apart, moved = [], []
    for name, theirs in found["weights"].items():
        apart.append((ended[name] - theirs).flatten())
        moved.append((theirs - start[name]).flatten())
    assert torch.cat(apart).abs().max() < 1e-5
    assert torch.cat(apart).norm() < 1e-3 * torch.cat(moved).norm()
    assert torch.cat(moved).abs().max() > STEPS * RATE / 2, "nothing was learnt"
