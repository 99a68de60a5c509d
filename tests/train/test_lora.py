"""Adapters learn in place of the weights, and nobody outside the trainer sees them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.train.settings import Settings

pytestmark = [pytest.mark.engine, pytest.mark.slow]

RANK = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With biases at queries, keys and values, and an output layer of its own."""
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return make_tiny_model(folder, hidden_size=32, tie_word_embeddings=False)


def learner(model: Path, algorithm: str = "grpo", **changes: Any) -> Any:
    from rlbhpc.train.algorithms import make_algorithm
    from rlbhpc.train.learner import Learner

    given: dict[str, Any] = {
        "steps": 6, "learning_rate": 1e-2, "critic_learning_rate": 1e-2, "sampler_cap": 0.0,
        "micro_tokens": 150, "max_tokens": 64, "lora_rank": RANK,
    }  # fmt: skip
    return Learner(model, Settings(**{**given, **changes}), make_algorithm(algorithm))


def learn(trained: Any, *steps: int) -> None:
    from tests.train.step_case import update

    for step in steps:
        given = update(signal=float(step))
        if trained.critic is not None:
            values = trained.values(given.responses)
            given = replace(given, values=values, returns=values + given.advantages)
        trained.update(given, step)


def weights(trained: Any) -> dict[str, torch.Tensor]:
    return dict(trained.named_weights())


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_products_of_the_rank_are_what_is_learnt(model: Path, zero_stage: int) -> None:
    from transformers import AutoModelForCausalLM

    given = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    plain = dict(given.named_parameters())
    trained = learner(model, zero_stage=zero_stage)
    before = weights(trained)
    assert before.keys() == plain.keys()
    assert all(torch.equal(before[name], plain[name]) for name in plain)
    learn(trained, 1, 2)
    linear = {f"{n}.weight" for n, m in given.base_model.named_modules(prefix="model")
              if isinstance(m, torch.nn.Linear)}  # fmt: skip
    assert len(linear) == 7 * given.config.num_hidden_layers
    for name, weight in weights(trained).items():
        moved = weight - plain[name].detach()
        size = torch.linalg.svdvals(moved) if name in linear else moved.abs().flatten()
        assert (float(size[0]) > 1e-3) == (name in linear), name
        assert float(size[RANK:].max()) < 1e-6, name


def test_every_stage_learns_the_same(model: Path) -> None:
    """Two steps: in the first B is 0, and A has no gradient."""
    changes: list[dict[str, Any]] = [
        {"zero_stage": 0, "micro_tokens": 1},
        {"zero_stage": 0, "recompute": True},
        {"zero_stage": 2},
        {"zero_stage": 2, "offload": True},
        {"zero_stage": 3, "micro_tokens": 9999},
    ]
    found = []
    for change in changes:
        trained = learner(model, **change)
        learn(trained, 1, 2)
        found.append(weights(trained))
    for other in found[1:]:
        assert max(float((other[n] - w).abs().max()) for n, w in found[0].items()) < 1e-5


def test_a_small_product_outlasts_bfloat16() -> None:
    """Far below a weight's last digit: what is rounded still is W plus the product, on average."""
    from rlbhpc.train.policy import LowRank

    random = torch.Generator().manual_seed(1)
    plain = torch.nn.Linear(512, 512, bias=False).to(torch.bfloat16)
    torch.nn.init.normal_(plain.weight, std=0.02, generator=random)
    layer = LowRank(plain, 8, random).to(torch.bfloat16)
    assert torch.equal(layer.merged_weight("a"), plain.weight)
    with torch.no_grad():
        layer.up.copy_(torch.randn(512, 8, generator=random) * 1e-5)
    product = layer.up.float() @ layer.down.float() * layer.scale
    # A bfloat16 has eight digits: half of the last one of 0.02 is 0.00004.
    assert float(product.abs().max()) < 2e-5
    moved = layer.merged_weight("a").float() - plain.weight.float()
    kept = float((moved * product).sum() / product.square().sum())
    assert kept == pytest.approx(1.0, abs=0.1)
    to_nearest = (plain.weight.float() + product).bfloat16().float() - plain.weight.float()
    assert float((to_nearest * product).sum() / product.square().sum()) < 0.5
    assert torch.equal(layer.merged_weight("a"), layer.merged_weight("a"))
    assert not torch.equal(layer.merged_weight("a"), layer.merged_weight("b"))


