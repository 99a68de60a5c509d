"""One optimiser step is the same step however it is cut, sharded and spread over ranks."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlbhpc.engines.tiny import make_tiny_model
from tests.train.support import run_steps

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", hidden_size=32)


def test_the_step_does_not_depend_on_how_it_is_cut(model: Path, tmp_path: Path) -> None:
    """Micro-batches of one response, of a few, of all; ZeRO 0 to 3; recomputed; one rank, two."""
    cases = [f"{stage}:{budget}" for stage in (0, 2, 3) for budget in (1, 150, 100_000)]
    cases += ["0:150:recompute", "3:150:recompute"]
    alone = run_steps(model, tmp_path / "1.json", 1, cases)
    pair = run_steps(model, tmp_path / "2.json", 2, ["0:150", "2:150", "3:150"])
    norm, gradient, _ = alone[0]
    assert float(gradient.norm()) == pytest.approx(min(norm, 1.0), rel=1e-4)  # clipped at 1
    for other in [*alone[1:], *pair]:
        assert other.norm == pytest.approx(norm, rel=1e-6)
        assert (other.gradient - gradient).abs().max() < 1e-6


@pytest.mark.parametrize("ratio", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("aggregation", ["token", "sequence", "sequence-sum"])
def test_nor_do_ratios_of_responses_beside_terms_of_tokens(
    model: Path, ratio: str, aggregation: str
) -> None:
    """A KL loss, an entropy bonus and off-policy weights, with every level of ratio."""
    from tests.train.step_case import gradient, learner, update

    given = update()
    lengths = torch.tensor([len(r.token_ids) for r in given.responses])
    noise = torch.Generator().manual_seed(3)
    mask = torch.arange(given.advantages.shape[1]) < lengths[:, None]
    apart = [torch.randn(mask.shape, generator=noise) / 10 * mask for _ in range(3)]
    logp = learner(model, 0, 100_000)
    now = logp.logprobs(logp.policy, given.responses)
    given = replace(
        given,
        old_logprobs=now + apart[0],
        sampler_logprobs=now + apart[1],
        reference_logprobs=now + apart[2],
    )
    steps = []
    for budget in (1, 100, 100_000):
        trained = learner(
            model,
            0,
            budget,
            aggregation,
            ratio=ratio,
            kl_loss=0.1,
            entropy_bonus=0.01,
            sampler_cap=1.5,
        )
        norm = trained.update(given, 1)["actor/grad_norm"]
        steps.append((norm, gradient(trained)))
    (norm, whole), *others = steps
    for other_norm, other in others:
        assert other_norm == pytest.approx(norm, rel=1e-5)
        assert (other - whole).abs().max() < 1e-6


def test_the_cap_on_off_policy_weights_holds_for_every_ratio(model: Path) -> None:
    """Where the sampler found everything half as likely, a weight of 1.2 at most remains."""
    from tests.train.step_case import learner, update

    given = update()
    scored = learner(model, 0, 100_000)
    now = scored.logprobs(scored.policy, given.responses)
    given = replace(given, sampler_logprobs=now - 0.7)
    for ratio in ("token", "sequence", "geometric"):
        updates = [
            learner(model, 0, 100_000, ratio=ratio, sampler_cap=cap).update(given, 1)
            for cap in (0.0, 1.2)
        ]
        plain, capped = (metrics["actor/grad_norm"] for metrics in updates)
        assert capped == pytest.approx(1.2 * plain, rel=1e-4)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_bfloat16_gradients_are_clipped_at_every_stage(model: Path, zero_stage: int) -> None:
    """A first step of Adam is as long as the rate, whatever the gradient's length is."""
    from tests.train.step_case import gradient, learner, update, weights

    trained = learner(model, zero_stage, 100_000, "sequence-sum", dtype="bfloat16")
    before = weights(trained)
    norm = trained.update(update(signal=100.0), 1)["actor/grad_norm"]
    assert norm > 10
    assert float(gradient(trained).norm()) == pytest.approx(1.0, rel=0.02)
    moves = (weights(trained) - before).abs()
    assert float(moves[moves > 0].float().mean()) == pytest.approx(1e-2, rel=0.02)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_a_clip_of_0_clips_nothing(model: Path, zero_stage: int) -> None:
    from tests.train.step_case import gradient, learner, update

    trained = learner(model, zero_stage, 100_000, "sequence-sum", grad_clip=0.0)
    norm = trained.update(update(signal=100.0), 1)["actor/grad_norm"]
    assert float(gradient(trained).norm()) == pytest.approx(norm, rel=1e-4) and norm > 10


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_offloaded_is_held_by_zero(model: Path, dtype: str) -> None:
    """Without a stage DeepSpeed would leave the optimiser where the weights are."""
    from tests.train.step_case import learner

    assert learner(model, 0, 200, dtype=dtype, offload=True).policy.optimizer.cpu_offload


