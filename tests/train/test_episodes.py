"""Training over episodes: a tool's tokens are read and carry no loss."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from rlbhpc.engines.completion import NOT_READY, Completion, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import StopText, Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.keys import Sampling, Turns
from rlbhpc.study.schema import Recipe
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.dynamics import describe
from rlbhpc.train.learner import Update
from rlbhpc.train.recipes import settings_of
from rlbhpc.train.rewards import Judged
from rlbhpc.train.rollout import Judge, Prompt, Run, roll_out
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = pytest.mark.engine

# Tokens by turns, the model's first; two episodes share their prompt, and one has a single turn.
PROMPTS = [(5, 6, 7), (5, 6, 7), (9, 8)]
SEGMENTS = [[4, 3, 5], [2, 6, 1, 2, 3], [6]]
ADVANTAGES = [1.5, -0.5, 0.25]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", initializer_range=0.1)


def episodes() -> list[Response]:
    rng = np.random.default_rng(4)
    made = []
    for prompt_ids, sizes in zip(PROMPTS, SEGMENTS, strict=True):
        by_model = np.arange(len(sizes)) % 2 == 0
        token_ids = rng.integers(0, 250, sum(sizes)).astype(np.int32)
        made.append(Response(prompt_ids, token_ids, None, np.repeat(by_model, sizes)))
    return made


def logprobs_by_transformers(policy: torch.nn.Module, response: Response) -> torch.Tensor:
    """Log-probs of all tokens behind the prompt, the tool's too, one stream at a time."""
    stream = torch.tensor([[*response.prompt_ids, *response.token_ids.tolist()]])
    logits = policy(stream).logits[0, len(response.prompt_ids) - 1 : -1]
    targets = torch.tensor(response.token_ids.astype(np.int64))
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def test_gradients_are_those_of_the_stream_with_the_tools_masked_by_hand(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    from tests.train.step_case import gradient, learner

    responses = episodes()
    lengths = [len(response.model_ids) for response in responses]
    assert lengths == [9, 6, 6]
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    loss = torch.zeros(())
    expected = []
    for response, advantage in zip(responses, ADVANTAGES, strict=True):
        logprobs = logprobs_by_transformers(policy, response)
        assert response.model_mask is not None
        mask = torch.from_numpy(response.model_mask)
        loss = loss - advantage * (logprobs * mask).sum() / sum(lengths)
        expected.append(logprobs[mask].detach())
    loss.backward()

    trained = learner(model, 0, 4096, grad_clip=0.0)
    scored = trained.logprobs(trained.policy, responses)
    assert scored.shape == (3, 9)
    for row, logprobs in zip(scored, expected, strict=True):
        assert torch.allclose(row[: len(logprobs)], logprobs, atol=1e-5)
        assert not row[len(logprobs) :].any()
    advantages = torch.zeros(3, 9)
    for row, (length, advantage) in enumerate(zip(lengths, ADVANTAGES, strict=True)):
        advantages[row, :length] = advantage
    update = Update(responses, advantages, torch.zeros(3, 9), torch.ones(3, dtype=torch.bool))
    trained.update(update, 1)
    by_hand = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
    assert float((gradient(trained) - by_hand).abs().max()) < 1e-6 + 1e-4 * float(
        by_hand.abs().max()
    )


def test_micro_batches_change_nothing(model: Path) -> None:
    from tests.train.step_case import learner

    whole = learner(model, 0, 4096)
    alone = learner(model, 0, 1)
    assert torch.allclose(
        whole.logprobs(whole.policy, episodes()), alone.logprobs(alone.policy, episodes()),
        atol=1e-5,
    )  # fmt: skip


def test_supervised_training_learns_the_models_tokens_alone(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    from tests.train.step_case import learner

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    responses = episodes()
    total = torch.zeros(())
    for response in responses:
        assert response.model_mask is not None
        total -= logprobs_by_transformers(policy, response)[response.model_mask].sum().detach()
    metrics = learner(model, 0, 4096).imitate(responses, 1)
    assert metrics["sft/tokens"] == 21
    assert metrics["sft/loss"] == pytest.approx(float(total) / 21, rel=1e-4)


@pytest.mark.parametrize(
    ("turns", "key"),
    [
        ({"limit": 0, "tools": ["calculator"]}, "turns.limit"),
        ({"limit": 2}, "turns.tools"),
        (3, "turns"),
    ],
)
def test_turns_of_a_recipe_are_checked(turns: object, key: str) -> None:
    recipe = Recipe(algorithm="grpo", options={"turns": turns})
    with pytest.raises(UserError, match=rf"^options\.{key}: found "):
        settings_of(recipe, 1)


def test_a_tool_that_there_is_not_is_refused_before_training() -> None:
    recipe = Recipe(algorithm="grpo", options={"turns": {"limit": 2, "tools": ["abacus"]}})
    with pytest.raises(UserError, match=r"abacus.*calculator"):
        settings_of(recipe, 1)


@pytest.mark.parametrize("algorithm", ["rlpr", "absolute-zero"])
def test_an_algorithm_that_reads_one_turn_refuses_more(algorithm: str) -> None:
    turns = {"limit": 2, "tools": ["calculator"], "format": "blocks"}
    recipe = Recipe(
        algorithm=algorithm, samples_per_prompt=1, prompts_per_step=6, options={"turns": turns}
    )
    settings = settings_of(recipe, 1)
    assert settings.turns == Turns(2, ("calculator",), "blocks")
    assert settings.essence != settings_of(Recipe(algorithm=algorithm), 1).essence
    with pytest.raises(UserError, match=r"^options\.turns: "):
        make_algorithm(algorithm).check_settings(settings)
    make_algorithm("ttrl").check_settings(settings)


CALL = "```calculator\n6*7\n```\n"
RESULT = "```output\n42\n```\n"


class Calling:
    """An engine whose model calls the calculator, and answers once it has a result."""

    max_length = 200

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        stop = StopText(self.tokens, sampling)
        for request in requests:
            if request is NOT_READY:
                continue
            has_result = self.tokens.decode(request.prompt_ids).endswith(RESULT)
            ids = [*self.tokens.encode("42" if has_result else CALL)]
            ids += [self.tokens.end] if has_result else []
            numbers = np.full(len(ids), -0.5, np.float32)
            yield stop.complete(request, np.array(ids, np.int32), numbers, -numbers)


def test_an_episode_is_rolled_out_as_one_stream(model: Path) -> None:
    tokens = Tokens(model)
    judged: list[Judged] = []
    texts: list[str] = []

    def verify(problem: Problem, text: str, ending: str) -> Verdict:
        texts.append(text)
        return Verdict(Status.RIGHT)

    def reward(response: Judged) -> float:
        judged.append(response)
        return 1.0

    turns = Turns(3, ("calculator",), "blocks")
    settings = Settings(steps=1, max_tokens=60, turns=turns)
    problem = Problem("toy/1", {"question": "?"}, "42", "math")
    prompt = Prompt(problem, tokens.encode("6 7\n"))
    run = Run(
        "m", model, model, {}, settings, make_algorithm("grpo"), [prompt], Judge(verify, reward)
    )
    rollouts = roll_out(run, cast(Engine, Calling(tokens)), 1, 0, [prompt], 2, 1.0)
    assert len(rollouts) == 2 and texts == ["42"] * 2
    for rollout in rollouts:
        response = rollout.response
        assert tokens.decode(response.token_ids.tolist()) == f"{CALL}{RESULT}42"
        assert tokens.decode(response.model_ids.tolist()) == f"{CALL}42"
        assert rollout.n_turns == 2
        n_model_tokens = len(response.model_ids)
        assert rollout.sampler_logprobs.tolist() == [-0.5] * n_model_tokens
        assert rollout.entropy_sum == 0.5 * n_model_tokens
    assert [response.n_tokens for response in judged] == [len(CALL) + 3] * 2
    metrics = describe(rollouts)
    assert metrics["num_turns/mean"] == 2
    assert metrics["response_length/mean"] == len(CALL) + 3
