"""What fits a GPU is chosen, what cannot is refused with what does, and shipped recipes fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner, Result

from rlbhpc.cli.check import check
from rlbhpc.cli.main import cli
from rlbhpc.cli.train import train
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.train.forecast import device_memory
from tests.cli.test_store_verbs import printed
from tests.studies import untrained
from tests.sweep.study_folder import CONFIGS, study_folder
from tools.step_cost import SHAPES, memory_rows, seconds_rows

pytestmark = pytest.mark.engine

TOWER = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
    "out_hidden_size": 3584, "fullatt_block_indexes": [7, 15, 23, 31], "window_size": 112,
}  # fmt: skip
FILES = (
    "ablations", "absolute-zero", "algorithms", "controls", "exploration", "recipes", "rlpr",
    "tools", "ttrl",
)  # fmt: skip
# What does not train on 8 GPUs of one node, as the file says.
RANKS = {"dapo": 128}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that train, beside models that say of themselves what the real ones do."""
    files = {}
    for name in FILES:
        folder = tmp_path_factory.mktemp(name)
        files[name] = study_folder(folder, name)
        for config in folder.glob("models/*/config.json"):
            enlarge(config)
    return files


def enlarge(config: Path) -> None:
    values: dict[str, Any] = json.loads(config.read_text())
    size = SHAPES["32B" if "32B" in config.parent.name else "7B"]
    text = values.get("text_config", values)
    text.update(size)
    text.pop("layer_types", None)
    text["max_window_layers"] = size["num_hidden_layers"]
    if "vision_config" in values:
        values["vision_config"].update(TOWER)
        text["rope_parameters"]["mrope_section"] = [16, 24, 24]
    config.write_text(json.dumps(values))


def dry_run(path: Path, models: Sequence[str], *words: object) -> Result:
    return CliRunner().invoke(
        train, [str(path), *models, "--dry-run", "--json", *map(str, words)], standalone_mode=False
    )


def trained(path: Path) -> list[str]:
    models = yaml.safe_load(path.read_text()).get("models") or {}
    return [name for name, entry in models.items() if entry and "train" in entry]


@pytest.mark.parametrize("name", FILES)
def test_what_is_shipped_fits_gpus_of_80_gib(shipped: dict[str, Path], name: str) -> None:
    """Seven billion parameters on 8 of them, 32 on as many as the file says."""
    path = shipped[name]
    small = [model for model in trained(path) if name != "recipes" or model not in RANKS]
    large = [model for model in trained(path) if model not in small]
    for models, ranks, parameters in ((small, 8, 7.6e9), (large, RANKS["dapo"], 32.8e9)):
        result = dry_run(path, models, "--ranks", ranks, "--memory", 80) if models else None
        assert result is None or result.exception is None, result.exception
        for foretold in json.loads(result.stdout) if result else []:
            assert foretold["parameters"] == pytest.approx(parameters, rel=0.1)
            settings = foretold["settings"]
            assert settings["dtype"] == "bfloat16" and settings["rollouts"] == "vllm"
            assert settings["recompute"] and settings["zero_stage"] in (2, 3)


FORETOLD = """\
grpo: grpo, 7,615,616,512 parameters
work                     in the whole run
steps                    450
prompts                  115,200
responses                921,600
updates                  450
response tokens at most  7,549,747,200
rollouts vllm, dtype bfloat16, recompute True, zero_stage 2, offload False, micro_tokens 16384
grpo: memory of each of 8 ranks
part                MiB
policy weights      14,525.6
policy gradients    3,631.4
policy optimiser    10,894.2
policy buffer       953.7
output layer        3,102.3
activations         5,965.6
together, at least  39,072.8
"""


def test_what_a_training_holds_is_shown(shipped: dict[str, Path]) -> None:
    """Weights of 2 bytes each on every rank, gradients of as many on an eighth of them."""
    words = [str(shipped["algorithms"]), "grpo", "--dry-run", "--ranks", "8", "--memory", "80"]
    assert printed(CliRunner().invoke(train, words, standalone_mode=False)) == FORETOLD


def test_the_page_on_sizes_has_what_is_calculated() -> None:
    page = (CONFIGS.parents[1] / "docs" / "sizing.md").read_text().splitlines()
    assert set(page) >= {*memory_rows(), *seconds_rows()}


def test_every_file_that_trains_is_among_these() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml") if trained(path)} == set(FILES)


