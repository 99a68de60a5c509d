"""The curves of two algorithms compare: they describe what was sampled, not what one kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.problems.problem import Problem
from rlbhpc.store.tables import log_lines
from rlbhpc.sweep.process import Drain
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.loop import train
from rlbhpc.train.rewards import make_reward
from rlbhpc.train.rollout import Judge, Prompt, Run
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict
from tests.train.support import quiet

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def verdict(problem: Problem, text: str, finish: str) -> Verdict:
    """One problem is never solved, the other now and then."""
    lucky = problem.id == "toy/1" and sum(map(ord, text)) % 2
    return Verdict(Status.RIGHT if lucky else Status.WRONG)


def first_step(folder: Path, model: Path, algorithm: Algorithm) -> dict[str, Any]:
    settings = Settings(steps=1, prompts_per_step=2, samples_per_prompt=8, max_tokens=8)
    prompts = [
        Prompt(Problem(f"toy/{i}", {"question": "?"}, "4", "math"), (4 + i, 5)) for i in (1, 2)
    ]
    judge = Judge(verdict, make_reward(settings.rewards))
    run = Run("m", model, folder, {}, settings, algorithm, prompts, judge)
    with Drain() as drain:
        train(run, lambda: make_engine("hf", model, rows=8), drain, quiet)
    return log_lines(folder / "dynamics.jsonl")[0]


def test_a_filter_and_a_shaped_reward_do_not_move_the_common_curves(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", hidden_size=32)
    plain = first_step(tmp_path / "grpo", model, make_algorithm("grpo"))
    filtered = make_algorithm("dapo", max_refills=0, overlong_buffer=8)
    chosen = first_step(tmp_path / "dapo", model, filtered)
    common = [name for name in plain if name.startswith(("critic/", "response_length/", "frac_"))]
    assert len(common) > 8
    assert [chosen[name] for name in common] == [plain[name] for name in common]
    assert chosen["frac_all_wrong"] == 0.5 and chosen["kept/frac_all_wrong"] == 0
    assert chosen["kept/critic/score/mean"] == 2 * chosen["critic/score/mean"] > 0
    assert chosen["kept/critic/rewards/mean"] < chosen["kept/critic/score/mean"]  # the penalty
