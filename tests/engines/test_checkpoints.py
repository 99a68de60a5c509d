"""Checkpoints that are no model folders: what is made of them is the model that was meant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed import checkpoint as dcp
from transformers import AutoModelForCausalLM

from rlbhpc.engines import checkpoints
from rlbhpc.engines.checkpoints import model_folder, needs_base
from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError

pytestmark = pytest.mark.engine

Q, GATE = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate_proj"


def adapter(folder: Path, base: Path, **settings: Any) -> dict[str, torch.Tensor]:
    """Write a LoRA of rank 3 on two modules, and a head trained whole; the merged weights."""
    torch.manual_seed(1)
    weights = load_file(base / "model.safetensors")
    kept, made = {}, dict(weights)
    for name, scale in ((Q, 4 / 3), (GATE, 9 / 3)):
        rows, columns = weights[f"{name}.weight"].shape
        a, b = torch.randn(3, columns), torch.randn(rows, 3)
        kept[f"base_model.model.{name}.lora_A.weight"] = a
        kept[f"base_model.model.{name}.lora_B.weight"] = b
        made[f"{name}.weight"] = weights[f"{name}.weight"] + scale * (b @ a)
    head = torch.randn_like(weights["lm_head.weight"])
    kept["base_model.model.lm_head.weight"] = made["lm_head.weight"] = head
    folder.mkdir()
    save_file(kept, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 4, "alpha_pattern": {"gate_proj": 9}}
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    return made


def test_an_adapter_is_merged_as_its_configuration_says(tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    expected = adapter(tmp_path / "lora", base)
    folder = model_folder(tmp_path / "lora", base, tmp_path / "made" / "x")
    modes = {path.stat().st_mode & 0o777 for path in folder.glob("*") if path.is_file()}
    assert len(modes) == 1, "weights are read by whom the umask lets read the rest"
    merged = load_file(folder / "model.safetensors")
    assert merged.keys() == expected.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, expected[name], msg=name)
    engine = make_engine("hf", folder, rows=16)
    assert len(list(engine.score([((1, 2), (3, 4))]))) == 1
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert model_folder(tmp_path / "lora", base, tmp_path / "made" / "x") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert [p.name for p in folder.parent.iterdir()] == ["x"]
    assert {p.name for p in folder.iterdir()} == {p.name for p in base.iterdir()}


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_of_another_program_are_not_taken_along(tmp_path: Path, sharded: bool) -> None:
    """vLLM would read Mistral's own file, in which nothing is adapted, in place of the others."""
    base = make_tiny_model(tmp_path / "base")
    expected = adapter(tmp_path / "lora", base)
    if sharded:
        model = AutoModelForCausalLM.from_pretrained(base)
        (base / "model.safetensors").unlink()
        model.save_pretrained(base, max_shard_size="60KB")
    save_file({"layers.0.attention.wq.weight": torch.ones(1)}, base / "consolidated.safetensors")
    folder = model_folder(tmp_path / "lora", base, tmp_path / "made")
    assert not (folder / "consolidated.safetensors").exists()
    weights = {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}
    assert weights.keys() == expected.keys()
    assert torch.equal(weights[f"{Q}.weight"], expected[f"{Q}.weight"])


def test_of_two_that_convert_at_once_the_first_folder_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_tiny_model(tmp_path / "base")
    adapter(tmp_path / "lora", base)
    target = tmp_path / "made"

    def other(_: Path) -> None:
        shutil.copytree(base, target)

    monkeypatch.setattr(checkpoints, "follow_umask", other)
    assert model_folder(tmp_path / "lora", base, target) == target
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "lora", "made"]
    shutil.rmtree(target)
    monkeypatch.setattr(checkpoints, "follow_umask", lambda _: target.touch())
    with pytest.raises(NotADirectoryError):
        model_folder(tmp_path / "lora", base, target)


