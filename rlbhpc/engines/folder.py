"""What the configuration files of a model folder say, read without loading the model."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.study import content


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
    """Tokens, prompt and response together, that a model can hold.

    Where the file leaves it to the family, as Gemma 3's do, it is what transformers takes.
    """
    length = content.stated_length(configuration(folder))
    if length is None:
        from transformers import AutoConfig

        with contextlib.suppress(OSError, ValueError, AttributeError):
            length = AutoConfig.from_pretrained(folder).get_text_config().max_position_embeddings
    if length is None:
        raise UserError(f"{folder}/config.json: does not say how many positions the model has")
    return length


def steady_length(folder: Path) -> int:
    """As many as ``hf`` and training hold."""
    return content.steady_length(configuration(folder)) or context_length(folder)


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


def weight_files(folder: Path) -> list[Path]:
    """Safetensors files that transformers reads.

    Some folders have the weights once more for another program, as those of Mistral have.
    """
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    places = json.loads(index.read_text())["weight_map"].values()
    return sorted(folder / name for name in set(places))