def test_of_zero_the_least_that_fits_is_taken(shipped: dict[str, Path]) -> None:
    expected = {
        (1, 1000): (0, False),
        (8, 80): (2, False),
        (2, 100): (3, False),
        (2, 60): (3, True),
    }
    for (ranks, memory), (stage, offload) in expected.items():
        result = dry_run(shipped["algorithms"], ["grpo"], "--ranks", ranks, "--memory", memory)
        assert result.exception is None, (ranks, memory, result.exception)
        settings = json.loads(result.stdout)[0]["settings"]
        assert (settings["zero_stage"], settings["offload"]) == (stage, offload), (ranks, memory)


def test_what_cannot_fit_is_refused_with_what_would_help(shipped: dict[str, Path]) -> None:
    own = "recipes.grpo.options"
    words = ("--ranks", 8, "--memory", 80, "--set", f"{own}.recompute=false")
    refused = dry_run(shipped["algorithms"], ["grpo"], *words)
    assert isinstance(refused.exception, UserError)
    message = str(refused.exception)
    assert "one rank holds" in message and "has 72.0 of 80.0" in message
    assert "the largest parts are activations" in message
    assert "`recompute: true`" in message
    assert dry_run(shipped["algorithms"], ["grpo"], *words[:-2]).exception is None
    # On one GPU nothing but more of them helps.
    alone = dry_run(shipped["algorithms"], ["grpo"], "--memory", 24)
    assert "share the training among more GPUs" in str(alone.exception)


LARGER = """
name: larger
models:
  small: {path: small}
  large: {path: large}
  taught: {train: {from: small, recipe: taught}, steps: [1]}
  tuned: {train: {from: large, recipe: tuned}, steps: [1]}
problem_sets: {countdown: {subset: train, limit: 4}}
recipes:
  taught:
    {algorithm: on-policy-distillation, problems: countdown, prompt: countdown,
     prompts_per_step: 64, samples_per_prompt: 4, max_tokens: 512, options: {teacher: large}}
  tuned:
    {algorithm: sft, problems: countdown, prompt: countdown, prompts_per_step: 64,
     options: {traces: {hit: 0.5, count: 64}}}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 60, n: 2}
arms: {taught: {model: taught}, tuned: {model: tuned}}
"""


def write_config(folder: Path, size: str) -> None:
    """A model folder whose configuration is that of a model of such a size, without weights."""
    config = make_tiny_model(folder) / "config.json"
    shape = SHAPES[size]
    values = {**json.loads(config.read_text()), **shape}
    values |= {"max_window_layers": shape["num_hidden_layers"], "layer_types": None}
    values["max_position_embeddings"] = 32_768
    config.write_text(json.dumps(values))


def test_a_teacher_counts_by_its_own_size(tmp_path: Path) -> None:
    write_config(tmp_path / "small", "7B")
    write_config(tmp_path / "large", "32B")
    study = tmp_path / "study.yaml"
    study.write_text(LARGER)
    words = ("--ranks", 32, "--memory", 200)
    taught, tuned = json.loads(dry_run(study, ["taught", "tuned"], *words).stdout)
    assert taught["parameters"] == pytest.approx(7.6e9, rel=0.01)
    # ZeRO-2 leaves it whole on each GPU, and ZeRO-3 divides it.
    teacher = taught["memory"]["reference weights"]
    assert teacher == 2 * tuned["parameters"] == pytest.approx(2 * 32.8e9, rel=0.01)
    tight = json.loads(dry_run(study, ["taught"], "--ranks", 8, "--memory", 80).stdout)[0]
    assert tight["settings"]["zero_stage"] == 3
    assert tight["memory"]["reference weights"] == teacher // 8


REINFORCED = """
name: reinforced
models:
  base: {path: base}
  rl: {train: {from: base, recipe: rl}, steps: [1]}
problem_sets: {countdown: {subset: train, limit: 64}}
recipes:
  rl:
    {algorithm: grpo, problems: countdown, prompt: countdown,
     prompts_per_step: 64, samples_per_prompt: 8, max_tokens: 8192}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 60, n: 2}
arms: {rl: {model: rl}}
"""
WITH_REFERENCE = {"kl_loss": 0.001}
SHARED_SAMPLER = {"rollout_tensor_parallel": 8, "rollout_memory": 0.35}