def test_a_rank_stabilised_adapter_has_its_own_scale(tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    adapter(tmp_path / "lora", base, use_rslora=True, alpha_pattern={})
    folder = model_folder(tmp_path / "lora", base, tmp_path / "made")
    old, new = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    lora = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    parts = (lora[f"base_model.model.{Q}.lora_{x}.weight"] for x in "BA")
    change = torch.linalg.multi_dot(list(parts)) * 4 / 3**0.5
    torch.testing.assert_close(new[f"{Q}.weight"], old[f"{Q}.weight"] + change)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, "only LORA"),
        ({"use_dora": True}, "use_dora cannot be merged"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    base = make_tiny_model(tmp_path / "base")
    adapter(tmp_path / "lora", base, **settings)
    with pytest.raises(UserError, match=message):
        model_folder(tmp_path / "lora", base, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    adapter(tmp_path / "lora", base)
    other = make_tiny_model(tmp_path / "other", num_hidden_layers=1)
    with pytest.raises(UserError, match=r"2 tensors belong to nothing"):
        model_folder(tmp_path / "lora", other, tmp_path / "made")
    with pytest.raises(UserError, match="`base`"):
        model_folder(tmp_path / "lora", None, tmp_path / "made")


def on_two_ranks(script: str, *arguments: object) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "--local-addr", "127.0.0.1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*command, str(Path(__file__).with_name(script)), *map(str, arguments)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.by_turns(2)
@pytest.mark.slow
@pytest.mark.parametrize(("stage", "tied"), [(2, True), (3, False)])
def test_a_zero_checkpoint_of_two_ranks_becomes_the_model_it_holds(
    tmp_path: Path, stage: int, tied: bool
) -> None:
    base = make_tiny_model(tmp_path / "base", tie_word_embeddings=tied)
    on_two_ranks("zero_case.py", base, tmp_path / "ckpt", tmp_path / "plain.pt", stage)
    expected = torch.load(tmp_path / "plain.pt", weights_only=True)
    if not tied:  # as models that only vLLM builds have theirs
        config = json.loads((base / "config.json").read_text())
        (base / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    for given in (tmp_path / "ckpt", tmp_path / "ckpt" / "global_step1"):
        folder = model_folder(given, base, tmp_path / f"made-{given.name}")
        found = load_file(folder / "model.safetensors")
        assert found.keys() == expected.keys() - ({"lm_head.weight"} if tied else set())
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], msg=name)
    old = load_file(base / "model.safetensors")
    assert not torch.equal(found["model.norm.weight"], old["model.norm.weight"])


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def fsdp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base, what FSDP saved on two ranks as verl and as TRL do, and the truth."""
    folder = tmp_path_factory.mktemp("fsdp")
    base = make_tiny_model(folder / "base", tie_word_embeddings=request.param)
    verl, trl = folder / "global_step_1" / "actor", folder / "checkpoint-1" / "pytorch_model_fsdp_0"
    verl.mkdir(parents=True)
    on_two_ranks("fsdp_case.py", base, verl, trl, folder / "plain.pt")
    (verl / "huggingface").mkdir()
    for file in base.glob("*.json"):
        shutil.copyfile(file, verl / "huggingface" / file.name)
    return folder


@pytest.mark.by_turns(3)
@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 1 << 30])
@pytest.mark.parametrize("saved", ["global_step_1", "global_step_1/actor", "checkpoint-1"])
def test_an_fsdp_checkpoint_becomes_the_model_it_holds(
    fsdp: Path, tmp_path: Path, saved: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHUNK", chunk)
    # verl saves the configuration beside its parts; TRL's folder needs the model that it is of.
    base = fsdp / "base" if saved.startswith("checkpoint") else None
    assert needs_base(fsdp / saved) == (base is not None)
    folder = model_folder(fsdp / saved, base, tmp_path / "made")
    files = sorted(folder.glob("*.safetensors"))
    assert (len(files) > 5) == (chunk == 1)
    weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
    expected = torch.load(fsdp / "plain.pt", weights_only=True)
    config = json.loads((fsdp / "base" / "config.json").read_text())
    tied = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    assert weights.keys() == expected.keys() - tied
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected[name]), name
    old = load_file(fsdp / "base" / "model.safetensors")
    assert not torch.equal(weights["model.norm.weight"], old["model.norm.weight"])
    engine = make_engine("hf", folder, rows=16)
    assert len(list(engine.score([((1, 2), (3, 4))]))) == 1
    engine.close()


@pytest.mark.slow
def test_what_of_fsdp_cannot_be_gathered_is_refused(fsdp: Path, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path / "other", num_hidden_layers=3)
    wide = make_tiny_model(tmp_path / "wide", hidden_size=128)
    parts = tmp_path / "parts"
    shutil.copytree(fsdp / "global_step_1" / "actor", parts)
    shutil.rmtree(parts / "huggingface")
    for saved in (fsdp / "checkpoint-1", parts):
        with pytest.raises(UserError, match="weights of the model are not in it, among them model"):
            model_folder(saved, other, tmp_path / "made")
        with pytest.raises(UserError, match=r"is \(\d+.*, the model's \(\d+"):
            model_folder(saved, wide, tmp_path / "made")
    with pytest.raises(UserError, match="name the model it belongs to as its `base`"):
        model_folder(parts, None, tmp_path / "made")
    (parts / "model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(UserError, match="parts of 1 ranks, where the files' names speak of 2"):
        model_folder(parts, fsdp / "base", tmp_path / "made")
    assert not (tmp_path / "made").exists() and not list(tmp_path.glob("*.partial"))


def test_a_buffer_that_is_saved_is_a_weight(tmp_path: Path) -> None:
    """The bias of a router: without it a model chooses other experts, and says nothing."""
    sizes = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    base = make_tiny_model(tmp_path / "base", "glm4_moe", head_dim=32, n_group=1, topk_group=1,
                           first_k_dense_replace=1, **sizes)  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(base)
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    model.get_buffer(bias).copy_(torch.tensor([0.30001, -0.2, 0.1, 0.7]))
    dcp.save(model.state_dict(), checkpoint_id=tmp_path / "parts", no_dist=True)
    config = json.loads((base / "config.json").read_text()) | {"dtype": "bfloat16"}
    (base / "config.json").write_text(json.dumps(config))
    folder = model_folder(tmp_path / "parts", base, tmp_path / "made")
    converted = load_file(folder / "model-00001.safetensors")
    assert torch.equal(converted[bias], model.get_buffer(bias))
    # Each expert stands by itself, as other programs expect it.
    gate, up = model.get_parameter("model.layers.1.mlp.experts.gate_up_proj")[3].chunk(2)
    assert torch.equal(converted["model.layers.1.mlp.experts.3.gate_proj.weight"], gate.bfloat16())
    assert torch.equal(converted["model.layers.1.mlp.experts.3.up_proj.weight"], up.bfloat16())
    assert converted["model.norm.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("damaged", "size"), [(".metadata", 0), (".metadata", 100), ("__0_0.distcp", 100)]
)
def test_a_damaged_part_is_told_in_one_line(tmp_path: Path, damaged: str, size: int) -> None:
    base = make_tiny_model(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(base)
    dcp.save(model.state_dict(), checkpoint_id=tmp_path / "parts", no_dist=True)
    part = tmp_path / "parts" / damaged
    part.write_bytes(part.read_bytes()[:size])
    with pytest.raises(UserError, match=r"parts: cannot be read \(.+\); copy it again") as refused:
        model_folder(tmp_path / "parts", base, tmp_path / "made")
    assert len(str(refused.value).splitlines()) == 1
