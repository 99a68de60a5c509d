"""The choice of a prompt: how often the best is found, and what choosing does to the answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from rlbhpc.report.gather import gather
from rlbhpc.store.compact import compact
from rlbhpc.store.snapshot import COMPLETED_FLAG, RIGHT_FLAG
from rlbhpc.study.keys import Block
from rlbhpc.study.load import load_study
from rlbhpc.study.study import half_of
from rlbhpc.sweep.plan import Presence, read_presence
from rlbhpc.sweep.search import choose, choose_prompts

CONFIGS = Path(__file__).parents[2] / "configs"
CHECKPOINTS, RULES = CONFIGS / "checkpoints", CONFIGS / "countdown.yaml"
Floats = NDArray[np.float64]


def tried(rates: Floats, n: int, rng: np.random.Generator) -> list[Presence]:
    """``n`` samples per problem of each candidate, at its success rates (candidates, problems)."""
    problems = tuple(f"s/{i}" for i in range(rates.shape[1]))
    zeros = np.zeros(len(problems), np.int64)
    presences = []
    for candidate, p in enumerate(rates):
        block = Block(f"a+{candidate}", "s", 0, problems, n, zeros)
        right = rng.random((len(problems), n)) < p[:, np.newaxis]
        flags = np.where(right, COMPLETED_FLAG | RIGHT_FLAG, COMPLETED_FLAG).astype(np.uint8)
        presences.append(Presence(block, np.full(len(problems), n), flags, zeros))
    return presences


def chosen(rates: Floats, n: int, rng: np.random.Generator) -> list[int]:
    """Candidates that ask half 0 and half 1, after ``n`` samples of each."""
    tries = {str(i): f"a+{i}" for i in range(len(rates))}
    return [int(name) for name in choose(tries, tried(rates, n, rng))["chosen"]]


@pytest.mark.parametrize(
    ("problems", "n", "means"),
    [(500, 2, (0.345, 0.55, 0.615)), (30, 10, (0.05, 0.15, 0.3)), (41, 1, (0.1, 0.3, 0.75))],
)
def test_the_best_of_three_prompts_is_found(
    problems: int, n: int, means: tuple[float, ...]
) -> None:
    """At what three prompts get of 256, 1,024 and 64 samples: MATH500, AIME and a first look."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        difficulty = rng.normal(0, 1, problems)
        rates = np.stack([1 / (1 + np.exp(difficulty - _logit_of(mean))) for mean in means])
        found += chosen(rates, n, rng) == [2, 2]
    assert found >= 95


def _logit_of(mean: float) -> float:
    """The level at which normal difficulties have about this mean success rate."""
    return float(np.log(mean / (1 - mean)) * np.sqrt(1 + np.pi / 8))


def test_the_answer_after_the_search_is_unbiased() -> None:
    """Prompts that are equally good, but each on problems of its own: choosing must add nothing.

    The choice of a half for that half itself, which is never made, would add a point.
    """
    problems, seeds = 100, 2000
    halves = np.array([half_of(f"s/{i}") for i in range(problems)])
    gains, gains_of_own_half = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rates = rng.beta(0.5, 0.5, (3, problems))
        prompts = np.array(chosen(rates, 2, rng))
        columns = np.arange(problems)
        gains.append(rates[prompts[halves], columns].mean() - 0.5)
        gains_of_own_half.append(rates[prompts[1 - halves], columns].mean() - 0.5)
    assert abs(np.mean(gains)) < 0.002
    assert np.mean(gains_of_own_half) > 0.01


STUDY = {
    "name": "search",
    "models": {"rl": {"path": str(CHECKPOINTS / "countdown-rl")}},
    "problem_sets": {
        "test": {"set": "countdown", "path": str(RULES), "subset": "test", "limit": 24},
    },
    "sampling": {"prompt": "search", "temperature": 0.6, "max_tokens": 40, "n": 24,
                 "search_share": 0.9},
    "arms": {"rl": {"model": "rl"}},
    "engine": {"name": "hf", "dtype": "float32", "options": {"rows": 512}},
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.slow
def test_a_model_of_the_quickstart_finds_the_prompt_that_it_learnt_after_a_kill(
    tmp_path: Path,
) -> None:
    """Killed while it tries prompts, the same command goes on to the last sample."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    command = [sys.executable, "-m", "rlbhpc", "sample", str(file)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    layout = load_study(file).layout
    while not any(path.stat().st_size > 4096 for path in layout.root.glob("journals/*/*/*")):
        assert first.poll() is None, "it was killed before it had begun"
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert not layout.searches.exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    study = load_study(file)
    [search] = study.searches.values()
    assert list(search.chosen) == ["countdown", "countdown"]
    rates = {name: sum(by_half) for name, by_half in search.rates.items()}
    assert rates["countdown"] > max(rate for name, rate in rates.items() if name != "countdown")
    blocks = list(study.blocks())
    assert {block.arm for block in blocks} == {"rl", *study.tries}
    assert not any(presence.missing for presence in read_presence(layout, blocks))
    kept = json.loads(layout.searches.read_text())
    assert choose_prompts(study) is study
    assert json.loads(layout.searches.read_text()) == kept
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 4, "there is nothing left to draw"
    compact(layout)
    report = gather(layout.root)
    assert {arm.arm for arm in report.measured_arms} == {"rl"}, "no try is taken for an answer"
    assert any("countdown-words" in note for note in report.notes)
