"""Checkpoints that are no model folders: what is made of them is the model that was meant."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlbhpc.engines.checkpoints import model_folder
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


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "tied"), [(2, True), (3, False)])
def test_a_zero_checkpoint_of_two_ranks_becomes_the_model_it_holds(
    tmp_path: Path, stage: int, tied: bool
) -> None:
    base = make_tiny_model(tmp_path / "base", tie_word_embeddings=tied)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("zero_case.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port), str(script)]
    arguments = [str(base), str(tmp_path / "ckpt"), str(tmp_path / "plain.pt"), str(stage)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = torch.load(tmp_path / "plain.pt", weights_only=True)
    for given in (tmp_path / "ckpt", tmp_path / "ckpt" / "global_step1"):
        folder = model_folder(given, base, tmp_path / f"made-{given.name}")
        found = load_file(folder / "model.safetensors")
        assert found.keys() | {"lm_head.weight"} == expected.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], msg=name)
    old = load_file(base / "model.safetensors")
    assert not torch.equal(found["model.norm.weight"], old["model.norm.weight"])
