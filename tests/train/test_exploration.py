"""Exploration and later literature: each formula against plain loops over its published form."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.load import load_study
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.algorithms.algorithm import (
    Algorithm,
    Batch,
    Cells,
    Signals,
    log_ratios,
    row_weights,
)
from rlbhpc.train.prepare import prepare
from rlbhpc.train.rollout import Run

pytestmark = pytest.mark.engine

LENGTHS = [5, 1, 3, 4]
DRAW = np.random.default_rng(3)
OLD = -DRAW.exponential(1.0, (4, 5))
NEW = OLD + DRAW.normal(0, 0.4, (4, 5))
ADVANTAGES = np.repeat(np.array([1.5, -0.5, 0.25, -2.0])[:, None], 5, 1)
MASK = np.arange(5) < np.array(LENGTHS)[:, None]


def loss(algorithm: Algorithm, marked: Tensor | None = None) -> tuple[float, NDArray[np.float64]]:
    """Loss and its gradient by the log-probs, as the learner sums them."""
    new, old, mask = torch.tensor(NEW, requires_grad=True), torch.tensor(OLD), torch.tensor(MASK)
    weights = row_weights(torch.tensor(LENGTHS), algorithm.aggregation, sum(LENGTHS), 4, 5)
    cells = Cells(
        new * mask,
        log_ratios(new, old, mask.double(), algorithm.ratio),
        torch.tensor(ADVANTAGES),
        mask.double(),
        torch.zeros_like(mask) if marked is None else marked,
    )
    total = (algorithm.loss(cells) * weights[:, None].double()).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    return float(total.detach()), new.grad.numpy()


def over_tokens(value: NDArray[np.float64]) -> float:
    return float(value[MASK].sum() / MASK.sum())


def test_cispo_weighs_log_likelihood_by_the_clipped_ratio() -> None:
    """verl's `cispo` with its bounds of .2."""
    ratio = np.clip(np.exp(NEW - OLD), 0.8, 1.2)
    value, gradient = loss(make_algorithm("cispo", clip_low=0.2, clip_high=0.2))
    assert value == pytest.approx(over_tokens(-ratio * ADVANTAGES * NEW), abs=1e-6)
    assert gradient == pytest.approx(-ratio * ADVANTAGES * MASK / MASK.sum(), abs=1e-6)
    assert (np.exp(NEW - OLD)[MASK] > 1.2).any(), "nothing was clipped"


def test_gspo_has_one_ratio_a_response() -> None:
    """verl's `gspo`: sequence mean of token means, the gradient through each token's own."""
    value, gradient = loss(make_algorithm("gspo", clip_low=0.1, clip_high=0.1))
    expected, slopes = 0.0, np.zeros_like(NEW)
    for i, length in enumerate(LENGTHS):
        ratio = math.exp(float((NEW - OLD)[i, :length].mean()))
        a = float(ADVANTAGES[i, 0])
        plain, clipped = -a * ratio, -a * min(max(ratio, 0.9), 1.1)
        expected += max(plain, clipped) / 4
        if plain >= clipped:
            slopes[i, :length] = plain / length / 4
    assert value == pytest.approx(expected, abs=1e-6)
    assert gradient == pytest.approx(slopes, abs=1e-6)


def covariance() -> NDArray[np.float64]:
    a, logp = ADVANTAGES, OLD
    return (a - a[MASK].mean()) * (logp - logp[MASK].mean())


def marks(algorithm: Algorithm) -> Tensor:
    old, advantages, mask = torch.tensor(OLD), torch.tensor(ADVANTAGES), torch.tensor(MASK)
    chosen = algorithm.marks(old, advantages, mask, 7)
    assert chosen is not None
    return chosen


def test_kl_cov_charges_the_tokens_of_highest_covariance() -> None:
    """verl's `kl_cov`, its covariance taken under the policy that sampled."""
    algorithm = make_algorithm("kl-cov", share=0.2, cov_kl=0.5)
    floor = np.sort(covariance()[MASK])[-2]  # a fifth of 13 tokens, rounded down
    expected = MASK & (covariance() >= floor)
    assert marks(algorithm).numpy().tolist() == expected.tolist()
    value, _ = loss(algorithm, marks(algorithm))
    delta = NEW - OLD
    plain = -ADVANTAGES * np.exp(delta) + 0.5 * np.abs(delta) * expected
    assert value == pytest.approx(over_tokens(plain), abs=1e-6)


