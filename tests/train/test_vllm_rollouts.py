"""Rollouts by vLLM in the learner's process: new weights arrive, on one rank and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlbhpc.engines.tiny import make_tiny_model
from tests.studies import trained

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEPS = 4
RECIPE: dict[str, Any] = {
    "prompts_per_step": 4,
    "samples_per_prompt": 4,
    "max_tokens": 16,
    "learning_rate": 1e-2,
    "options": {"rollouts": "vllm", "entropy_bonus": 0.1},
}


TOGETHER = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]


def train(
    folder: Path, *launcher: str, steps: int = STEPS, **options: object
) -> list[dict[str, float]]:
    folder.mkdir(exist_ok=True)
    make_tiny_model(folder / "model", initializer_range=0.2)
    recipe = {**RECIPE, "options": {**RECIPE["options"], **options}}
    (folder / "toy.yaml").write_text(trained("toy", [steps], recipe))
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
    together = [*TOGETHER, "--nproc-per-node", str(ranks)]
    steps = train(tmp_path, *(together if ranks > 1 else []))
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert max(step["rollout_corr/kl"] for step in steps) < 1e-4


def sampled_lengths(folder: Path) -> tuple[list[int], list[float]]:
    """Tokens of each response of a training, and the log-probability of the whole."""
    (rollouts,) = folder.glob("runs/toy/**/rollouts/*.parquet")
    table = pq.read_table(rollouts, columns=["n_tokens", "logprob_sum"])
    return table["n_tokens"].to_pylist(), table["logprob_sum"].to_pylist()


@pytest.fixture
def memory_of_ranks() -> Iterator[None]:
    """Memory that ranks of a CPU share, which vLLM 0.32 does not remove when it ends."""
    yield
    for leftover in Path("/dev/shm").glob("*-cpushm_*"):
        leftover.unlink()


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("memory_of_ranks")
def test_ranks_that_share_a_model_sample_what_one_alone_samples(tmp_path: Path) -> None:
    together = [*TOGETHER, "--nproc-per-node", "2"]
    sharing = train(tmp_path / "two", *together, steps=2, rollout_tensor_parallel=2, zero_stage=3)
    train(tmp_path / "one", steps=2)
    lengths, logprobs = sampled_lengths(tmp_path / "two")
    expected_lengths, expected_logprobs = sampled_lengths(tmp_path / "one")
    assert lengths == expected_lengths
    # Of another text the log-probability would be another one.
    assert logprobs == pytest.approx(expected_logprobs, abs=1e-3)
    # The parts of each new weight arrive where they belong.
    assert max(step["rollout_corr/kl"] for step in sharing) < 1e-4
