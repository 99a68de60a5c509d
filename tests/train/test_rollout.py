"""What is trained on is what was sampled, and no two responses of a run have one seed."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.engines.hf_model import ImageProcessor
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.keys import Sampling
from rlbhpc.sweep.process import Drain, Interrupted
from rlbhpc.train import rollout
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import Round, Rounds
from rlbhpc.train.batch import Response, Rollout
from rlbhpc.train.deepspeed_engine import init_ranks
from rlbhpc.train.rewards import Judged
from rlbhpc.train.rollout import (
    Judge,
    Prompt,
    Run,
    StepSampler,
    _judge_completion,
    roll_out,
    rollout_engine,
)
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = pytest.mark.engine


class Odd:
    """An engine whose text does not lead back to its tokens, and that keeps what it was asked."""

    max_length = 64

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def generate(self, requests: Iterable[Request], _: Sampling) -> Iterator[Completion]:
        self.asked = list(requests)
        for request in reversed(self.asked):
            ids = np.array([request.tag, 7, 7, 0], np.int32)
            numbers = np.zeros(4, np.float32)
            yield Completion(request.tag, ids, numbers, numbers, "the same", Finish.EOS)


def run_of(judge: Judge, algorithm: str = "grpo") -> Run:
    settings = Settings(steps=1, max_tokens=8)
    return Run("m", Path(), Path(), {}, settings, make_algorithm(algorithm), [], judge)


def rolled(engine: Any, first_group: int = 0, step: int = 1) -> list[Rollout]:
    """Two groups of the same problem, which a short pass over the data can draw in one step."""
    prompt = Prompt(Problem("toy/1", {"question": "?"}, "4", "math"), (3, 1, 4))
    judge = Judge(lambda problem, text, finish: Verdict(Status.RIGHT), lambda judged: 1.0)
    return roll_out(run_of(judge), engine, step, first_group, [prompt, prompt], 3, 1.0)


def test_the_sampled_ids_are_the_ids_that_are_trained_on() -> None:
    found = rolled(Odd())
    assert [r.response.token_ids.tolist() for r in found] == [[i, 7, 7, 0] for i in range(6)]
    assert {r.response.prompt_ids for r in found} == {(3, 1, 4)}
    assert [r.group for r in found] == [0, 0, 0, 1, 1, 1]


def test_no_two_responses_share_a_seed() -> None:
    """Within a group, of a problem drawn twice, on another rank, at another step."""
    engine, seeds = Odd(), []
    for first_group, step in ((0, 1), (2, 1), (0, 2)):
        rolled(engine, first_group, step)
        seeds += [request.seed for request in engine.asked]
    assert len(set(seeds)) == len(seeds) == 18
    rolled(engine)
    assert [request.seed for request in engine.asked] == seeds[:6]


def test_a_reward_that_catches_everything_does_not_hold_up_a_warning() -> None:
    calls: list[str] = []

    def reward(judged: Judged) -> float:
        calls.append(judged.text)
        with suppress(BaseException):  # as a bare `except:` does in many rewards elsewhere
            os.kill(os.getpid(), signal.SIGTERM)
        return 1.0

    prompt = Prompt(Problem("toy/1", {"question": "?"}, "4", "math"), (3, 1, 4))
    run = run_of(Judge(lambda problem, text, finish: Verdict(Status.RIGHT), reward))
    init_ranks()
    with Drain() as drain, pytest.raises(Interrupted):
        run = replace(run, prompts=[prompt])
        StepSampler(run, cast(Engine, Odd()), 1, 0, drain).sample_next_prompts(1, {})
    assert calls == ["the same"]


class Full:
    """An engine that can hold no prompt."""

    max_length = 0

    def generate(self, requests: Iterable[Request], _: Sampling) -> Iterator[Completion]:
        for request in requests:
            none = np.zeros(0, np.float32)
            ids = np.zeros(0, np.int32)
            yield Completion(request.tag, ids, none, none, "", Finish.ERROR, "too long")


def test_a_step_of_which_no_task_can_be_asked_is_refused() -> None:
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    judge = Judge(lambda problem, text, finish: pytest.fail(), lambda judged: pytest.fail())
    run = replace(run_of(judge, "absolute-zero"), ask=lambda problem: Prompt(problem, (3, 1, 4)))
    init_ranks()

    def rounds() -> Rounds:
        yield Round([problem, problem])
        return []

    with Drain() as drain, pytest.raises(UserError) as refused:
        StepSampler(run, cast(Engine, Full()), 5, 0, drain).play_rounds(rounds())
    assert str(refused.value) == "training step 5: no task could be asked: too long"
    with Drain() as drain:
        engine = cast(Engine, Odd())
        run = replace(run, judge=Judge(lambda *_: Verdict(Status.ERROR), lambda judged: math.nan))
        sampler = StepSampler(run, engine, 5, 7, drain)
        assert sampler.play_rounds(rounds()) == []
        assert sampler.cursor == 9


def test_a_task_that_does_not_fit_is_the_users_mistake_unless_training_made_it() -> None:
    prompt = Prompt(Problem("toy/1", {"question": "?"}, "4", "math"), (3, 1, 4))
    judge = Judge(lambda problem, text, finish: pytest.fail(), lambda judged: pytest.fail())
    engine = cast(Engine, Full())
    with pytest.raises(UserError, match="rollout of toy/1: too long"):
        roll_out(run_of(judge), engine, 1, 0, [prompt], 1, 1.0)
    (found,) = roll_out(run_of(judge, "absolute-zero"), engine, 1, 0, [prompt], 1, 1.0)
    assert found.verdict == Verdict(Status.ERROR, rule="too long")
    assert math.isnan(found.reward)


def sampler_run(folder: Path, algorithm: str = "grpo", **changes: Any) -> Run:
    """Two prompts of three and of five tokens, six responses a step, for a model that holds 64."""
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    sizes = {"steps": 1, "prompts_per_step": 2, "samples_per_prompt": 3, "max_tokens": 8}
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    run = run_of(Judge(lambda *_: pytest.fail(), lambda _: pytest.fail()), algorithm)
    return replace(
        run, base=folder, settings=Settings(**{**sizes, **changes}),
        prompts=[Prompt(problem, (3, 1, 4)), Prompt(problem, (3, 1, 4, 1, 5))],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "changes", "ranks", "rows", "expected"),
    [
        ("grpo", {"rollouts": "hf"}, 1, 99, {"rows": 6}),
        ("grpo", {"rollouts": "hf"}, 2, 99, {"rows": 3}),
        ("grpo", {"rollouts": "hf"}, 1, 4, {"rows": 4}),
        ("grpo", {}, 1, 99, {"rows": 6, "max_length": 13}),
        ("grpo", {"max_tokens": 62}, 1, 4, {"rows": 4, "max_length": 64}),
        ("absolute-zero", {}, 1, 99, {"rows": 6, "max_length": 64}),
        ("grpo", {"dtype": "bfloat16"}, 1, 99, {"rows": 6, "max_length": 13, "dtype": "bfloat16"}),
        ("grpo", {"rollout_memory": 0.5}, 1, 99, {"rows": 6, "max_length": 13, "memory": 0.5}),
        (
            "grpo", {}, 2, 99,
            {
                "rows": 3, "max_length": 13,
                "options": {
                    "enable_sleep_mode": False, "distributed_executor_backend": "external_launcher",
                },
            },
        ),
        (
            "grpo", {"rollout_tensor_parallel": 2}, 4, 99,
            {
                "rows": 3, "max_length": 13, "tensor_parallel": 2,
                "options": {
                    "enable_sleep_mode": False, "distributed_executor_backend": "external_launcher",
                },
            },
        ),
    ],
)  # fmt: skip
def test_a_sampler_is_as_large_as_a_step_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    changes: dict[str, Any],
    ranks: int,
    rows: int,
    expected: dict[str, Any],
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(rollout, "make_engine", lambda *a, **settings: made.append((*a, settings)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    init_ranks()
    monkeypatch.setattr(rollout.dist, "get_world_size", lambda: ranks)
    kind = changes.get("rollouts", "vllm")
    rollout_engine(sampler_run(tmp_path, algorithm, **{"rollouts": kind, **changes}), rows)
    beside = {
        "dtype": "float32", "memory": 0.3, "tensor_parallel": 1,
        "options": {"enable_sleep_mode": False},
    }  # fmt: skip
    assert made == [(kind, tmp_path, {**(beside if kind == "vllm" else {}), **expected})]


def test_a_sampler_that_does_not_start_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: Any, **__: Any) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(rollout, "make_engine", make)
    init_ranks()
    run = sampler_run(tmp_path, rollouts="vllm")
    with pytest.raises(UserError) as refused:
        rollout_engine(run, 4)
    assert str(refused.value) == (
        "vLLM does not start beside the learner with rollout_memory 0.3: no room"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"^rollouts: vllm shows no images without torchvision; "):
        rollout_engine(replace(run, image_processor=cast(ImageProcessor, object())), 4)


def test_a_verifier_is_told_how_a_rollout_ended() -> None:
    told: list[str] = []

    def verify(problem: Problem, text: str, finish: str) -> Verdict:
        told.append(finish)
        return Verdict(Status.WRONG)

    run: Any = SimpleNamespace(judge=Judge(verify, lambda judged: 0.0), settings=Settings(steps=1))
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    none = np.zeros(1, np.float32)
    for finish in (Finish.EOS, Finish.LENGTH):
        done = Completion(0, np.zeros(1, np.int32), none, none, "The answer is 4", finish)
        _judge_completion(run, Prompt(problem, (1,)), 0, Response((1,), done.token_ids), done, 5)
    assert told == ["eos", "length"]


@pytest.mark.parametrize(
    ("lenient", "stated", "status", "answer"),
    [
        (Status.RIGHT, False, Status.NO_ANSWER, ""),
        (Status.WRONG, False, Status.NO_ANSWER, ""),
        (Status.RIGHT, True, Status.RIGHT, "4"),
        (Status.TIMEOUT, False, Status.TIMEOUT, "4"),
    ],
)
def test_training_learns_from_stated_answers_alone(
    lenient: Status, stated: bool, status: Status, answer: str
) -> None:
    def verify(problem: Problem, text: str, finish: str) -> Verdict:
        return Verdict(lenient, "4", "4", stated=stated)

    rewarded: list[Status] = []

    def reward(judged: Judged) -> float:
        rewarded.append(judged.verdict.status)
        return float(judged.verdict.right)

    run: Any = SimpleNamespace(judge=Judge(verify, reward), settings=Settings(steps=1))
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    none = np.zeros(1, np.float32)
    done = Completion(0, np.zeros(1, np.int32), none, none, "maybe 4", Finish.EOS)
    rollout = _judge_completion(
        run, Prompt(problem, (1,)), 0, Response((1,), done.token_ids), done, 5
    )
    assert rewarded == [status] and rollout.correct == (status is Status.RIGHT)
    assert rollout.verdict.canonical == answer
