"""The front door, whole: the quickstart's own script and study, at sizes that take a minute."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
# What the models learn in so few steps is nothing; that everything is made is what is tested.
SMALL = [
    "models.base.steps=[3]",
    "models.rl.steps=[1, 2]",
    "models.distilled.steps=[2]",
    "recipes.pretraining.options.traces.count=500",
    "recipes.teaching.options.traces.count=500",
    "recipes.grpo.prompts_per_step=2",
    "recipes.grpo.options.mini_batch=16",
    "problem_sets.countdown-rl.limit=20",
    "problem_sets.countdown-test.limit=5",
    "sampling.n=16",
    "arms.base-vllm.n=4",
]


def start(output: Path, changes: list[str]) -> subprocess.Popen[str]:
    words = [f"--set={change}" for change in [*changes, f"output={output}"]]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [str(ROOT / "tools" / "quickstart.sh"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def finish(output: Path, changes: list[str]) -> str:
    process = start(output, changes)
    said, _ = process.communicate(timeout=2400)
    assert process.returncode == 0, said[-6000:]
    return said


@pytest.mark.timeout(600)
def test_models_that_were_trained_before_give_an_answer(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            str(ROOT / "tools" / "quickstart.sh"), "--no-train", "--set", "sampling.n=8",
            "--set", "problem_sets.countdown-test.limit=12", "--set", f"output={tmp_path / 'run'}",
        ],
        check=False, capture_output=True, text=True,
        env={
            **os.environ, "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(" at K, points") == 1
    # Models that learnt nothing would hardly be right once in 96 answers.
    counts = json.loads(
        subprocess.run(
            [sys.executable, "-m", "rlbhpc", "report", str(tmp_path / "run"), "--json"],
            check=True, capture_output=True, text=True, cwd=ROOT,
        ).stdout
    )["samples"]  # fmt: skip
    assert all(row["right"] > 0 for row in counts), counts


def numbers(output: Path) -> Any:
    """What the report says of the arms whose engine is deterministic."""
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", "report", str(output), "--json"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    said = json.loads(done.stdout)
    samples = [row for row in said["samples"] if row["arm"] != "base-vllm"]
    perplexity = (output / "report" / "perplexity.csv").read_text()
    return said["conclusions"], samples, perplexity


@pytest.mark.timeout(7200)
def test_one_command_answers_and_a_killed_one_answers_the_same(tmp_path: Path, soak: bool) -> None:
    """Whole in a soak: the study as it is, killed twenty times, each time after about a minute."""
    changes, kills, patience = ([], 20, (0.05, 0.15)) if soak else (SMALL, 2, (0.1, 0.9))
    whole = tmp_path / "whole"
    begun = time.monotonic()
    said = finish(whole, changes)
    duration = time.monotonic() - begun
    assert said.count(" at K, points") == 1
    assert (whole / "report" / "report.html").is_file()
    found = numbers(whole)

    again = finish(whole, changes)
    assert "Nothing to train" in again
    assert numbers(whole) == found

    killed, rng = tmp_path / "killed", random.Random(3)
    dead = 0
    while dead < kills:
        process = start(killed, changes)
        try:
            process.communicate(timeout=rng.uniform(*patience) * duration)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            dead += 1
        else:  # it came to its end in between: the other kills are for a new one
            assert numbers(killed) == found
            killed = tmp_path / f"killed-{dead}"
    finish(killed, changes)
    assert numbers(killed) == found
