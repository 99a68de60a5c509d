"""What an engine is given to load for each kind of checkpoint of a study."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from rlbhpc.cli.sampling import sample
from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.load import load_study
from rlbhpc.sweep import load
from rlbhpc.sweep.load import load_engine, model_to_load, reject_unseen_images
from tests.engines.test_checkpoints import adapter

pytestmark = pytest.mark.engine

STUDY = """
name: line
models:
  base: {path: base}
  full: {path: "full/step-{step}", base: base, steps: [5]}
  lora: {path: "lora-{step}", base: base, steps: [1, 2]}
  more: {path: "more-{step}", base: lora, steps: [3]}
problem_sets:
  countdown: {subset: test, limit: 2}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 4, n: 1}
arms:
  lora: {model: lora, steps: [0, 1, 2]}
engine: {name: hf, dtype: float32, options: {rows: 16}}
"""
FOREIGN = """
name: foreign
models: {base: {path: base}}
problem_sets: {countdown: {subset: test, limit: 2}}
sampling: {prompt: qwen-boxed, temperature: 1.0, max_tokens: 4, n: 1}
arms: {base: {model: base}}
engine: {name: hf, dtype: float32, options: {rows: 16}}
"""


def test_every_step_of_a_line_is_the_model_that_it_means(tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    make_tiny_model(tmp_path / "full" / "step-5", seed=5)
    adapter(tmp_path / "lora-1", base, lora_alpha=1)
    second = adapter(tmp_path / "lora-2", base)
    (tmp_path / "study.yaml").write_text(STUDY)
    make_tiny_model(tmp_path / "second")
    adapter(tmp_path / "more-3", base)
    study = load_study(tmp_path / "study.yaml")
    assert model_to_load(study, "lora", 0) == base
    assert model_to_load(study, "full", 5) == tmp_path / "full" / "step-5"
    one, two = (model_to_load(study, "lora", step) for step in (1, 2))
    assert one != two
    found = load_file(two / "model.safetensors")
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, second[name], msg=name)
    # An adapter on an adapter: the second change comes on top of the merged first one.
    assert model_to_load(study, "more", 0) == two
    top = load_file(model_to_load(study, "more", 3) / "model.safetensors")
    name = "model.layers.1.mlp.gate_proj.weight"
    old = load_file(base / "model.safetensors")[name]
    torch.testing.assert_close(top[name] - old, 2 * (found[name] - old))
    load_engine(study, "hf", "lora", 1).close()


def test_a_model_that_cannot_be_shown_a_figure_is_not_asked_about_it(tmp_path: Path) -> None:
    engine = make_engine("hf", make_tiny_model(tmp_path / "base"))
    text = Problem("made/1", {"question": "x?"}, "3", "math")
    figure = Problem("made/2", {"question": "x?"}, "3", "math", images=(b"...",))
    reject_unseen_images(engine, "base", [text])
    with pytest.raises(UserError, match="arm base: made/2 has images"):
        reject_unseen_images(engine, "base", [text, figure])
    engine.close()


def test_a_prompt_in_the_chat_format_of_another_family_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would tell: such a model answers, and only its scores are lower."""
    llama = make_tiny_model(tmp_path / "base", "llama", hidden_size=32)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = llama / name
        text = file.read_text().replace("<|im_start|>", "<|start_header_id|>")
        file.write_text(text.replace("<|im_end|>", "<|eot_id|>"))
    (tmp_path / "study.yaml").write_text(FOREIGN)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(sample, ["study.yaml"])
    assert isinstance(result.exception, UserError), result.output
    assert "prompt 'qwen-boxed': <|im_start|> is 12 tokens for this model" in str(result.exception)
    result = CliRunner().invoke(sample, ["study.yaml", "--set", "sampling.prompt=countdown"])
    assert result.exit_code == 0 and result.exception is None, result.output


def test_what_vllm_refuses_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_model(tmp_path / "base")
    (tmp_path / "study.yaml").write_text(FOREIGN)
    study = load_study(tmp_path / "study.yaml")

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("1 error\n  no room for 4096 tokens")

    monkeypatch.setattr(load, "make_engine", refuse)
    with pytest.raises(UserError, match=r"base: vLLM does not load it: 1 error no room for 4096"):
        load_engine(study, "vllm", "base", 0)
    with pytest.raises(ValueError, match="1 error"):
        load_engine(study, "hf", "base", 0)

    def find_it_full(*_: object, **__: object) -> None:
        raise ValueError(
            "Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desir"
        )

    monkeypatch.setattr(load, "make_engine", find_it_full)
    with pytest.raises(ValueError, match="Free memory"):  # the job goes to another node
        load_engine(study, "vllm", "base", 0)