def test_clip_cov_drops_tokens_between_its_bounds() -> None:
    algorithm = make_algorithm("clip-cov", share=0.2, cov_low=0.2, cov_high=2.0)
    chosen = marks(algorithm).numpy()
    between = MASK & (covariance() > 0.2) & (covariance() < 2.0)
    assert chosen.sum() == min(2, between.sum()) > 0 and not (chosen & ~between).any()
    assert (marks(algorithm).numpy() == chosen).all(), "another draw in the same step"
    value, gradient = loss(algorithm, torch.tensor(chosen))
    ratio = np.exp(NEW - OLD)
    plain = np.maximum(-ADVANTAGES * ratio, -ADVANTAGES * np.clip(ratio, 0.8, 1.2))
    assert value == pytest.approx(over_tokens(np.where(chosen, 0, plain)), abs=1e-6)
    assert not gradient[chosen].any()


@pytest.mark.parametrize("name", ["kl-cov", "clip-cov"])
def test_nothing_is_marked_where_no_token_counts(name: str) -> None:
    none = torch.zeros(2, 3, dtype=torch.bool)
    chosen = make_algorithm(name).marks(torch.zeros(2, 3), torch.ones(2, 3), none, 1)
    assert chosen is not None and not chosen.any()


def signals(rewards: list[float], size: int) -> Signals:
    count = len(rewards)
    groups = torch.arange(count) // size
    return Signals(torch.tensor(rewards).double(), groups, torch.ones(count, dtype=torch.int64))


@pytest.mark.parametrize(("n", "right", "k"), [(6, 2, 1), (6, 2, 3), (8, 1, 4), (5, 3, 2)])
def test_pass_at_k_is_the_mean_advantage_over_all_draws(n: int, right: int, k: int) -> None:
    """Enumerate every group of k: its reward is 1 if any of it is right, standardised over all."""
    rewards = [1.0] * right + [0.0] * (n - right)
    draws = list(combinations(range(n), k))
    solved = np.array([max(rewards[i] for i in draw) for draw in draws])
    standard = (solved - solved.mean()) / solved.std()
    expected = [standard[[i in draw for draw in draws]].mean() for i in range(n)]
    out = make_algorithm("pass-at-k", k=k).advantages(signals(rewards, n))[:, 0]
    assert out.tolist() == pytest.approx(expected, abs=1e-6)


def test_pass_at_1_is_grpo_with_the_population_deviation() -> None:
    batch = signals([1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1], 4)
    grpo = make_algorithm("grpo", ddof=0, eps=1e-12).advantages(batch)
    assert make_algorithm("pass-at-k", k=1).advantages(batch).numpy() == pytest.approx(
        grpo.numpy(), abs=1e-9
    )


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4, [0.0], [1.0], [1.0, 1.0, 1.0, 0.0]])
def test_a_group_that_k_responses_always_or_never_solve_is_zero(rewards: list[float]) -> None:
    out = make_algorithm("pass-at-k", k=4).advantages(signals(rewards, len(rewards)))
    assert not out.any()


def test_negative_samples_are_unlearnt_and_positive_ones_hardly_learnt() -> None:
    out = make_algorithm("negative").advantages(signals([1, 0, 0, 0, 0, 0], 3))[:, 0]
    assert out.tolist() == pytest.approx([0.1, -1, -1, -1, -1, -1])


def batch(rewards: list[float], size: int, sampler: list[float]) -> Batch:
    count = len(rewards)
    values = torch.tensor(rewards).double()
    return Batch(
        values, torch.arange(count) // size, torch.ones(count),
        correct=values > 0, answers=[""] * count, max_tokens=8,
        sampler_logprobs=torch.tensor(sampler)[:, None],
    )  # fmt: skip


def test_the_least_likely_right_response_gets_most() -> None:
    given = batch([1, 1, 0, 1, 0, 0, 0, 0], 4, [-1, -3, -2, -1, -1, -1, -1, -1])
    out = make_algorithm("unlikeliness", rank_beta=0.4).reward(given, {}).tolist()
    # Ranks of the first group: 0, 3, 2, 1, of equals the first.
    assert out == pytest.approx([1 - 0.4, 1 - 0.1, 0, 1 - 0.3, 0, 0, 0, 0])
    assert given.rewards.tolist() == [1, 1, 0, 1, 0, 0, 0, 0], "what was given stays"


