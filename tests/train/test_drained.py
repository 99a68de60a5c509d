"""A warning drops the rollout, saves what was learnt, and ends with a code that says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlbhpc.engines.completion import Completion, Request
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN, USAGE
from rlbhpc.problems.problem import Problem
from rlbhpc.store import tables
from rlbhpc.store.tables import log_lines
from rlbhpc.study.keys import Sampling
from rlbhpc.sweep.process import Drain
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.checkpoint import list_states
from rlbhpc.train.loop import train
from rlbhpc.train.rollout import Export, Judge, Prompt, Run
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict
from tests.train.support import endless, quiet, start_ranks, train_until_warned

pytestmark = [pytest.mark.engine, pytest.mark.slow]


class Warned:
    """The real engine, warned in the middle of a rollout whose last response would never end."""

    def __init__(self, engine: Engine, at: int) -> None:
        self._engine, self._at = engine, at
        self.rollouts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        self.rollouts += 1
        done = self._engine.generate(requests, sampling)
        if self.rollouts == self._at:
            yield next(done)
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()
        yield from done


def run_in(folder: Path, model: Path) -> Run:
    settings = Settings(
        steps=4, prompts_per_step=2, samples_per_prompt=2, max_tokens=8, learning_rate=1e-2,
        save_every=3, rewards={"brevity": 1.0},
    )  # fmt: skip
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    judge = Judge(lambda *_: Verdict(Status.WRONG), lambda judged: float(judged.n_tokens))
    prompts = [Prompt(problem, (4, 5, 6)), Prompt(problem, (7, 8))]
    return Run("m", model, folder, {}, settings, make_algorithm("grpo"), prompts, judge)


def ended(run: Run, make: Callable[[], Any]) -> int:
    with Drain() as drain:
        return train(run, make, drain, quiet)


def learnt(run: Run) -> dict[str, torch.Tensor]:
    newest = list_states(run.folder / "state")[-1]
    saved: dict[str, Any] = torch.load(newest / "policy" / "mp_rank_00_model_states.pt")
    return saved["module"]


@pytest.mark.timeout(100)
def test_a_warning_during_a_rollout_saves_the_last_step_at_once(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", hidden_size=32)

    def engine() -> Engine:
        return make_engine("hf", model, rows=4)

    straight = run_in(tmp_path / "straight", model)
    assert ended(straight, engine) == DONE

    first = run_in(tmp_path / "first", model)
    assert ended(first, lambda: Warned(engine(), at=1)) == TRY_AGAIN
    assert not list_states(first.folder / "state")  # there was no step to save

    warned = run_in(tmp_path / "warned", model)
    assert ended(warned, lambda: Warned(engine(), at=3)) == TRY_AGAIN
    assert [path.name for path in list_states(warned.folder / "state")] == ["step-00000002"]
    assert ended(warned, engine) == DONE
    assert learnt(warned).keys() == learnt(straight).keys()
    for name, weight in learnt(straight).items():
        assert torch.equal(learnt(warned)[name], weight), name
    curves = [log_lines(run.folder / "dynamics.jsonl") for run in (straight, warned)]
    assert curves[0] == curves[1]
    rows = [tables.read_rollouts(run.folder / "rollouts") for run in (straight, warned)]
    assert rows[0].equals(rows[1])
    assert set(rows[0]["train_step"].to_pylist()) == {1, 2, 3, 4}


class Killed(BaseException):
    """A death, which nothing that handles errors meets."""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("moment", ["state", "model"])
def test_a_kill_in_the_last_save_leaves_no_gap_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """With the last model there nobody trains again: nothing may be missing by then."""
    model = make_tiny_model(tmp_path / "tiny", hidden_size=32)
    last = Export(tmp_path / "models" / "step-4", "recipe", "run")
    run = replace(run_in(tmp_path / "run", model), exports={4: last})

    def engine() -> Engine:
        return make_engine("hf", model, rows=4)

    saving = last.folder if moment == "model" else run.folder / "state" / "step-00000004"

    def kill_at_the_last(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(f"{saving}.partial"):
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(os, "fsync", kill_at_the_last)
        ended(run, engine)
    assert not last.folder.exists()
    saving.with_name("step-00000002.partial").mkdir()  # of a kill before it
    assert ended(run, engine) == DONE
    assert last.folder.is_dir()
    saved = [path.name for path in list_states(run.folder / "state")]
    assert saved == ["step-00000003", "step-00000004"]
    assert not list(tmp_path.rglob("*.partial"))
    rows = tables.read_rollouts(run.folder / "rollouts")
    assert set(rows["train_step"].to_pylist()) == {1, 2, 3, 4}


@pytest.mark.parametrize("code", [DONE, NOTHING_TO_DO, USAGE, TRY_AGAIN])
def test_the_codes_of_ranks_are_those_of_their_launcher(tmp_path: Path, code: int) -> None:
    (tmp_path / "case.py").write_text(f"raise SystemExit({code})")
    started = start_ranks(tmp_path, 2, "case.py")
    said, _ = started.communicate(timeout=100)
    assert started.returncode == code, said


@pytest.mark.timeout(200)
def test_ranks_that_are_warned_save_together(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model", hidden_size=32)
    (tmp_path / "toy.yaml").write_text(endless())
    code, said, steps = train_until_warned(tmp_path, 2)
    assert code == TRY_AGAIN, said
    (saved,) = list_states(tmp_path / "runs" / "toy" / "training" / "rl" / "state")
    assert saved.name == f"step-{steps[-1]:08d}"
