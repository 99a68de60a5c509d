"""The noun *Study*: what a study file means, with everything that it names looked up.

A Study holds no weights and no problem texts, only digests of them. So it fits into one JSON file
that workers read instead of the YAML, and two of them can be compared for what stays valid.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
# Keys of an arm that came later: while unset they enter no hash, so old studies keep theirs.
_LATER_ARM_KEYS: Final = frozenset({"stop_after", "search_share", *MoreSampling.model_fields})
# Share of an arm's samples that all its tries take together, and the fewest problems of a try.
_SEARCH_SHARE: Final = 0.03
_FEWEST_TRIED_PROBLEMS: Final = 8


@dataclass(frozen=True)
class Search:
    """The search for the prompt of an arm.

    ``tries`` has the arm that tries each candidate prompt, by the candidate's name. ``key`` stands
    for all that decides which is best. ``chosen`` are the candidates that ask the problems of half
    0 and of half 1; empty while tries are missing. ``rates`` has the mean success rate of each
    candidate on each half.
    """

    tries: Mapping[str, str]
    key: str
    chosen: Sequence[str] = ()
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)


def searched_prompt(arm: str) -> str:
    """Name the prompt that a search finds for an arm."""
    return f"{arm}+search"


def half_of(problem: str) -> int:
    """The half, 0 or 1, that a problem is in where a prompt is searched."""
    return _search_rank(problem)[-1] % 2


def _search_rank(problem: str) -> bytes:
    return hashlib.sha256(f"search\0{problem}".encode()).digest()


@dataclass(frozen=True)
class Study:
    """A study with everything that it names looked up.

    ``file`` is the study file after includes, overrides and sweeps, all paths absolute. ``digests``
    are of the content of each model at each step that exists or will be trained, ``text_digests``
    of each file of texts. ``prompts`` have the names that arms and recipes give. ``problem_hashes``
    keep the order of each set; ``duplicates`` count the repeated records that were left out.
    ``plugins`` map each plugin that the study names to its identity by content. ``searches`` are
    of the arms whose prompt is searched.
    """

    file: StudyFile
    digests: Mapping[str, Mapping[int, str]]
    prompts: Mapping[str, Prompt]
    problem_hashes: Mapping[str, Mapping[str, str]]
    text_digests: Mapping[str, str]
    plugins: Mapping[str, str] = field(default_factory=dict)
    duplicates: Mapping[str, int] = field(default_factory=dict)
    searches: Mapping[str, Search] = field(default_factory=dict)

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
        """The arms by name, with defaults filled in.

        An arm is a model under one prompt and sampling setting. Its steps are the checkpoints to
        sample: those that it names, else all of its model, else the model itself (0).
        """
        arms = {}
        for name, entry in self.file.arms.items():
            steps = entry.steps or self.models[entry.model].steps or [0]
            arms[name] = Arm(
                name=name,
                model=entry.model,
                prompt=searched_prompt(name) if name in self.searches else entry.prompt,
                sampling=entry.sampling(),
                n=entry.n,
                steps=tuple(sorted(steps)),
            )
        return arms

    @cached_property
    def tries(self) -> dict[str, str]:
        """The arms that try prompts, each with the arm whose prompt is searched."""
        arm_of_try: dict[str, str] = {}
        for arm, search in self.searches.items():
            arm_of_try |= dict.fromkeys(search.tries.values(), arm)
        return arm_of_try

    @property
    def searching(self) -> list[str]:
        """The arms whose prompt is not chosen yet."""
        return [arm for arm, search in self.searches.items() if not search.chosen]

    def engine(self, arm: str) -> str:
        """Which engine answers for an arm: ``hf``, ``vllm``, ``endpoint`` or one's own."""
        entry = self.file.arms[arm]
        if self.models[entry.model].endpoint is not None:
            return "endpoint"
        return entry.engine or self.file.engine.name

    def plugin_engine(self, arm: str) -> dict[str, str]:
        """``engine`` and its content, where the arm's is none of rlbhpc's: it decides samples."""
        identity = plugins.planned_identity(self.plugins, "engines", self.engine(arm))
        return {} if identity is None else {"engine": identity}

    def sets(self, arm: str) -> tuple[str, ...]:
        """Return the problem sets that an arm answers.

        Those that it names; else all that neither training nor the examples in prompts take
        problems from. An arm is a model under one prompt and sampling setting.
        """
        named_sets = self.file.arms[arm].problem_sets
        if named_sets is not None:
            return tuple(named_sets)
        training_sets = {
            component.problems
            for recipe in self.file.recipes.values()
            for component in recipe.components
        }
        example_sets = {p.shots.from_ for p in self.file.prompts.values() if p.shots is not None}
        return tuple(name for name in self.problem_sets if name not in training_sets | example_sets)

    def n(self, arm: str, set_name: str) -> int:
        """Return the samples per problem of one arm and problem set; of a try, its small share."""
        n = self.problem_sets[set_name].n or self.arms[arm].n
        return max(1, int(self._tried_samples(arm, n))) if arm in self.tries else n

    def _tried_samples(self, arm: str, n: int) -> float:
        """Samples per problem that a try may take, where the arm that it is for takes ``n``."""
        share = self.file.arms[arm].search_share or _SEARCH_SHARE
        return share * n / len(self.searches[self.tries[arm]].tries)

    def asked_problems(self, arm: str, set_name: str) -> tuple[str, ...]:
        """Ids of the problems of a set that an arm answers: all, or the few that a try affords.

        All tries of a search take the same problems, those that are first by a hash of their id.
        """
        problems = self.problem_ids(set_name)
        if arm not in self.tries:
            return problems
        n = self.problem_sets[set_name].n or self.arms[arm].n
        affordable = int(len(problems) * self._tried_samples(arm, n))
        count = max(affordable, _FEWEST_TRIED_PROBLEMS)
        chosen = set(sorted(problems, key=_search_rank)[:count])
        return tuple(problem for problem in problems if problem in chosen)

    def count_samples(self, arm: str) -> int:
        """Samples that an arm asks for, at all its steps and on all its problem sets."""
        samples = 0
        for set_name in self.sets(arm):
            samples += len(self.asked_problems(arm, set_name)) * self.n(arm, set_name)
        return samples * len(self.arms[arm].steps)

    def stop_after(self, arm: str, set_name: str) -> int:
        """Return the right samples at which a problem ends; 0 where all n are drawn."""
        limit = self.problem_sets[set_name].stop_after
        if limit is None:
            limit = self.file.arms[arm].stop_after or 0
        return limit if limit < self.n(arm, set_name) else 0

    def comparisons(self) -> list[tuple[str, str]]:
        """Return the pairs of arms to compare, base first.

        Those that the study names; else each arm with the arm of its model's base, or of that one's
        base, under the same prompt and sampling. `_same_request` finds that arm, and `base` the
        model that a model was trained from. An arm is a model under one prompt and sampling
        setting.
        """
        if self.file.analysis.compare:
            return [(pair.base, pair.trained) for pair in self.file.analysis.compare]
        pairs = []
        for arm in self.arms.values():
            ancestor = None if arm.name in self.tries else self.base(arm.model)
            while ancestor is not None:
                base_arm = self._same_request(arm, ancestor)
                if base_arm is not None:
                    pairs.append((base_arm, arm.name))
                    break
                ancestor = self.base(ancestor)
        return pairs

    def _same_request(self, arm: Arm, model: str) -> str | None:
        """Find the arm of ``model`` that is asked as another arm is; None if there is none.

        It has the same prompt and sampling setting, and answers at least one of the same problem
        sets. An arm is a model under one prompt and sampling setting.
        """
        sets = set(self.sets(arm.name))
        for candidate in self.arms.values():
            if candidate.model != model or sets.isdisjoint(self.sets(candidate.name)):
                continue
            if candidate.name in self.tries or candidate.sampling != arm.sampling:
                continue
            if self.file.arms[candidate.name].prompt == self.file.arms[arm.name].prompt:
                return candidate.name
        return None

    def trainings(self) -> dict[str, tuple[str, ...]]:
        """Group the arms whose models were trained alike and differ in the recipe's seed alone.

        The keys are labels, such as ``rl`` for ``rl-s0`` and ``rl-s1``; the values are the names of
        the arms, two or more. `common_name` makes the label; one that is taken is replaced by all
        names. An arm is a model under one prompt and sampling setting.
        """
        arms_by_training: dict[str, list[str]] = {}
        for name, arm in self.file.arms.items():
            model = self.models[arm.model]
            if model.train is None or name in self.tries:
                continue
            recipe = self.file.recipes[model.train.recipe]
            all_but_seed = [
                model.train.from_,
                recipe.model_dump(mode="json", exclude={"seed"}),
                arm.model_dump(mode="json", exclude={"model"}),
                model.steps,
            ]
            key = json.dumps(all_but_seed, sort_keys=True)
            arms_by_training.setdefault(key, []).append(name)
        pooled: dict[str, tuple[str, ...]] = {}
        for names in arms_by_training.values():
            if len(names) == 1:
                continue
            label = common_name(names)
            if label in pooled or label in self.file.arms:
                label = ", ".join(names)
            pooled[label] = tuple(names)
        return pooled

    def folder(self, model: str, step: int = 0) -> Path:
        """Return where the weights of a model at a step are, or will be once they are trained.

        Step 0 of a line of checkpoints is the last checkpoint of its base.
        """
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
        return entry.base if entry.train is None else entry.train.from_

    def steps(self, model: str) -> list[int]:
        """Return the steps at which a model can be sampled; 0 is its base, or the model itself."""
        checkpoints = sorted(self.models[model].steps or [])
        # A line of checkpoints has a step 0 only if its base is known.
        has_step_0 = not checkpoints or self.base(model) is not None
        return [0, *checkpoints] if has_step_0 else checkpoints

    def last_step(self, model: str) -> int:
        """Return the last checkpoint of a line; 0 for a single model."""
        return max(self.models[model].steps or [0])

    def problem_ids(self, set_name: str) -> tuple[str, ...]:
        """Ids of a set's problems, in the order of the set; reads no file."""
        return tuple(self.problem_hashes[set_name])

    def first_with_image(self, set_name: str) -> str | None:
        """Id of a set's first problem with an image; None where it has none."""
        for problem in self.problems(set_name):
            if problem.images:
                return problem.id
        return None

    def problems(self, set_name: str) -> list[Problem]:
        """Read the problems of a set; refuse them if they changed since the study was planned.

        ``problem_hashes`` has the content hash of each problem of the set, as it was then.
        """
        problems = load_problems(set_name, self.problem_sets[set_name])
        hashes = {problem.id: problem.content_hash for problem in problems}
        planned = self.problem_hashes[set_name]
        if hashes != planned:
            changed = [i for i in {**planned, **hashes} if planned.get(i) != hashes.get(i)]
            raise UserError(
                f"problem set {set_name}: {len(changed)} problems are not what they were when the"
                f" study was planned (first: {changed[0]}); plan again, or restore"
                f" {self.problem_sets[set_name].path}"
            )
        return problems

    def request(self, arm: str, step: int, problem: str) -> dict[str, Any]:
        """Return all that determines a sample besides its index: what `fingerprint` hashes.

        ``problem`` is an id, ``"<set>/<local id>"``. Contents enter as digests. An engine of the
        user's own enters with the digest of its code. An arm is a model under one prompt and
        sampling setting. The part of a problem's id before the slash is its set.
        """
        entry = self.arms[arm]
        return {
            "seed": self.seed,
            "model": self.digests[entry.model][step],
            "prompt": self.prompts[entry.prompt].digest,
            **plugins.replace_references(entry.sampling.record(), self.plugins),
            "problem": self.problem_hashes[problem.partition("/")[0]][problem],
            **self.plugin_engine(arm),
        }

    def request_fingerprint(self, arm: str, step: int, problem: str) -> int:
        """Fingerprint of all that determines a sample besides its index."""
        return fingerprint(self.request(arm, step, problem))

    def block(
        self, arm: str, set_name: str, step: int, problems: tuple[str, ...] | None = None
    ) -> Block:
        """Return the samples of one arm, problem set and training step, or of some of its problems.

        A *block* says which samples are asked for: ``n`` of each problem, or fewer if sampling a
        problem ends at ``stop_after`` right ones. A *fingerprint* is a hash of all that determines
        a problem's samples: model, prompt, sampling setting and question. An arm is a model under
        one prompt and sampling setting.
        """
        if problems is None:
            problems = self.asked_problems(arm, set_name)
        fingerprints = [self.request_fingerprint(arm, step, problem) for problem in problems]
        return Block(
            arm=arm,
            set_name=set_name,
            step=step,
            problems=problems,
            n=self.n(arm, set_name),
            fingerprints=np.array(fingerprints, dtype=np.int64),
            stop_after=self.stop_after(arm, set_name),
        )

    def block_keys(self, searching: bool = False) -> Iterator[tuple[str, str, int]]:
        """Arm, set and step of every block that is asked for, in this order.

        An arm whose prompt is not chosen yet asks for nothing, but with ``searching``.
        """
        for arm in self.arms.values():
            if arm.name in self.searching and not searching:
                continue
            for set_name in self.sets(arm.name):
                for step in arm.steps:
                    yield arm.name, set_name, step

    def blocks(self) -> Iterator[Block]:
        """The samples of everything that is asked for."""
        for arm, set_name, step in self.block_keys():
            yield self.block(arm, set_name, step)

    def to_json(self) -> str:
        """Return the whole study as JSON text, for `from_json`.

        ``digests`` are those of models by name and step. A checksum over the rest stands first, so
        that a damaged file is noticed.
        """
        prompts: dict[str, list[Any]] = {}
        for name, prompt in self.prompts.items():
            prompts[name] = [prompt.name, prompt.text, prompt.digest]
            if prompt.without:
                prompts[name].append(dict(prompt.without))
        record: dict[str, Any] = {
            "format": FORMAT,
            "study": self.file.model_dump(mode="json", by_alias=True),
            "digests": {name: dict(by_step) for name, by_step in self.digests.items()},
            "prompts": prompts,
            "problem_hashes": {name: dict(ids) for name, ids in self.problem_hashes.items()},
            "text_digests": dict(self.text_digests),
        }
        # Written where there are any, so that older records stay what they were.
        if self.plugins:
            record["plugins"] = dict(self.plugins)
        if self.duplicates:
            record["duplicates"] = dict(self.duplicates)
        if self.searches:
            record["searches"] = {arm: asdict(search) for arm, search in self.searches.items()}
        checked_record = {"check": _checksum(record), **record}
        return json.dumps(checked_record, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Study:
        """Return a study from the text that `to_json` made; any other text is refused."""
        try:
            record = json.loads(text)
            checksum = record.pop("check", None)
            if checksum is not None and checksum != _checksum(record):
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
                prompts={name: Prompt(*fields) for name, fields in record["prompts"].items()},
                problem_hashes=record["problem_hashes"],
                text_digests=record["text_digests"],
                plugins=record.get("plugins", {}),
                duplicates=record.get("duplicates", {}),
                searches={
                    arm: Search(**search) for arm, search in record.get("searches", {}).items()
                },
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
        """Return what the study asks for, with contents in place of the names of files.

        Two studies that mean the same have the same hash of this. Names of files enter by the
        digests of their contents; how and where the work is run is left out. A Python file or
        plugin of the user's own is replaced by its identity, which includes a digest.
        """
        record = self.file.model_dump(mode="json", by_alias=True)
        scores = {}
        for name, request in record["scores"].items():
            scores[name] = {**request, "texts": self.text_digests.get(request["texts"])}
        models = {}
        for name in self.models:
            models[name] = {"base": self.base(name), "digests": dict(self.digests[name])}
        meaning = {
            "seed": self.seed,
            "models": models,
            "problem_sets": {name: self._meaning_of_set(name) for name in self.problem_sets},
            "arms": {name: self._meaning_of_arm(name, record["arms"][name]) for name in self.arms},
            "scores": scores,
            "verification": record["verification"],
            "match_entropy": record["match_entropy"],
            "analysis": record["analysis"],
            "dtype": self.file.engine.dtype,
        }
        return cast(dict[str, Any], plugins.replace_references(meaning, self.plugins))

    def _meaning_of_set(self, name: str) -> dict[str, Any]:
        """Return what of a problem set enters the study's hash.

        The problems enter by content. Optional keys enter only if they are set, so that the hash of
        a study from before these keys stays what it is.
        """
        entry = self.problem_sets[name]
        meaning: dict[str, Any] = {"n": entry.n, "problems": dict(self.problem_hashes[name])}
        if entry.verifier:
            meaning["verifier"] = entry.verifier
        if entry.stop_after is not None:
            meaning["stop_after"] = entry.stop_after
        return meaning

    def _meaning_of_arm(self, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of an arm enters the study's hash.

        ``entry`` has the arm's values as written. Keys of later versions enter only if they are
        set, so that older studies keep their hash. The prompt enters by its content; steps, problem
        sets and engine enter with defaults filled in. An arm is a model under one prompt and
        sampling setting.
        """
        arm = self.arms[name]
        settings = {
            key: value
            for key, value in entry.items()
            if value is not None or key not in _LATER_ARM_KEYS
        }
        return settings | {
            "prompt": self.prompts[arm.prompt].digest,
            "steps": list(arm.steps),
            "problem_sets": sorted(self.sets(name)),
            "engine": self.engine(name),
        }


def _checksum(record: Mapping[str, Any]) -> int:
    """A number over a stored study, by which damage is noticed."""
    return fingerprint({"": json.dumps(record)})


def load_problems(name: str, entry: ProblemSet, dropped: list[str] | None = None) -> list[Problem]:
    """Load the problems of one set of a study; their ids begin with the study's name of the set.

    ``entry`` is the set's entry in the study file. Its ``fields`` describe records of the user's
    own; else ``entry.set``, or the ``name``, is a registered set. ``dropped`` collects the places
    of repeated records that were left out. A *probe* replaces each question by its first part, to
    see whether a model knows the rest by heart. ``selection`` says which of the set's problems to
    load, and `in_one_line` puts an error in one line.
    """
    problem_set = own_set(entry.fields) if entry.fields else get_set(entry.set or name)
    registered_name = name
    if entry.set is not None and not plugins.is_file(entry.set):
        registered_name = entry.set
    repeats = None
    if entry.duplicates == "drop":
        repeats = [] if dropped is None else dropped
    selection = Selection(
        name=registered_name,
        path=None if entry.path is None else Path(entry.path),
        subset=entry.subset,
        limit=entry.limit,
        seed=entry.seed,
        dropped=repeats,
    )
    with in_one_line(f"{entry.set or name}: loading its problems"):
        problems = []
        for problem in problem_set.load(selection):
            local_id = problem.id.partition("/")[2]
            verifier = entry.verifier or problem.verifier
            problems.append(replace(problem, id=f"{name}/{local_id}", verifier=verifier))
    id_counts = Counter(problem.id for problem in problems)
    if len(id_counts) < len(problems):  # of a set that is no FileSet
        [(problem_id, times)] = id_counts.most_common(1)
        raise UserError(
            f"{entry.set or name}: {times} problems have the id {problem_id!r}; allowed: one"
        )
    if entry.ids is not None:
        problems = keep_listed(problems, Path(entry.ids))
    if entry.probe is None:
        return problems
    return [make_probe(problem, entry.probe) for problem in problems]
