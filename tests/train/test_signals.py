"""What algorithms share, and what they make of batches at the edge of sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import (
    Algorithm,
    Batch,
    Signals,
    group_mean,
    group_size,
    group_std,
    log_ratios,
    reward_to_go,
    spread,
    whiten,
)
from rlbhpc.train.rewards import make_reward
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status
from tests.train.test_rewards import judged

pytestmark = pytest.mark.engine


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_groups_are_summed_up_wherever_their_members_stand() -> None:
    x, groups = double(1, 10, 3, 20, 7, 5), torch.tensor([4, 1, 4, 1, 9, 4])
    assert group_mean(x, groups).tolist() == [3, 15, 3, 15, 7, 3]
    assert group_size(groups).tolist() == [3, 2, 3, 2, 1, 3]
    thirds, halves = (8 / 3) ** 0.5, 5.0
    assert group_std(x, groups, 0).tolist() == pytest.approx(
        [thirds, halves, thirds, halves, 0, thirds]
    )
    assert group_std(x, groups, 1).tolist() == pytest.approx([2, 50**0.5, 2, 50**0.5, 0, 2])


def test_an_outcome_stands_on_the_last_token_and_a_penalty_on_each() -> None:
    kl = torch.tensor([[0.5, 9.0, 9.0], [1.0, -2.0, 3.0]], dtype=torch.float64)
    given = Signals(double(2, -1), torch.tensor([0, 1]), torch.tensor([1, 3]), kl=kl)
    assert given.mask.tolist() == [[True, False, False], [True, True, True]]
    assert Algorithm().token_rewards(given).tolist() == [[2, 0, 0], [0, 0, -1]]
    assert Algorithm(kl_beta=0.5).token_rewards(given).tolist() == [[1.75, 0, 0], [-0.5, 1, -2.5]]
    assert spread(double(3, 4), given).tolist() == [[3, 0, 0], [4, 4, 4]]


def test_rewards_to_go_are_sums_of_what_comes() -> None:
    rewards = double(1, 2, 4)[None]
    assert reward_to_go(rewards).tolist() == [[7, 6, 4]]
    assert reward_to_go(rewards, 0.5).tolist() == [[3, 4, 4]]


@pytest.mark.parametrize(
    ("values", "ddof", "eps", "floor", "expected"),
    [
        ((1, 3), 0, 0.0, False, (-1, 1)),
        ((1, 3), 1, 0.0, False, (-(0.5**0.5), 0.5**0.5)),
        ((1, 3), 0, 3.0, False, (-0.5, 0.5)),
        ((1, 3), 0, 4.0, True, (-0.5, 0.5)),
        ((1, 3), 0, 0.5, True, (-1, 1)),
        ((5, 5), 0, 0.0, False, (0, 0)),
        ((5,), 1, 0.0, False, (0,)),
        ((), 0, 0.0, False, ()),
    ],
)
def test_whitening(
    values: tuple[float, ...], ddof: int, eps: float, floor: bool, expected: tuple[float, ...]
) -> None:
    x = double(*values, 99)
    mask = torch.arange(len(x)) < len(values)
    options = {"floor": True} if floor else {}
    assert whiten(x, mask, ddof, eps, **options).tolist() == pytest.approx([*expected, 0])


EDGES = {
    "all equal": (double(1, 1, 1, 1), torch.zeros(4)),
    "alone": (double(1, 0), torch.arange(2)),
    "one response": (double(1), torch.zeros(1)),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", {"eps": 0, "scale": "group"}),
        ("grpo", {"eps": 0, "scale": "batch"}),
        ("grpo", {"eps": 0, "ddof": 0, "scale": "batch"}),
        ("dr_grpo", {}),
        ("rloo", {}),
        ("rloo", {"kl_placement": "after"}),
        ("maxrl", {}),
        ("pass-at-k", {}),
    ],
)
def test_a_group_without_a_signal_has_no_advantage(
    name: str, options: Mapping[str, Any], edge: str
) -> None:
    rewards, groups = EDGES[edge]
    given = Signals(rewards, groups, torch.ones(len(rewards), dtype=torch.int64))
    assert not make_algorithm(name, **options).advantages(given).any()


def test_rewards_below_zero_have_no_share_of_a_mean() -> None:
    given = Signals(double(-1, 0.5, -2, 1), torch.tensor([0, 0, 1, 1]), torch.ones(4).long())
    assert not make_algorithm("maxrl").advantages(given).any()


def test_a_penalty_is_inside_reinforce_pp_and_its_baseline() -> None:
    """Two responses of two tokens, discounted by a half, before the whitening."""
    kl = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
    given = Signals(double(4, 2), torch.tensor([0, 0]), torch.tensor([2, 2]), kl=kl)
    for name, to_go in (
        ("reinforce++", [[1.5, 3.0], [-1.0, 2.0]]),
        ("reinforce++_baseline", [[0.0, 0.0], [-2.5, -1.0]]),
    ):
        x = torch.tensor(to_go, dtype=torch.float64)
        expected = (x - x.mean()) / (x.var(correction=1) + 1e-8).sqrt()
        out = make_algorithm(name, gamma=0.5, kl_beta=1.0).advantages(given)
        torch.testing.assert_close(out, expected)
    plain = make_algorithm("reinforce++_baseline", gamma=0.5).advantages(given)
    assert plain[:, 0].tolist() == plain[:, 1].tolist(), "without a penalty nothing is discounted"


def test_the_mean_of_a_response_is_over_its_own_tokens() -> None:
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    logp = torch.tensor([[2.0, 7, 7], [1, 2, 6]])
    assert log_ratios(logp, torch.zeros(2, 3), mask, "geometric").tolist() == [[2, 0, 0], [3, 3, 3]]


@pytest.mark.parametrize("name", ["clip-cov", "kl-cov"])
def test_of_few_tokens_one_is_marked(name: str) -> None:
    options = {"cov_low": -99.0, "cov_high": 99.0} if name == "clip-cov" else {}
    algorithm = make_algorithm(name, share=0.0, **options)
    logp, advantages = torch.tensor([[-1.0, -2.0, 5.0]]), torch.tensor([[1.0, 2.0, 5.0]])
    marked = algorithm.marks(logp, advantages, torch.tensor([[True, True, False]]), 3)
    assert marked is not None and marked.sum() == 1 and not marked[0, 2]
    alone = make_algorithm(name, share=1.0, **({**options, "cov_low": 0.0} if options else {}))
    one = alone.marks(logp, advantages, torch.tensor([[False, True, False]]), 3)
    # Of one token nothing varies: its covariance is 0, which is not above 0.
    assert one is not None and one.tolist() == [[False, name == "kl-cov", False]]


@dataclass(frozen=True)
class Bare(Algorithm):
    """An algorithm of a study that says nothing of itself."""


def test_what_an_algorithm_does_not_say_is_the_plainest() -> None:
    bare, ones = Bare(), torch.ones(2, dtype=torch.int64)
    given = Batch(double(1, 0), ones, ones, correct=ones > 0, answers=["", ""], max_tokens=4)
    store: dict[str, Any] = {}
    bare.begin([], lambda: given, store)
    bare.after_step(1, given, store)
    assert not (bare.NEEDS_CRITIC or bare.NEEDS_GREEDY or bare.MAKES_TASKS)
    assert store == {} and bare.measure(given, given.rewards, store) == {}
    assert bare.reward(given, store) is given.rewards
    assert bare.select(given, store).tolist() == [True, True]
    assert bare.refills == 0 and bare.reference_model == ""
    assert bare.rounds(1, 0, 2, store) is None and bare.returns(given) is None
    assert bare.marks(given.rewards, given.rewards, ones > 0, 1) is None
    assert not bare.holds_policy(1) and not bare.renews_reference(1)
    settings = Settings(steps=1, prompts_per_step=3, samples_per_prompt=5)
    assert bare.responses_per_step(settings) == 15
    assert make_algorithm("remax").responses_per_step(settings) == 18
    assert make_algorithm("dapo", max_refills=3).refills == 3
    with pytest.raises(TypeError, match="Bare defines no advantages"):
        bare.advantages(given)
    with pytest.raises(TypeError, match="Bare has no critic"):
        bare.critic_loss(given.rewards, given.rewards, given.rewards)


def test_a_preset_of_one_that_has_none_says_so() -> None:
    with pytest.raises(UserError) as refused:
        make_algorithm("maxrl", "verl")
    assert str(refused.value) == "preset of maxrl: found 'verl'; allowed: none"
    assert make_algorithm("grpo", "trl", eps=0.5).eps == 0.5  # type: ignore[attr-defined]


def test_tosses_belong_to_a_seed_for_ever() -> None:
    """A run that goes on gives the rewards that it would have given."""
    coins = make_reward({"random": 1.0})
    assert [coins(judged(Status.WRONG, seed)) for seed in range(12)] == [
        0,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        1,
        1,
    ]
    assert judged(Status.WRONG, 7).draw("verifier noise") == 0.19359250901917757


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "rewards: found a list; allowed: a mapping from rewards to weights"),
        (
            {"noisy": {"false_positive": True}},
            "reward noisy: false_positive: found true; allowed: 0 to 1",
        ),
        (
            {"noisy": {"false_positive": -0.1}},
            "reward noisy: false_positive: found -0.1; allowed: 0 to 1",
        ),
        ({"correct": True}, "reward correct: found the weight true; allowed: a number"),
    ],
)
def test_a_reward_that_is_none_is_refused(options: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        make_reward(options)
    assert str(refused.value) == said


def test_rates_of_0_and_1_are_rates() -> None:
    always = make_reward({"noisy": {"weight": 2, "false_positive": 1, "false_negative": 0}})
    assert [always(judged(s)) for s in (Status.WRONG, Status.RIGHT)] == [2, 2]


def test_what_a_reward_stumbles_over_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reward(judged):\n    return 1 / 0\n")
    with pytest.raises(UserError) as refused:
        make_reward({str(tmp_path / "mine.py"): 1.0})(judged(Status.RIGHT))
    assert str(refused.value).endswith(
        "on a response to toy/1: ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(("tokens", "share"), [(0, 1.0), (4, 0.6), (10, 0.0)])
def test_what_is_left_of_the_limit_is_brevity(tokens: int, share: float) -> None:
    assert make_reward({"brevity": 1.0})(
        replace(judged(Status.RIGHT), n_tokens=tokens)
    ) == pytest.approx(share)
