"""Rewards of controls: what they are blind to, at which rates they err, and what is no reward."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.train.rewards import REWARDS, Judged, make_reward
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Status, Verdict

PROBLEM = Problem("toy/1", {"question": "?"}, "4", "math")


def judged(status: Status, seed: int = 0, logprobs: tuple[float, ...] = (-0.5, -1.5)) -> Judged:
    numbers = np.array(logprobs, np.float32)
    return Judged(PROBLEM, "4", 2, 10, Finish.EOS, Verdict(status), seed, numbers)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "silent"),
    [("correct", 1, 0, 0), ("inverted", 0, 1, 0), ("format", 1, 1, 0), ("noisy", 1, 0, 0)],
)
def test_values_by_verdict(name: str, right: float, wrong: float, silent: float) -> None:
    reward = make_reward({name: 1.0})
    statuses = (Status.RIGHT, Status.WRONG, Status.NO_ANSWER)
    assert [reward(judged(status)) for status in statuses] == [right, wrong, silent]


@pytest.mark.parametrize("name", ["correct", "inverted", "noisy", "format"])
def test_a_verifier_that_fails_gives_no_reward(name: str) -> None:
    assert math.isnan(make_reward({name: 1.0, "brevity": 0.5})(judged(Status.ERROR)))


def test_the_coin_is_fair_and_blind_and_each_responses_own() -> None:
    reward = make_reward({"random": 1.0})
    right, wrong = ([reward(judged(s, seed)) for seed in range(4000)]
                    for s in (Status.RIGHT, Status.WRONG))  # fmt: skip
    assert right == wrong
    assert sum(right) / 4000 == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)


def test_noise_errs_at_its_rates() -> None:
    reward = make_reward({"noisy": {"false_positive": 0.1, "false_negative": 0.3}})
    for status, rate in ((Status.WRONG, 0.1), (Status.RIGHT, 0.7)):
        mean = sum(reward(judged(status, seed)) for seed in range(4000)) / 4000
        assert mean == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 4000) ** 0.5)


def test_likelihood_is_the_geometric_mean_of_a_tokens_probability() -> None:
    reward = make_reward({"likelihood": 2.0})
    assert reward(judged(Status.WRONG)) == pytest.approx(2 * math.exp(-1))
    assert math.isnan(reward(judged(Status.WRONG, logprobs=())))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"corect": 1.0}, "allowed: correct"),
        ({"noisy": {"false_positiv": 0.1}}, "allowed: weight, false_positive, false_negative"),
        ({"noisy": {"false_positive": 1.5}}, "allowed: 0 to 1"),
        ({"correct": {"weight": "much"}}, "allowed: a number"),
        ({"correct": {"rate": 0.1}}, "allowed: weight"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_reward(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "value"),
    [("(1+2)*3", 1.0), ("1+2+3", 0.3), ("1+2=3\n3+3=6", 0.3), ("1+2", 0), ("1+2+4", 0), ("?", 0)],
)
def test_credit_for_sound_arithmetic(answer: str, value: float) -> None:
    """All numbers once and no mistake is worth something where the target is missed."""
    problem = Problem("toy/1", {"question": "?"}, "1 2 3 -> 9 (+*)", "countdown")
    verdict = verify(problem.verifier, problem.gold, answer, problem)
    response = Judged(problem, answer, 2, 10, Finish.EOS, verdict)
    assert make_reward({"credit": {"sound": 0.3}})(response) == value


def test_every_reward_of_the_table_exists() -> None:
    for name in REWARDS:
        make_reward({name: {"weight": 0.5}})(judged(Status.RIGHT))
