"""Sweeps: names, order, what goes together, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import validated
from rlbhpc.study.expand import expand
from rlbhpc.study.keys import common_name
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.tree import parse

BASE = """
name: s
models:
  base: {path: /m}
  rl: {train: {from: base, recipe: rl}, steps: [10]}
recipes:
  rl: {algorithm: grpo}
problem_sets:
  math500: {path: /d}
sampling: {prompt: qwen-boxed, temperature: 1.0, max_tokens: 9, n: 4}
arms:
  base: {model: base}
  rl: {model: rl}
"""


def expanded(changes: dict[str, Any]) -> StudyFile:
    tree = yaml.safe_load(BASE)
    for key, value in changes.items():
        node = tree
        *path, last = key.split("/")
        for step in path:
            node = node.setdefault(step, {})
        node[last] = value
    return validated(expand(parse(yaml.safe_dump(tree, sort_keys=False), "f")), StudyFile)


def test_a_list_where_one_value_belongs_makes_one_entry_per_value() -> None:
    file = expanded({"arms/base/temperature": [0.6, 1, 1.25]})
    assert list(file.arms) == ["base-t0.6", "base-t1.0", "base-t1.25", "rl"]
    assert file.arms["base-t1.0"].temperature == 1


def test_a_list_of_one_is_a_sweep_too_so_that_adding_a_value_renames_nothing() -> None:
    assert list(expanded({"arms/base/n": [4]}).arms) == ["base-n4", "rl"]


def test_defaults_are_swept_in_every_arm_that_does_not_say_otherwise() -> None:
    file = expanded({"sampling/temperature": [0.6, 1.0], "arms/rl/temperature": 0.9})
    assert list(file.arms) == ["base-t0.6", "base-t1.0", "rl"]


def test_several_sweeps_multiply_and_key_order_does_not_change_names() -> None:
    one = expanded({"recipes/rl": {"algorithm": ["ppo", "grpo"], "seed": [0, 1]}})
    two = expanded({"recipes/rl": {"seed": [0, 1], "algorithm": ["ppo", "grpo"]}})
    names = {"rl-ppo-s0", "rl-ppo-s1", "rl-grpo-s0", "rl-grpo-s1"}
    assert set(one.recipes) == set(two.recipes) == names
    assert set(one.arms) == set(two.arms) == names | {"base"}


def test_seeds_of_a_recipe_are_a_training_each() -> None:
    seeds = expanded({"recipes/rl/seed": [0, 5]})
    assert list(seeds.arms) == ["base", "rl-s0", "rl-s5"]


@pytest.mark.parametrize(
    ("seeds", "complaint"),
    [
        ([], "recipes.rl.seed: an empty list"),
        ([2, 2], "recipes.rl: the sweep gives the name rl-s2 twice"),
        ([-1], "recipes.rl.seed[0]: found -1; allowed: a whole number"),
    ],
)
def test_what_seeds_cannot_be(seeds: list[int], complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        expanded({"recipes/rl": {"algorithm": "grpo", "seed": seeds}})
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("arms", "name"),
    [
        (["rl-s0", "rl-s1"], "rl"),
        (["rl-s1-s0", "rl-s1-s1"], "rl-s1"),
        (["math-s1k-s0", "math-s1k-s1"], "math-s1k"),
        (["r1-s1.5b-seed0", "r1-s1.5b-seed1"], "r1-s1.5b"),
        (["rl-s0-big", "rl-s1-big"], "rl-big"),
        (["one", "two"], "one, two"),
    ],
)
def test_arms_that_differ_in_their_seed_share_the_rest_of_their_names(
    arms: list[str], name: str
) -> None:
    assert common_name(arms) == name


def test_a_swept_name_stands_for_all_its_members() -> None:
    file = expanded(
        {
            "recipes/rl": {"algorithm": ["ppo", "reinforce++"], "seed": [0, 1]},
            "scores/own": {"model": "rl", "responses": "rl"},
            "analysis/compare": [{"base": "base", "trained": "rl"}],
        }
    )
    members = ["rl-ppo-s0", "rl-ppo-s1", "rl-reinforce++-s0", "rl-reinforce++-s1"]
    assert list(file.recipes) == members
    assert [name for name in file.models if name != "base"] == members
    assert [file.models[name].train.recipe for name in members] == members  # type: ignore[union-attr]
    assert [name for name in file.arms if name != "base"] == members
    assert [(s.model, s.responses) for s in file.scores.values()] == [(m, m) for m in members]
    assert [pair.trained for pair in file.analysis.compare] == members


def test_lists_of_names_take_in_the_members() -> None:
    file = expanded(
        {
            "problem_sets": {"math500": {"path": "/d", "subset": ["a", "train[5]"]}},
            "arms/base/problem_sets": ["math500"],
        }
    )
    assert list(file.problem_sets) == ["math500-a", "math500-train-5"]
    assert file.arms["base"].problem_sets == ["math500-a", "math500-train-5"]


def test_a_list_of_names_under_a_sweep_mixes_swept_and_single_ones() -> None:
    file = expanded({"arms/all": {"model": ["base", "rl"]}, "recipes/rl/seed": [0, 1]})
    assert [name for name in file.arms if name.startswith("all")] == [
        "all-base", "all-s0", "all-s1"
    ]  # fmt: skip


def test_what_a_value_adds_to_a_name() -> None:
    served = {"endpoint": {"url": "http://a", "model": "m", "chat": [True, False]}}
    file = expanded(
        {
            "models/far": served,
            "problem_sets/math500/path": ["/d/first part.jsonl", "/d/b.jsonl"],
            "recipes/rl/options": {"betas": {"sweep": [[0, 1]]}, "free": {"sweep": [1], "x": 2}},
            "arms/base/engine": ["/x/mine.py", "/x/mine.py:fast", "hf"],
            "arms/rl/prompt": ["/x/" + "p" * 50 + ".txt"],
        }
    )
    assert list(file.models) == ["base", "rl-betas", "far-chat", "far-no-chat"]
    assert list(file.problem_sets) == ["math500-first-part", "math500-b"]
    assert list(file.recipes) == ["rl-betas"]
    assert file.recipes["rl-betas"].options["free"] == {"sweep": [1], "x": 2}
    engines = ["base-mine", "base-mine-fast", "base-hf"]
    assert list(file.arms) == [*engines, f"rl-betas-{'p' * 40}"]


def test_a_sweep_makes_a_thousand_entries_and_no_more() -> None:
    assert len(expanded({"recipes/rl/seed": [*range(1_000)]}).recipes) == 1_000
    with pytest.raises(UserError, match="the sweeps of this entry make more than 1,000 combinat"):
        expanded({"recipes/rl/seed": [*range(1_001)]})


def test_free_options_are_swept_only_on_demand() -> None:
    file = expanded({"recipes/rl/options": {"betas": [0.9, 0.99], "clip": {"sweep": [0.1, 0.2]}}})
    assert list(file.recipes) == ["rl-clip0.1", "rl-clip0.2"]
    assert file.recipes["rl-clip0.1"].options == {"betas": [0.9, 0.99], "clip": 0.1}


def test_lists_that_belong_where_they_are_stay_lists() -> None:
    file = expanded({"arms/base/stop": ["a", "b"], "models/rl/steps": [10, 20]})
    assert list(file.arms) == ["base", "rl"]
    assert file.arms["base"].stop == ["a", "b"]


def test_a_prompt_file_gives_its_stem_to_the_name(tmp_path: Path) -> None:
    file = expanded({"arms/base/prompt": ["completion", f"{tmp_path}/my own.txt"]})
    assert list(file.arms) == ["base-completion", "base-my-own", "rl"]


def test_a_cycle_is_named() -> None:
    with pytest.raises(UserError, match=r"f:\d+: models.(rl|a): a cycle: (rl|a) <- "):
        expanded({"models/a": {"path": "/m", "base": "rl"}, "models/rl/train/from": "a"})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"arms/base/n": []}, "arms.base.n: an empty list"),
        ({"arms/base/n": [4, 4]}, "the sweep gives the name base-n4 twice"),
        ({"arms/base/n": [4], "arms/base-n4": {"model": "base"}}, "the name base-n4 twice"),
        ({"arms/base/n": [4, "x"]}, "arms.base.n[1]: found 'x'; allowed: a whole number"),
        ({"sampling/temprature": 1}, "sampling.temprature: unknown key"),
        ({"sampling/model": "base"}, "sampling.model: unknown key"),
        (
            {"arms/base/temperature": [i / 100 for i in range(99)], "arms/base/n": [*range(1, 99)]},
            "more than 1,000 combinations",
        ),
        ({"name": ["a", "b"]}, "name: found a list"),
        ({"seed": [0, 1]}, "seed: found a list"),
        ({"recipes/rl/options": {"a": {"sweep": 5}}}, "a sweep is a list of values"),
        ({"models/rl/train/from": "rl"}, "models.rl: a cycle: rl <- rl"),
        ({"sampling": None}, "sampling: found nothing; allowed: a mapping with the keys prompt"),
        ({"arms": 5}, "arms: found 5"),
        ({"arms": None}, "arms: found nothing"),
        ({"problem_sets": [1]}, "problem_sets: found a list"),
        ({"analysis": 5}, "analysis: found 5"),
    ],
)
def test_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as error:
        expanded(changes)
    assert complaint in str(error.value)