def test_unlikeliness_of_what_has_no_reward_has_none() -> None:
    given = batch([math.nan, 1], 2, [-1, -2])
    out = make_algorithm("unlikeliness", rank_beta=0.4).reward(given, {}).tolist()
    assert math.isnan(out[0]) and out[1] == pytest.approx(1 - 0.4), "ranked among what is scored"


def test_the_gate_teaches_a_problem_up_to_its_first_success() -> None:
    gate = make_algorithm("success-gate")
    first = replace(batch([1, 0, 0, 0, math.nan, 1], 2, [0] * 6), problems=[*"aabbcc"])
    store: dict[str, Any] = {}
    rewards = gate.reward(first, store)
    assert rewards.nan_to_num(-1).tolist() == [1, 0, 0, 0, -1, 1], "nothing was solved before"
    gate.after_step(1, first, store)
    again = replace(batch([1, 0, 1, 0, math.nan, 1], 2, [0] * 6), problems=[*"aabbcc"])
    rewards = gate.reward(again, json.loads(json.dumps(store)))
    assert rewards.nan_to_num(-1).tolist() == [0, 0, 1, 0, -1, 0], "b alone is still unsolved"
    gate.after_step(2, again, store)
    assert gate.reward(again, store).nan_to_num(0).tolist() == [0] * 6


@pytest.mark.parametrize("name", ["dapo", "prorl"])
def test_what_could_not_be_scored_does_not_count_as_wrong(name: str) -> None:
    given = batch([1, 1, math.nan, 0, 1, math.nan], 3, [0] * 6)
    chosen = make_algorithm(name).select(given, {}).tolist()
    assert chosen == [False] * 3 + [True, True, False]


def test_a_teacher_scores_every_token() -> None:
    kl = torch.tensor([[0.5, -0.25, 9.0], [1.0, 0.0, 2.0]])
    given = Signals(torch.zeros(2), torch.zeros(2), torch.tensor([2, 3]), kl=kl)
    out = make_algorithm("on-policy-distillation", teacher="big").advantages(given)
    assert out.tolist() == [[-0.5, 0.25, 0.0], [-1.0, 0.0, -2.0]]
    with pytest.raises(UserError, match="a model of the study"):
        assert make_algorithm("on-policy-distillation").reference_model


STUDY = """
name: toy
models:
  base: {path: student}
  other: {path: teacher}
  rl: {train: {from: base, recipe: rl}, steps: [1]}
recipes:
  rl:
    algorithm: on-policy-distillation
    problems: toy
    prompt: countdown
    prompts_per_step: 2
    samples_per_prompt: 2
    max_tokens: 8
    options: {teacher: other}
problem_sets: {toy: {set: countdown, subset: train, limit: 4}}
arms: {rl: {model: rl, prompt: countdown, temperature: 1.0, max_tokens: 4, n: 2}}
"""


@pytest.mark.parametrize(
    ("rows", "tokens", "said"),
    [
        (259, 0, ""),
        (300, 0, ""),  # more rows than tokens are padding
        (258, 0, r"embeddings of 258 tokens, and the student samples from 259"),
        (259, 1, r"teacher other: .* has another vocabulary than"),
    ],
)
def test_a_teacher_has_the_students_vocabulary(
    tmp_path: Path, rows: int, tokens: int, said: str
) -> None:
    make_tiny_model(tmp_path / "student", hidden_size=32)
    teacher = make_tiny_model(tmp_path / "teacher", hidden_size=32, vocab_size=rows)
    tokenizer = Tokens(teacher).tokenizer
    tokenizer.add_tokens([f"new {i}" for i in range(tokens)])
    tokenizer.save_pretrained(teacher)
    (tmp_path / "toy.yaml").write_text(STUDY)
    study = load_study(tmp_path / "toy.yaml")
    if not said:
        run = prepare(study, "rl")
        assert isinstance(run, Run) and run.reference == teacher
    else:
        with pytest.raises(UserError, match=said):
            prepare(study, "rl")


def test_the_reference_is_renewed_at_its_steps() -> None:
    prorl = make_algorithm("prorl", renew_every=3)
    assert [step for step in range(1, 10) if prorl.renews_reference(step)] == [3, 6, 9]
