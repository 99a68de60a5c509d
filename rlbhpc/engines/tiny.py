"""Tiny random models: canaries for a pipeline, and what the tests and benchmarks run on.

A canary model of a few thousand parameters loads in a moment and samples nonsense at thousands
of tokens per second, so a whole study can be rehearsed on a login node before it costs a GPU hour.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlbhpc.engines.folder import follow_umask
from rlbhpc.errors import UserError

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# Sizes that every family understands; a caller overrides what it likes. Heads of 32 because vLLM's
# CPU attention takes no smaller ones.
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


# How the Qwen2-VL family marks an image, and the smallest tower that vLLM's kernels take.
MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
MARK_NAMES = ("vision_start", "vision_end", "image", "video")
TOWER: dict[str, Any] = {
    "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56,
    "fullatt_block_indexes": [1],
}  # fmt: skip
PIXELS = {"min_pixels": 28 * 28, "max_pixels": 16 * 28 * 28}


def make_tiny_model(folder: Path, family: str = "qwen2", seed: int = 0, **sizes: Any) -> Path:
    """Write a random causal model with a byte tokeniser into ``folder`` and return the folder.

    ``family`` is a transformers model type: ``qwen2``, ``llama``, ``mistral``, ``gpt2``, …; or
    ``qwen2_5_vl``, which sees: it has a vision tower. The same seed gives the same bytes. ``sizes``
    replace those of :data:`SIZES`; ``initializer_range`` sets how peaked the random distributions
    are.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    config, sees = tiny_config(family, **sizes), family == "qwen2_5_vl"
    tokenizer = byte_tokenizer(MARKS if sees else ())
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    follow_umask(folder)
    tokenizer.save_pretrained(folder)
    if sees:
        _save_processor(folder)
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [config.get_text_config().eos_token_id]})
    )
    return folder


def tiny_config(family: str = "qwen2", **sizes: Any) -> Any:
    """Configuration of a small model for :func:`byte_tokenizer`, with ``sizes`` in place of ours.

    ``family`` is a transformers model type. ``MARKS`` are the tokens that mark images for the one
    that sees them.
    """
    from transformers import AutoConfig

    tokenizer = byte_tokenizer(MARKS if family == "qwen2_5_vl" else ())
    end = tokenizer.convert_tokens_to_ids(SPECIAL[0])
    settings = {
        **SIZES,
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        **sizes,
    }
    if family == "qwen2_5_vl":
        settings = _with_tower(settings, tokenizer)
    try:
        return AutoConfig.for_model(family, **settings)
    except ValueError:
        raise UserError(
            f"tiny model: {family!r} is no model type that transformers knows"
        ) from None


def _with_tower(text: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Put a vision tower in front of a language model's settings.

    Rotary positions of images have three parts (time, height, width), which share half of a head's
    numbers among them: ``mrope_section``.
    """
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    rotation = {"rope_type": "default", "rope_theta": 1e4}
    # A third, rounded, for height and for width; time has what is left.
    height = (half + 1) // 3
    return {
        "text_config": {
            **text,
            "rope_parameters": {**rotation, "mrope_section": [half - 2 * height, height, height]},
        },
        "vision_config": {**TOWER, "out_hidden_size": text["hidden_size"]},
        "tie_word_embeddings": text["tie_word_embeddings"],
        **{
            f"{name}_token_id": tokenizer.convert_tokens_to_ids(mark)
            for name, mark in zip(MARK_NAMES, MARKS, strict=True)
        },
    }


def _save_processor(folder: Path) -> None:
    """Write how images are cut into patches, in the file where such models keep it."""
    sizes = {k: TOWER[k] for k in ("patch_size", "temporal_patch_size")}
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "merge_size": TOWER["spatial_merge_size"],
        **sizes,
        **PIXELS,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def byte_tokenizer(marks: tuple[str, ...] = ()) -> Any:
    """Make a tokeniser with one token per byte, so that it holds any text and needs no training.

    ``marks`` are special tokens to add, such as those that mark an image.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL, *marks])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[0], pad_token=SPECIAL[0]
    )
