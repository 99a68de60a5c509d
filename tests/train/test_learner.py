"""What an update reports, what a run saves, and what of it comes back."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.store.tables import log_lines
from rlbhpc.sweep.process import Drain
from rlbhpc.train import checkpoint
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.learner import Learner, Update
from rlbhpc.train.loop import train
from rlbhpc.train.rewards import make_reward
from rlbhpc.train.rollout import Export, Judge, Prompt, Run
from rlbhpc.train.settings import Settings
from rlbhpc.train.sft import Distillation, fine_tune
from rlbhpc.verify.verdict import Status, Verdict
from tests.train.step_case import learner, update, weights
from tests.train.support import quiet

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", hidden_size=32)


def apart(trained: Learner) -> Update:
    """An update whose sampler, old policy and reference are each a little off; one is left out."""
    given = update()
    now = trained.logprobs(trained.policy, given.responses)
    mask = torch.arange(now.shape[1]) < given.lengths[:, None]
    noise = torch.Generator().manual_seed(3)
    off = [torch.randn(now.shape, generator=noise) * mask for _ in range(3)]
    off[2][0, 0] = 25.0
    given.kept[2] = False
    return replace(
        given,
        old_logprobs=now + off[0] / 4,
        sampler_logprobs=now + off[1],
        reference_logprobs=now + off[2],
    )


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_an_update_reports_what_its_tokens_were(model: Path, kind: str) -> None:
    """Against plain loops over all tokens that are learnt from."""
    trained = learner(model, 0, 150, kl_loss=0.5, kl_kind=kind, sampler_cap=1.5)
    given = apart(trained)
    now = trained.logprobs(trained.policy, given.responses)
    assert given.old_logprobs is not None and given.reference_logprobs is not None
    names = ("loss", "clipped", "old", "penalty", "gap", "capped")
    sums = dict.fromkeys(names, 0.0)
    count = 0
    for i, length in enumerate(given.lengths.tolist()):
        for t in range(length if given.kept[i] else 0):
            logp, old, sampler, reference, a = (
                float(x[i, t])
                for x in (
                    now,
                    given.old_logprobs,
                    given.sampler_logprobs,
                    given.reference_logprobs,
                    given.advantages,
                )
            )
            ratio, delta, count = math.exp(logp - old), logp - reference, count + 1
            weight = min(math.exp(old - sampler), 1.5)
            sums["loss"] += weight * max(-a * ratio, -a * min(max(ratio, 0.8), 1.2))
            sums["clipped"] += ratio > 1.2 if a > 0 else ratio < 0.8
            sums["old"] += old - logp
            near = min(max(delta, -20.0), 20.0)
            k3 = math.expm1(-near) + near
            sums["penalty"] += delta**2 / 2 if kind == "k2" else min(k3, 10.0)
            sums["gap"] += math.expm1(old - sampler) - (old - sampler)
            sums["capped"] += weight == 1.5
    metrics = trained.update(given, 1)
    assert metrics.pop("actor/grad_norm") > 0
    names = ("pg_loss", "pg_clipfrac", "ppo_kl", "kl_loss")
    expected = {
        f"actor/{name}": total / count for name, total in zip(names, sums.values(), strict=False)
    }
    expected |= {
        "rollout_corr/kl": sums["gap"] / count,
        "rollout_corr/capped_fraction": sums["capped"] / count,
        "rollout_corr/masked_fraction": 0.0,
    }
    expected |= {"actor/lr": 1e-2, "actor/skipped": 0.0}
    assert metrics == {name: pytest.approx(value, rel=1e-4) for name, value in expected.items()}
    assert sums["clipped"] > 10


@pytest.mark.parametrize(
    "bands",
    [
        {"sampler_band": [0.5, 1.5]},
        {"sequence_band": [0.95, 1.1]},
        {"sampler_band": [0.5, 1.5], "sequence_band": [0.95, 1.1]},
    ],
)
def test_what_lies_outside_of_a_band_adds_nothing_to_the_loss(
    model: Path, bands: dict[str, list[float]]
) -> None:
    """The formulas over plain arrays; the totals that the loss is divided by stay."""
    trained = learner(model, 0, 150, **bands)
    given = replace(apart(trained), reference_logprobs=None)
    assert given.old_logprobs is not None
    now = trained.logprobs(trained.policy, given.responses).double().numpy()
    old, sampler = given.old_logprobs.double().numpy(), given.sampler_logprobs.double().numpy()
    lengths = given.lengths.numpy()
    mask = (np.arange(now.shape[1]) < lengths[:, None]) & given.kept.numpy()[:, None]
    ratio = np.exp(old - sampler)
    correction = np.ones_like(ratio)
    if "sampler_band" in bands:
        correction = np.where((ratio >= 0.5) & (ratio <= 1.5), ratio, 0.0)
    if "sequence_band" in bands:
        mean = np.exp(((old - sampler) * mask).sum(1) / lengths)
        correction = correction * ((mean >= 0.95) & (mean <= 1.1))[:, None]
    a, rho = given.advantages.numpy(), np.exp(now - old)
    loss = np.maximum(-a * rho, -a * rho.clip(0.8, 1.2)) * correction
    metrics = trained.update(given, 1)
    masked = (correction == 0)[mask].mean()
    assert 0 < masked < 1
    assert metrics["actor/pg_loss"] == pytest.approx(loss[mask].sum() / mask.sum(), rel=1e-4)
    assert metrics["rollout_corr/masked_fraction"] == pytest.approx(masked)
    assert metrics["rollout_corr/capped_fraction"] == 0


@pytest.mark.parametrize("pull", [{"kl_loss": 0.1}, {"entropy_bonus": 0.1}, {}])
def test_a_penalty_and_a_bonus_pull_without_an_advantage(
    model: Path, pull: dict[str, float]
) -> None:
    trained = learner(model, 0, 200, **pull)
    given = replace(apart(trained), advantages=torch.zeros_like(update().advantages))
    before = weights(trained)
    given = given if "kl_loss" in pull else replace(given, reference_logprobs=None)
    assert trained.update(given, 1)["actor/skipped"] == (0.0 if pull else 1.0)
    assert torch.equal(weights(trained), before) == (not pull)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bonus_for_entropy_raises_it_and_a_price_lowers_it(model: Path, sign: int) -> None:
    trained = learner(model, 0, 200, entropy_bonus=0.1 * sign)
    zeros = torch.zeros_like(update().advantages)
    given = replace(apart(trained), advantages=zeros, reference_logprobs=None)

    def total() -> float:
        entropies = trained._score_tokens(
            lambda b: trained.policy(b, 1.0).entropies, given.responses
        )
        return float(entropies[given.kept].sum())

    before = total()
    trained.update(given, 1)
    assert sign * (total() - before) > 0 and before > 0


def test_a_saved_buffer_is_handed_on_with_the_weights(tmp_path: Path) -> None:
    """The bias of a router, to the sampler, a renewed reference and the next model."""
    sizes = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    base = make_tiny_model(tmp_path / "base", "glm4_moe", head_dim=32, n_group=1, topk_group=1,
                           first_k_dense_replace=1, **sizes)  # fmt: skip
    trained = learner(base, 0, 200)
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    trained.policy.module.model.get_buffer(bias).copy_(torch.arange(4))
    trained.load_reference(base)
    trained.renew_reference()
    assert trained.reference is not None
    assert torch.equal(trained.reference.model.get_buffer(bias), torch.arange(4.0))
    checkpoint.export_model(trained, base, Export(tmp_path / "next", "digest", "run"))
    assert load_file(tmp_path / "next" / "model.safetensors")[bias].tolist() == [0, 1, 2, 3]


def test_marks_are_of_tokens_that_are_learnt_from(model: Path) -> None:
    trained = Learner(model, Settings(steps=1), make_algorithm("kl-cov", share=1.0))
    given = apart(trained)
    marked = trained._mark_tokens(given, 1)
    assert marked is not None
    assert marked.sum() == given.lengths[given.kept].sum() and not marked[2].any()
    assert (marked.sum(1) == given.lengths * given.kept).all()


def moments(trained: Learner) -> float:
    states = trained.policy.optimizer.state.values()
    return max(float(state["exp_avg"].abs().max()) for state in states)


def test_a_renewed_reference_is_the_policy_and_is_saved(model: Path, tmp_path: Path) -> None:
    trained = learner(model, 0, 200, kl_loss=0.1)
    trained.load_reference(model)
    given = apart(trained)
    trained.update(given, 1)
    checkpoint.save_state(trained, tmp_path, 1, {"identity": "one", "store": {"a": 1}})
    assert not list(tmp_path.rglob("reference.pt"))
    assert moments(trained) > 0
    trained.renew_reference()
    assert moments(trained) == 0
    scored = trained.logprobs(trained.policy, given.responses)
    assert torch.equal(trained.logprobs(trained.reference, given.responses), scored)
    checkpoint.save_state(trained, tmp_path, 2, {"identity": "one", "store": {"a": 2}})
    checkpoint.save_state(trained, tmp_path, 3, {"identity": "one", "store": {"a": 3}})
    assert [path.name for path in checkpoint.list_states(tmp_path)] == [
        "step-00000002",
        "step-00000003",
    ]
    again = learner(model, 0, 200, kl_loss=0.1)
    again.load_reference(model)
    state = checkpoint.load_state(again, tmp_path, "one")
    assert state is not None and state.pop("bytes")
    assert state == {
        "identity": "one", "store": {"a": 3}, "step": 3, "ranks": 1, "zero_stage": 0,
        "offload": False,
    }  # fmt: skip
    assert again.reference_was_renewed
    assert torch.equal(again.logprobs(again.reference, given.responses), scored)
    assert torch.equal(again.logprobs(again.policy, given.responses), scored)
    with pytest.raises(UserError) as refused:
        checkpoint.load_state(again, tmp_path, "other")
    assert str(refused.value) == (
        f"{tmp_path}/step-00000003: this state was made with other settings, another base model or "
        f"other problems; go on with those, or remove {tmp_path} to start anew"
    )
    assert checkpoint.load_state(again, tmp_path / "none", "one") is None


def curves(model: Path, folder: Path, algorithm: str = "grpo", **changes: Any) -> dict[str, Any]:
    """The first step of a training of two prompts with eight responses each."""
    given: dict[str, Any] = {
        "steps": 1, "prompts_per_step": 2, "samples_per_prompt": 8, "max_tokens": 8,
        "learning_rate": 1e-2, "sampler_cap": 0.0, **changes,
    }  # fmt: skip
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    prompts = [Prompt(problem, (4, 5)), Prompt(problem, (6, 5))]
    judge = Judge(lambda *_: Verdict(Status.WRONG), make_reward({"random": 1.0}))
    run = Run("m", model, folder, {}, Settings(**given), make_algorithm(algorithm), prompts, judge)
    with Drain() as drain:
        assert train(run, lambda: make_engine("hf", model, rows=16), drain, quiet) == DONE
    return log_lines(folder / "dynamics.jsonl")[0]


@pytest.mark.parametrize(
    ("changes", "moved"), [({}, False), ({"mini_batch": 4}, True), ({"epochs": 2}, True)]
)
def test_a_second_update_of_a_rollout_is_off_its_policy(
    model: Path, tmp_path: Path, changes: dict[str, int], moved: bool
) -> None:
    row = curves(model, tmp_path, **changes)
    assert (row["actor/ppo_kl"] != 0) == moved
    assert row["actor/skipped"] < 1


@pytest.mark.parametrize("due", [[], [2]])
def test_the_reference_is_renewed_when_the_algorithm_says_so(
    model: Path, tmp_path: Path, due: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[int] = []

    def note(_: Learner) -> None:
        renewed.append(len(log_lines(tmp_path / "dynamics.jsonl")) + 1)

    monkeypatch.setattr(Learner, "renew_reference", note)
    grpo = type(make_algorithm("grpo"))
    monkeypatch.setattr(grpo, "renews_reference", lambda _, step: step in due)
    curves(model, tmp_path, steps=3, kl_loss=0.1)
    assert renewed == due


@pytest.mark.parametrize("left_out", [False, True])
def test_what_was_cut_off_may_be_left_out(model: Path, tmp_path: Path, left_out: bool) -> None:
    """Of one token nearly all are cut off; whatever is learnt is of the others."""
    row = curves(model, tmp_path, max_tokens=1, mask_truncated=left_out, kl_loss=0.1)
    assert row["response_length/clip_ratio"] == 1
    assert row["actor/skipped"] == float(left_out)


def test_fine_tuning_saves_and_goes_on(model: Path, tmp_path: Path) -> None:
    """Five steps of two pairs; each is the mean over its tokens, and a stop saves."""
    pairs = [Response((1, 2), np.arange(3, 5 + n, dtype=np.int32)) for n in range(4)]
    sizes = {"prompts_per_step": 1, "samples_per_prompt": 2, "learning_rate": 1e-2}
    settings = Settings(steps=5, save_every=2, warmup_steps=2, seed=3, **sizes)  # type: ignore[arg-type]
    outcomes = []
    for name, ends in (("straight", [DONE]), ("broken", [TRY_AGAIN, DONE])):
        folder = tmp_path / name
        exports = {5: Export(folder / "out", "made", "run")}
        run = Distillation("m", model, folder, exports, settings, pairs)
        for end in ends:
            with Drain() as drain:

                def stop(step: int, _: dict[str, float]) -> None:
                    if end == TRY_AGAIN and step == 2:  # noqa: B023
                        drain.request()

                assert fine_tune(run, drain, stop) == end
            last = "5" if end == DONE else "3"
            names = [state.name[-1] for state in checkpoint.list_states(folder / "state")]
            assert names == ["4" if end == DONE else "2", last]
        model_file = folder / "out" / "model.safetensors"
        outcomes.append((model_file.read_bytes(), (folder / "dynamics.jsonl").read_text()))
    assert outcomes[0] == outcomes[1]
    rows = [json.loads(line) for line in outcomes[0][1].splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["actor/lr"] for row in rows] == [5e-3, *[1e-2] * 4]
    assert all(4 <= row["sft/tokens"] <= 9 for row in rows)
    assert sum(row["sft/tokens"] for row in rows[:2]) == 2 + 3 + 4 + 5
    assert rows[-1]["sft/loss"] < rows[0]["sft/loss"]