@pytest.mark.parametrize("family", ["gpt2", "mixtral"])
def test_a_model_that_adapters_would_miss_is_refused(family: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from rlbhpc.train.policy import add_adapters

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    rest = {"intermediate_size": 64, "num_key_value_heads": 2} if family == "mixtral" else {}
    given = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **small, **rest))
    with pytest.raises(UserError, match=f"weights of a {family} model .* only .* leave it out"):
        add_adapters(given, RANK, 0)


@pytest.mark.parametrize("tied", [False, True])
def test_sampling_gets_a_model_without_adapters(tmp_path: Path, tied: bool) -> None:
    from rlbhpc.train import checkpoint
    from rlbhpc.train.policy import Policy
    from rlbhpc.train.rollout import Export
    from tests.train.step_case import responses

    model = make_tiny_model(tmp_path / "tiny", hidden_size=32, tie_word_embeddings=tied)
    trained = learner(model)
    trained.load_reference(model)
    learn(trained, 1, 2)
    checkpoint.export_model(trained, model, Export(tmp_path / "step-2", "made", "run"))
    assert not [p for p in (tmp_path / "step-2").iterdir() if "adapter" in p.name]
    read = Policy.load(tmp_path / "step-2", torch.float32).eval()
    assert [n.removeprefix("model.") for n, _ in read.named_parameters()] == [*weights(trained)]
    ours = trained.logprobs(trained.policy, responses())
    theirs = trained.logprobs(read, responses())
    untrained = trained.logprobs(trained.reference, responses())
    assert (ours - theirs).abs().max() < 1e-5 < 1e-2 < (ours - untrained).abs().max()


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_a_run_goes_on_bit_for_bit(model: Path, tmp_path: Path, zero_stage: int) -> None:
    from rlbhpc.train import checkpoint

    straight = learner(model, "ppo", zero_stage=zero_stage)
    learn(straight, 1, 2, 3, 4)
    broken = learner(model, "ppo", zero_stage=zero_stage)
    learn(broken, 1, 2)
    checkpoint.save_state(broken, tmp_path, 2, {"identity": "one"})
    [saved] = checkpoint.list_states(tmp_path)
    stored = sum(path.stat().st_size for path in saved.rglob("*.pt"))
    learning = [p for p in broken.policy.module.parameters() if p.requires_grad]
    learning += [p for p in broken.critic.module.parameters() if p.requires_grad]
    # Of what learns the value and two moments, once more where ZeRO has a flat copy; no frozen one.
    assert stored < 4 * 4 * sum(p.numel() for p in learning) + 200_000
    again = learner(model, "ppo", zero_stage=zero_stage)
    state = checkpoint.load_state(again, tmp_path, "one")
    assert state is not None and state["step"] == 2
    learn(again, 3, 4)
    for name, weight in weights(straight).items():
        assert torch.equal(weights(again)[name], weight), name
    from tests.train.step_case import responses

    assert torch.equal(again.values(responses()), straight.values(responses()))


def test_critic_reference_and_sampler_are_foretold_without_what_stands_still(model: Path) -> None:
    from transformers import AutoConfig

    from rlbhpc.train.algorithms import make_algorithm
    from rlbhpc.train.forecast import count_memory, make_policy_without_data

    config, foretold = AutoConfig.from_pretrained(model), {}
    for rank in (0, RANK):
        settings = Settings(steps=1, max_tokens=64, lora_rank=rank, kl_loss=0.1)
        policy = make_policy_without_data(config, settings)
        foretold[rank] = count_memory(policy, settings, make_algorithm("ppo"), ranks=1, rows=1)
    trained = learner(model, "ppo")
    learn(trained, 1)
    for name, engine in (("policy", trained.policy), ("critic", trained.critic)):
        states = engine.optimizer.state.values()
        moments = sum(s["exp_avg"].numel() + s["exp_avg_sq"].numel() for s in states)
        assert foretold[RANK][f"{name} optimiser"] == 4 * moments
        assert 2 * foretold[RANK][f"{name} gradients"] == 4 * moments
        assert moments < foretold[0][f"{name} optimiser"] / 4 / 3
    for name in ("reference weights", "sampler weights"):
        assert foretold[RANK][name] == foretold[0][name]


@pytest.mark.parametrize("rank", [-1, 8.0, "8", True, None])
def test_a_rank_that_cannot_be_is_refused(rank: Any) -> None:
    with pytest.raises(UserError, match=r"lora_rank: found .*; allowed: a whole number"):
        Settings(steps=1, lora_rank=rank)
