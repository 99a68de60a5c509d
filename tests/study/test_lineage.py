"""Weights on disk are the study's when their record says so, and nothing is drawn from others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from rlbhpc.cli.check import check
from rlbhpc.cli.jobs import launch
from rlbhpc.cli.sampling import sample
from rlbhpc.cli.scoring import score
from rlbhpc.cli.train import train
from rlbhpc.errors import UserError
from rlbhpc.study import lineage
from rlbhpc.study.lineage import (
    ORIGIN_FILE,
    Digests,
    begin_training,
    check_weights,
    checkpoint_exists,
    compare_model,
    read_record,
    record_checkpoint,
    record_given_models,
    training_order,
    untrained_models,
)
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from tests.study.folder import write_model

CLUSTER = "{account: dev, sample: {time: '10'}, train: {time: '10'}, light: {time: '10'}}"


def finish(study: Study, model: str = "rl") -> None:
    """Put the checkpoints of a trained model there as training leaves them."""
    origin = begin_training(study, model)
    for step in study.models[model].steps or []:
        folder = study.layout.checkpoint(model, step)
        if not folder.exists():
            write_model(folder)
            record_checkpoint(folder, study.digests[model][step], origin.run)


def edited(study_file: Path, old: str = "1e-6", new: str = "1e-3") -> Study:
    text = study_file.read_text()
    assert old in text
    study_file.write_text(text.replace(old, new))
    return load_study(study_file)


def test_a_trained_model_is_the_studys_own(study_file: Path) -> None:
    study = load_study(study_file)
    assert untrained_models(study, ["rl"]) == ["rl"]
    finish(study)
    assert untrained_models(study, ["rl"]) == []
    check_weights(study, "rl", 150)


@pytest.mark.parametrize("verb", [check, launch, sample, score, train])
def test_every_verb_refuses_weights_of_another_recipe(
    study_file: Path, verb: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train, edit the learning rate, go on: the message names both digests and what to do."""
    first = load_study(study_file)
    finish(first)
    second = edited(study_file)
    old, new = (study.digests["rl"][150][:12] for study in (first, second))
    assert old != new
    table = study_file.parent / "site.yaml"
    table.write_text(CLUSTER)
    words = [str(study_file)] + (["--cluster", str(table)] if verb is launch else [])
    with pytest.raises(UserError) as refused:
        verb.main(words, standalone_mode=False)
    text = str(refused.value)
    assert old in text and new in text and "another model name" in text
    assert "\n" not in text
    assert not second.layout.study.exists(), "a refused study is remembered as the last run"


def test_weights_are_compared_where_they_are_loaded(study_file: Path) -> None:
    """A job that was planned before the edit, and a training that read the study after it."""
    planned = load_study(study_file)
    finish(edited(study_file))
    with pytest.raises(UserError, match=planned.digests["rl"][150][:12]):
        check_weights(planned, "rl", 150)


def test_a_training_goes_on_with_its_own_recipe_alone(study_file: Path) -> None:
    study = load_study(study_file)
    begin_training(study, "rl")
    begin_training(study, "rl")
    old, new = Digests(study).training("rl"), Digests(edited(study_file)).training("rl")
    with pytest.raises(UserError, match=rf"{old[:12]}.*{new[:12]}"):
        begin_training(load_study(study_file), "rl")


def test_how_the_work_is_cut_is_no_part_of_a_recipe(study_file: Path) -> None:
    """Out of memory at step 150: smaller micro-batches go on with the same model."""
    finish(load_study(study_file))
    smaller = edited(
        study_file, "clip_low: 0.2", "clip_low: 0.2, micro_tokens: 512, recompute: true"
    )
    assert compare_model(smaller, "rl") is None
    longer = edited(study_file, "steps: [150, 300]", "steps: [150, 300, 450]")
    assert untrained_models(longer, ["rl"]) == ["rl"]


def overwrite(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"others!" + folder.name.encode())


def overwrite_with_its_times(folder: Path) -> None:
    file = folder / "model.safetensors"
    status = file.stat()
    overwrite(folder)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def change_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize("change", [overwrite, overwrite_with_its_times, change_the_tokenizer])
