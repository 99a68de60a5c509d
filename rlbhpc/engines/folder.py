"""What the configuration files of a model folder say, read without loading the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError


def configuration(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder in the Hugging Face layout."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder}: no config.json; a model is a folder in the Hugging Face layout")
    config: dict[str, Any] = json.loads(path.read_text())
    return config


def follow_umask(folder: Path) -> None:
    """Let who may read ``config.json`` read the weights: safetensors makes files for one user."""
    mode = (folder / "config.json").stat().st_mode
    for path in folder.glob("*.safetensors"):
        path.chmod(mode & 0o777)


def context_length(folder: Path) -> int:
    """Tokens, prompt and response together, that a model can hold."""
    config = configuration(folder)
    config = config.get("text_config", config)
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if name in config:
            return int(config[name])
    raise UserError(f"{folder}/config.json: does not say how many positions the model has")


def sees(folder: Path) -> bool:
    """Whether a model has a vision tower."""
    return "vision_config" in configuration(folder)


def end_ids(folder: Path) -> set[int]:
    """End-of-text ids that the configuration files name; chat models have several."""
    end_tokens: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.is_file():
            ids = json.loads(path.read_text()).get("eos_token_id")
            end_tokens |= set(ids) if isinstance(ids, list) else {ids} - {None}
    return end_tokens
