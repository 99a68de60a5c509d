"""Models that call tools: each token follows from the one before, by a table of what may follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from rlbhpc.engines.tiny import SPECIAL, byte_tokenizer, tiny_config

END = SPECIAL[0]
TURN_END = "<|im_end|>"
DIGITS = [str(digit) for digit in range(1, 10)]
WIDTH = 320

#: Blocks of a calculator, and of text, which are no calls; then an answer.
BLOCKS: Mapping[str, Sequence[str]] = {
    "?": ["```calculator\n", "```calculator\n", "```text\n", "So 7"],
    "\n```\n": ["```calculator\n", "```calculator\n", "```text\n", "So 7", "So 7"],
    "```calculator\n": DIGITS,
    **{digit: ["+", "*", "/", "\n```\n", "\n```\n"] for digit in DIGITS},
    **dict.fromkeys("+*/", DIGITS),
    "```text\n": ["hm"],
    "hm": ["\n```\n"],
    "So 7": [END],
}
_CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "'
#: The same in a chat format of Hermes, with a call that is no JSON now and then.
CHAT: Mapping[str, Sequence[str]] = {
    "assistant\n": [_CALL, _CALL, "<tool_call>\n{", "So 7"],
    _CALL: DIGITS,
    **{digit: ["+", "*", '"}}\n</tool_call>'] for digit in DIGITS},
    **dict.fromkeys("+*", DIGITS),
    '"}}\n</tool_call>': [TURN_END],
    "<tool_call>\n{": [TURN_END],
    "So 7": [TURN_END],
}
TEMPLATE = """
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.tool_calls %}
{{- '<|im_start|>assistant\n<tool_call>\n{}\n</tool_call><|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
""".lstrip("\n")


def make_caller(folder: Path, table: Mapping[str, Sequence[str]]) -> Path:
    """Write a model whose next token is drawn evenly from what the table has for the last one."""
    tokenizer = byte_tokenizer()
    words = dict.fromkeys([*table, *(word for words in table.values() for word in words)])
    tokenizer.add_tokens([word for word in words if len(word) > 1 and word not in SPECIAL])
    tokenizer.chat_template = TEMPLATE
    sizes: dict[str, Any] = {
        "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": WIDTH // 32,
        "vocab_size": len(tokenizer),
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(tiny_config("qwen2", **sizes), dtype=torch.float32)
    ids = {word: tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in words}
    with torch.no_grad():
        # The layer adds nothing, so that the last token alone decides.
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
        model.get_input_embeddings().weight.copy_(torch.eye(len(tokenizer), WIDTH))
        head = model.get_output_embeddings().weight
        head.zero_()
        for word, followers in table.items():
            for follower in followers:
                weight = 1.0 + followers.count(follower) / 20
                head[ids[follower], ids[word]] = weight
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids(TURN_END if TURN_END in words else END)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    return folder
