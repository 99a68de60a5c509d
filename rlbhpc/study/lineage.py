"""Digests of a study's models, which come before which, and which checkpoints are the study's own.

A checkpoint counts as the study's when the record beside it names the digest that the study gives
it and its files are those of the record (:mod:`rlbhpc.study.content`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.study.content import (
    SHORT,
    Origin,
    begin_run,
    content_digest,
    model_config,
    read_origin,
    read_record,
    record_content,
)
from rlbhpc.study.schema import FREE_OPTIONS, Recipe, Teacher
from rlbhpc.study.study import Study


def digest_of(parts: Any) -> str:
    """32 hex digits over JSON-like values."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Digests:
    """Works out the digests that a study does not hold yet, each once.

    A checkpoint on disk has the digest of its files. One that the study trains has the digest of
    what it is made from: base, recipe, data and step. It keeps that digest once it is trained, so
    samples can be planned before the model exists.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.found = {(m, step): d for m, line in study.digests.items() for step, d in line.items()}

    def digest(self, model: str, step: int) -> str:
        """Digest of one model at one step."""
        if (model, step) not in self.found:
            self.found[model, step] = self._work_out(model, step)
        return self.found[model, step]

    def _work_out(self, model: str, step: int) -> str:
        study, entry = self.study, self.study.models[model]
        if entry.endpoint is not None:
            # The address may change while the model stays; nothing more is known of its content.
            return digest_of(["endpoint", entry.endpoint.model, entry.endpoint.chat])
        base = study.base(model)
        if entry.steps is not None and step == 0:
            assert base is not None
            return self.digest(base, study.last_step(base))
        if entry.train is not None:
            return digest_of([*self._training(model), step])
        folder = study.folder(model, step)
        own = content_digest(folder)
        if base is not None and not model_config(folder):
            # An adapter, or weights without a configuration: only with its base is it a model.
            return digest_of(["on", self.digest(base, study.last_step(base)), own])
        return own

    def training(self, model: str) -> str:
        """Digest of a whole training: of what all its checkpoints are made from."""
        return digest_of(self._training(model))

    def _training(self, model: str) -> list[Any]:
        study, base, training = self.study, self.study.base(model), self.study.models[model].train
        assert training is not None
        start = self.digest(base, study.last_step(base)) if base is not None else None
        return ["train", start, self._recipe(study.file.recipes[training.recipe])]

    def _recipe(self, recipe: Recipe) -> dict[str, Any]:
        """Say what a recipe says, by content rather than by name."""
        study, record = self.study, recipe.model_dump(mode="json", by_alias=True)
        for name in FREE_OPTIONS & record["options"].keys():
            del record["options"][name]
        if recipe.problems is not None:
            record["problems"] = dict(study.problem_hashes[recipe.problems])
            record["problems"] |= self._own_verifier(recipe.problems)
        if recipe.prompt is not None:
            record["prompt"] = study.prompts[recipe.prompt].digest
        if recipe.texts is not None:
            record["texts"] = study.text_digests[recipe.texts]
        teacher = record["options"].get("teacher")
        if isinstance(teacher, str) and teacher in study.models:
            record["options"]["teacher"] = self.digest(teacher, study.last_step(teacher))
        if recipe.teacher is not None:
            record["teacher"] |= {"arm": self._arm(recipe.teacher)}
        return cast(dict[str, Any], plugins.replace_references(record, study.plugins))

    def _arm(self, teacher: Teacher) -> dict[str, Any]:
        """Say what the kept responses of an arm's last step depend on."""
        study, name = self.study, teacher.arm
        arm = study.arms[name]
        sets: dict[str, list[Any]] = {
            s: [study.n(name, s), dict(study.problem_hashes[s])] for s in study.sets(name)
        }
        for set_name, drawn in sets.items():
            if stop_after := study.stop_after(name, set_name):
                drawn.append(stop_after)
            if teacher.keep == "right":
                drawn += self._own_verifier(set_name).values()
        sampling = [arm.sampling.temperature, arm.sampling.top_p, arm.sampling.max_tokens]
        return {
            "model": self.digest(arm.model, arm.steps[-1]),
            "prompt": study.prompts[arm.prompt].digest,
            "sampling": [*sampling, list(arm.sampling.stop), *arm.sampling.extras().items()],
            "sets": sets,
            **study.brought_engine(name),
        }

    def _own_verifier(self, set_name: str) -> dict[str, str]:
        """The verifier of a set by its content, where it is none of rlbhpc's: it decides rewards.

        Problems are known by its name alone, for no sample of an arm depends on it.
        """
        name = self.study.problem_sets[set_name].verifier or ""
        identity = plugins.planned_identity(self.study.plugins, "verifiers", name)
        return {} if identity is None else {"verifier": identity}


ANEW: Final = (
    "give the new training another model name, or set this one aside and train anew with "
    "`--retrain` (of `rlbhpc train` or `rlbhpc launch`)"
)


def training_order(study: Study, models: Iterable[str]) -> list[str]:
    """Those of the models that the study trains, and all that these start from, bases first."""
    ordered: list[str] = []

    def add(name: str) -> None:
        entry = study.models[name]
        if entry.train is None or name in ordered:
            return
        if entry.train.from_ is not None:
            add(entry.train.from_)
        ordered.append(name)

    for name in models:
        add(name)
    return ordered