@pytest.mark.parametrize(
    ("size", "ranks", "options"),
    [
        ("7B", 8, WITH_REFERENCE),
        ("32B", 8, {**SHARED_SAMPLER, "zero_stage": 3, "offload": True, **WITH_REFERENCE}),
        ("32B", 16, {**SHARED_SAMPLER, "zero_stage": 3, **WITH_REFERENCE}),
        ("72B", 64, {**SHARED_SAMPLER, "zero_stage": 3, **WITH_REFERENCE}),
        ("72B", 8, {**SHARED_SAMPLER, "zero_stage": 3, "lora_rank": 32, **WITH_REFERENCE}),
    ],
)
def test_these_sizes_fit_gpus_of_80_gib_with_a_reference(
    tmp_path: Path, size: str, ranks: int, options: dict[str, object]
) -> None:
    write_config(tmp_path / "base", size)
    study = tmp_path / "study.yaml"
    study.write_text(REINFORCED)
    words = ["--ranks", ranks, "--memory", 80, "--set", f"recipes.rl.options={json.dumps(options)}"]
    result = dry_run(study, ["rl"], *words)
    assert result.exception is None, result.exception
    # What one GPU's vLLM holds of the weights leaves room for keys and values.
    plain = ["--ranks", 3, *words[2:]]
    if options.get("rollout_tensor_parallel"):
        refused = dry_run(study, ["rl"], *plain).exception
        assert isinstance(refused, UserError) and "rollout_tensor_parallel" in str(refused)


def test_check_and_a_start_refuse_it_too(
    shipped: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "small.yaml"
    site.write_text("train: {gpus: 2}\ngpu_memory: 40\n")
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path))
    words = [str(shipped["recipes"]), "--set", "cluster=small"]
    result = CliRunner().invoke(check, words, standalone_mode=False)
    assert isinstance(result.exception, UserError)
    assert "model simplerl: " in str(result.exception)
    site.write_text("train: {gpus: 8, nodes: 16}\ngpu_memory: 80\n")
    assert CliRunner().invoke(check, words, standalone_mode=False).exception is None
    monkeypatch.setattr("rlbhpc.train.forecast.device_memory", lambda: 24 << 30)
    started = CliRunner().invoke(train, [str(shipped["algorithms"]), "grpo"], standalone_mode=False)
    assert isinstance(started.exception, UserError)
    assert "model grpo: " in str(started.exception)


VERBS = (
    ["check", "--set", "cluster=small"], ["plan", "--cluster", "small"],
    ["launch", "--cluster", "small"],
)  # fmt: skip


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_every_verb_refuses_what_the_gpus_of_its_cluster_cannot_hold(
    shipped: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Trainings, and copies to sample from: 32.8 × 10⁹ parameters of 2 bytes are 61 GiB."""
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path))
    site = tmp_path / "small.yaml"

    def refusal(study: Path, *more: str) -> str:
        output = f"output={tmp_path / 'run'}"
        called = call(words[0], study, *words[1:], "--set", output, *more)
        return str(called.exception)

    site.write_text("train: {gpus: 2}\ngpu_memory: 40\n")
    assert "model simplerl: " in refusal(shipped["recipes"])
    study = sampled(tmp_path, SHAPES["32B"])
    assert "`tensor_parallel: 2`" in refusal(study)
    assert refusal(study, "--set", "engine.tensor_parallel=2") == "None"
    assert "`tensor_parallel: 4`" in refusal(study, "--set", "engine.options.memory=0.5")
    assert refusal(study, "--set", "engine.options.options.quantization=fp8") == "None"
    assert "1 to 8" in refusal(study, "--set", "engine.tensor_parallel=16")
    site.write_text("sample: {gpus: 16}\ngpu_memory: 3\n")
    assert "no node holds it" in refusal(study, "--set", "engine.tensor_parallel=16")
    site.write_text("gpu_memory: 80\n")
    assert refusal(study) == "None"


def call(verb: str, *words: object) -> Result:
    result = CliRunner().invoke(cli, [verb, *map(str, words)], standalone_mode=False)
    assert result.exception is None or isinstance(result.exception, UserError), result.exception
    return result


def sampled(folder: Path, shape: dict[str, int]) -> Path:
    """A study that samples from a model that says of itself what a real one does."""
    make_tiny_model(folder / "model")
    config = folder / "model" / "config.json"
    values = {**json.loads(config.read_text()), **shape}
    values |= {"max_window_layers": shape["num_hidden_layers"], "layer_types": None}
    config.write_text(json.dumps(values))
    path = folder / "sampled.yaml"
    path.write_text(untrained("sampled", engine={"name": "vllm"}))
    return path


def test_a_rank_asks_its_own_gpu_how_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the first one keeps some hundred MiB of it, on a node of eight ranks each."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, f"{device}0"))
    assert device_memory() == 0
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_memory() == 30
