"""Trainings in processes of their own, for tests and for the check of a machine with GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import torch

from rlbhpc.store.tables import log_lines
from tests.studies import trained

ROOT = Path(__file__).parents[2]
# A cluster's modules put what they bring into PYTHONPATH, too.
SEARCHED = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def quiet(step: int, metrics: dict[str, float]) -> None:
    """Say nothing of a step."""


def run_case(ranks: int, case: str, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder on so many ranks to its end."""
    together = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    together += ["--nproc-per-node", str(ranks)]
    program = str(Path(__file__).with_name(case))
    done = subprocess.run(
        [sys.executable, *(together if ranks > 1 else []), program, *map(str, words)],
        check=False, capture_output=True, text=True, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": SEARCHED, **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return done


class Step(NamedTuple):
    """What one optimiser step made; the gradient is clipped, its norm is not."""

    norm: float
    gradient: torch.Tensor
    weights: torch.Tensor


def run_steps(model: Path, out: Path, ranks: int, cases: list[str], **env: str) -> list[Step]:
    """One step for each case of ``step_case.py``."""
    run_case(ranks, "step_case.py", model, out, *cases, **env)
    return [Step(norm, *map(torch.tensor, values)) for norm, *values in json.loads(out.read_text())]


def start_ranks(folder: Path, ranks: int, *words: str) -> subprocess.Popen[str]:
    """Start a program on so many ranks, as a job does."""
    launcher = [sys.executable, "-m", "rlbhpc.train.ranks", "--standalone"]
    launcher += ["--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    env = {"DS_ACCELERATOR": "cpu", **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": SEARCHED}
    return subprocess.Popen(
        [*launcher, *words], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=env,
    )  # fmt: skip


def endless(steps: int = 100_000, prompts_per_step: int = 2, **options: object) -> str:
    """A study whose training saves where it is warned, and by its steps not before its end."""
    recipe = {
        "prompts_per_step": prompts_per_step,
        "samples_per_prompt": 2,
        "max_tokens": 16,
        "options": {"save_every": 100_000, "rewards": {"brevity": 1.0}, **options},
    }
    return trained("toy", [steps], recipe, limits=(10, 2), sampling={"n": 2})


def train_until_warned(folder: Path, ranks: int) -> tuple[int, str, list[int]]:
    """Train the study of a folder until TERM after a step; its code, its words, its steps."""
    started = start_ranks(folder, ranks, "-m", "rlbhpc", "train", "toy.yaml", "rl")
    log = folder / "runs" / "toy" / "training" / "rl" / "dynamics.jsonl"
    asleep = threading.Event()
    while not log_lines(log) and started.poll() is None:
        asleep.wait(0.05)
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate(timeout=100)
    return started.returncode, said, [int(row["step"]) for row in log_lines(log)]
