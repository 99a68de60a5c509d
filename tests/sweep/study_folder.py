"""The models and problem sets that a study file of `configs/study` names, made small.

Every model is a tiny one of its real type with random weights and the chat marks of its family,
every problem set a file of its real shape, in the places where the study file looks for them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rlbhpc.engines.tiny import make_tiny_model
from tests.problems.shapes import SHAPES, jsonl

# Random weights solve nothing: that responses differ in length is what there is to learn from.
RECIPE: dict[str, Any] = {
    "prompts_per_step": 2, "samples_per_prompt": 4, "max_tokens": 64,
    "options": {
        "zero_stage": 0, "dtype": "float32", "save_every": 1, "mini_batch": 4,
        "rewards": {"correct": 1, "brevity": 1},
    },
}  # fmt: skip
# These refuse to train where nothing is ever solved, and are right.
NEED_SUCCESS = {"dapo", "prorl"}
# Voting on answers needs some, and random weights state none: there the first letter is the answer.
LETTER_VERIFIER = """
from rlbhpc.verify.verdict import Status, Verdict


def verify(gold, response, problem=None):
    letter = response.strip()[:1] or "-"
    return Verdict(Status.WRONG, letter, letter)
"""
# By a word in a model's name: its type, and what its family has in place of Qwen's chat marks.
FAMILIES = {
    "-VL-": ("qwen2_5_vl", {}),
    "Llama-3": ("llama", {"<|im_start|>": "<|start_header_id|>", "<|im_end|>": "<|eot_id|>"}),
    "Olmo-3": ("olmo3", {}),
    "": ("qwen2", {}),
}
CONFIGS = Path(__file__).parents[2] / "configs" / "study"


def records(name: str) -> list[dict[str, Any]]:
    found = SHAPES[name][0]
    match name:
        case "omni-math-rule":  # its cut is a matter of counts
            return [{**found[0], "problem": f"What is {i}?"} for i in range(2821)]
        case "math":  # enough of them to be examples
            more = [{**found[0], "problem": f"{i}?", "unique_id": f"more/{i}"} for i in range(8)]
            return [*found, *more]
        case "livecodebench":  # the benchmark's window, and older problems to train on
            older = {"question_id": "2977", "contest_date": "2024-03-02T00:00:00"}
            return [*found, {**found[0], **older}]
    return found


def study_folder(
    folder: Path, name: str, records: Callable[[str], list[dict[str, Any]]] = records
) -> Path:
    """A copy of ``configs/study`` with everything there that the named file asks for."""
    configs = Path(shutil.copytree(CONFIGS, folder / "configs" / "study"))
    make_tiny_model(folder / "tiny", hidden_size=32)
    for part in (yaml.safe_load(path.read_text()) for path in files_of(configs / f"{name}.yaml")):
        for entry in (part.get("models") or {}).values():
            if entry and "path" in entry:
                model = (configs / entry["path"]).resolve()
                shutil.copytree(tiny_of_family(folder, model.name), model, dirs_exist_ok=True)
                widen(model)
        for key, entry in (part.get("problem_sets") or {}).items():
            if entry and "path" in entry:
                place = (configs / entry["path"]).resolve()
                if not place.exists():
                    place.mkdir(parents=True)
                    file = jsonl(records(entry.get("set", key)), place)
                    if place.name in ("math", "geometry3k"):
                        file.rename(file.with_name("train.jsonl"))
    return configs / f"{name}.yaml"


def tiny_of_family(folder: Path, name: str) -> Path:
    """A tiny model of the type that a published model has, made once in a folder."""
    model_type, marks = next(family for word, family in FAMILIES.items() if word in name)
    tiny = folder / ("tiny" if model_type == "qwen2" else f"tiny-{model_type}")
    if not tiny.is_dir():
        make_tiny_model(tiny, model_type)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            text = (tiny / file).read_text()
            for mark, other_mark in marks.items():
                text = text.replace(mark, other_mark)
            (tiny / file).write_text(text)
    return tiny


def files_of(path: Path) -> list[Path]:
    """A study file and those that it includes."""
    more = yaml.safe_load(path.read_text()).get("include")
    return [path, *(files_of(path.parent / more) if more else [])]


def widen(model: Path) -> None:
    """Let a tiny model say that it holds as many tokens as the real one."""
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    text["max_position_embeddings"] = 4096 if "-Math-7B" in model.name else 131_072
    (model / "config.json").write_text(json.dumps(config))
    if "RL-Zero" in model.name:
        path = model / "tokenizer_config.json"
        chat = "{% for m in messages %}{{ m.content }}\n{% endfor %}Answer:"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": chat}))


def small_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a recipe, made small; one that makes its own tasks has six parts."""
    if recipe.get("samples_per_prompt") != 1:
        return RECIPE
    options = {**RECIPE["options"], "mini_batch": 6}
    return {**RECIPE, "prompts_per_step": 6, "samples_per_prompt": 1, "options": options}


def canary(path: Path) -> Path:
    """The same study in minutes: every model, arm, recipe and score, at the smallest sizes."""
    tree: dict[str, Any] = {}
    for part in reversed([yaml.safe_load(file.read_text()) for file in files_of(path)]):
        for key in ("models", "problem_sets", "prompts", "arms", "recipes", "scores"):
            tree.setdefault(key, {}).update(part.get(key) or {})
    lines = {name for name, entry in tree["models"].items() if entry and "steps" in entry}
    there = {key: [name for name, one in tree[key].items() if one] for key in tree}
    prompts = tree["prompts"].values()
    examples = {prompt["shots"]["from"] for prompt in prompts if "shots" in prompt}
    small: dict[str, Any] = {
        "include": path.name,
        "models": {name: {"steps": [1, 2]} for name in lines},
        "problem_sets": {
            name: {"limit": 2, "n": 2} for name in there["problem_sets"] if name not in examples
        },
        "arms": {name: {"max_tokens": 24, "n": 2} for name in there["arms"]},
        "recipes": {name: small_recipe(tree["recipes"][name]) for name in there["recipes"]},
        "scores": {name: {"per_problem": 2} for name in there["scores"]},
        "engine": {"name": "hf", "dtype": "float32", "options": None, "tensor_parallel": 1},
    }
    for key in ("models", "arms", "recipes"):
        for name in NEED_SUCCESS & set(there[key]):
            small[key][name] = None
    recipes = [recipe for recipe in tree["recipes"].values() if recipe]
    voted_on = [recipe["problems"] for recipe in recipes if recipe["algorithm"] == "ttrl"]
    for name in voted_on:
        path.with_name("letter.py").write_text(LETTER_VERIFIER)
        small["problem_sets"].setdefault(name, {})["verifier"] = "./letter.py"
    made = path.with_name("canary.yaml")
    made.write_text(yaml.safe_dump({key: value for key, value in small.items() if value}))
    return made
