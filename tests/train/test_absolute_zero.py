"""Absolute Zero: rewards of both roles, whitening apart, buffers, and what cannot be judged."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.registry import load_set
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals
from rlbhpc.train.batch import Response, Rollout
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = pytest.mark.engine

IDENTITY = load_set("program-tasks", None, "identity")
NEW = {"program": "def f(x):\n    return x + 1", "inputs": ["[1]"], "outputs": ["2"]}


def test_each_part_is_whitened_apart() -> None:
    """The worked example: pooled it would be ±.935414."""
    rewards = torch.tensor([1.0, 0, 1, 1, 0, 0, 0, 1], dtype=torch.float64)
    ones = torch.ones(8, dtype=torch.int64)
    parts = torch.tensor([2] * 4 + [5] * 4)
    azr = make_algorithm("absolute-zero", eps=0.0)
    out = azr.advantages(Signals(rewards, torch.arange(8), ones, parts=parts))[:, 0]
    assert out.tolist() == pytest.approx([0.5, -1.5, 0.5, 0.5, -0.5, -0.5, -0.5, 1.5], abs=1e-6)
    pooled = azr.advantages(Signals(rewards, torch.arange(8), ones, parts=torch.zeros(8)))[:, 0]
    assert pooled.abs().tolist() == pytest.approx([0.935414] * 8, abs=1e-6)


def rollout(status: Status, reward: float = 0.0, triplet: Any = None) -> Rollout:
    verdict = Verdict(status, canonical="" if triplet is None else json.dumps(triplet))
    response = Response((1,), np.zeros(1, np.int32))
    return Rollout("p", "", 0, response, np.zeros(1, np.float32), 0.0, False, "", verdict, reward)


def begun(azr: Algorithm) -> dict[str, Any]:
    store: dict[str, Any] = {}
    azr.begin(IDENTITY, lambda: pytest.fail("nothing to score"), store)
    return store


def play(
    azr: Algorithm, store: dict[str, Any], proposals: list[Rollout], tries: list[float]
) -> tuple[list[Rollout], list[Problem], list[Problem]]:
    """One step of a proposal and a solution of each type; all solutions are right."""
    rounds = azr.rounds(1, 0, 6, store)
    assert rounds is not None
    asked = next(rounds)
    after = rounds.send(proposals)
    tried: list[Problem] = []
    if any(one.verdict.right for one in proposals):
        tried = list(after.problems)
        assert after.samples == 4
        after = rounds.send([rollout(Status(reward > 0), reward) for reward in tries])
    assert asked.samples == after.samples == 1
    with pytest.raises(StopIteration) as ended:
        rounds.send([rollout(Status.RIGHT, 1.0)] * 3)
    assert [problem.extras["role"] for problem in asked.problems] == ["propose"] * 3
    return ended.value.value, tried, list(after.problems)


@pytest.mark.parametrize(
    ("tries", "worth"),
    [([1, 0, 0, 0], 0.75), ([0, 0, 0, 0], 0), ([1, 1, 1, 1], 0), ([1, 0, math.nan, 1], 1 / 3)],
)
def test_a_proposal_is_worth_what_is_learnable(tries: list[float], worth: float) -> None:
    azr = make_algorithm("absolute-zero", tries=4)
    store = begun(azr)
    proposals = [rollout(Status.RIGHT, triplet=NEW), rollout(Status.WRONG),
                 rollout(Status.NO_ANSWER)]  # fmt: skip
    lessons, tried, solved = play(azr, store, proposals, tries)
    assert [one.reward for one in lessons] == pytest.approx([worth, -0.5, -1, 1, 1, 1])
    assert [one.part for one in lessons] == [0, 1, 2, 3, 4, 5]
    assert [problem.gold for problem in tried] == ["2"]
    # The newest task is solved first; where there is none, one of the buffer.
    assert [problem.extras["program"] for problem in solved] == [
        NEW["program"], *[IDENTITY[0].extras["program"]] * 2
    ]  # fmt: skip
    assert store["deduction"][-1] == NEW and [
        len(store[k]) for k in ("deduction", "abduction")
    ] == [2, 1]
    assert store["metrics"]["azr/valid/deduction"] == 1
    assert azr.measure(None, None, store)["azr/learnable"] == float(worth > 0)  # type: ignore[arg-type]


def test_the_authors_code_punishes_what_is_trivial() -> None:
    azr = make_algorithm("absolute-zero", tries=4, trivial=-0.5)
    proposals = [rollout(Status.RIGHT, triplet=NEW)] + [rollout(Status.WRONG)] * 2
    assert play(azr, begun(azr), proposals, [1, 1, 1, 1])[0][0].reward == -0.5


def test_what_cannot_be_judged_is_not_learnt_from() -> None:
    azr = make_algorithm("absolute-zero", tries=4)
    store = begun(azr)
    proposals = [rollout(Status.ERROR), rollout(Status.RIGHT, triplet=NEW), rollout(Status.WRONG)]
    lessons, _, _ = play(azr, store, proposals, [math.nan] * 4)
    assert [math.isnan(one.reward) for one in lessons] == [True, True, *[False] * 4]
    assert store["abduction"] == begun(azr)["abduction"], "no try says that it can be asked"


def test_the_buffer_is_bounded_and_holds_nothing_twice() -> None:
    azr = make_algorithm("absolute-zero", tries=4, buffer=2)
    store = begun(azr)
    wrong = [rollout(Status.WRONG)] * 2
    for number in (1, 1, 2, 3):
        triplet = NEW | {"inputs": [f"[{number}]"]}
        play(azr, store, [rollout(Status.RIGHT, triplet=triplet), *wrong], [1, 0, 0, 0])
    assert [triplet["inputs"] for triplet in store["deduction"]] == [["[2]"], ["[3]"]]


def test_what_does_not_fit_is_refused() -> None:
    azr = make_algorithm("absolute-zero")
    with pytest.raises(UserError, match="no task of abduction"):
        azr.begin(IDENTITY[:1], lambda: pytest.fail(), {})
    with pytest.raises(UserError, match="no task on a program"):
        azr.begin([Problem("toy/1", {"question": "?"}, "4", "math")], lambda: pytest.fail(), {})
    azr.check_settings(Settings(steps=1, prompts_per_step=12, samples_per_prompt=1))
    with pytest.raises(UserError, match="prompts_per_step: found 8; allowed: a multiple of 6"):
        azr.check_settings(Settings(steps=1, prompts_per_step=8, samples_per_prompt=1))
    with pytest.raises(UserError, match="samples_per_prompt: found 8; allowed: 1"):
        azr.check_settings(Settings(steps=1, prompts_per_step=12))


def test_what_a_step_samples_is_foretold() -> None:
    """Two proposals of each type, four tries of each, two solutions."""
    settings = Settings(steps=1, prompts_per_step=12, samples_per_prompt=1)
    assert make_algorithm("absolute-zero", tries=4).responses_per_step(settings) == 6 + 6 * 4 + 6


def test_a_proposal_shows_as_many_references_as_there_are() -> None:
    azr = make_algorithm("absolute-zero")
    store = begun(azr)
    store["deduction"] += [NEW] * 2
    rounds = azr.rounds(1, 0, 6, store)
    assert rounds is not None
    tasks = next(rounds).problems
    assert [task.fields["question"].count("def f(") for task in tasks] == [3, 1, 1]
