"""The noun *Study*: what a study file means, with everything that it names looked up.

A Study holds no weights and no problem texts, only digests of them. So it fits into one JSON file
that workers read instead of the YAML, and two of them can be compared for what stays valid.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from pydantic import ValidationError

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem, make_probe
from rlbhpc.problems.problemset import Selection, in_one_line, keep_listed, own_set
from rlbhpc.problems.prompts import Prompt
from rlbhpc.problems.registry import get_set
from rlbhpc.study.keys import Arm, Block, common_name, fingerprint
from rlbhpc.study.layout import Layout
from rlbhpc.study.schema import ModelEntry, MoreSampling, ProblemSet, StudyFile

FORMAT: Final = 1
# Keys of an arm that came later: a study without them means what it meant before.
_UNSET: Final = [(key, None) for key in ("stop_after", *MoreSampling.model_fields)]


@dataclass(frozen=True)
class Study:
    """A study with everything that it names looked up.

    ``file`` is the study file after includes, overrides and sweeps, all paths absolute. ``digests``
    are of the content of each model at each step that exists or will be trained, ``text_digests``
    of each file of texts. ``prompts`` have the names that arms and recipes give. ``problem_hashes``
    keep the order of each set; ``duplicates`` count the repeated records that were left out.
    ``plugins`` map each plugin that the study names to its identity by content.
    """

    file: StudyFile
    digests: Mapping[str, Mapping[int, str]]
    prompts: Mapping[str, Prompt]
    problem_hashes: Mapping[str, Mapping[str, str]]
    text_digests: Mapping[str, str]
    plugins: Mapping[str, str] = field(default_factory=dict)
    duplicates: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The study's short name."""
        return self.file.name

    @property
    def seed(self) -> int:
        """The study seed, from which every sample's seed follows."""
        return self.file.seed

    @property
    def layout(self) -> Layout:
        """Where the study keeps its results."""
        assert self.file.output is not None
        return Layout(Path(self.file.output))

    @property
    def models(self) -> Mapping[str, ModelEntry]:
        """The models by name."""
        return self.file.models

    @property
    def problem_sets(self) -> Mapping[str, ProblemSet]:
        """The problem sets by name."""
        return self.file.problem_sets

    @cached_property
    def arms(self) -> Mapping[str, Arm]:
        """The arms by name."""
        return {name: self._arm(name) for name in self.file.arms}

    def _arm(self, name: str) -> Arm:
        entry = self.file.arms[name]
        return Arm(
            name=name,
            model=entry.model,
            prompt=entry.prompt,
            sampling=entry.sampling(),
            n=entry.n,
            steps=tuple(sorted(entry.steps or self.models[entry.model].steps or [0])),
        )

    def engine(self, arm: str) -> str:
        """Which engine answers for an arm: ``hf``, ``vllm``, ``endpoint`` or one's own."""
        entry = self.file.arms[arm]
        if self.models[entry.model].endpoint is not None:
            return "endpoint"
        return entry.engine or self.file.engine.name

    def brought_engine(self, arm: str) -> dict[str, str]:
        """The engine of an arm by its content, where it is none of rlbhpc's: it decides samples."""
        identity = plugins.planned_identity(self.plugins, "engines", self.engine(arm))
        return {} if identity is None else {"engine": identity}

    def sets(self, arm: str) -> tuple[str, ...]:
        """Return the problem sets that an arm answers."""
        chosen = self.file.arms[arm].problem_sets
        if chosen is not None:
            return tuple(chosen)
        trained_on = {recipe.problems for recipe in self.file.recipes.values()}
        example_sets = {p.shots.from_ for p in self.file.prompts.values() if p.shots is not None}
        return tuple(name for name in self.problem_sets if name not in trained_on | example_sets)

    def n(self, arm: str, set_name: str) -> int:
        """Return the samples per problem of one arm and problem set."""
        return self.problem_sets[set_name].n or self.arms[arm].n

    def stop_after(self, arm: str, set_name: str) -> int:
        """Return the right samples at which a problem ends; 0 where all n are drawn."""
        of_set = self.problem_sets[set_name].stop_after
        rule = (self.file.arms[arm].stop_after if of_set is None else of_set) or 0
        return rule if rule < self.n(arm, set_name) else 0

    def comparisons(self) -> list[tuple[str, str]]:
        """Pairs of arms to compare, base first.

        Those that the study names; else each arm with the arm of its model's base, or of that
        one's base, under the same prompt and sampling.
        """
        if self.file.analysis.compare:
            return [(pair.base, pair.trained) for pair in self.file.analysis.compare]
        pairs = []
        for arm in self.arms.values():
            ancestor = self.base(arm.model)
            partner = None
            while ancestor is not None and partner is None:
                partner = self._partner(arm, ancestor)
                ancestor = self.base(ancestor)
            if partner is not None:
                pairs.append((partner, arm.name))
        return pairs

    def trainings(self) -> dict[str, tuple[str, ...]]:
        """Arms whose models were trained by one recipe and differ in its seed alone, by a name."""
        groups: dict[str, list[str]] = {}
        for name, arm in self.file.arms.items():
            training = self.models[arm.model].train
            if training is None:
                continue
            recipe = self.file.recipes[training.recipe].model_dump(mode="json", exclude={"seed"})
            rest = arm.model_dump(mode="json", exclude={"model"}), self.models[arm.model].steps
            key = json.dumps([training.from_, recipe, rest], sort_keys=True)
            groups.setdefault(key, []).append(name)
        pooled: dict[str, tuple[str, ...]] = {}
        for names in groups.values():
            if len(names) > 1:
                short = common_name(names)
                is_used = short in pooled or short in self.file.arms
                pooled[", ".join(names) if is_used else short] = tuple(names)
        return pooled

    def _partner(self, arm: Arm, model: str) -> str | None:
        """The arm of a model that asks for the same as another arm."""
        sets = set(self.sets(arm.name))
        for other in self.arms.values():
            alike = (other.prompt, other.sampling) == (arm.prompt, arm.sampling)
            if other.model == model and alike and sets & set(self.sets(other.name)):
                return other.name
        return None

    def folder(self, model: str, step: int = 0) -> Path:
        """Where the weights of a model at a step are, or will be once they are trained."""
        entry = self.models[model]
        if entry.endpoint is not None:
            raise UserError(f"model {model} is served at {entry.endpoint.url}; it has no folder")
        if entry.steps is not None and step == 0:
            parent = self.base(model)
            assert parent is not None
            return self.folder(parent, self.last_step(parent))
        if entry.path is not None:
            return Path(entry.path.replace("{step}", str(step)))
        return self.layout.checkpoint(model, step)

    def base(self, model: str) -> str | None:
        """Return the model that another one was, or will be, trained from."""
        entry = self.models[model]
        return entry.train.from_ if entry.train is not None else entry.base

    def steps(self, model: str) -> list[int]:
        """Return the steps at which a model can be sampled; 0 is its base, or the model itself."""
        line = sorted(self.models[model].steps or [])
        return line if line and self.base(model) is None else [0, *line]

    def last_step(self, model: str) -> int:
        """Return the last checkpoint of a line; 0 for a single model."""
        return max(self.models[model].steps or [0])

    def problem_ids(self, set_name: str) -> tuple[str, ...]:
        """Ids of a set's problems, in the order of the set; reads no file."""
        return tuple(self.problem_hashes[set_name])

    def first_shown(self, set_name: str) -> str | None:
        """Id of a set's first problem with an image; the set is read once to find out."""
        if set_name not in self._shown:
            problems = self.problems(set_name)
            self._shown[set_name] = next((p.id for p in problems if p.images), None)
        return self._shown[set_name]

    @cached_property
    def _shown(self) -> dict[str, str | None]:
        return {}

    def problems(self, set_name: str) -> list[Problem]:
        """Read the problems of a set and compare them with what the study knows."""
        loaded = load_problems(set_name, self.problem_sets[set_name])
        hashes = {problem.id: problem.content_hash for problem in loaded}
        recorded = self.problem_hashes[set_name]
        if hashes != recorded:
            changed = [i for i in {**recorded, **hashes} if recorded.get(i) != hashes.get(i)]
            raise UserError(
                f"problem set {set_name}: {len(changed)} problems are not what they were when the"
                f" study was planned (first: {changed[0]}); plan again, or restore"
                f" {self.problem_sets[set_name].path}"
            )
        return loaded

    def request(self, arm: str, step: int, problem: str) -> dict[str, Any]:
        """All that determines a sample besides its index: what `fingerprint` hashes."""
        entry = self.arms[arm]
        return {
            "seed": self.seed,
            "model": self.digests[entry.model][step],
            "prompt": self.prompts[entry.prompt].digest,
            **entry.sampling.record(),
            "problem": self.problem_hashes[problem.partition("/")[0]][problem],
            **self.brought_engine(arm),
        }

    def request_fingerprint(self, arm: str, step: int, problem: str) -> int:
        """Fingerprint of all that determines a sample besides its index."""
        return fingerprint(self.request(arm, step, problem))

    def block(
        self, arm: str, set_name: str, step: int, problems: tuple[str, ...] | None = None
    ) -> Block:
        """Return the samples of one arm, problem set and step, or of some of its problems."""
        problems = self.problem_ids(set_name) if problems is None else problems
        prints = [self.request_fingerprint(arm, step, problem) for problem in problems]
        return Block(
            arm,
            set_name,
            step,
            problems,
            self.n(arm, set_name),
            np.array(prints, dtype=np.int64),
            self.stop_after(arm, set_name),
        )

    def places(self) -> Iterator[tuple[str, str, int]]:
        """Everything that is asked for, as arm, set and step, in this order."""
        for arm in self.arms.values():
            for set_name in self.sets(arm.name):
                for step in arm.steps:
                    yield arm.name, set_name, step

    def blocks(self) -> Iterator[Block]:
        """The samples of everything that is asked for."""
        return (self.block(*place) for place in self.places())

    def to_json(self) -> str:
        """Return the whole study as JSON text, for `from_json`."""
        record = {
            "format": FORMAT,
            "study": self.file.model_dump(mode="json", by_alias=True),
            "digests": {name: dict(by_step) for name, by_step in self.digests.items()},
            "prompts": {
                name: [p.name, p.text, p.digest, *([dict(p.without)] if p.without else [])]
                for name, p in self.prompts.items()
            },
            "problem_hashes": {name: dict(ids) for name, ids in self.problem_hashes.items()},
            "text_digests": dict(self.text_digests),
            # Written where there are any, so that records of before stay what they were.
            **({"plugins": dict(self.plugins)} if self.plugins else {}),
            **({"duplicates": dict(self.duplicates)} if self.duplicates else {}),
        }
        checked = {"check": fingerprint({"": json.dumps(record)}), **record}
        return json.dumps(checked, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Study:
        """Return a study from the text that `to_json` made."""
        try:
            record = json.loads(text)
            if record.pop("check", None) not in {None, fingerprint({"": json.dumps(record)})}:
                raise ValueError
            if record["format"] != FORMAT:
                raise UserError(
                    f"this study was written in format {record['format']}, and this version of"
                    f" rlbhpc reads {FORMAT}; use the version that wrote it"
                )
            return cls(
                file=StudyFile.model_validate(record["study"]),
                digests={
                    name: {int(step): digest for step, digest in by_step.items()}
                    for name, by_step in record["digests"].items()
                },
                prompts={name: Prompt(*parts) for name, parts in record["prompts"].items()},
                problem_hashes=record["problem_hashes"],
                text_digests=record["text_digests"],
                plugins=record.get("plugins", {}),
                duplicates=record.get("duplicates", {}),
            )
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise UserError(
                f"not a study as rlbhpc stores it ({type(error).__name__}); plan the study again"
            ) from None

    @cached_property
    def hash(self) -> str:
        """16 hex digits over what the study means.

        Comments, key order and spelling do not enter, nor paths (contents do), nor where and how
        the work is run: name, output folder, cluster, engine options, storage.
        """
        text = json.dumps(self.meaning(), ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def meaning(self) -> dict[str, Any]:
        """Say what the study asks for, by content rather than by name of file."""
        record = self.file.model_dump(mode="json", by_alias=True)
        digests = {name: dict(by_step) for name, by_step in self.digests.items()}
        meaning = {
            "seed": self.seed,
            "models": {
                name: {"base": self.base(name), "digests": digests[name]} for name in self.models
            },
            "problem_sets": {
                name: {
                    "n": entry.n,
                    "problems": dict(self.problem_hashes[name]),
                    **({"verifier": entry.verifier} if entry.verifier else {}),
                    **({"stop_after": entry.stop_after} if entry.stop_after is not None else {}),
                }
                for name, entry in self.problem_sets.items()
            },
            "arms": {
                name: {
                    **{k: v for k, v in record["arms"][name].items() if (k, v) not in _UNSET},
                    "prompt": self.prompts[arm.prompt].digest,
                    "steps": list(arm.steps),
                    "problem_sets": sorted(self.sets(name)),
                    "engine": self.engine(name),
                }
                for name, arm in self.arms.items()
            },
            "scores": {
                name: {**request, "texts": self.text_digests.get(request["texts"])}
                for name, request in record["scores"].items()
            },
            **{key: record[key] for key in ("verification", "match_entropy", "analysis")},
            "dtype": self.file.engine.dtype,
        }
        return cast(dict[str, Any], plugins.replace_references(meaning, self.plugins))


def load_problems(name: str, entry: ProblemSet, dropped: list[str] | None = None) -> list[Problem]:
    """Load one set of a study, with the study's own name of the set in the ids.

    ``dropped`` gets the places of repeated records that were left out.
    """
    path = None if entry.path is None else Path(entry.path)
    repeated = ([] if dropped is None else dropped) if entry.duplicates == "drop" else None
    problem_set = own_set(entry.fields) if entry.fields else get_set(entry.set or name)
    registered = name if entry.set is None or plugins.is_file(entry.set) else entry.set
    selection = Selection(registered, path, entry.subset, entry.limit, entry.seed, repeated)
    with in_one_line(f"{entry.set or name}: loading its problems"):
        problems = [
            replace(p, id=f"{name}/{p.id.partition('/')[2]}", verifier=entry.verifier or p.verifier)
            for p in problem_set.load(selection)
        ]
    counts = Counter(problem.id for problem in problems)
    if len(counts) < len(problems):  # of a set that is no FileSet
        [(problem_id, times)] = counts.most_common(1)
        raise UserError(
            f"{entry.set or name}: {times} problems have the id {problem_id!r}; allowed: one"
        )
    if entry.ids is not None:
        problems = keep_listed(problems, Path(entry.ids))
    return problems if entry.probe is None else [make_probe(p, entry.probe) for p in problems]
