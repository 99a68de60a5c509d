"""Training over episodes: a tool's tokens are read and carry no loss."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.train.batch import Response
from rlbhpc.train.learner import Update

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
