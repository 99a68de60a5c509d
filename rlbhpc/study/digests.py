"""Content digests of a study's models, whether they exist or are still to be trained."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from rlbhpc import plugins
from rlbhpc.study.content import content_digest, model_config
from rlbhpc.study.recipe import FREE_OPTIONS, Recipe, Teacher
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
        return cast(dict[str, Any], plugins.replaced(record, study.plugins))

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
        identity = plugins.of(self.study.plugins, "verifiers", name)
        return {} if identity is None else {"verifier": identity}
