"""What `rlbhpc train --dry-run` says a rank will hold is what it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import NoneType

import pytest
from click.testing import CliRunner

from rlbhpc.cli.train import train
from rlbhpc.errors import UserError
from rlbhpc.train.forecast import Forecast

os.environ.setdefault("DS_ACCELERATOR", "cpu")

STUDY = """
name: tried
models:
  base: {train: {recipe: traces}, steps: [10]}
  rl: {train: {from: base, recipe: grpo}, steps: [3]}
problem_sets: {countdown: {subset: train, limit: 4}}
recipes:
  traces:
    algorithm: sft
    problems: countdown
    prompt: countdown
    architecture: {hidden_size: 128, num_hidden_layers: 3}
    prompts_per_step: 8
    samples_per_prompt: 1
    options: {traces: {hit: 0.5, count: 64}}
  grpo:
    algorithm: ALGORITHM
    problems: countdown
    prompt: countdown
    prompts_per_step: 4
    samples_per_prompt: 6
    max_tokens: 60
    options: {micro_tokens: 640, OPTIONS}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 60, n: 2}
arms: {base: {model: base}, rl: {model: rl}}
"""


TWICE = "mini_batch: 12, epochs: 2"


def dry_run(
    folder: Path, *words: str, algorithm: str = "grpo", options: str = TWICE, refused: bool = False
) -> str:
    """What is printed, or what is said where it is refused."""
    file = folder / "study.yaml"
    file.write_text(STUDY.replace("ALGORITHM", algorithm).replace("OPTIONS", options))
    done = CliRunner().invoke(train, [str(file), "--dry-run", *words], standalone_mode=False)
    assert isinstance(done.exception, UserError if refused else NoneType), done.exception
    return str(done.exception) if refused else done.stdout


@pytest.mark.engine
def test_a_chain_that_is_not_trained_yet_is_foretold_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    base, rl = json.loads(dry_run(tmp_path, "--json"))
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
    assert base["work"] == {"steps": 10, "pairs": 80, "updates": 10}
    assert rl["work"] == {
        "steps": 3, "prompts": 12, "responses": 72, "updates": 12,
        "response tokens at most": 72 * 60,
    }  # fmt: skip
    assert rl["parameters"] == base["parameters"]
    assert rl["total"] == sum(rl["memory"].values())
    once = "mini_batch: 24, epochs: 1, zero_stage: 0"
    words = {"algorithm": "remax", "options": once}
    greedy = json.loads(dry_run(tmp_path, "rl", "--json", **words))[-1]
    # One greedy answer a prompt beside its samples.
    assert greedy["work"]["responses"] == 72 + 12


@pytest.mark.engine
def test_what_cannot_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    # What is left out has a GPU's defaults where a GPU's memory is named.
    small = "rollouts: hf, dtype: float32, recompute: false, zero_stage: 0"
    done = dry_run(tmp_path, "rl", "--memory", "0.001", options=small, refused=True)
    assert "one rank holds 0." in done and "micro_tokens" in done
    whole = json.loads(dry_run(tmp_path, "rl", "--json"))[-1]["memory"]
    halved = json.loads(dry_run(tmp_path, "rl", "--json", "--ranks", "2", options="zero_stage: 3"))[
        -1
    ]["memory"]
    assert halved["policy weights"] * 2 == whole["policy weights"]
    assert halved["activations"] == whole["activations"]
    again = json.loads(dry_run(tmp_path, "rl", "--json", options="recompute: true"))[-1]["memory"]
    assert again["activations"] < whole["activations"] / 1.5
    # Beside a share of the device that vLLM samples in, training keeps all but its activations.
    small = small.replace("rollouts: hf", "rollouts: vllm")
    options = f"{small}, rollout_memory: 0.75"
    *_, before, beside = json.loads(dry_run(tmp_path, "rl", "--json", options=options))
    assert beside["share"] == 0.25 and "sampler cache" not in beside["memory"]
    passing = beside["memory"]["activations"] + beside["memory"]["output layer"]
    lasting = beside["total"] - passing
    limit = 1.1 * max(before["total"], beside["total"], 4 * lasting)
    dry_run(tmp_path, "rl", "--memory", f"{limit / 2**30:f}", options=options)
    share = 1 - 0.9 * lasting / limit
    tight = f"{small}, rollout_memory: {share}"
    done = dry_run(tmp_path, "rl", "--memory", f"{limit / 2**30:f}", options=tight, refused=True)
    assert "model rl: while vLLM samples" in done
    critic = json.loads(dry_run(tmp_path, "rl", "--json", algorithm="ppo"))[-1]["memory"]
    assert 0 < critic["critic weights"] < critic["policy weights"]


@pytest.mark.parametrize(
    ("share", "handed", "limit", "phase", "room"),
    [
        # 74 GiB together, of which 54 stay while vLLM samples; a tenth of the GPU stays free.
        (0.7, 14, 83, None, 0),
        (1.0, 0, 83, None, 0),
        (0.7, 14, 82, "one rank holds 74.0", 73.8),
        (0.5, 40, 88, "while vLLM samples, one rank holds 54.0", 44.0),
        (0.6, 14, 84, "while vLLM samples, one rank holds 54.0", 50.4),
        # Weights are copied one by one: the largest has to be there beside what it becomes.
        (0.7, 20, 84, "while vLLM gets its weights, one rank holds 76.0", 75.6),
        (0.7, 20, 85, None, 0),
        (0.9, 14, 83, "`rollout_memory` gives vLLM 8.3", 0),
    ],
)
def test_each_phase_has_to_fit(
    share: float, handed: int, limit: int, phase: str | None, room: float
) -> None:
    parts = {"activations": 20, "policy weights": 50, "policy buffer": 1, "policy gradients": 3}
    memory = {name: size << 30 for name, size in parts.items()}
    forecast = Forecast("rl", "grpo", 7 << 30, 1, {}, memory, share, handed << 30, 2 << 30, {})
    why = forecast.shortfall(limit << 30)
    assert bool(why) == (phase is not None)
    assert why.startswith(phase or "")
    assert not room or f"has {room} of {limit}.0" in why


@pytest.mark.engine
@pytest.mark.parametrize(
    ("stage", "dtype", "rank"),
    [(0, "float32", 0), (0, "bfloat16", 0), (2, "bfloat16", 0), (0, "float32", 8)],
)
def test_a_learner_holds_what_was_foretold(
    tmp_path: Path, stage: int, dtype: str, rank: int
) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.train.memory_case",
            str(tmp_path), str(stage), dtype, str(rank),
        ],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    case = json.loads(done.stdout.splitlines()[-1])
    # Gradients and the buffer that they are reduced in come and go within a step.
    passing = case["foretold"]["policy gradients"] + case["foretold"]["policy buffer"]
    whole = sum(case["foretold"].values())
    assert 0.98 * (whole - passing) <= case["held"] <= 1.02 * whole
    assert case["activations"] == pytest.approx(case["activations foretold"], rel=0.05)
