"""A training run that is killed again and again ends with the very weights of one that was not."""

from __future__ import annotations

import hashlib
import random
import signal
import time
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.study.load import load_study
from tests.children import Child

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STUDY = """
name: toy
models:
  base: {path: MODEL}
  taught: {train: {from: base, recipe: teaching}, steps: [6]}
  rl: {train: {from: taught, recipe: rl}, steps: [2, 5]}
recipes:
  teaching:
    algorithm: sft
    problems: toy-train
    prompt: countdown
    prompts_per_step: 8
    learning_rate: 3e-3
    options: {traces: {hit: 0.5, count: 60}, save_every: 2}
  rl:
    algorithm: ALGORITHM
    problems: toy-train
    prompt: countdown
    prompts_per_step: 3
    samples_per_prompt: 3
    max_tokens: 16
    learning_rate: 1e-3
    kl: 0.01
    options: {save_every: 2, mini_batch: 3, rewards: {correct: 1.0, brevity: 1.0}}
problem_sets:
  toy-train: {set: countdown, subset: train, limit: 10}
  toy-test: {set: countdown, subset: test, limit: 2}
arms:
  rl: {model: rl, prompt: countdown, temperature: 1.0, max_tokens: 16, n: 2}
engine: {name: hf, dtype: float32}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", hidden_size=32)


def write(folder: Path, model: Path, algorithm: str) -> Path:
    path = folder / "toy.yaml"
    path.write_text(STUDY.replace("MODEL", str(model)).replace("ALGORITHM", algorithm))
    return path


def outcome(study: Path) -> dict[str, str]:
    """Digests of every exported model, of the dynamics and of the rollouts that were kept."""
    layout = load_study(study).layout
    patterns = ("models/**/*.safetensors", "**/dynamics.jsonl", "**/rollouts.jsonl")
    files = [path for pattern in patterns for path in layout.root.glob(pattern)]
    return {
        str(path.relative_to(layout.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("algorithm", [pytest.param("grpo", marks=pytest.mark.core), "ppo"])
def test_killed_training_ends_with_the_same_weights(
    model: Path, tmp_path: Path, soak: bool, algorithm: str
) -> None:
    straight = tmp_path / "straight"
    straight.mkdir()
    start = time.monotonic()
    assert Child("train", str(write(straight, model, algorithm))).ended() == DONE
    duration = time.monotonic() - start
    expected = outcome(straight / "toy.yaml")
    assert len(expected) == 6  # one model taught, two of RL, two dynamics, rollouts of RL

    rng = random.Random(7)
    kills = runs = 0
    while kills < (30 if soak else 3):
        runs += 1
        folder = tmp_path / f"killed-{runs}"
        folder.mkdir()
        study = write(folder, model, algorithm)
        code = TRY_AGAIN
        while code not in (DONE, NOTHING_TO_DO):
            child = Child("train", str(study))
            start = time.monotonic()
            child.wait(rng.uniform(0.2, 1.0) * duration)
            child.send(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2]))
            code = child.ended()
            if code in (DONE, NOTHING_TO_DO):  # the machine is faster than it was
                duration = min(duration, time.monotonic() - start)
            kills += code not in (DONE, NOTHING_TO_DO)
        assert outcome(study) == expected
