"""By which prompt `init` and `ask` let published pairs of models answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rlbhpc.study.draft import ON_GPUS, Draft, ModelSource
from rlbhpc.study.prompts import render_chat
from tests.study.folder import write_model

# The chat marks in the tokenizers of each family, and the type in its configuration.
FAMILIES = {
    "qwen": ("qwen2", ["<|im_start|>", "<|im_end|>"]),
    "llama": ("llama", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "gemma": ("gemma2", ["<start_of_turn>", "<end_of_turn>"]),
    "olmo": ("olmo3", ["<|im_start|>", "<|im_end|>"]),
    "mistral": ("mistral", ["[INST]", "[/INST]"]),
    "distilled": ("qwen2", ["<｜User｜>", "<｜Assistant｜>"]),
}
BOXED, QWEN, BASE, TRAINED = "completion-boxed", "qwen-boxed", "base-chat", "trained-chat"
# Family of the base, base, trained model; prompts of the base and of the trained model.
PAIRS = [
    ("qwen", "Qwen/Qwen2.5-7B", "hkust-nlp/Qwen-2.5-7B-SimpleRL-Zoo", QWEN, QWEN),
    ("qwen", "Qwen/Qwen2.5-Math-7B", "sail/Qwen2.5-Math-7B-Oat-Zero", QWEN, QWEN),
    ("qwen", "Qwen/Qwen2.5-32B", "BytedTsinghua-SIA/DAPO-Qwen-32B", QWEN, QWEN),
    ("qwen", "Qwen/Qwen2.5-7B", "Open-Reasoner-Zero/Open-Reasoner-Zero-7B", QWEN, QWEN),
    ("qwen", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", QWEN, TRAINED),
    ("qwen", "Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B", QWEN, TRAINED),
    ("qwen", "Qwen/Qwen2.5-Math-7B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", QWEN, TRAINED),
    ("llama", "meta-llama/Llama-3.1-8B", "hkust-nlp/Llama-3.1-8B-SimpleRL-Zoo", BOXED, BOXED),
    ("llama", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", BOXED, TRAINED),
    ("llama", "meta-llama/Llama-3.1-8B", "allenai/Llama-3.1-Tulu-3-8B", BOXED, TRAINED),
    ("llama", "allenai/Llama-3.1-Tulu-3-8B-SFT", "allenai/Llama-3.1-Tulu-3-8B", BASE, BASE),
    ("llama", "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", BOXED,
     TRAINED),
    ("gemma", "google/gemma-2-9b", "google/gemma-2-9b-it", BOXED, TRAINED),
    ("gemma", "google/gemma-3-4b-pt", "google/gemma-3-4b-it", BOXED, TRAINED),
    ("gemma", "google/gemma-2-9b-it", "princeton-nlp/gemma-2-9b-it-SimPO", BASE, BASE),
    ("olmo", "allenai/OLMo-2-1124-7B", "allenai/OLMo-2-1124-7B-Instruct", BOXED, TRAINED),
    ("olmo", "allenai/Olmo-3-1025-7B", "allenai/Olmo-3-7B-RL-Zero-Math", TRAINED, TRAINED),
    ("olmo", "allenai/Olmo-3-1025-7B", "allenai/Olmo-3-7B-Think", BOXED, TRAINED),
    ("mistral", "mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1", BOXED, TRAINED),
    ("mistral", "mistralai/Mistral-Small-24B-Base-2501", "mistralai/Magistral-Small-2506", BOXED,
     TRAINED),
    ("distilled", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
     "agentica-org/DeepScaleR-1.5B-Preview", BASE, BASE),
]  # fmt: skip


def write_family_model(folder: Path, family: str) -> None:
    """A checkpoint with the marks of its family in the tokenizer and in the chat format."""
    model_type, marks = FAMILIES[family]
    write_model(folder)
    config = {"model_type": model_type, "max_position_embeddings": 32_768}
    (folder / "config.json").write_text(json.dumps(config))
    tokens = [{"id": number, "content": mark} for number, mark in enumerate(marks)]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}, ensure_ascii=False))
    turns = "{% for message in messages %}" + marks[0] + "{{ message.content }}{% endfor %}"
    chat = turns + marks[1]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": chat}))


@pytest.mark.parametrize(("family", "base", "trained", "base_prompt", "trained_prompt"), PAIRS)
def test_each_model_is_asked_as_its_makers_prompt_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, base: str, trained: str,
    base_prompt: str, trained_prompt: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    models = [ModelSource.read("--base", base), ModelSource.read("--trained", trained)]
    draft = Draft(models[0], models[1], ("math500",), None, ON_GPUS)
    before_fetch = draft.text(tmp_path)
    prompts = [asking.prompt for asking in draft.askings]
    assert prompts == [base_prompt, trained_prompt]
    for model in models:
        write_family_model(model.folder, family)
    assert draft.text(tmp_path) == before_fetch, "a download changes no prompt"
    study = yaml.safe_load(before_fetch)
    for arm in study["arms"].values():
        made_prompt = study.get("prompts", {}).get(arm["prompt"])
        assert made_prompt or arm.get("stop"), "every response has an end"
        if made_prompt:
            folder = tmp_path / study["models"][made_prompt["chat"]]["path"]
            assert FAMILIES[family][1][0] in render_chat(folder, [{"role": "user", "content": "?"}])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_base_model_in_a_folder_is_known_by_its_type_and_marks(
    tmp_path: Path, family: str
) -> None:
    write_family_model(tmp_path / "mine", family)
    mine = ModelSource.read("--base", str(tmp_path / "mine"))
    base, trained = Draft(mine, mine, ("math500",), None, ON_GPUS).askings
    assert base == trained
    assert base.prompt == (QWEN if family == "qwen" else BOXED)
