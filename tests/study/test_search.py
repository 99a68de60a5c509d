"""``prompt: search``: which prompts are tried for a model, at what cost, and who asks what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import get_prompt, render
from rlbhpc.study.load import load_study
from rlbhpc.study.search import STOPS, cross, with_searches
from rlbhpc.study.study import Study, half_of
from tests.study.folder import write_model, write_problems
from tests.study.test_prompts_of_pairs import FAMILIES, write_family_model


def write_pair(
    folder: Path, base: str = "qwen", n: int = 256, problems: int = 60, **more: Any
) -> Path:
    """A study whose two models search for their prompts."""
    for name in ("base", "SimpleRL"):
        if not (folder / name).exists():
            write_family_model(folder / name, base)
    write_problems(folder / "math500.jsonl", problems)
    tree = {
        "name": "pair",
        "models": {"base": {"path": "base"}, "trained": {"path": "SimpleRL", "base": "base"}},
        "problem_sets": {"math500": {"path": "math500.jsonl"}},
        "sampling": {"prompt": "search", "temperature": 1.0, "max_tokens": 512, "n": n},
        "arms": {"base": {"model": "base"}, "trained": {"model": "trained"}},
        **more,
    }
    file = folder / "pair.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


def record_choice(study: Study, chosen: list[str]) -> None:
    """Keep the same choice for every arm of a study that searches."""
    study.layout.root.mkdir(parents=True, exist_ok=True)
    outcome = {"chosen": chosen, "rates": {name: [0.5, 0.25] for name in chosen}}
    keys = [search.key for search in study.searches.values()]
    study.layout.searches.write_text(json.dumps(dict.fromkeys(keys, outcome)))


def test_each_family_is_tried_with_prompts_that_its_tokenizer_knows(tmp_path: Path) -> None:
    for family in FAMILIES:
        folder = tmp_path / family
        folder.mkdir()
        study = load_study(write_pair(folder, family))
        candidates = set(study.searches["base"].tries)
        usual = {"chat", "completion-boxed", "completion-boxed-4", "completion-boxed-8"}
        assert candidates >= usual | {"simplerl-abel"}, family
        assert ("qwen-boxed" in candidates) == ("<|im_start|>" in FAMILIES[family][1]), family
        texts = [study.prompts[arm].text for arm in study.searches["base"].tries.values()]
        assert len(set(texts)) == len(texts)


def test_the_prompts_of_the_study_and_of_its_trainings_are_tried_first(tmp_path: Path) -> None:
    recipe = {"algorithm": "grpo", "problems": "learn", "prompt": "r1-verl"}
    own = {"mine": {"template": "completion", "shots": {"from": "learn", "n": 1}}}
    sets = {"math500": {"path": "math500.jsonl"},
            "learn": {"set": "math500", "path": "math500.jsonl"}}  # fmt: skip
    study = load_study(write_pair(tmp_path, prompts=own, problem_sets=sets, recipes={"rl": recipe}))
    assert list(study.searches["trained"].tries)[:2] == ["mine", "r1-verl"]


@pytest.mark.parametrize(("n", "problems"), [(64, 64), (256, 500), (1024, 30), (128, 1319)])
def test_the_tries_cost_three_percent_at_the_most(tmp_path: Path, n: int, problems: int) -> None:
    study = load_study(write_pair(tmp_path, n=n, problems=problems))
    for arm, search in study.searches.items():
        tried = sum(study.count_samples(name) for name in search.tries.values())
        assert 0.015 < tried / study.count_samples(arm) <= 0.03
        asked = {study.asked_problems(name, "math500") for name in search.tries.values()}
        assert len(asked) == 1, "all candidates answer the same problems"
    sizes = {block.arm: block.size for block in study.blocks()}
    assert sizes == {name: study.count_samples(name) for name in study.tries}


def test_the_share_can_be_set(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    usual, dear = load_study(file), load_study(file, ["sampling.search_share=0.3"])
    costs = [sum(map(study.count_samples, study.tries)) for study in (usual, dear)]
    assert 7 < costs[1] / costs[0] < 13


def test_halves_do_not_hang_on_the_other_problems() -> None:
    ids = [f"math500/{i}" for i in range(2000)]
    first = sum(half_of(problem) == 0 for problem in ids)
    assert 900 < first < 1100
    assert half_of("math500/7") == half_of("math500/7")


def test_each_half_is_asked_by_the_prompt_that_is_its_own(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    study = load_study(file)
    assert study.searching == ["base", "trained"]
    record_choice(study, ["completion-boxed", "completion-boxed-4"])
    chosen = load_study(file)
    assert not chosen.searching
    arm = chosen.arms["base"]
    for problem in chosen.problems("math500"):
        candidate = ("completion-boxed", "completion-boxed-4")[half_of(problem.id)]
        expected = render(chosen.prompts[f"base+{candidate}"], problem)
        assert render(chosen.prompts[arm.prompt], problem) == expected
    assert Study.from_json(chosen.to_json()) == chosen
    assert Study.from_json(study.to_json()).searching == study.searching


def test_one_prompt_for_both_halves_is_that_prompt(tmp_path: Path) -> None:
    """Its samples are those of an arm that names the prompt."""
    prompt = get_prompt("completion")
    assert cross(prompt, replace(prompt, name="again"), []) is prompt
    file = write_pair(tmp_path)
    record_choice(load_study(file), ["completion-boxed"] * 2)
    named = ["sampling.prompt=completion-boxed", f"sampling.stop={json.dumps(list(STOPS))}"]
    fingerprints = [
        load_study(file, overrides).block("base", "math500", 0).fingerprints.tolist()
        for overrides in ([], named)
    ]
    assert fingerprints[0] == fingerprints[1]


def test_what_is_compared_is_the_answer_and_no_try(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    assert load_study(file).comparisons() == [("base", "trained")]
    both = ["sampling.prompt=[search, completion-boxed]", f"sampling.stop={json.dumps(['|'])}"]
    pairs = load_study(file, both).comparisons()
    names = ("search", "completion-boxed")
    assert pairs == [(f"base-{name}", f"trained-{name}") for name in names]


def test_other_weights_search_again(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    record_choice(load_study(file), ["completion-boxed"] * 2)
    assert not load_study(file).searching
    (tmp_path / "base" / "model.safetensors").write_bytes(b"other")
    assert load_study(file).searching == ["base"]


def test_a_training_cannot_search(tmp_path: Path) -> None:
    recipe = {"algorithm": "grpo", "problems": "math500", "prompt": "search"}
    with pytest.raises(UserError, match=r"recipes\.rl\.prompt"):
        load_study(write_pair(tmp_path, recipes={"rl": recipe}))


def test_a_model_without_a_chat_format_is_tried_without_one(tmp_path: Path) -> None:
    for name in ("base", "SimpleRL"):
        write_model(tmp_path / name)
    tries = load_study(write_pair(tmp_path)).searches["base"].tries
    assert "completion-boxed" in tries and not {"chat", "qwen-boxed"} & set(tries)


def test_a_study_that_is_searched_already_is_the_same_again(tmp_path: Path) -> None:
    study = load_study(write_pair(tmp_path))
    assert with_searches(study) == study