def test_a_batch_without_a_signal_leaves_the_weights_alone(model: Path) -> None:
    from tests.train.step_case import learner, update, weights

    trained = learner(model, 0, 200)
    trained.update(update(), 1)  # gives Adam a momentum that would move the weights
    before = weights(trained)
    assert trained.update(update(signal=0.0), 2) == {"actor/skipped": 1.0}
    assert torch.equal(weights(trained), before)


@pytest.mark.parametrize("pull", [{"kl_loss": 0.1}, {"entropy_bonus": 0.1}])
def test_nor_does_a_batch_of_which_nothing_is_kept(model: Path, pull: dict[str, float]) -> None:
    """Whatever pulls at the policy: a gradient of 0 would still move it by Adam's momentum."""
    from tests.train.step_case import learner, update, weights

    trained = learner(model, 0, 200, **pull)  # type: ignore[arg-type]
    given = update()
    given = replace(given, reference_logprobs=torch.zeros_like(given.advantages))
    trained.update(given, 1)
    before = weights(trained)
    left_out = replace(given, kept=torch.zeros(len(given.responses), dtype=torch.bool))
    assert trained.update(left_out, 2) == {"actor/skipped": 1.0}
    assert torch.equal(weights(trained), before)


def test_a_marked_token_counts_in_a_response_without_an_advantage(model: Path) -> None:
    """kl-cov charges it; a reference of no weight makes the learner run every response."""
    from rlbhpc.train.algorithms import make_algorithm
    from rlbhpc.train.learner import Learner
    from rlbhpc.train.settings import Settings
    from tests.train.step_case import update

    given = update()
    given.advantages[::2] = 0
    losses = []
    for reference in (None, given.sampler_logprobs):
        settings = Settings(steps=1, sampler_cap=0.0, micro_tokens=1000)
        trained = Learner(model, settings, make_algorithm("kl-cov", share=0.5))
        old = trained.logprobs(trained.policy, given.responses) - 0.3
        step = replace(given, old_logprobs=old, reference_logprobs=reference)
        marked = trained._mark_tokens(step, 1)
        assert marked is not None and marked[::2].any() and marked[1::2].any()
        metrics = trained.update(step, 1)
        losses.append([metrics["actor/pg_loss"], metrics["actor/grad_norm"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_warm_up_moves_the_critic_alone(model: Path) -> None:
    from rlbhpc.train.algorithms import make_algorithm
    from rlbhpc.train.learner import Learner
    from rlbhpc.train.settings import Settings
    from tests.train.step_case import update, weights

    settings = Settings(steps=4, critic_learning_rate=1e-2, learning_rate=1e-2, sampler_cap=0.0)
    trained = Learner(model, settings, make_algorithm("ppo", critic_warmup=3))
    before, given, losses = weights(trained), update(), []
    returns = (given.advantages != 0).float()
    for step in (1, 2, 3, 4):
        values = trained.values(given.responses)
        losses.append(trained.update(replace(given, values=values, returns=returns), step))
        assert torch.equal(weights(trained), before) == (step <= 3)
    assert [loss["actor/skipped"] for loss in losses] == [1.0, 1.0, 1.0, 0.0]
    assert losses[3]["critic/vf_loss"] < losses[0]["critic/vf_loss"] / 2


def test_the_reported_norm_is_that_of_the_plain_gradient(model: Path) -> None:
    """Against autograd on the plain loss, without DeepSpeed, clipping or micro-batches.

    Two responses have no advantage: they are not run, and their tokens still count.
    """
    from transformers import AutoModelForCausalLM

    from tests.train.step_case import learner, responses, update

    step = update()
    step.advantages[3] = step.advantages[7] = 0
    reported = learner(model, 0, 150).update(step, 1)["actor/grad_norm"]
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    total = sum(len(r.token_ids) for r in responses())
    loss = torch.zeros(())
    for i, r in enumerate(responses()):
        ids = torch.tensor([[*r.prompt_ids, *r.token_ids.tolist()]])
        logp = plain(ids).logits[0, len(r.prompt_ids) - 1 : -1].log_softmax(-1)
        chosen = logp.gather(1, torch.from_numpy(r.token_ids).long()[:, None])[:, 0]
        loss = loss - (chosen * step.advantages[i, : len(r.token_ids)]).sum() / total
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in plain.parameters()]).norm()
    assert reported == pytest.approx(float(norm), rel=1e-5)


def test_a_world_of_one_is_not_handed_on_to_children(model: Path) -> None:
    from tests.train.step_case import learner

    learner(model, 0, 200)
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_bfloat16_gradients_add_up_in_float32(model: Path, zero_stage: int) -> None:
    """The mean of equal terms is each of them; in bfloat16 a sum no longer grows after 256."""
    from rlbhpc.train.learner import Update
    from tests.train.step_case import learner, responses

    norms = []
    for copies in (1, 300):
        equal = responses(1) * copies
        shape = copies, len(equal[0].token_ids)
        given = Update(equal, torch.ones(shape), torch.zeros(shape), torch.ones(copies).bool())
        trained = learner(model, zero_stage, 1, dtype="bfloat16")
        norms.append(trained.update(given, 1)["actor/grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=0.01)