@pytest.mark.parametrize("model", ["rl", "base"])
def test_weights_that_change_in_their_place_are_noticed(
    study_file: Path, model: str, change: Callable[[Path], None]
) -> None:
    study = load_study(study_file)
    finish(study)
    record_given_models(study)
    step = study.last_step(model)
    check_weights(study, model, step)
    change(study.folder(model, step))
    with pytest.raises(UserError, match="restore") as refused:
        check_weights(study, model, step)
    digests = [
        word.strip(",;") for word in str(refused.value).split() if len(word.strip(",;")) == 12
    ]
    assert len({d for d in digests if set(d) <= set("0123456789abcdef")}) == 2


def test_copied_weights_are_the_same(study_file: Path) -> None:
    study = load_study(study_file)
    finish(study)
    record_given_models(study)
    for model in ("rl", "base"):
        folder = study.folder(model, study.last_step(model))
        shutil.copytree(folder, folder.with_name("copy"))
        shutil.rmtree(folder)
        folder.with_name("copy").rename(folder)
        check_weights(study, model, study.last_step(model))


def test_nothing_is_read_again_while_times_stand(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file)
    finish(study)
    record_given_models(study)
    monkeypatch.setattr(lineage, "file_digest", lambda file: pytest.fail(f"{file} is read"))
    check_weights(study, "rl", 150)
    check_weights(study, "base", 0)
    assert untrained_models(study, ["rl"]) == []


def test_two_trainings_of_one_recipe_do_not_mix(study_file: Path) -> None:
    """The training state was deleted and half of the checkpoints: the rest is of another run."""
    study = load_study(study_file)
    finish(study)
    shutil.rmtree(study.layout.training("rl"))
    assert compare_model(study, "rl") is None, "a finished model needs no training state"
    shutil.rmtree(study.layout.checkpoint("rl", 300))
    with pytest.raises(UserError, match="step 150 is of another training"):
        untrained_models(study, ["rl"])


def test_a_checkpoint_without_a_record_is_refused(study_file: Path) -> None:
    study = load_study(study_file)
    for step in (150, 300):
        write_model(study.layout.checkpoint("rl", step))
    with pytest.raises(UserError, match="has no record of the recipe"):
        untrained_models(study, ["rl"])


def test_a_model_that_is_served_is_there(study_file: Path) -> None:
    study = load_study(study_file)
    assert (
        checkpoint_exists(study, "far", 0)
        and checkpoint_exists(study, "base", 0)
        and not checkpoint_exists(study, "rl", 150)
    )
    assert training_order(study, study.models) == ["rl"]
    chain = ["models.rl2={train: {from: rl, recipe: grpo}, steps: [5]}", "arms.rl2={model: rl2}"]
    assert training_order(load_study(study_file, chain), ["rl2", "rl"]) == ["rl", "rl2"]
    check_weights(study, "rl", 150)  # nothing is there to be refused


def test_a_training_without_a_record_is_refused(study_file: Path) -> None:
    study = load_study(study_file)
    state = study.layout.states("rl") / "step-10"
    state.mkdir(parents=True)
    with pytest.raises(UserError) as refused:
        begin_training(study, "rl")
    assert f"{study.layout.training('rl')} has no record of the recipe" in str(refused.value)
    shutil.rmtree(study.layout.training("rl"))
    assert begin_training(study, "rl") == begin_training(study, "rl")


def test_contents_of_every_step_are_kept(study_file: Path) -> None:
    study = load_study(study_file)
    record_given_models(study)
    digests = {study.digests["base"][0], *(study.digests["line"][step] for step in (100, 200))}
    kept = {path.stem: path.read_bytes() for path in study.layout.contents("x").parent.iterdir()}
    assert set(kept) == digests
    for path in study.layout.contents("x").parent.iterdir():
        path.write_bytes(b"as it was")
    record_given_models(study)
    assert study.layout.contents(study.digests["base"][0]).read_bytes() == b"as it was"


def test_a_file_system_without_hard_links_has_records_too(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    study = load_study(study_file)
    run = begin_training(study, "rl")
    assert begin_training(study, "rl").made_by == run.made_by
    assert [path.name for path in study.layout.training("rl").iterdir()] == [ORIGIN_FILE]


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert read_record(tmp_path / "none") is None
    with pytest.raises(UserError, match=rf"{tmp_path}: cannot be read: Is a directory"):
        read_record(tmp_path)


def test_a_torn_record_is_named(study_file: Path) -> None:
    study = load_study(study_file)
    finish(study)
    path = study.layout.checkpoint("rl", 150) / ORIGIN_FILE
    path.write_text(json.dumps({"made_by": 1}))
    with pytest.raises(UserError, match=str(path)):
        untrained_models(study, ["rl"])
