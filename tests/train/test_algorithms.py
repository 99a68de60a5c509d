"""Advantages against worked examples, framework by framework, and their invariants.

The numbers were computed independently with NumPy from each framework's published formula; the
name of the framework stands beside its row.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.train.algorithms import ALGORITHMS, make_algorithm
from rlbhpc.train.algorithms.algorithm import Batch, Signals, whiten
from rlbhpc.train.algorithms.grpo import DAPO, GRPO
from rlbhpc.train.algorithms.ppo import PPO

pytestmark = pytest.mark.engine


def test_a_recipe_is_checked_without_deepspeed() -> None:
    """It logs to the standard output, which may be JSON."""
    program = (
        "import sys; from rlbhpc.train.algorithms import ALGORITHMS, algorithm_class\n"
        "for name in ALGORITHMS: algorithm_class(name)\n"
        "sys.exit('deepspeed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


REWARDS = torch.tensor([1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1], dtype=torch.float64)
GROUPS = torch.arange(3).repeat_interleave(4)


def signals(lengths: list[int] | None = None, **more: torch.Tensor) -> Signals:
    return Signals(REWARDS, GROUPS, torch.tensor(lengths or [1] * 12), **more)


def per_response(name: str, preset: str | None = None, **more: object) -> list[float]:
    out = make_algorithm(name, preset, **more).advantages(signals())
    return out[:, 0].tolist()


@pytest.mark.parametrize(
    ("name", "preset", "first", "third"),
    [
        ("grpo", "verl", 0.866024, (-0.499999, 1.499997)),
        ("grpo", "trl", 0.865875, (-0.4999, 1.4997)),
        ("grpo", "oat", 0.866025, (-0.5, 1.5)),
        ("grpo", "openrlhf", 0.866025, (-0.5, 1.5)),
        ("grpo", "open-instruct", 1.0, (-0.57735, 1.732051)),
        ("grpo", "nano", 0.9998, (-0.577217, 1.731651)),
        ("dr_grpo", None, 0.5, (-0.25, 0.75)),
        ("rloo", None, 0.666667, (-0.333333, 1.0)),
        ("maxrl", None, 1.0, (-1.0, 3.0)),
        ("dapo", None, 0.866024, (-0.499999, 1.499997)),
    ],
)
def test_group_algorithms_match_their_frameworks(
    name: str, preset: str | None, first: float, third: tuple[float, float]
) -> None:
    expected = [first, -first, -first, first, 0, 0, 0, 0, *[third[0]] * 3, third[1]]
    # Printed digits: the examples are rounded to six decimals, some to five.
    assert per_response(name, preset) == pytest.approx(
        expected, abs=1.1e-5 if first == 1.0 else 6e-7
    )


def test_grpo_scaled_by_the_batch_as_trl_does() -> None:
    values = per_response("grpo", "trl", scale="batch")
    row = [0.97082, -0.97082, -0.97082, 0.97082, 0, 0, 0, 0, -0.48541, -0.48541, -0.48541, 1.45623]
    assert values == pytest.approx(row, abs=6e-6)


@pytest.mark.parametrize("ddof", [0, 1])
def test_one_response_has_no_advantage_whatever_it_is_scaled_by(ddof: int) -> None:
    alone = Signals(torch.ones(1).double(), torch.zeros(1), torch.tensor([2]))
    for scale in ("group", "batch", "none"):
        assert not make_algorithm("grpo", scale=scale, ddof=ddof).advantages(alone).any()


@pytest.mark.parametrize(
    "name",
    [name for name in ALGORITHMS if not make_algorithm(name).PENALISES_REWARD],
)
def test_a_penalty_that_would_do_nothing_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"kl_beta: found 0.1; .* use the recipe's `kl`"):
        make_algorithm(name, kl_beta=0.1)


def test_advantages_of_ones_own_may_take_a_penalty() -> None:
    """What a class inherits says nothing of the advantages that it writes itself."""

    class Mine(GRPO):
        def advantages(self, signals: Signals) -> torch.Tensor:
            return self.token_rewards(signals)

    assert Mine(kl_beta=0.1).kl_beta == 0.1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_penalty_that_is_allowed_does_something(name: str) -> None:
    if not make_algorithm(name).PENALISES_REWARD:
        return
    kl = torch.linspace(-1, 1, 12)[:, None]
    more = {
        "kl": kl, "greedy": REWARDS, "values": torch.zeros(12, 1), "parts": torch.zeros(12),
    }  # fmt: skip
    light, heavy = (
        make_algorithm(name, kl_beta=beta).advantages(signals(**more)) for beta in (0.1, 0.9)
    )
    assert not torch.equal(light, heavy)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("pass-at-k", "k", 0), ("kl-cov", "share", 1.5), ("clip-cov", "share", -0.1),
        ("kl-cov", "cov_kl", -1.0), ("gspo", "clip_low", -0.5), ("cispo", "clip_high", -3.0),
        ("prorl", "renew_every", 0), ("prorl", "overlong_buffer", -1), ("rlpr", "ema", 7.0),
        ("rlpr", "format_weight", 5.0), ("rlpr", "max_refills", -1), ("rlpr", "filter_from", 0),
        ("absolute-zero", "references", -1), ("absolute-zero", "tries", 0),
        ("absolute-zero", "buffer", 0), ("unlikeliness", "rank_beta", 2.0),
        ("negative", "positive", -0.1), ("on-policy-distillation", "kl_beta", 0.0),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_refused(name: str, option: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"^{option}: found {value}; allowed: "):
        make_algorithm(name, **{option: value})


def test_remax_subtracts_the_greedy_reward() -> None:
    greedy = torch.tensor([1.0] * 4 + [1.0] * 4 + [0.0] * 4, dtype=torch.float64)
    out = make_algorithm("remax").advantages(signals(greedy=greedy))[:, 0]
    assert out.tolist() == [0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


LENGTHS = [2, 3, 1, 4, 2, 2, 2, 2, 1, 4, 3, 2]


@pytest.mark.parametrize(
    ("preset", "right", "wrong"),
    [("verl", 0.850420, -1.133893), ("openrlhf", 0.866025, -1.154701)],
)
def test_reinforce_pp_whitens_over_tokens(preset: str, right: float, wrong: float) -> None:
    out = make_algorithm("reinforce++", preset).advantages(signals(LENGTHS))
    for row, reward, length in zip(out, REWARDS, LENGTHS, strict=True):
        expected = [right if reward else wrong] * length
        assert row[:length].tolist() == pytest.approx(expected, abs=6e-7)
        assert not row[length:].any()


@pytest.mark.parametrize(
    ("preset", "row1", "row2", "row3"),
    [
        ("verl", (1.234856, -1.326326), -0.045735, (1.875151, -0.686031)),
        ("openrlhf", (1.257515, -1.350665), -0.046575, (1.909560, -0.698620)),
    ],
)
def test_reinforce_pp_baseline(
    preset: str, row1: tuple[float, float], row2: float, row3: tuple[float, float]
) -> None:
    out = make_algorithm("reinforce++_baseline", preset).advantages(signals(LENGTHS))[:, 0]
    expected = [row1[0], row1[1], row1[1], row1[0], *[row2] * 4, *[row3[1]] * 3, row3[0]]
    assert out.tolist() == pytest.approx(expected, abs=6e-7)


def one_answer(reward: float, k1: list[float], **more: torch.Tensor) -> Signals:
    return Signals(
        torch.tensor([reward], dtype=torch.float64),
        torch.tensor([0]),
        torch.tensor([len(k1)]),
        kl=torch.tensor([k1], dtype=torch.float64),
        **more,
    )


@pytest.mark.parametrize(
    ("gamma", "returns"), [(1.0, [0.975, 0.985, 0.98]), (0.9, [0.7883, 0.887, 0.98])]
)
def test_penalty_in_the_reward_is_discounted_to_go(gamma: float, returns: list[float]) -> None:
    answer, penalising = one_answer(1.0, [0.1, -0.05, 0.2]), make_algorithm("rloo", kl_beta=0.1)
    rewards = penalising.token_rewards(answer)
    assert rewards[0].tolist() == pytest.approx([-0.01, 0.005, 0.98])
    assert penalising.rewards_to_go(answer, gamma)[0].tolist() == pytest.approx(returns)


def test_rloo_takes_the_summed_penalty_off_before_the_baseline_as_trl_does() -> None:
    kl = torch.tensor([[0.2], [0.4], [-0.1], [0.3]], dtype=torch.float64)
    rewards = torch.tensor([1, 0, 0, 1], dtype=torch.float64)
    batch = Signals(
        rewards, torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long), kl=kl
    )
    out = make_algorithm("rloo", "trl").advantages(batch)[:, 0]
    assert out.tolist() == pytest.approx([0.666667, -0.68, -0.646667, 0.66], abs=6e-7)


def test_rloo_with_the_penalty_after_the_baseline_is_token_by_token() -> None:
    kl = torch.tensor([[0.1, 0.3], [0.2, 0.0]], dtype=torch.float64)
    rewards = torch.tensor([1, 0], dtype=torch.float64)
    batch = Signals(rewards, torch.zeros(2, dtype=torch.long), torch.tensor([2, 1]), kl=kl)
    out = make_algorithm("rloo", "openrlhf", kl_beta=0.1).advantages(batch)
    assert out.tolist() == [pytest.approx([1 - 0.04, 1 - 0.03]), pytest.approx([-1 - 0.02, 0])]


def test_remax_accumulates_the_penalty_as_verl_does() -> None:
    batch = one_answer(1.0, [0.2, -0.1, 0.4], greedy=torch.ones(1, dtype=torch.float64))
    out = make_algorithm("remax", kl_beta=0.05).advantages(batch)[0]
    assert out.tolist() == pytest.approx([-0.025, -0.015, -0.02])


def gae(values: list[float], **more: object) -> tuple[list[float], list[float]]:
    batch = Signals(
        torch.tensor([1.0], dtype=torch.float64),
        torch.tensor([0]),
        torch.tensor([4]),
        values=torch.tensor([values], dtype=torch.float64),
    )
    algorithm = make_algorithm("ppo", **more)
    assert isinstance(algorithm, PPO)
    return algorithm.advantages(batch)[0].tolist(), algorithm.returns(batch)[0].tolist()


@pytest.mark.parametrize(
    ("more", "advantages", "returns"),
    [
        ({"lam": 1.0}, [0.5, 0.4, 0.6, 0.2], [1, 1, 1, 1]),
        ({"lam": 0.95}, [0.442475, 0.3605, 0.59, 0.2], [0.942475, 0.9605, 0.99, 1]),
        ({"lam": 0.95, "gamma": 0.99}, [0.41526, 0.341584, 0.5801, 0.2], None),
    ],
)
def test_gae(more: dict[str, float], advantages: list[float], returns: list[float] | None) -> None:
    got, targets = gae([0.5, 0.6, 0.4, 0.8], whiten_advantages=False, **more)
    assert got == pytest.approx(advantages, abs=6e-7)
    if returns:
        assert targets == pytest.approx(returns, abs=6e-7)


@pytest.mark.parametrize(
    ("ddof", "expected"),
    [
        (1, [0.271792, -0.231928, 1.178305, -1.218169]),
        (0, [0.313839, -0.267807, 1.360589, -1.406621]),
    ],
)
def test_gae_whitened(ddof: int, expected: list[float]) -> None:
    got, _ = gae([0.5, 0.6, 0.4, 0.8], lam=0.95, ddof=ddof)
    assert got == pytest.approx(expected, abs=1e-6)


def test_gae_ignores_values_where_there_is_no_token() -> None:
    values = torch.tensor([[0.5, 0.6, 99.0], [0.1, 0.2, 0.3]], dtype=torch.float64)
    rewards, groups = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([0, 1])
    batch = Signals(rewards, groups, torch.tensor([2, 3]), values=values)
    changed = Signals(rewards, groups, torch.tensor([2, 3]), values=values.where(values < 9, 0.0))
    ppo = PPO()
    assert torch.equal(ppo.advantages(batch), ppo.advantages(changed))
    assert torch.equal(ppo.returns(batch), ppo.returns(changed))


def test_trr_whitening_of_roles_apart_is_whiten_called_on_each() -> None:
    # Absolute Zero whitens each (task, role) by itself: room for it without a new mechanism.
    for row, expected in [
        ([1, 0, 1, 1], [0.5, -1.5, 0.5, 0.5]),
        ([0, 0, 0, 1], [-0.5, -0.5, -0.5, 1.5]),
    ]:
        x = torch.tensor(row, dtype=torch.float64)
        out = whiten(x, torch.ones(4, dtype=torch.bool), ddof=1, eps=1e-8)
        assert out.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("size", "lengths", "expected"),
    [
        ((100, 20, 1.0), [80, 90, 100], [0, -0.5, -1]),
        ((20480, 4096, 1.0), [16384, 18432, 20480], [0, -0.5, -1]),
        ((100, 0, 1.0), [80, 100], [0, 0]),
        ((100, 1, 0.5), [99, 100], [0, -0.5]),
    ],
)
def test_overlong_shaping(
    size: tuple[int, int, float], lengths: list[int], expected: list[float]
) -> None:
    limit, buffer, factor = size
    dapo = DAPO(overlong_buffer=buffer, overlong_factor=factor)
    none, sizes = torch.zeros(len(lengths), dtype=torch.float64), torch.tensor(lengths)
    batch = Batch(none, none, sizes, correct=none > 0, answers=[], max_tokens=limit)
    assert dapo.reward(batch, {}).tolist() == expected


def test_dapo_keeps_mixed_groups_only() -> None:
    batch = Batch(
        REWARDS, GROUPS, torch.ones(12), correct=REWARDS == 1, answers=[""] * 12, max_tokens=8
    )
    assert DAPO().select(batch, {}).tolist() == [True] * 4 + [False] * 4 + [True] * 4


def votes(answers: list[str], size: int, gold: str = "") -> Batch:
    count = len(answers)
    correct = torch.tensor([answer == gold != "" for answer in answers])
    groups, zeros = torch.arange(count) // size, torch.zeros(count, dtype=torch.float64)
    return Batch(zeros, groups, torch.ones(count), correct=correct, answers=answers, max_tokens=8)


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        ("44564544", [1, 1, 0, 0, 1, 0, 1, 1]),
        ("4444", [1, 1, 1, 1]),
        ("65 5", [0, 1, 0, 1]),
        ("6556", [1, 0, 0, 1]),  # of two with as many votes the first
        (" 7  ", [0, 1, 0, 0]),  # no answer is no vote, and no right one
        ("7", [1]),
    ],
)
def test_the_majority_is_the_reward(answers: str, rewards: list[float]) -> None:
    """The first row is the worked example of the reference."""
    batch = votes([answer.strip() for answer in answers], len(answers))
    assert make_algorithm("ttrl").reward(batch, {}).tolist() == rewards


def test_a_vote_is_within_a_group_and_nobodys_without_answers() -> None:
    batch = votes(["1", "1", "2", "", "", "", "2", "2", "1"], 3)
    out = make_algorithm("ttrl").reward(batch, {}).tolist()
    assert out[:3] == [1, 1, 0] and out[6:] == [1, 1, 0]
    assert all(value != value for value in out[3:6])


def test_a_vote_that_could_not_be_judged_has_no_reward() -> None:
    batch = votes(["1", "1", "2", ""], 4)
    batch.rewards[3] = float("nan")
    out = make_algorithm("ttrl").reward(batch, {})
    assert out[:3].tolist() == [1, 1, 0] and bool(out[3].isnan())


def test_all_vote_and_the_first_are_learnt_from() -> None:
    ttrl = make_algorithm("ttrl", learn_from=2)
    batch = votes(list("11222122"), 4)
    assert ttrl.select(batch, {}).tolist() == [True, True, False, False] * 2
    assert ttrl.reward(batch, {}).tolist() == [1, 1, 0, 0, 1, 0, 1, 1]


def test_votes_are_measured_by_the_gold_answers() -> None:
    batch = votes(list("4456") + list("1122"), 4, gold="4")
    ttrl = make_algorithm("ttrl")
    assert ttrl.measure(batch, ttrl.reward(batch, {}), {}) == {
        "ttrl/label_accuracy": 0.5,
        "ttrl/reward_accuracy": 0.75,
        "ttrl/majority_ratio": 0.5,
    }


GROUP_ONLY = ["grpo", "dr_grpo", "rloo", "dapo", "maxrl", "reinforce++_baseline", "reinforce++"]


@pytest.mark.parametrize("name", GROUP_ONLY)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
def test_a_batch_without_a_signal_is_exactly_zero(name: str, reward: float) -> None:
    batch = Signals(torch.full((12,), reward), GROUPS, torch.tensor(LENGTHS))
    assert not make_algorithm(name).advantages(batch).any()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "dapo", "maxrl"])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.7])
def test_a_group_of_one_is_zero(name: str, reward: float) -> None:
    batch = Signals(torch.tensor([reward]), torch.tensor([7]), torch.tensor([3]))
    assert make_algorithm(name).advantages(batch).tolist() == [[0, 0, 0]]


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8),
    order=st.permutations(range(8)),
)
@settings(max_examples=50)
@pytest.mark.parametrize("name", GROUP_ONLY)
def test_order_of_responses_does_not_matter(
    name: str, rewards: list[float], order: list[int]
) -> None:
    groups = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    lengths = torch.tensor([3, 1, 2, 4, 4, 1, 2, 5])
    r = torch.tensor(rewards, dtype=torch.float64)
    algorithm = make_algorithm(name)
    straight = algorithm.advantages(Signals(r, groups, lengths))
    shuffled = algorithm.advantages(Signals(r[order], groups[order], lengths[order]))
    assert torch.allclose(straight[order], shuffled, atol=1e-9)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_centred_advantages_sum_to_zero_in_each_group(name: str) -> None:
    out = make_algorithm(name).advantages(signals())[:, 0]
    assert out.reshape(3, 4).sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_registry_builds_every_algorithm_and_preset(name: str) -> None:
    algorithm = make_algorithm(name)
    for preset in algorithm.PRESETS:
        make_algorithm(name, preset)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gpro",), "grpo"),
        (("grpo", "verll"), "verl"),
    ],
)
def test_unknown_names_are_told_what_is_allowed(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_algorithm(*arguments)
    with pytest.raises(UserError, match="clip_low"):
        make_algorithm("grpo", clip_lo=0.1)
