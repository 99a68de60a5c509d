"""Files of small studies: of a model as it is, and of one that is trained from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

HF = {"name": "hf", "dtype": "float32"}
HF_BY_32 = HF | {"options": {"rows": 32}}
#: What makes a study small.
SAMPLING = {"prompt": "countdown", "temperature": 1.0, "max_tokens": 12, "n": 8}


def untrained(
    name: str,
    limit: int = 6,
    model: str = "model",
    engine: dict[str, Any] = HF,
    arms: dict[str, dict[str, Any]] | None = None,
    **sampling: Any,
) -> str:
    """A study of an untrained model: the arm ``base``, and ``arms`` that differ from it."""
    base = {"model": "base", **SAMPLING, **sampling}
    return _text(
        name=name,
        models={"base": {"path": model}},
        problem_sets={"countdown": {"subset": "test", "limit": limit}},
        arms={"base": base} | {arm: base | more for arm, more in (arms or {}).items()},
        engine=engine,
    )


def trained(
    name: str,
    steps: Sequence[int],
    recipe: dict[str, Any],
    limits: tuple[int, int] = (6, 6),
    sampling: dict[str, Any] | None = None,
    **sections: Any,
) -> str:
    """A study of a model and of what a recipe makes of it, ``rl``.

    ``limits`` are the numbers of problems that it learns from and that it is sampled on; a section
    that is named takes the place of its own.
    """
    learn, test = limits
    tree = {
        "name": name,
        "models": {
            "base": {"path": "model"},
            "rl": {"train": {"from": "base", "recipe": "rl"}, "steps": list(steps)},
        },
        "recipes": {
            "rl": {"algorithm": "grpo", "problems": "learn", "prompt": "countdown", **recipe}
        },
        "problem_sets": {
            "learn": {"set": "countdown", "subset": "train", "limit": learn},
            "countdown": {"subset": "test", "limit": test},
        },
        "sampling": {**SAMPLING, **(sampling or {})},
        "arms": {"base": {"model": "base"}, "rl": {"model": "rl"}},
        "engine": HF,
    }
    return _text(**{**tree, **sections})


def plugged(
    name: str, algorithm: str, reward: str, problem_sets: dict[str, Any], **sections: Any
) -> str:
    """A study with parts that are not rlbhpc's own, which learns sums."""
    recipe = {
        "algorithm": algorithm,
        "problems": "sums",
        "prompt": "ask.txt",
        "prompts_per_step": 2,
        "samples_per_prompt": 4,
        "max_tokens": 8,
        "learning_rate": 1e-3,
        "options": {"rewards": {reward: 0.5, "correct": 1.0}},
    }
    sampling = {"prompt": "ask.txt", "max_tokens": 8, "n": 3, "problem_sets": list(problem_sets)}
    sections |= {"problem_sets": problem_sets}
    return trained(name, [1], recipe, sampling=sampling, **sections)


def _text(**sections: Any) -> str:
    return yaml.safe_dump(
        sections, sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True
    )


def write_unloadable_model(folder: Path) -> None:
    """A model as far as a login node looks into it: nothing could load its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "qwen2", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights of " + folder.name.encode())
