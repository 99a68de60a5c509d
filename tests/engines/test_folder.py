"""What is read of a model folder, and what is said of one that lacks something."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard
from torch.nn import Parameter

from rlbhpc.engines import checkpoints
from rlbhpc.engines import hf_model as backend
from rlbhpc.engines.checkpoints import (
    _adapt_weight,
    _match_names,
    _rank_files,
    model_folder,
    needs_base,
    own_configuration,
    sharded_weights,
)
from rlbhpc.engines.engine import Ahead, make_engine
from rlbhpc.engines.folder import (
    configuration,
    context_length,
    end_ids,
    follow_umask,
    sees,
    steady_length,
    weight_files,
)
from rlbhpc.engines.hf_model import decoded_images
from rlbhpc.engines.tiny import _save_processor, byte_tokenizer, make_tiny_model, tiny_config
from rlbhpc.errors import UserError

pytestmark = pytest.mark.engine


def folder_of(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 64, "n_positions": 32}, 64),
        ({"n_positions": 32, "max_sequence_length": 16}, 32),
        ({"max_sequence_length": 16}, 16),
        ({"text_config": {"n_positions": 8}, "n_positions": 32}, 8),
        ({"n_positions": 32, "rope_scaling": {"type": "yarn", "factor": 4.0}}, 32),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, 131_072),
    ],
)
def test_how_much_a_model_holds(tmp_path: Path, config: dict[str, Any], length: int) -> None:
    assert context_length(folder_of(tmp_path, **config)) == length


LONG = {"max_position_embeddings": 64, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (LONG | {"rope_scaling": {"type": "longrope"}}, 16),
        (LONG | {"rope_parameters": {"rope_type": "su"}}, 16),
        (LONG | {"rope_scaling": None}, 64),
        ({"n_positions": 64, "rope_parameters": {"rope_type": "longrope", **LONG}}, 16),
        (LONG | {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, 64),
    ],
)
def test_texts_end_before_their_frequencies_change(
    tmp_path: Path, config: dict[str, Any], length: int
) -> None:
    assert steady_length(folder_of(tmp_path, **config)) == length


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        OSError(116, "Stale file handle"),
    ],
)
def test_what_another_node_may_not_have_is_no_fault_of_the_model(
    tmp_path: Path, error: Exception
) -> None:
    with pytest.raises(type(error)), backend.explain_loading_errors(tmp_path):
        raise error


def test_the_attention_that_a_folder_asks_for_is_not_needed(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    stated = json.loads((folder / "config.json").read_text())
    stated["attn_implementation"] = "flash_attention_2"
    (folder / "config.json").write_text(json.dumps(stated))
    make_engine("hf", folder).close()


def test_an_index_beside_whole_weights_is_not_read(tmp_path: Path) -> None:
    for name in ("model.safetensors", "other.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone"}}')
    assert weight_files(tmp_path) == [tmp_path / "model.safetensors"]


def test_a_folder_that_does_not_say_what_is_needed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r": no config.json; a model is a folder in the Hugging Fac"
    ):
        configuration(tmp_path)
    with pytest.raises(UserError, match=r"/config.json: does not say how many positions the model"):
        context_length(folder_of(tmp_path))
    assert not sees(tmp_path) and sees(folder_of(tmp_path, vision_config={}))
    assert end_ids(tmp_path) == set()


AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@pytest.mark.parametrize(
    ("config", "without", "said"),
    [
        ({"model_type": "brandnew"}, "", "can load: The checkpoint you are trying to load has mo"),
        (
            {"auto_map": {"AutoConfig": "a.B"}, "model_type": "b"},
            "",
            "can load: .* contains custom",
        ),
        (AWQ, "", "can load: Loading an AWQ quantized model requires"),
        ({"hidden_size": 32}, "", "can load: You set `ignore_mismatched_sizes` to `False`"),
        ({}, "model.safetensors", "can load: Error no file named model.safetensors"),
        ({}, "tokenizer*", "no tokeniser in it; copy tokenizer.json and tokenizer_config.json of"),
        ({"model_type": "llama"}, "tokenizer*", "transformers reads no tokeniser of it: Couldn't"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_refused_in_one_line(
    tmp_path: Path, config: dict[str, Any], without: str, said: str
) -> None:
    folder = make_tiny_model(tmp_path / "model")
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stated | config))
    for path in folder.glob(without or "nothing"):
        path.unlink()
    with pytest.raises(UserError, match=said) as refused:
        make_engine("hf", folder)
    assert "\n" not in str(refused.value)


def test_weights_are_read_by_whom_the_configuration_is(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "config.json").chmod(0o640)
    (folder / "model.safetensors").touch(mode=0o600)
    follow_umask(folder)
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o640


def image(mode: str, color: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (2, 3), color).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "color"),
    [
        (image("RGB", (1, 2, 3)), (1, 2, 3)),
        (image("L", 7), (7, 7, 7)),
        (image("RGBA", (0, 0, 0, 0)), (255, 255, 255)),
        (image("RGBA", (10, 20, 30, 255)), (10, 20, 30)),
        (image("I;16", 65535), (255, 255, 255)),
        (image("I;16", 257 * 9), (9, 9, 9)),
        (image("I;16", 0), (0, 0, 0)),
        (image("I", 70_000, "TIFF"), (255, 255, 255)),
    ],
)
def test_pictures_are_colours_on_paper(data: bytes, color: tuple[int, int, int]) -> None:
    (picture,) = decoded_images.get((data,))
    assert picture.mode == "RGB" and picture.size == (2, 3)
    assert picture.getpixel((1, 1)) == color


def test_a_picture_that_is_none_is_counted_from_one() -> None:
    good = image("L", 7)
    with pytest.raises(UserError, match=r"^image 2 .*: it has no format that Pillow reads$"):
        decoded_images.get((good, b"no"))
    scaleless = image("F", 0.5, "TIFF")
    with pytest.raises(UserError, match=r"^image 1 .*: its pixels are numbers without a scale$"):
        decoded_images.get((scaleless,))


def test_a_tiny_model_is_what_the_docs_and_old_studies_have(tmp_path: Path) -> None:
    config = tiny_config("qwen2", num_hidden_layers=3).to_dict()
    assert {key: config[key] for key in SIZES} == {**SIZES, "num_hidden_layers": 3}
    assert len(byte_tokenizer()) == 259
    assert byte_tokenizer().encode("a\n") == BYTES
    with pytest.raises(UserError) as refused:
        tiny_config("nothing")
    assert str(refused.value) == "tiny model: 'nothing' is no model type that transformers knows"
    first, second, other = (
        make_tiny_model(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))
    )
    weights = [(folder / "model.safetensors").read_bytes() for folder in (first, second, other)]
    assert weights[0] == weights[1] != weights[2]
    assert json.loads((first / "generation_config.json").read_text()) == {"eos_token_id": [256]}


BYTES = [64, 198]
SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 2048, "tie_word_embeddings": False,
    "vocab_size": 259, "bos_token_id": None, "eos_token_id": 256, "pad_token_id": 256,
}  # fmt: skip


def test_a_tiny_model_that_sees_has_the_smallest_tower(tmp_path: Path) -> None:
    config = tiny_config("qwen2_5_vl").to_dict()
    tower = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56,
        "fullatt_block_indexes": [1], "out_hidden_size": 64,
    }  # fmt: skip
    assert {key: config["vision_config"][key] for key in tower} == tower
    # Sixteen pairs of a head of 32: six in time, five each in height and width.
    rotation = config["text_config"]["rope_parameters"]
    assert rotation["mrope_section"] == [6, 5, 5]
    assert (rotation["rope_theta"], config["image_token_id"]) == (1e4, 261)
    small = tiny_config("qwen2_5_vl", hidden_size=32).to_dict()["text_config"]["rope_parameters"]
    assert small["mrope_section"] == [2, 3, 3]
    _save_processor(tmp_path)
    assert json.loads((tmp_path / "preprocessor_config.json").read_text()) == {
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
        "merge_size": 2, "patch_size": 14, "temporal_patch_size": 2,
        "min_pixels": 784, "max_pixels": 12_544,
    }  # fmt: skip


LORA = "base_model.model."


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"lora_alpha": 6}, 3.0),
        ({}, 1.0),
        ({"lora_alpha": 6, "use_rslora": True}, 6 / 2**0.5),
        ({"lora_alpha": 6, "alpha_pattern": {"q": 8, "x.q": 9}}, 4.0),
        ({"lora_alpha": 6, "alpha_pattern": {"x.q": 8}}, 4.0),
        ({"lora_alpha": 6, "alpha_pattern": {"k|v": 8, ".*x.q": 2}}, 1.0),
        ({"lora_alpha": 6, "alpha_pattern": {"oq": 8}}, 3.0),
        ({"lora_alpha": 6, "alpha_pattern": None}, 3.0),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_an_adapted_weight_is_its_own_and_the_scaled_product(
    settings: dict[str, Any], scale: float, turned: bool
) -> None:
    a, b = torch.arange(6.0).view(2, 3), torch.tensor([[1.0, 2], [0, 1], [3, 0]])
    adapters = {f"{LORA}x.q.lora_A.weight": a, f"{LORA}x.q.lora_B.weight": b}
    adapters[f"{LORA}head"] = torch.full((1,), 5.0)
    own = torch.eye(3)
    merged = _adapt_weight("x.q.weight", own, adapters, {**settings, "fan_in_fan_out": turned})
    product = (b @ a).T if turned else b @ a
    torch.testing.assert_close(merged, own + scale * product)
    assert _adapt_weight("x.k.weight", own, adapters, settings) is own
    assert _adapt_weight("head", torch.zeros(1), adapters, settings).tolist() == [5.0]
    assert not adapters, "what is used is taken out"


@pytest.mark.parametrize(
    ("settings", "adapter", "base", "said"),
    [
        ({"peft_type": "IA3"}, True, True, ": a IA3 adapter; only LORA can be merged"),
        *(
            ({name: True}, True, True, f": {name} cannot be merged; merge it where it was trained")
            for name in ("use_dora", "lora_bias", "use_qalora")
        ),
        ({}, False, True, ": no adapter_model.safetensors; save the adapter as safetensors"),
        ({}, True, False, ": no safetensors in it; save the base as safetensors"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused(
    tmp_path: Path, settings: dict[str, Any], adapter: bool, base: bool, said: str
) -> None:
    lora, plain = tmp_path / "lora", folder_of(tmp_path / "base")
    lora.mkdir()
    config = {"peft_type": "LORA", **settings}
    (lora / "adapter_config.json").write_text(json.dumps(config))
    for folder, name, has in ((lora, "adapter_model", adapter), (plain, "model", base)):
        if has:
            save_file({"x": torch.zeros(1)}, folder / f"{name}.safetensors")
    with pytest.raises(UserError) as refused:
        model_folder(lora, plain, tmp_path / "made")
    assert str(refused.value) == f"{lora if base else plain}{said}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "lora"]


def test_where_the_weights_of_a_checkpoint_lie(tmp_path: Path) -> None:
    assert sharded_weights(tmp_path) is None and needs_base(tmp_path)
    inner = tmp_path / "actor"
    (inner / "huggingface").mkdir(parents=True)
    (inner / "model_world_size_1_rank_0.pt").touch()
    assert sharded_weights(tmp_path) == inner and own_configuration(tmp_path) is None
    folder_of(inner / "huggingface")
    assert own_configuration(tmp_path) == inner / "huggingface" and not needs_base(tmp_path)
    plain = folder_of(tmp_path / "plain")
    for number, ending in enumerate(("safetensors", "bin")):  # its states are beside the weights
        saved = folder_of(tmp_path / f"{number}")
        (saved / f"model.{ending}").touch()
        (saved / "x_optim_states.pt").touch()
        (saved / "latest").write_text("x")
        assert model_folder(saved, None, tmp_path / "made") == saved
    assert not needs_base(plain) and model_folder(plain, None, tmp_path / "made") == plain


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([(2, 0), (2, 1)], None),
        ([(12, rank) for rank in range(12)], None),
        ([(2, 1)], "parts of 1 ranks, where the files' names speak of 2"),
        ([(2, 0), (3, 1)], "parts of 2 ranks, where the files' names speak of 3"),
        ([(2, 0), (2, 1), (2, 2)], "parts of 3 ranks, where the files' names speak of 2"),
        ([(1, 0), (2, 0), (2, 1)], "parts of 2 ranks, where the files' names speak of 2"),
    ],
)
def test_every_rank_has_left_its_part(
    tmp_path: Path, ranks: list[tuple[int, int]], said: str | None
) -> None:
    (tmp_path / "model_world_size_x_rank_0.pt").touch()
    assert _rank_files(tmp_path) == []
    names = [f"model_world_size_{size}_rank_{rank}.pt" for size, rank in ranks]
    for name in reversed(names):
        (tmp_path / name).touch()
    if said is None:
        assert [path.name for path in _rank_files(tmp_path)] == names
        return
    with pytest.raises(UserError) as refused:
        _rank_files(tmp_path)
    assert str(refused.value) == f"{tmp_path}: {said}"


def test_weights_are_found_whatever_stands_before_their_names(tmp_path: Path) -> None:
    expected = {"model.layers.0.q": 0, "head": 0}
    stored = ("wrap._fsdp_wrapped_module.model.layers.0.q", "wrap.head", "ref.model.layers.0.q.x")
    found = _match_names(stored, expected, tmp_path)
    assert found == {"model.layers.0.q": stored[0], "head": stored[1]}
    twice = ("a.b.model.layers.0.q", "a.model.layers.0.q", "a._orig_mod.head")
    assert _match_names(twice, expected, tmp_path) == {
        "model.layers.0.q": twice[1],
        "head": twice[2],
    }
    with pytest.raises(
        UserError, match=r"no model.layers.0.q in it; name the model that it belongs"
    ):
        _match_names(("head",), expected, tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
def test_parts_of_ranks_may_hold_weights_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    parts, made = tmp_path / "parts", folder_of(tmp_path / "made", dtype="float16")
    parts.mkdir()
    whole = {"module.a": torch.arange(4.0), "module.b": torch.ones(2, 2)}
    for rank in range(ranks):
        torch.save(whole, parts / f"model_world_size_{ranks}_rank_{rank}.pt")
    expected = {"a": Parameter(torch.empty(4)), "b": Parameter(torch.empty(2, 2))}
    plain = nn.ParameterDict(expected)
    monkeypatch.setattr(backend, "make_module_without_data", lambda _: plain)
    checkpoints.gather(parts, made)
    (file,) = made.glob("*.safetensors")
    assert file.name == "model-00001.safetensors"
    weights = load_file(file)
    assert all(torch.equal(weights[name], whole[f"module.{name}"].half()) for name in expected)
    places = {"metadata": {"total_size": 16}, "weight_map": dict.fromkeys(expected, file.name)}
    index = (made / "model.safetensors.index.json").read_text()
    assert index == json.dumps(places, indent=1)
    monkeypatch.setattr(checkpoints, "CHUNK", 8)
    checkpoints.gather(parts, made)
    names = ["model-00001.safetensors", "model-00002.safetensors"]
    assert sorted(path.name for path in made.glob("*.safetensors")) == names
    mesh = DeviceMesh("cpu", [[0]], _init_backend=False, _rank=0)
    cut = DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0), Replicate()], run_check=False)
    several = "cut over several dimensions of ranks"
    for other, what in (("text", "a str"), (cut, several)):
        torch.save({**whole, "module.b": other}, parts / f"model_world_size_{ranks}_rank_0.pt")
        with pytest.raises(UserError) as refused:
            checkpoints.gather(parts, made)
        assert str(refused.value) == (
            f"{parts}: b is {what}, which is not read; merge it with the program that wrote it"
        )


def test_a_reader_that_has_enough_stops_the_sources() -> None:
    """At most one item waits for it, and one more is in the hands of the source."""
    made, closed = 0, threading.Event()

    def endless() -> Any:
        nonlocal made
        try:
            while True:
                made += 1
                yield made
        finally:
            closed.set()

    ahead = Ahead([endless()], 1)
    assert [next(ahead), next(ahead)] == [1, 2]
    ahead.close()
    assert closed.is_set() and made <= 5
    assert list(ahead) == [] and not any(thread.is_alive() for thread in ahead._threads)


def test_every_source_is_read_to_its_end() -> None:
    assert sorted(Ahead([iter(range(3)), iter(()), iter(np.arange(3, 5))])) == [0, 1, 2, 3, 4]
