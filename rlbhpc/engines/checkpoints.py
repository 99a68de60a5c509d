"""Checkpoints that are no model folders yet: ZeRO and FSDP states converted, adapters merged.

Both become a folder in the Hugging Face layout, made once and used by every engine. It is written
under another name and renamed when it is whole, so two workers that convert at the same time make
the same folder twice and keep one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final

from rlbhpc.engines.folder import configuration, follow_umask, weight_files
from rlbhpc.engines.sharded import gather, own_configuration, sharded_weights
from rlbhpc.errors import UserError

if TYPE_CHECKING:
    import torch

ADAPTER: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
ZERO_STATES: Final = "*_optim_states.pt"
WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.distcp", ".metadata")
PREFIX: Final = "base_model.model."
# What a LoRA can do besides adding B·A, which is not done here.
BEYOND: Final = ("use_dora", "lora_bias", "use_qalora")


def needs_base(folder: Path) -> bool:
    """Whether a checkpoint is one only together with the model it was trained from."""
    return not (folder / "config.json").is_file() and own_configuration(folder) is None


def model_folder(folder: Path, base: Path | None, target: Path) -> Path:
    """Return a checkpoint as a model folder; a folder that is one is returned as it is.

    ``folder`` may also be a DeepSpeed checkpoint of any ZeRO stage, an FSDP checkpoint of verl or
    TRL, or a LoRA adapter; ``base`` gives what it lacks. DeepSpeed's and verl's files are pickles,
    which can run code: convert those you trust. What is converted stays in ``target``, and is taken
    as it is if it is there already.
    """
    adapter = (folder / ADAPTER).is_file()
    zero = _zero_tag(folder)
    parts = sharded_weights(folder)
    if not (adapter or zero or parts):
        return folder
    if target.is_dir():
        return target
    source = base if needs_base(folder) else own_configuration(folder) or folder
    if source is None:
        raise UserError(f"{folder}: has no config.json; name the model it belongs to as its `base`")
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
    partial.mkdir(parents=True)
    try:
        for companions in dict.fromkeys((source, folder)):
            _copy_companions(companions, partial)
        if adapter:
            _merge(folder, source, partial)
        elif zero is not None:
            _convert(*zero, partial)
        else:
            assert parts is not None
            gather(parts, partial)
        follow_umask(partial)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else somebody was faster, with the same folder
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy_companions(source: Path, target: Path) -> None:
    """Copy configuration and tokeniser: all files that are no weights."""
    for file in sorted(source.iterdir()):
        weights = any(file.match(p) for p in (*WEIGHTS, "*.index.json", "zero_to_fp32.py"))
        if file.is_file() and not weights and file.name not in (ADAPTER, "latest"):
            shutil.copyfile(file, target / file.name)


# --- DeepSpeed -----------------------------------------------------------------------------------


def _zero_tag(folder: Path) -> tuple[Path, str] | None:
    """Where a DeepSpeed checkpoint is and its tag; None if this is none, or weights are beside."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        return None
    if any(folder.glob(ZERO_STATES)):
        return folder.parent, folder.name
    latest = folder / "latest"
    return (folder, latest.read_text().strip()) if latest.is_file() else None


def _convert(folder: Path, tag: str, target: Path) -> None:
    """Gather the float32 weights of a DeepSpeed checkpoint, in the type that the model names."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file

    from rlbhpc.engines.hf.backend import skeleton, stored_weights

    try:
        state = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag)
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, UnpicklingError) as error:
        raise UserError(f"{folder}: DeepSpeed cannot gather {tag!r}: {error}") from None
    config = configuration(target)
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    tied = config.get("tie_word_embeddings", False)
    weights = {
        key: tensor.to(getattr(torch, name)).contiguous().clone()
        for key, tensor in state.items()
        if not (tied and key == "lm_head.weight")
    }
    with suppress(UserError):  # vLLM samples models that only it knows how to build
        module = skeleton(target)
        if weights.keys() <= module.state_dict().keys():
            weights = dict(stored_weights(module, weights.items()))
    save_file(weights, target / "model.safetensors", {"format": "pt"})


# --- adapters ------------------------------------------------------------------------------------


def _merge(adapter: Path, base: Path, target: Path) -> None:
    """Write W + s·B·A for every adapted weight W of the base, and the others as they are."""
    from safetensors.torch import load_file, save_file

    settings = json.loads((adapter / ADAPTER).read_text())
    if settings.get("peft_type") != "LORA":
        raise UserError(
            f"{adapter}: a {settings.get('peft_type')} adapter; only LORA can be merged"
        )
    for name in BEYOND:
        if settings.get(name):
            raise UserError(f"{adapter}: {name} cannot be merged; merge it where it was trained")
    if not (adapter / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{adapter}: no {ADAPTER_WEIGHTS}; save the adapter as safetensors")
    unmerged = load_file(adapter / ADAPTER_WEIGHTS)
    files = weight_files(base)
    if not files:
        raise UserError(f"{base}: no safetensors in it; save the base as safetensors")
    for file in files:
        weights = load_file(file)
        for name in weights:
            weights[name] = _adapted(name, weights[name], unmerged, settings)
        save_file(weights, target / file.name, {"format": "pt"})
    for index in base.glob("*.safetensors.index.json") if len(files) > 1 else ():
        shutil.copyfile(index, target / index.name)
    if unmerged:
        raise UserError(
            f"{adapter}: {len(unmerged)} tensors belong to nothing in {base}, "
            f"among them {min(unmerged)}"
        )


def _adapted(
    name: str, weight: torch.Tensor, unmerged: dict[str, torch.Tensor], settings: Mapping[str, Any]
) -> torch.Tensor:
    """Adapt one weight; what was used is taken out of ``left``."""
    whole = unmerged.pop(PREFIX + name, None)
    if whole is not None:  # `modules_to_save`: trained as a whole
        return whole.to(weight.dtype)
    module = PREFIX + name.removesuffix(".weight")
    a = unmerged.pop(f"{module}.lora_A.weight", None)
    b = unmerged.pop(f"{module}.lora_B.weight", None)
    if a is None or b is None:
        return weight
    change = b.float() @ a.float()
    if settings.get("fan_in_fan_out"):
        change = change.T
    return (weight.float() + _scale(module, len(a), settings) * change).to(weight.dtype)


def _scale(module: str, rank: int, settings: Mapping[str, Any]) -> float:
    """Weight of the change: α/r, or α/√r where the adapter is rank-stabilised."""
    alpha = float(settings.get("lora_alpha", rank))
    for pattern, other in (settings.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            alpha = float(other)
            break
    return alpha / (rank**0.5 if settings.get("use_rslora") else rank)
