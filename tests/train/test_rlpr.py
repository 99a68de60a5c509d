"""RLPR: the reward of the reference answer, its filter, and what it does at the edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import Batch
from rlbhpc.train.batch import Response

pytestmark = pytest.mark.engine


class Letters:
    """A policy whose tokens are characters, with a probability for each that it is asked for.

    ``reasoned`` answers where reasoning stands before the answer, ``blank`` where none does.
    """

    def __init__(self, reasoned: Sequence[float], blank: Sequence[float]) -> None:
        self.reasoned, self.blank = reasoned, blank
        self.read: list[str] = []

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def logprobs(self, responses: Sequence[Response]) -> torch.Tensor:
        out = torch.zeros(len(responses), max(len(r.token_ids) for r in responses))
        for row, response in zip(out, responses, strict=True):
            text = self.decode(response.token_ids.tolist())
            self.read.append(text)
            values = self.reasoned if "so" in text else self.blank
            row[len(text) - len(values) : len(text)] = torch.tensor(values).log()
        return out


def batch(texts: list[str], scorer: Letters, gold: str = "7", size: int = 2) -> Batch:
    count = len(texts)
    responses = [Response((1, 2), np.array(scorer.encode(text), np.int32)) for text in texts]
    return Batch(
        torch.zeros(count), torch.arange(count) // size, torch.ones(count),
        correct=torch.tensor(["7" in text for text in texts]), answers=[""] * count, max_tokens=50,
        problems=["p/1"] * count, golds=[gold] * count, texts=texts, responses=responses,
        sampler_logprobs=torch.zeros(count, 1), scorer=scorer,
    )  # fmt: skip


GOOD = "<think>so</think> <answer> 9 </answer>"


def reward_of(texts: list[str], scorer: Letters, **settings: object) -> list[float]:
    rlpr, store = make_algorithm("rlpr", **settings), {}
    rlpr.begin([], lambda: batch([""], scorer), store)
    values: list[float] = rlpr.reward(batch(texts, scorer), store).tolist()
    return values


def test_the_worked_example() -> None:
    """Probabilities .9, .2, .7 against .5, .4, .6: a gain of .1, weighed .9, and .1 for form."""
    scorer = Letters([0.9, 0.2, 0.7], [0.5, 0.4, 0.6])
    assert reward_of([GOOD], scorer) == pytest.approx([0.19], abs=1e-6)
    # Read is the reasoning with the reference in the answer's place, and the same without any.
    assert scorer.read == ["<think> </think> <answer> 7 ", "<think>so</think> <answer> 7 "]


@pytest.mark.parametrize(
    ("probability", "gain"),
    [
        ("mean", 0.6 - 0.5),
        ("product", 0.9 * 0.2 * 0.7 - 0.5 * 0.4 * 0.6),
        ("geometric", (0.9 * 0.2 * 0.7) ** (1 / 3) - (0.5 * 0.4 * 0.6) ** (1 / 3)),
    ],
)
def test_three_ways_to_pool(probability: str, gain: float) -> None:
    scorer = Letters([0.9, 0.2, 0.7], [0.5, 0.4, 0.6])
    out = reward_of([GOOD], scorer, probability=probability, format_weight=0.0)
    assert out == pytest.approx([gain], abs=1e-6)


def test_edges_of_the_reward() -> None:
    losing = Letters([0.1, 0.1, 0.1], [0.5, 0.4, 0.6])
    assert reward_of([GOOD], losing) == pytest.approx([0.1]), "a loss is clipped to 0"
    gaining = Letters([1.0, 1.0, 1.0], [0.0001, 0.0001, 0.0001])
    assert reward_of([GOOD], gaining, debias=False) == pytest.approx([1.0])
    texts = [
        "",
        "so 7",
        "<think>so",
        "so <answer>7</answer>",
        GOOD + GOOD,
        "</think><think>" + GOOD,
        "Sure. " + GOOD,
        "\n" + GOOD,
    ]
    out = reward_of(texts, gaining)
    assert out[:3] == [0, 0, 0], "no answer begins"
    assert out[3:] == pytest.approx([0.9] * 5, abs=1e-3), "answers, in no good form"
    assert reward_of([texts[3]], gaining, think=False) == pytest.approx([1.0], abs=1e-3)
    assert reward_of([GOOD + " and more"], gaining) == pytest.approx([1.0], abs=1e-3)


def test_an_answer_that_is_opened_by_words_alone() -> None:
    scorer = Letters([0.5, 0.5], [0.25, 0.25])
    out = reward_of(["so\nanswer: 9"], scorer, think=False, opening="answer: ", closing="")
    assert out == pytest.approx([0.9 * 0.25 + 0.1], abs=1e-6)
    assert scorer.read == ["answer: 7", "so\nanswer: 7"]


def test_groups_are_filtered_by_a_moving_threshold() -> None:
    """The mean of steps 6 to 10 first, then an average of .99 and the last step."""
    rlpr, store = make_algorithm("rlpr", ema=0.9), {}

    def step(number: int, spreads: tuple[float, float]) -> list[bool]:
        given = batch([""] * 4, Letters([], []))
        rewards = torch.tensor([0.0, spreads[0], 0.0, spreads[1]]).double() * math.sqrt(2)
        given = replace(given, rewards=rewards)
        kept: list[bool] = rlpr.select(given, store).tolist()
        rlpr.after_step(number, given, store)
        return kept

    for number in range(1, 6):
        assert step(number, (9.0, 0.0)) == [True] * 4
    for number, size in enumerate((0.1, 0.2, 0.3, 0.4, 0.5), 6):
        assert step(number, (size, size)) == [True] * 4
    assert store == {"usual": pytest.approx(0.3)}
    assert step(11, (0.16, 0.14)) == [True, True, False, False]  # half of .3 is .15
    assert store == {"usual": pytest.approx(0.9 * 0.3 + 0.1 * 0.15)}


def test_the_threshold_of_groups_is_told() -> None:
    given = batch(["7", "7"], Letters([], []))
    metrics = make_algorithm("rlpr").measure(given, torch.tensor([0.9, 0.4]), {"usual": 0.4})
    assert metrics == {"rlpr/threshold": 0.2}


@pytest.mark.parametrize("debias", [True, False])
def test_a_problem_without_a_reference_answer_is_refused(debias: bool) -> None:
    problems = [Problem(f"toy/{i}", {"question": "?"}, " " * i, "math") for i in range(2)]
    with pytest.raises(UserError, match="toy/0: found no reference answer, as in 2 of 2"):
        make_algorithm("rlpr", debias=debias).begin(problems, lambda: pytest.fail(), {})


@pytest.mark.parametrize(
    ("given", "said"),
    [({"probability": "median"}, "allowed: mean or"), ({"opening": ""}, "begins an answer")],
)
def test_a_mistake_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_algorithm("rlpr", **given)
