"""The digest of a checkpoint folder, and how much a model can hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study import lineage
from rlbhpc.study.lineage import content_digest, file_digest, model_config, stated_length
from tests.study.folder import write_model


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_same_files_same_digest_wherever_they_lie(tmp_path: Path) -> None:
    write_model(tmp_path / "a" / "m")
    write_model(tmp_path / "b" / "m")
    assert content_digest(tmp_path / "a/m") == content_digest(tmp_path / "b/m")


@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json",
     "chat_template.jinja", "merges.txt", "adapter_model.bin"],
)  # fmt: skip
def test_whatever_decides_an_answer_changes_the_digest(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m")
    before = content_digest(tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(b"{}")
    assert content_digest(tmp_path / "m") != before


@pytest.mark.parametrize(
    "name",
    ["README.md", "optimizer.pt", "trainer_state.json", "rng_state_0.pth", "training_args.bin",
     ".cache/x.json", "original/consolidated.pth", "onnx/a.bin", "checkpoint-5/config.json"],
)  # fmt: skip
def test_what_has_no_effect_leaves_the_digest(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m")
    before = content_digest(tmp_path / "m")
    (tmp_path / "m" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "m" / name).write_bytes(b"{}")
    assert content_digest(tmp_path / "m") == before


def test_names_count_and_not_only_contents(tmp_path: Path) -> None:
    write_model(tmp_path / "m")
    before = content_digest(tmp_path / "m")
    (tmp_path / "m/model.safetensors").rename(tmp_path / "m/other.safetensors")
    assert content_digest(tmp_path / "m") != before


def test_a_large_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lineage._cache_folder.cache_clear()
    file = tmp_path / "model.safetensors"
    file.write_bytes(os.urandom(1 << 17))
    first = file_digest(file)
    with monkeypatch.context() as patched:
        patched.setattr(lineage, "sha256_of", lambda file: pytest.fail(f"{file} is read again"))
        assert file_digest(file) == first
    file.write_bytes(os.urandom(1 << 17))
    assert file_digest(file) != first, "a changed file is not taken from the cache"


def test_a_changed_file_with_its_old_time_is_seen(tmp_path: Path) -> None:
    lineage._cache_folder.cache_clear()
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"a" * (1 << 17))
    first, status = file_digest(file), file.stat()
    file.write_bytes(b"b" * (1 << 17))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_digest(file) != first


def test_a_cache_that_cannot_be_written_is_no_failure(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage._cache_folder.cache_clear()
    cache.write_text("a file where the folder should be")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"a" * (1 << 17))
    assert file_digest(file) == file_digest(file)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_model(tmp_path / "m")
    (tmp_path / "m/config.json").write_text("[]")
    with pytest.raises(UserError, match=r"m/config\.json: holds no object; a model configuration"):
        model_config(tmp_path / "m")
    (tmp_path / "m/model-2.safetensors").symlink_to(tmp_path / "gone")
    said = r"m/model-2\.safetensors: cannot be read: No such file or directory"
    with pytest.raises(UserError, match=said):
        content_digest(tmp_path / "m")
    with pytest.raises(UserError, match=said):
        file_digest(tmp_path / "m/model-2.safetensors")


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no weights in it"):
        content_digest(tmp_path)


def test_a_pointer_is_no_weights(tmp_path: Path) -> None:
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    with pytest.raises(UserError, match=r"model.safetensors: a pointer of Git LFS; run `git lfs p"):
        content_digest(tmp_path)
    (tmp_path / "model-2.safetensors").write_bytes(b"weights")
    with pytest.raises(UserError, match="a pointer"):
        content_digest(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"weights")
    assert content_digest(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.safetensors"])
def test_pointers_in_the_place_of_other_weights_are_left(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert content_digest(tmp_path)


@pytest.mark.parametrize(
    ("config", "holds"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({}, None),
        ({"text_config": {"max_position_embeddings": 128_000}}, 128_000),
        # For vLLM and transformers, YaRN reaches what is stated: neither samples beyond it.
        (
            {
                "max_position_embeddings": 32_768,
                "rope_scaling": {
                    "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768
                },
            },
            32_768,
        ),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 2}}, 2048),
        ({"max_position_embeddings": 8, "rope_scaling": "linear"}, 8),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, None),
        ({"max_position_embeddings": "8", "seq_length": 4, "text_config": 5}, 4),
        (
            {
                "max_position_embeddings": 32,
                "rope_scaling": {
                    "type": "yarn", "factor": 2, "original_max_position_embeddings": 8
                },
            },
            32,
        ),
        # Llama 3.1 states the length that its scaling reaches.
        (
            {
                "max_position_embeddings": 131_072,
                "rope_scaling": {
                    "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192
                },
            },
            131_072,
        ),
        (
            {
                "max_position_embeddings": 131_072,
                "rope_parameters": {
                    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768
                },
            },
            131_072,
        ),
    ],
)  # fmt: skip
def test_how_much_a_model_holds(config: dict[str, Any], holds: int | None) -> None:
    assert stated_length(config) == holds


def test_the_states_of_a_zero_checkpoint_count_where_they_are_all_there_is(tmp_path: Path) -> None:
    states = tmp_path / "global_step1" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    states.parent.mkdir()
    (states.parent / "mp_rank_00_model_states.pt").write_bytes(b"names")
    states.write_bytes(b"weights")
    before = content_digest(tmp_path)
    states.write_bytes(b"others!")
    assert content_digest(tmp_path) != before
    (tmp_path / "model.safetensors").write_bytes(b"gathered")
    gathered = content_digest(tmp_path)
    states.write_bytes(b"weights")
    assert content_digest(tmp_path) == gathered


def test_a_cache_that_may_not_be_read_is_no_reason_to_refuse_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home of an ordinary user on a node; the file itself was said to be unreadable."""
    weights = tmp_path / "weights"
    weights.write_bytes(b"w" * (1 << 17))
    expected = lineage.file_digest(weights)
    lineage._cache_folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(weights / "no folder"))
    assert lineage.file_digest(weights) == expected
    lineage._cache_folder.cache_clear()
