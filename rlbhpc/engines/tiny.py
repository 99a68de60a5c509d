"""Tiny random models: canaries for a pipeline, and what the tests and benchmarks run on.

A canary model of a few thousand parameters loads in a moment and samples nonsense at thousands
of tokens per second, so a whole study can be rehearsed on a login node before it costs a GPU hour.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def make_tiny_model(folder: Path, family: str = "qwen2", seed: int = 0, **sizes: Any) -> Path:
    """Write a random causal model with a byte tokeniser into ``folder`` and return the folder.

    Parameters
    ----------
    folder
        Where to write; made if it does not exist.
    family
        A transformers model type: ``qwen2``, ``llama``, ``mistral``, ``gpt2``, …
    seed
        Seed of the weights: the same seed gives the same bytes.
    sizes
        Configuration values that replace those of :data:`SIZES`. ``initializer_range`` sets how
        peaked the random distributions are.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config, tokenizer = tiny_config(family, **sizes), byte_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [config.eos_token_id]})
    )
    return folder


def tiny_config(family: str = "qwen2", **sizes: Any) -> Any:
    """Configuration of a model for :func:`byte_tokenizer`, with ``sizes`` in place of ours."""
    from transformers import AutoConfig

    tokenizer = byte_tokenizer()
    end = tokenizer.convert_tokens_to_ids(SPECIAL[0])
    settings = {
        **SIZES,
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        **sizes,
    }
    try:
        return AutoConfig.for_model(family, **settings)
    except ValueError:
        raise UserError(
            f"tiny model: {family!r} is no model type that transformers knows"
        ) from None


def byte_tokenizer() -> Any:
    """Make a tokeniser with one token per byte, so that it holds any text and needs no training."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[0], pad_token=SPECIAL[0]
    )
