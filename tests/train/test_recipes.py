"""What training would refuse at its start is refused by a check, and says what is allowed."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlbhpc.train
from rlbhpc.cli.train import train
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import get_prompt, render
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.train.algorithms import ALGORITHMS, make_algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.forecast import (
    _zero_of_saved_state,
    forecast,
    refuse_what_cannot_fit,
    settings_for_this_device,
)
from rlbhpc.train.prepare import prepare
from rlbhpc.train.recipes import check_recipes, rollout_rows, settings_of
from rlbhpc.train.rollout import Judge, Prompt, Run
from rlbhpc.train.settings import Settings, Traces
from rlbhpc.train.sft import Distillation
from rlbhpc.verify.verdict import Status, Verdict
from tests.studies import HF_BY_32, trained, write_unloadable_model

pytestmark = pytest.mark.engine

IDENTITIES = Path(__file__).with_name("identities.txt")


def study_of(folder: Path, recipe: Mapping[str, Any], **sections: Any) -> Study:
    write_unloadable_model(folder / "model")
    small = {"prompts_per_step": 6, "samples_per_prompt": 2, **recipe}
    (folder / "toy.yaml").write_text(trained("toy", [3], small, **sections))
    return load_study(folder / "toy.yaml")


SFT: dict[str, Any] = {"algorithm": "sft"}
NONE: dict[str, Any] = {"problems": None, "prompt": None}
TRACES: dict[str, Any] = {**SFT, "options": {"traces": {"hit": 0.5}}}
FROM_NOTHING = {
    "base": {"path": "model"},
    "rl": {"train": {"recipe": "rl"}, "steps": [3]},
}


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"algorithm": "dappo"}, r"algorithm: found 'dappo'; nearest: dapo; allowed: sft, ppo, .*"),
        ({"algorithm": "xyz"}, r"algorithm: found 'xyz'; allowed: sft, .* file such as ./mine.py"),
        ({**SFT, **NONE}, "sft needs `texts`, `teacher` or `options.traces` to learn from"),
        ({"problems": None}, "problems: missing; grpo needs both `problems` and `prompt`"),
        ({"prompt": None}, "prompt: missing; grpo needs both `problems` and `prompt`"),
        ({**TRACES, **NONE}, "problems: missing; traces needs both `problems` and `prompt`"),
        ({**SFT, "options": {"traces": {"hit": 2}}}, "hit: found 2; allowed: .*"),
        ({**SFT, "options": {"traces": {"hits": 1}}}, "traces: unknown setting 'hits'; .*"),
        ({"options": {"rewards": {"corect": 1}}}, "reward 'corect' is unknown; allowed: .*"),
        ({"options": {"stepz": 1}}, "training: unknown setting 'stepz'; allowed: steps, .*"),
        ({"options": {"steps": 1}}, "options.steps: found 1; the model's own `steps` say .*"),
        ({"options": {"mini_batch": 5}}, "mini_batch: found 5, .* 6 × 2 = 12 responses"),
        (
            {"algorithm": "on-policy-distillation", "options": {"teacher": "big"}},
            "options: no model 'big'; allowed: base, rl",
        ),
        ({"algorithm": "on-policy-distillation"}, "teacher: found nothing; allowed: a model .*"),
        (
            {"algorithm": "absolute-zero", "prompts_per_step": 8},
            "prompts_per_step: found 8; allowed: a multiple of 6",
        ),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(
    tmp_path: Path, recipe: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        check_recipes(study_of(tmp_path, recipe))
    assert re.fullmatch(rf"recipes\.rl: {said}", str(refused.value))


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        ("num_hidden_layers", 0, False), ("num_hidden_layers", 1, True), ("vocab_size", 1.5, False),
        ("hidden_size", True, False), ("vocab_size", 100_000_000, True),
        ("vocab_size", 100_000_001, False), ("rope_theta", 0.5, True),
    ],
)  # fmt: skip
def test_sizes_of_a_new_model_are_counts(tmp_path: Path, key: str, value: Any, fits: bool) -> None:
    study = study_of(tmp_path, {"architecture": {key: value}}, models=FROM_NOTHING)
    if fits:
        check_recipes(study)
        return
    with pytest.raises(UserError) as refused:
        check_recipes(study)
    found = json.dumps(value)
    assert str(refused.value) == (
        f"recipes.rl: architecture.{key}: found {found}; allowed: a whole number from 1 to "
        "100,000,000"
    )


SETS: dict[str, Any] = {
    "easy": {"set": "countdown", "subset": "train", "limit": 4},
    "hard": {"set": "countdown", "subset": "test", "limit": 3},
    "held-out": {"set": "countdown", "subset": "test", "limit": 2, "seed": 5},
}
EASY: dict[str, Any] = {"problems": "easy", "weight": 3.0}
HARD: dict[str, Any] = {"problems": "hard", "prompt": "completion"}
MIXED: dict[str, Any] = {
    "problems": None,
    "mixture": [EASY, HARD],
    "schedule": [{"from": 4, "weights": {"hard": 2}}, {"from": 2, "weights": {"easy": 1}}],
}
ONE: dict[str, Any] = {"schedule": []}
HINTS: dict[str, Any] = {"options": {"hints": 0.5}}
ARMS = {"base": {"model": "base", "problem_sets": ["held-out"]}, "rl": {"model": "rl"}}


def mixed(folder: Path, recipe: dict[str, Any] = MIXED) -> Study:
    return study_of(folder, recipe, problem_sets=SETS, arms=ARMS)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"mixture": [{**EASY, "weight": 0}]}, r"mixture\[0\].weight: found 0; .* above 0"),
        ({"mixture": [{**EASY, "weight": -1}]}, r"mixture\[0\].weight: found -1; .* above 0"),
        ({"mixture": [{"problems": "esay"}], **ONE}, "unknown problem set 'esay'; .*; did you mea"),
        ({"mixture": [{**EASY, "prompt": "compltion"}], **ONE}, "unknown prompt 'compltion'; .*"),
        ({"mixture": [EASY, EASY]}, "easy stands twice in the list"),
        ({"problems": "easy"}, "`mixture` is for RL, and goes without `problems`"),
        ({"algorithm": "sft"}, "`mixture` is for RL, and goes without `problems`"),
        ({"prompt": None}, "a set of the `mixture` has no prompt; give the recipe a `prompt`"),
        ({"mixture": [EASY]}, "`schedule` names hard, which is not in the `mixture`"),
        ({"mixture": [], "problems": "easy"}, "`schedule` names hard, which is not in the `mix"),
        ({"schedule": [{"from": 2, "weights": {}}]}, r"schedule\[0\].weights: found 0 entries"),
        ({"schedule": [{"from": 2, "weights": {"easy": 0}}]}, "weights.easy: found 0; .* above 0"),
        ({"schedule": [{"from": 0, "weights": {"easy": 1}}]}, "from: found 0; allowed: .* from 1"),
        (HINTS, "options.hints: found 0.5; they need a `teacher`, whose arm answers easy or hard"),
        ({**HINTS, "teacher": {"arm": "base"}}, "options.hints: found 0.5; .* answers easy or har"),
        ({"options": {"success_rate": [0.6, 0.9]}}, "success_rate: .* no share of 2 responses"),
        (
            {
                "algorithm": "absolute-zero",
                "samples_per_prompt": 1,
                "options": {"success_rate": [0.0, 0.5]},
            },
            "options: this algorithm makes its own tasks; leave out `success_rate`",
        ),
    ],
)
def test_a_mixture_that_cannot_be_drawn_is_refused(
    tmp_path: Path, recipe: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        check_recipes(mixed(tmp_path, {**MIXED, **recipe}))


def test_a_mixture_is_trained_on_with_each_sets_prompt(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        {**MIXED, "architecture": LARGE, "max_tokens": 16},
        models=FROM_NOTHING,
        problem_sets=SETS,
        arms=ARMS,
    )
    check_recipes(study)
    assert study.sets("rl") == ("held-out",), "what is trained on is not sampled"
    run = prepare(study, "rl")
    assert isinstance(run, Run) and run.mixture is not None and run.mixture.sizes == (4, 3)
    weights = [run.mixture.weights(step) for step in range(1, 6)]
    assert weights == [(3, 1), (1, 0), (1, 0), (0, 2), (0, 2)]
    tokens = Tokens(run.base)
    for prompt in run.prompts:
        of_hard = prompt.problem.id in study.problem_ids("hard")
        template = get_prompt("completion" if of_hard else "countdown")
        assert prompt.ids == tokens.encode(render(template, prompt.problem))


def test_another_mixture_makes_another_model(tmp_path: Path) -> None:
    digests = set()
    variants: list[dict[str, Any]] = [
        MIXED,
        {**MIXED, "schedule": []},
        {**MIXED, "mixture": [{**EASY, "weight": 2.0}, HARD]},
        {**MIXED, "mixture": [EASY, {"problems": "hard"}]},
        {**MIXED, "mixture": [EASY, {**HARD, "problems": "held-out"}], "schedule": []},
    ]
    for variant in variants:
        digests.add(mixed(tmp_path, variant).digests["rl"][3])
    assert len(digests) == len(variants)
    assert mixed(tmp_path).digests["rl"][3] in digests


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {**SFT, "texts": "pairs.jsonl", **NONE},
        TRACES,
        {"algorithm": "on-policy-distillation", "options": {"teacher": "base"}},
    ],
)
def test_what_can_be_trained_passes(tmp_path: Path, recipe: dict[str, Any]) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "response": "b"}\n')
    check_recipes(study_of(tmp_path, recipe))


def test_settings_are_the_recipes_keys_and_the_options_that_no_algorithm_has(
    tmp_path: Path,
) -> None:
    keys = {"kl": 0.25, "temperature": 0.5, "max_tokens": 9, "learning_rate": 0.125, "seed": 7}
    options = {"clip_low": 0.1, "dtype": "float32", "epochs": 3}
    recipe = study_of(tmp_path, {**keys, "options": options}).file.recipes["rl"]
    expected = Settings(
        steps=5, prompts_per_step=6, samples_per_prompt=2, temperature=0.5, max_tokens=9,
        learning_rate=0.125, seed=7, kl_loss=0.25, epochs=3,
    )  # fmt: skip
    assert settings_of(recipe, 5) == expected
    on_gpu = replace(expected, rollouts="vllm", recompute=True)
    assert settings_of(recipe, 5, gpu=True) == on_gpu, "what a recipe says goes before the device"
    supervised = study_of(tmp_path, TRACES).file.recipes["rl"]
    sizes = {"prompts_per_step": 6, "samples_per_prompt": 2}
    assert settings_of(supervised, 5) == Settings(steps=5, **sizes)


def test_rows_side_by_side_are_the_engines(tmp_path: Path) -> None:
    assert rollout_rows(study_of(tmp_path, {})) == 256
    assert rollout_rows(study_of(tmp_path, {}, engine=HF_BY_32)) == 32


def test_what_a_run_is_known_by_stays() -> None:
    """A run goes on where its algorithm reads as before: a default that moves parts them all."""
    lines = [f"settings\t{Settings(steps=1)!r}", f"traces\t{Traces()!r}"]
    for name in ALGORITHMS:
        lines.append(f"{name}\t{make_algorithm(name)!r}")
        lines += [
            f"{name}/{preset}\t{make_algorithm(name, preset)!r}"
            for preset in vars(type(make_algorithm(name))).get("PRESETS", {})
        ]
    assert lines == IDENTITIES.read_text().splitlines()


def test_a_run_is_known_by_what_it_learns_from(tmp_path: Path) -> None:
    """Digests of runs of before: with another one none of them could go on."""
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text(name)
    settings = Settings(steps=1)
    problem = Problem("toy/1", {"question": "?"}, "4", "math")
    pairs = [Response((1, 2), np.array([3, 4], np.int32))]
    judge = Judge(lambda *_: Verdict(Status.WRONG), lambda _: 0.0)

    def identity(problem: Problem = problem, **changes: Any) -> str:
        chosen = replace(settings, **changes)
        prompts = [Prompt(problem, (1, 2))]
        return Run(
            "m", tmp_path, tmp_path, {}, chosen, make_algorithm("grpo"), prompts, judge
        ).identity  # fmt: skip

    def learning(**changes: Any) -> str:
        chosen = replace(settings, **changes)
        return Distillation("m", tmp_path, tmp_path, {}, chosen, pairs).identity

    assert identity() == identity(steps=9, micro_tokens=1) == "06e7a46fe117e15a"
    assert identity(replace(problem, images=(b"x",))) == "b1857352f6c9ac70"
    assert identity(seed=1) != identity()
    assert learning() == learning(steps=9, micro_tokens=1) == "38a5dd04a2573660"
    assert learning(lora_rank=4) == "cebf3094c0d03773"


def test_what_is_handed_on_stays_as_it_is() -> None:
    """Of every module of the room: what one step was given another must find unchanged."""
    kinds = set()
    for module in pkgutil.walk_packages(rlbhpc.train.__path__, "rlbhpc.train."):
        for value in vars(importlib.import_module(module.name)).values():
            if dataclasses.is_dataclass(value) and "rlbhpc.train" in getattr(
                value, "__module__", ""
            ):
                kinds.add(value)
    assert len(kinds) > 40
    assert [kind for kind in kinds if not kind.__dataclass_params__.frozen] == []


def saved(study: Study, step: int, **progress: Any) -> None:
    state = study.layout.states("rl") / f"step-{step:08d}"
    state.mkdir(parents=True)
    (state / "progress.json").write_text(json.dumps(progress))


LARGE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def test_a_run_that_goes_on_keeps_the_division_of_its_state(tmp_path: Path) -> None:
    recipe = {"architecture": LARGE, "max_tokens": 16}
    study = study_of(tmp_path, recipe, models=FROM_NOTHING)

    def division(ranks: int, limit: int = 1 << 40) -> tuple[int, bool]:
        settings = forecast(study, "rl", ranks, limit).settings
        return settings.zero_stage, settings.offload

    assert _zero_of_saved_state(study, "rl") is None
    assert [division(1), division(2), division(2, 0)] == [(0, False), (2, False), (0, False)]
    saved(study, 1, zero_stage=3, offload=True)
    saved(study, 2, ranks=1)  # of a version that said nothing of it
    assert _zero_of_saved_state(study, "rl") == (3, True)
    assert [division(1), division(2), division(2, 0)] == [(3, True), (3, True), (0, False)]


def test_settings_on_a_gpu_are_those_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = {"limit": 2, "tools": ["calculator"]}
    recipe = {"architecture": LARGE, "max_tokens": 16, "options": {"turns": turns}}
    study = study_of(tmp_path, recipe, models=FROM_NOTHING)
    on_processors = settings_for_this_device(study, "rl")
    monkeypatch.setattr("rlbhpc.train.forecast.device_memory", lambda: 1 << 40)
    assert settings_for_this_device(study, "rl").turns == on_processors.turns


def test_what_nothing_makes_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    study = study_of(tmp_path, {"architecture": LARGE, "max_tokens": 16}, models=FROM_NOTHING)
    foretold = forecast(study, "rl", 1, 1 << 10)
    with pytest.raises(UserError) as refused:
        refuse_what_cannot_fit(foretold, 1 << 10)
    assert str(refused.value).startswith("model rl: `rollout_memory` gives vLLM 0.0 GiB, and its ")
    refuse_what_cannot_fit(foretold, 1 << 40)
    lone = study_of(tmp_path, {})
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(UserError, match=r"^model base: no config.json in its folder; bring it th"):
        forecast(lone, "rl", 1)


def test_a_new_model_is_made_once(tmp_path: Path) -> None:
    recipe = {"architecture": {**LARGE, "model_type": "llama"}, "max_tokens": 16}
    study = study_of(tmp_path, recipe, models=FROM_NOTHING)
    run = prepare(study, "rl")
    assert isinstance(run, Run) and run.reference is None and run.ask is not None
    assert run.base == study.layout.training("rl") / "random"
    config = json.loads((run.base / "config.json").read_text())
    assert {key: config[key] for key in recipe["architecture"]} == recipe["architecture"]
    made = (run.base / "model.safetensors").stat()
    again = prepare(study, "rl")
    assert again.identity == run.identity and list(again.exports) == [3]
    assert (run.base / "model.safetensors").stat() == made
    assert [path.name for path in run.base.parent.iterdir() if path.is_dir()] == ["random"]
    assert len(run.prompts) == 6 and run.prompts[0] == run.ask(run.prompts[0].problem)


def test_a_gpu_that_torch_cannot_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_unloadable_model(tmp_path / "model")
    (tmp_path / "study.yaml").write_text(trained("x", [1], {}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(UserError, match=r"^GPU GPU-7: torch .* is built without CUDA; install"):
        train.main([str(tmp_path / "study.yaml")], standalone_mode=False)
