"""The loop calls an algorithm's hooks, keeps its store with the state, and leaves out what has no
reward."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.store.tables import log_lines
from rlbhpc.sweep.process import Drain
from rlbhpc.train.algorithms import ALGORITHMS, make_algorithm
from rlbhpc.train.algorithms.algorithm import Algorithm, Batch, Cells, Store, group_std
from rlbhpc.train.algorithms.grpo import GRPO
from rlbhpc.train.checkpoint import list_states
from rlbhpc.train.loop import train
from rlbhpc.train.rewards import Judged, make_reward
from rlbhpc.train.rollout import Export, Judge, Prompt, Run
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROOM = Path(__file__).parents[2] / "rlbhpc" / "train"


@dataclass(frozen=True)
class Threshold(GRPO):
    """Learn from groups whose deviation is at least half of what it has been on average."""

    def select(self, batch: Batch, store: Store) -> Tensor:
        return group_std(batch.rewards, batch.groups, 1) >= store.get("usual", 0.0) / 2

    def after_step(self, step: int, batch: Batch, store: Store) -> None:
        deviation = float(group_std(batch.rewards, batch.groups, 1).mean())
        store["usual"] = 0.9 * store.get("usual", deviation) + 0.1 * deviation
        store["steps"] = [*store.get("steps", []), step]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", hidden_size=32)


def parity(problem: Problem, text: str, finish: str) -> Verdict:
    return Verdict(Status.RIGHT if sum(map(ord, text)) % 2 else Status.WRONG)


def run_in(
    folder: Path,
    model: Path,
    algorithm: Algorithm,
    reward: Callable[[Judged], float],
    **more: Any,
) -> Run:
    sizes = {"prompts_per_step": 3, "samples_per_prompt": 4, "max_tokens": 12, **more}
    settings = Settings(steps=4, learning_rate=1e-3, save_every=4, mini_batch=4, **sizes)
    prompts = [Prompt(Problem(f"toy/{i}", {"question": "?"}, "4", "math"), (4 + i, 5))
               for i in range(6)]  # fmt: skip
    exports = {4: Export(folder / "out", "made", "run")}
    return Run("m", model, folder, exports, settings, algorithm, prompts, Judge(parity, reward))


def ended(run: Run, stops: bool = False) -> int:
    with Drain() as drain:
        return train(
            run,
            lambda: make_engine("hf", run.base, rows=16),
            drain,
            lambda step, metrics: drain.request() if stops else None,
        )


def weights(run: Run) -> bytes:
    return (run.folder / "out" / "model.safetensors").read_bytes()


def test_a_store_is_kept_with_the_training_state(model: Path, tmp_path: Path) -> None:
    """Stopped after every step, the run ends as one that was not, thresholds and all."""
    reward = make_reward({"correct": 1.0})
    straight = run_in(tmp_path / "straight", model, Threshold(), reward)
    assert ended(straight) == DONE
    broken = run_in(tmp_path / "broken", model, Threshold(), reward)
    codes = [ended(broken, stops=True) for _ in range(4)]
    assert codes == [TRY_AGAIN] * 3 + [DONE]
    assert weights(broken) == weights(straight)
    curves = [log_lines(run.folder / "dynamics.jsonl") for run in (straight, broken)]
    assert curves[0] == curves[1]
    assert any("kept/critic/score/mean" in row for row in curves[0]), "nothing was left out"
    newest = sorted((broken.folder / "state").iterdir())[-1]
    assert '"steps": [\n   1,\n   2,\n   3,\n   4\n  ]' in (newest / "progress.json").read_text()


def test_a_damaged_state_gives_way_to_the_one_before_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = make_reward({"correct": 1.0})
    straight = run_in(tmp_path / "straight", model, Threshold(), reward)
    assert ended(straight) == DONE
    broken = run_in(tmp_path / "broken", model, Threshold(), reward)
    assert [ended(broken, stops=True) for _ in range(3)] == [TRY_AGAIN] * 3
    newest = list_states(broken.folder / "state")[-1]
    [weights_file] = newest.rglob("*model_states.pt")
    with weights_file.open("r+b") as file:
        file.truncate(weights_file.stat().st_size // 2)
    assert ended(broken) == DONE
    assert str(newest) in capsys.readouterr().err
    assert weights(broken) == weights(straight)
    assert log_lines(broken.folder / "dynamics.jsonl") == log_lines(
        straight.folder / "dynamics.jsonl"
    )

    for state in list_states(broken.folder / "state"):
        (state / "progress.json").write_text("{")
    with pytest.raises(UserError):
        ended(replace(broken, settings=replace(broken.settings, steps=6)))


@pytest.mark.parametrize("gold", [0, 1, 2])
def test_votes_learn_the_same_whatever_the_gold_answers(
    model: Path, tmp_path: Path, gold: int
) -> None:
    """Gold is for the curves: another one moves them, and no weight."""

    def judge(problem: Problem, text: str, finish: str) -> Verdict:
        answer = sum(map(ord, text)) % 3
        return Verdict(Status.RIGHT if answer == gold else Status.WRONG, canonical=str(answer))

    ended_at, scores = [], []
    for folder, verify in ((tmp_path / "gold", judge), (tmp_path / "plain", never_right)):
        run = run_in(
            folder, model, make_algorithm("ttrl", learn_from=3), make_reward({"correct": 1})
        )
        assert ended(replace(run, judge=Judge(verify, run.judge.reward))) == DONE
        ended_at.append(weights(run))
        rows = log_lines(folder / "dynamics.jsonl")
        scores.append([row["critic/score/mean"] for row in rows])
        assert all(0 <= row["ttrl/label_accuracy"] <= 1 for row in rows)
        assert any(row["actor/grad_norm"] > 0 for row in rows if "actor/grad_norm" in row)
    assert ended_at[0] == ended_at[1]
    assert scores[0] != scores[1]


def never_right(problem: Problem, text: str, finish: str) -> Verdict:
    """Nothing is ever right."""
    return Verdict(Status.WRONG, canonical=str(sum(map(ord, text)) % 3))


def unscored(judged: Judged) -> float:
    """Every fourth response makes the verifier fail."""
    return math.nan if sum(map(ord, judged.text)) % 4 == 3 else float(judged.verdict.right)


def zeroed(judged: Judged) -> float:
    value = unscored(judged)
    return 0.0 if math.isnan(value) else value


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce++", "remax", "ppo", "dapo"])
def test_what_has_no_reward_is_not_learnt_from(model: Path, tmp_path: Path, name: str) -> None:
    run = run_in(tmp_path / "nan", model, make_algorithm(name), unscored)
    assert ended(run) == DONE
    rows = log_lines(run.folder / "dynamics.jsonl")
    assert any(row["frac_unscored"] > 0 for row in rows)
    for row in rows:
        assert all(math.isfinite(value) for value in row.values())
    plain = run_in(tmp_path / "zero", model, make_algorithm(name), zeroed)
    assert ended(plain) == DONE
    assert weights(plain) != weights(run), "absent is not 0"


def test_a_step_without_any_reward_is_refused(model: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, model, make_algorithm("grpo"), lambda judged: math.nan)
    with pytest.raises(UserError, match=r"step 1: 3 prompts .* not once a response that could be"):
        ended(run)


def test_no_file_of_the_room_knows_an_algorithm_by_name() -> None:
    names = {word for entry in ALGORITHMS.values() for word in entry}
    for path in [*ROOM.glob("*.py"), ROOM / "algorithms" / "algorithm.py"]:
        code = re.sub(r'"""(.|\n)*?"""|#.*', "", path.read_text())
        assert not names & set(re.findall(r"\w+", code)), path.name
        assert '"sft"' not in code, path.name


def test_a_model_of_another_run_is_never_written_over_nor_mixed_with(
    model: Path, tmp_path: Path
) -> None:
    run = run_in(tmp_path, model, make_algorithm("grpo"), make_reward({"correct": 1.0}))
    older = tmp_path / "out"
    older.mkdir()
    (older / "model-00002-of-00002.safetensors").write_bytes(b"older")
    with pytest.raises(UserError, match=r"out: a model of another training .* move it away"):
        ended(run)
    assert [path.name for path in older.iterdir()] == ["model-00002-of-00002.safetensors"]


def test_the_loss_is_the_algorithms_own(model: Path, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Doubled(GRPO):
        def loss(self, cells: Cells) -> Tensor:
            return 2 * super().loss(cells)

    norms = []
    for algorithm in (GRPO(), Doubled()):
        folder = tmp_path / type(algorithm).__name__
        run = run_in(folder, model, algorithm, make_reward({"correct": 1.0}))
        run = replace(run, settings=replace(run.settings, steps=1, mini_batch=0), exports={})
        assert ended(run) == DONE
        norms.append(log_lines(folder / "dynamics.jsonl")[0]["actor/grad_norm"])
    assert torch.tensor(norms[1]) == pytest.approx(2 * norms[0], rel=1e-5)