def there(study: Study, model: str, step: int) -> bool:
    """Whether a checkpoint can be sampled now: a folder has its final name when it is whole."""
    if study.models[model].endpoint is not None:
        return True
    return (study.folder(model, step) / "config.json").is_file()


def untrained(study: Study, models: Iterable[str]) -> list[str]:
    """Models that still have to be trained, bases first; those that are must be the study's own."""
    ordered = training_order(study, models)
    reject_strangers(study, ordered)
    return [
        name
        for name in ordered
        if not all(there(study, name, step) for step in study.models[name].steps or [])
    ]


def reject_strangers(study: Study, models: Iterable[str]) -> None:
    """Refuse trained models on disk that are not what the study says of them."""
    for name in training_order(study, models):
        complaint = stranger(study, name)
        if complaint is not None:
            raise UserError(complaint)


def stranger(study: Study, model: str) -> str | None:
    """Why what lies on disk of a trained model is not the study's; None where it is."""
    runs = {}
    for step in study.models[model].steps or []:
        if there(study, model, step):
            complaint = strange_checkpoint(study, model, step)
            if complaint is not None:
                return complaint
            origin = read_origin(study.folder(model, step))
            assert origin is not None
            runs[step] = origin.run
    folder = study.layout.training(model)
    training, digest = read_origin(folder), Digests(study).training(model)
    if training is None and any(study.layout.states(model).glob("step-*")):
        return _without_record(model, folder)
    if training is not None and training.made_by != digest:
        return (
            f"model {model}: the training in {folder} was begun by recipe "
            f"{training.made_by[:SHORT]}, and the study now says {digest[:SHORT]}; restore the "
            f"recipe, {ANEW}"
        )
    others = {step: run for step, run in runs.items() if training is None or run != training.run}
    whole = len(runs) == len(study.models[model].steps or [])
    if others and not (training is None and whole):
        return (
            f"model {model}: the checkpoint of step {min(others)} is of another training than the "
            f"one in {folder}, and one model may not be made of two; {ANEW}"
        )
    return None


def strange_checkpoint(study: Study, model: str, step: int) -> str | None:
    """Why one checkpoint on disk is not what the study says of it; None where it is."""
    folder = study.folder(model, step)
    origin = read_origin(folder)
    digest = study.digests[model][step]
    if origin is None:
        return _without_record(model, folder)
    if origin.made_by != digest:
        return (
            f"model {model}: {folder} was made by {origin.made_by[:SHORT]} (base, recipe and "
            f"data), and the study now says {digest[:SHORT]}; restore them, "
            f"{ANEW}"
        )
    content = origin.changed(folder)
    if content is not None:
        return (
            f"model {model}: the weights in {folder} are {content[:SHORT]}, and were "
            f"{origin.content[:SHORT]} when they were trained; restore them, name the changed "
            f"ones by `path:`, or {ANEW}"
        )
    return None


def _without_record(model: str, folder: Path) -> str:
    return (
        f"model {model}: {folder} has no record of the recipe that made it, as `rlbhpc train` "
        f"writes one; name weights that you bring as a model of their own by `path:`, or {ANEW}"
    )


def check_weights(study: Study, model: str, step: int) -> None:
    """Refuse weights on disk that are not those to which the study gave its digest.

    Called where weights are loaded, perhaps days after the study was read.
    """
    entry = study.models[model]
    if entry.train is not None:
        complaint = strange_checkpoint(study, model, step) if there(study, model, step) else None
        if complaint is not None:
            raise UserError(complaint)
        return
    digest = study.digests[model][step]
    record = read_record(study.layout.contents(digest))
    folder = study.folder(model, step)
    if record is not None and record.changed(folder) is None:
        return
    now = Digests(replace(study, digests={})).digest(model, step)
    if now != digest:
        raise UserError(
            f"model {model}: {folder} is {now[:SHORT]}, and was {digest[:SHORT]} when its work was "
            "planned; restore it, or run the same command on the study again for the new weights"
        )


def keep_contents(study: Study) -> None:
    """Write down what the files of the study's given models are, for workers to compare with."""
    for name, entry in study.models.items():
        for step in (entry.steps or [0]) if entry.path is not None else ():
            path = study.layout.contents(study.digests[name][step])
            if not path.exists():
                record_content(path, study.digests[name][step], study.folder(name, step))


def begin_training(study: Study, model: str) -> Origin:
    """The record of a model's training, which begins it where there is none."""
    complaint = stranger(study, model)
    if complaint is not None:
        raise UserError(complaint)
    return begin_run(study.layout.training(model), Digests(study).training(model))


def set_aside(study: Study, models: Iterable[str]) -> list[Path]:
    """Move what lies on disk of trained models and is not the study's out of the way."""
    return [_retire(study, m) for m in training_order(study, models) if stranger(study, m)]


def _retire(study: Study, model: str) -> Path:
    layout = study.layout
    places = {"training": layout.training(model), "checkpoints": layout.checkpoints(model)}
    record = read_origin(places["training"])
    name = f"{model}-{record.run[:SHORT] if record else 'unrecorded'}"
    again = 1
    while layout.retired(name).exists():
        again += 1
        name = f"{name.partition('.')[0]}.{again}"
    for part, place in places.items():
        if place.exists():
            layout.retired(name).mkdir(parents=True, exist_ok=True)
            place.rename(layout.retired(name) / part)
    return layout.retired(name)
