"""Rollouts by vLLM in the learner's process: new weights arrive, on one rank and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from tests.studies import trained

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEPS = 4
RECIPE = {
    "prompts_per_step": 4,
    "samples_per_prompt": 4,
    "max_tokens": 16,
    "learning_rate": 1e-2,
    "options": {"rollouts": "vllm", "entropy_bonus": 0.1},
}


def train(folder: Path, *launcher: str) -> list[dict[str, float]]:
    make_tiny_model(folder / "model", initializer_range=0.2)
    (folder / "toy.yaml").write_text(trained("toy", [STEPS], RECIPE))
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "rlbhpc", "train", str(folder / "toy.yaml")],
        check=False, capture_output=True, text=True, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    (log,) = folder.glob("runs/toy/**/dynamics.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_sampler_has_the_weights_of_every_step(tmp_path: Path, ranks: int) -> None:
    """At this learning rate the weights of the step before are told apart from the new ones.

    The bonus gives every step a gradient, whatever the rewards are.
    """
    together = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    together += ["--nproc-per-node", str(ranks)]
    steps = train(tmp_path, *(together if ranks > 1 else []))
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert max(step["rollout_corr/kl"] for step in steps) < 1e-4
