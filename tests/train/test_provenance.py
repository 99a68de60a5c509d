"""A model that is trained carries what made it, and an edited recipe meets that record."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, NOTHING_TO_DO, USAGE
from rlbhpc.study.lineage import ORIGIN_FILE, content_digest, read_origin
from rlbhpc.study.load import load_study
from tests.children import Child
from tests.studies import trained

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def toy(learning_rate: float = 1e-3, recipe_prompt: str = "countdown", **arm: str) -> str:
    """A study of one arm; the bonus gives a gradient whatever is sampled."""
    recipe = {
        "prompt": recipe_prompt,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "max_tokens": 8,
        "learning_rate": learning_rate,
        "options": {"entropy_bonus": 0.1},
    }
    arms = {"rl": {"model": "rl", **arm}}
    sampling = {"max_tokens": 4, "n": 2}
    return trained("toy", [1, 2], recipe, limits=(4, 1), sampling=sampling, arms=arms)


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.timeout(300)
def test_an_edited_recipe_never_puts_its_name_on_old_weights(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model", hidden_size=32)
    path = tmp_path / "toy.yaml"
    path.write_text(toy())
    assert Child("train", str(path)).ended() == DONE
    study = load_study(path)
    folders = [study.layout.checkpoint("rl", step) for step in (1, 2)]
    for step, folder in enumerate(folders, 1):
        origin = read_origin(folder)
        assert origin is not None
        assert origin.made_by == study.digests["rl"][step]
        assert origin.content == content_digest(folder)
    assert Child("sample", str(path)).ended() == DONE
    old = weights(folders[1])

    # Without records nothing says what made them: no verb goes on, whatever the recipe.
    records = [
        *(folder / ORIGIN_FILE for folder in folders),
        study.layout.training("rl") / ORIGIN_FILE,
    ]
    for record in records:
        record.rename(record.with_suffix(".away"))
    assert Child("sample", str(path), "--set", "sampling.n=4").ended() == USAGE
    assert Child("train", str(path)).ended() == USAGE
    assert not any(record.exists() for record in records)
    for record in records:
        record.with_suffix(".away").rename(record)
    assert Child("train", str(path)).ended() == NOTHING_TO_DO
    assert Child("sample", str(path)).ended() == NOTHING_TO_DO

    path.write_text(toy(learning_rate=1e-2))
    for verb in ("check", "train", "sample"):
        assert Child(verb, str(path)).ended() == USAGE
    assert weights(folders[1]) == old
    for away in (study.layout.training("rl"), study.layout.checkpoints("rl")):
        away.rename(tmp_path / away.parent.name)
    assert Child("train", str(path)).ended() == DONE
    assert weights(folders[1]) != old
    assert Child("sample", str(path)).ended() == DONE


@pytest.mark.timeout(300)
def test_a_prompt_of_another_chat_format_is_refused_where_the_model_is_loaded(
    tmp_path: Path,
) -> None:
    make_tiny_model(tmp_path / "model", hidden_size=32)
    (tmp_path / "llama.txt").write_text("<|start_header_id|>user<|end_header_id|>{question}")
    path = tmp_path / "toy.yaml"
    path.write_text(toy(model="base", prompt="llama.txt"))
    assert Child("sample", str(path)).ended() == USAGE
    path.write_text(toy(recipe_prompt="llama.txt"))
    assert Child("train", str(path)).ended() == USAGE
