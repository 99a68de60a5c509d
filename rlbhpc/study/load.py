"""From a study file to a `Study`: read, expand, validate, look everything up.

Whatever is wrong is told as one line with file, line and key path, before anything is run.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import SEARCH, Prompt, get_prompt, prompt_names
from rlbhpc.problems.registry import SETS, is_set, set_names
from rlbhpc.study.complaints import listed, nearest, unknown_name, validated
from rlbhpc.study.expand import expand, sort_by_origin
from rlbhpc.study.fields import Shape
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import Digests, file_digest, model_config, stated_length, steady_length
from rlbhpc.study.prompts import made_prompt
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.search import with_searches
from rlbhpc.study.study import Study, load_problems
from rlbhpc.study.tools import OWN_TOOLS
from rlbhpc.study.tree import Node, is_file, is_folder, load_tree, shown

log = logging.getLogger(__name__)

#: What an entry of a section is called in messages.
ENTRY_WORDS: Final = {
    "models": "model",
    "problem_sets": "problem set",
    "recipes": "recipe",
    "arms": "arm",
    "prompts": "prompt",
    "registered sets": "registered problem set",
}
#: Engines that measure what power sampling needs of each token.
POWER_ENGINES: Final = ("hf", "vllm")
_PATH_WIDTH: Final = 200


def stored_study(path: Path) -> Study:
    """Read a study as a run keeps it; a file that was damaged since is named."""
    try:
        return Study.from_json(path.read_text("utf-8"))
    except (UserError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; run `rlbhpc sample` or `launch` again") from None


def study_of(layout: Layout) -> Study | None:
    """The study of a run as it was last run; None for a run without one."""
    try:
        return stored_study(layout.study)
    except (FileNotFoundError, NotADirectoryError):
        return None


def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Load a study file and look up everything that it names.

    ``overrides`` are ``key.path=value`` texts that win over the file (``--set``). A file that ends
    in ``.json`` is a study as it was launched, with all that was looked up then. ``tree`` is the
    file as nodes, values that know their place, for messages; ``file`` holds the same values,
    validated. `expand` replaces sweeps (lists in place of one value) by an entry for each value.
    """
    path = Path(path)
    if path.suffix == ".json" and path.is_file():
        if overrides:
            raise UserError(f"{path}: a study as it was launched takes no --set")
        return stored_study(path)
    tree = expand(load_tree(path, overrides))
    file = validated(tree, StudyFile)
    if file.output is None:
        folder = Path.cwd() / path.parent / "runs" / file.name
        file = file.model_copy(update={"output": str(folder)})
    _check_names(tree, file)
    study = _look_up_contents(tree, file)
    _check_folders(tree, study)
    _check_steps(tree, study)
    _check_lengths(tree, study)
    _check_power(tree, study)
    _check_turns(tree, study)
    study = with_searches(replace(study, digests=_digest_models(tree, study)))
    log.debug("study %s, set %s: hash %s, run %s", path, overrides, study.hash, study.layout.root)
    return study


def _look_up_contents(tree: Node, file: StudyFile) -> Study:
    """Return the study with the contents of its prompts, problems, texts and plugins.

    The digests of its models are left empty: they need the study itself, and are added later.
    """
    problem_hashes: dict[str, Mapping[str, str]] = {}
    repeat_counts: dict[str, int] = {}
    for name in file.problem_sets:
        problem_hashes[name], repeat_count = _hash_problems(tree, file, name)
        if repeat_count:
            repeat_counts[name] = repeat_count
    return Study(
        file=file,
        digests={},
        prompts=_load_prompts(tree, file),
        problem_hashes=problem_hashes,
        text_digests=_digest_texts(tree),
        plugins={name: plugins.identity(name) for name in plugins.references(tree.plain())},
        duplicates=repeat_counts,
    )


# Names: every entry that is referred to is there, and no model is made from itself.


def _check_names(tree: Node, file: StudyFile) -> None:
    """Refuse names that stand for nothing, and models that have no source.

    ``tree`` is the study file as nodes, which know their place for messages, and ``file`` the same
    values after validation.
    """
    _check_references(tree)
    for name, node in tree.entries["problem_sets"].entries.items():
        _check_set_entry(name, node)
    _check_analysis_plugins(tree)
    _check_training_starts(tree, file)
    _check_cycles(tree, file)
    arms = tree.entries["arms"].entries
    for name, node in _entries(tree, "match_entropy").items():
        if name in arms:
            node.fail(f"{name} is an arm already; a match makes a new arm, so name it differently")


def _entries(tree: Node, section: str) -> Mapping[str, Node]:
    """The entries of a section by name; none where the file leaves it out."""
    node = tree.entries.get(section)
    return {} if node is None else node.entries


def find_references(node: Node, shape: Shape) -> Iterator[tuple[Node, str]]:
    """Yield every value that names something, with the section that it refers to.

    ``node`` is a value with its place in the study file, with all below it. ``shape`` is what the
    schema says of it; its ``refers_to`` is the section whose entries it may name.
    ``shape.below(key)`` is the shape of an entry, ``shape.item`` that of a list's items.
    """
    if shape.refers_to is not None and isinstance(node.value, str):
        yield node, shape.refers_to
    for key, child in node.entries.items():
        child_shape = shape.below(key)
        if child_shape is not None:
            yield from find_references(child, child_shape)
    if shape.item is not None:
        for item in node.items:
            yield from find_references(item, shape.item)


def _check_references(tree: Node) -> None:
    """Refuse a value that should name an entry of the study, or a registered one, and does not.

    A prompt may also be a ``.txt`` file, and a problem set a Python file or an installed plugin.
    `find_references` gives each value that names something, with the section it names an entry of.
    """
    known_names: dict[str, Sequence[str]] = {
        section: list(_entries(tree, section)) for section in ENTRY_WORDS
    }
    known_names["prompts"] = [*known_names["prompts"], *prompt_names(), SEARCH]
    known_names["registered sets"] = list(SETS)
    for node, section in find_references(tree, Shape(StudyFile)):
        name = str(node.value)
        is_prompt_file = section == "prompts" and name.endswith(".txt")
        is_brought_set = section == "registered sets" and is_set(name)
        if name not in known_names[section] and not is_prompt_file and not is_brought_set:
            raise unknown_name(node, ENTRY_WORDS[section], known_names[section])


def _check_set_entry(name: str, node: Node) -> None:
    """Refuse a problem set whose records nobody can read, or that two readers could.

    ``node`` is the set's entry in the study file. ``set`` names the registered set that reads the
    records (by default the entry's own name); ``fields`` describes records of the user's own.
    ``node.fail`` raises an error that begins with the place in the file.
    """
    if {"set", "fields"} <= node.entries.keys():
        node.fail("found both `set` and `fields`; allowed: one of them reads the records")
    if not {"set", "fields"} & node.entries.keys() and not is_set(name):
        raise UserError(
            f"{node.place()}: {shown(name)} is not a registered problem set; say with `set:`"
            f" which one it is: {', '.join(set_names())}{nearest(name, set_names())}; or, for"
            " records of your own, with `fields:` what is called what in them"
        )


def _check_analysis_plugins(tree: Node) -> None:
    """Refuse a statistic or report section that nobody provides, before any sample is drawn.

    ``aspects`` are sections of the report. A name must be a Python file or an installed plugin.
    `_entries` gives the nodes of a section of the study file by name; a node's ``fail`` raises an
    error that begins with its place there.
    """
    analysis = _entries(tree, "analysis")
    for kind in ("statistics", "aspects"):
        for node in analysis[kind].items if kind in analysis else ():
            name = str(node.value)
            if not plugins.is_file(name) and name not in plugins.installed(kind):
                options = listed((*plugins.installed(kind), "a file such as ./mine.py"))
                node.fail(f"found {shown(name)}; allowed: {options}")


def _check_training_starts(tree: Node, file: StudyFile) -> None:
    """Refuse training that has no model to start from, or two.

    A recipe with an ``architecture`` starts from random weights, any other one from the model under
    ``from``. `_entries` gives the nodes of a section of the study file by name; a node's ``fail``
    raises an error that begins with its place there.
    """
    for name, model in file.models.items():
        if model.train is None:
            continue
        node = _entries(tree, "models")[name].entries["train"]
        recipe = model.train.recipe
        starts_from_random = bool(file.recipes[recipe].architecture)
        starts_from_model = model.train.from_ is not None
        if starts_from_random and starts_from_model:
            node.fail(
                f"recipe {recipe} has an `architecture`, so it starts from random weights; leave"
                " out `from`, or take another recipe"
            )
        if not starts_from_random and not starts_from_model:
            node.fail(
                f"no `from`, and recipe {recipe} has no `architecture` for a new model; give the"
                " one or the other"
            )


def _check_cycles(tree: Node, file: StudyFile) -> None:
    """Refuse a model that is made from itself, through its base, its training or a teacher."""
    sort_by_origin(
        tree.entries["models"], {model: list(_sources(file, model)) for model in file.models}
    )


def _sources(file: StudyFile, model: str) -> Iterator[str]:
    """Yield the models that a model is made from: base, start of the training, and teachers."""
    entry = file.models[model]
    if entry.base is not None:
        yield entry.base
    if entry.train is None:
        return
    if entry.train.from_ is not None:
        yield entry.train.from_
    recipe = file.recipes[entry.train.recipe]
    if recipe.teacher is not None:
        yield file.arms[recipe.teacher.arm].model
    option = recipe.options.get("teacher")
    if isinstance(option, str) and option in file.models:
        yield option


# Contents: what is behind each name, as far as it can be read without a GPU.


def _load_prompts(tree: Node, file: StudyFile) -> dict[str, Prompt]:
    """Return every prompt that the study names, by name, and those that it makes itself.

    `find_references` gives each value of the file that names something, with the section it names.
    `_located` puts the place in the study file before an error. `made_prompt` builds the prompt of
    an entry, and `get_prompt` reads a registered one or a file.
    """
    prompts = {}
    for name, node in _entries(tree, "prompts").items():
        if name in (*prompt_names(), SEARCH):
            node.fail(f"{name} is a registered prompt; name yours differently")
        with _located(node):
            prompts[name] = made_prompt(name, file.prompts[name], file)
    for node, section in find_references(tree, Shape(StudyFile)):
        name = str(node.value)
        if section != "prompts" or name in prompts or name == SEARCH:
            continue
        if name.endswith(".txt") and not is_file(Path(name)):
            _fail_missing(node, Path(name), "prompt file")
        with _located(node):
            prompts[name] = get_prompt(name)
    return prompts


def _hash_problems(tree: Node, file: StudyFile, name: str) -> tuple[dict[str, str], int]:
    """Return the content hash of each problem of a set by id, and how many repeats were left out.

    ``tree`` is the study file as nodes, which know their place for messages; ``entry`` is the set's
    entry in it after validation. ``entry.set`` is the registered set that reads the records, by
    default the entry's own ``name``. `_located` puts the place in the study file before any error,
    and `_stage_command` gives the command that downloads the set.
    """
    entry = file.problem_sets[name]
    node = _entries(tree, "problem_sets")[name]
    if entry.path is not None:
        path = Path(entry.path)
        if not is_file(path) and not is_folder(path):
            command = _stage_command(entry.set or name, path)
            _fail_missing(node.entries["path"], path, "file or folder", command)
    repeats: list[str] = []
    with _located(node):
        problems = load_problems(name, entry, repeats)
        if not problems:
            raise UserError(f"no problem is in the subset {entry.subset!r}")
        return {problem.id: problem.content_hash for problem in problems}, len(repeats)


def _digest_texts(tree: Node) -> dict[str, str]:
    """Return the digest of each file under ``texts`` of recipes and scores, by path.

    `_entries` gives the entries of a section of the study file, and `_located` puts the place in
    that file before an error.
    """
    digests = {}
    for entry in (*_entries(tree, "recipes").values(), *_entries(tree, "scores").values()):
        node = entry.entries.get("texts")
        if node is None:
            continue
        path = Path(str(node.value))
        if not is_file(path):
            _fail_missing(node, path, "file")
        with _located(node):
            digests[str(path)] = file_digest(path)
    return digests


def _digest_models(tree: Node, study: Study) -> dict[str, dict[int, str]]:
    """Return the content digests of all models by name and step.

    `_located` puts the place in the study file before an error.
    """
    digests = Digests(study)
    by_model = {}
    for name, node in _entries(tree, "models").items():
        with _located(node):
            by_model[name] = {step: digests.digest(name, step) for step in study.steps(name)}
    return by_model


def _check_steps(tree: Node, study: Study) -> None:
    """Refuse a training step of an arm at which its model has no checkpoint.

    ``tree`` is the study file as nodes, which know their place for messages. `_entries` gives the
    nodes of a section of the study file by name; a node's ``fail`` raises an error that begins with
    its place there. An arm is a model under one prompt and sampling setting.
    """
    for name, arm in study.file.arms.items():
        model_steps = study.steps(arm.model)
        for index, step in enumerate(arm.steps or []):
            if step in model_steps:
                continue
            steps = ", ".join(map(str, model_steps))
            hint = "" if 0 in model_steps else "; for step 0 name its `base`"
            node = _entries(tree, "arms")[name].entries["steps"].items[index]
            node.fail(f"found {step}; allowed: a step of model {arm.model}: {steps}{hint}")


def _check_folders(tree: Node, study: Study) -> None:
    """Refuse a checkpoint folder that is not there, or that is no model by itself.

    Only models given by ``path`` are looked at. A folder without ``config.json`` is an adapter or a
    DeepSpeed state, and needs a base. ``tree`` is the study file as nodes, for the place in
    messages. `_entries` gives the nodes of a section of the study file by name; a node's ``fail``
    raises an error that begins with its place there.
    """
    for name, entry in study.models.items():
        if entry.path is None:
            continue
        node = _entries(tree, "models")[name]
        for step in entry.steps or [0]:
            folder = study.folder(name, step)
            if not is_folder(folder):
                if entry.steps is not None:
                    _fail_missing_step(node.entries["path"], entry.path, step)
                command = _download_command(entry.hub, folder)
                _fail_missing(node.entries["path"], folder, "folder", command)
            with _located(node):
                config = model_config(folder)
            if study.base(name) is None and not config:
                node.fail(
                    f"no config.json in {shown(str(folder), _PATH_WIDTH)}; for an adapter or a"
                    " DeepSpeed folder say with `base:` which model it belongs to"
                )


def _check_lengths(tree: Node, study: Study) -> None:
    """Refuse responses longer than a model can hold: it would be cut, or fail on the cluster.

    That goes for the responses of arms and for those that are drawn in training. The engine ``hf``
    and training are held to the *steady* length, up to which rotary frequencies do not change.
    `_entries` gives the nodes of a section of the study file by name; a node's ``fail`` raises an
    error that begins with its place there.
    """
    for name, arm in study.file.arms.items():
        limit = context_length(study, arm.model, steady=study.engine(name) == "hf")
        _check_length(_entries(tree, "arms")[name], arm.max_tokens, arm.model, limit)
    for name, model in study.models.items():
        if model.train is not None:
            recipe = study.file.recipes[model.train.recipe]
            node = _entries(tree, "recipes")[model.train.recipe]
            limit = context_length(study, name, steady=True)
            _check_length(node, recipe.max_tokens or 0, name, limit)


def _check_length(node: Node, max_tokens: int, model: str, limit: int | None) -> None:
    if limit is not None and max_tokens >= limit:
        node.entries["max_tokens"].fail(
            f"found {max_tokens}; model {model} holds {limit:,} tokens, prompt and response"
            " together"
        )


def _check_power(tree: Node, study: Study) -> None:
    """Refuse power sampling where the engine does not measure what it needs of each token."""
    for name, arm in study.file.arms.items():
        if arm.power is not None and study.engine(name) not in POWER_ENGINES:
            _entries(tree, "arms")[name].entries["power"].fail(
                f"engine {study.engine(name)} does not tell with what probability it drew a token;"
                f" allowed: {', '.join(POWER_ENGINES)}"
            )


def _check_turns(tree: Node, study: Study) -> None:
    """Refuse unknown tools, and tools that can't be called or that the prompt doesn't tell of."""
    for name, arm in study.file.arms.items():
        if arm.turns is None:
            continue
        node = _entries(tree, "arms")[name].entries["turns"]
        if study.engine(name) == "endpoint":
            node.fail(
                "an endpoint takes no token ids, of which an episode is made; take hf or vllm"
            )
        for reference in arm.turns.tools:
            is_known = reference in (*OWN_TOOLS, *plugins.installed("tools"))
            if not is_known and not plugins.is_file(reference):
                near = nearest(reference, OWN_TOOLS)
                node.fail(
                    f"no tool {reference!r}{near}; allowed: {', '.join(OWN_TOOLS)}, or a file"
                )
        prompt = study.file.prompts.get(arm.prompt)
        if (
            prompt
            and prompt.chat
            and arm.turns.format == "chat"
            and prompt.tools != arm.turns.tools
        ):
            node.fail(
                f"prompts.{arm.prompt}.tools must name the same tools, or the model is not told"
            )


def context_length(study: Study, model: str, steady: bool = False) -> int | None:
    """Return the maximum tokens of prompt and response of a model; None if nothing says it.

    ``steady`` asks for the length up to which the rotary frequencies do not change, as the engine
    ``hf`` and training need it. A served model states its own; a folder without a configuration,
    and a model that is yet to be trained, have the limit of their base or of their architecture.
    """
    read_length = steady_length if steady else stated_length
    entry = study.models[model]
    base = study.base(model)
    if entry.endpoint is not None:
        return entry.endpoint.context
    if entry.path is not None:
        config = model_config(study.folder(model, study.last_step(model)))
        if config or base is None:
            return read_length(config)
    if base is None:
        assert entry.train is not None
        return read_length(study.file.recipes[entry.train.recipe].architecture)
    return context_length(study, base, steady)


def _stage_command(set_name: str, path: Path) -> str:
    """The command that fetches a problem set to where the study looks for it.

    Records of the study's own are no registered set: those may lie on the hub, as owner/name.
    """
    if set_name in SETS:
        return f"rlbhpc stage {shlex.quote(set_name)} --to {shlex.quote(str(path.parent))}"
    hub = "/".join(path.parts[-2:])
    folder = shlex.quote(str(path))
    return f"hf download --repo-type dataset {shlex.quote(hub)} --local-dir {folder}"


def _download_command(hub: str | None, folder: Path) -> str:
    """The command that fetches a model; empty where the study does not say from where."""
    if hub is None:
        return ""
    name, _, revision = hub.partition("@")
    option = f" --revision {shlex.quote(revision)}" if revision else ""
    return f"hf download {shlex.quote(name)}{option} --local-dir {shlex.quote(str(folder))}"


def _fail_missing(node: Node, path: Path, kind: str, command: str = "") -> NoReturn:
    """Say that a path is not there, what has a similar name, and what command would fetch it.

    ``node`` is the value of the study file that holds the path, ``kind`` the word for what it is.
    ``node.fail`` raises an error that begins with the place in the file.
    """
    name = shown(str(path), _PATH_WIDTH)
    if is_file(path) or is_folder(path):
        node.fail(f"not a {kind}: {name}")
    similar = nearest(path.name, _names_in(path.parent))
    fetch = f"; where there is a network: {command}" if command else ""
    node.fail(f"no such {kind}: {name}{similar}{fetch}")


def _fail_missing_step(node: Node, pattern: str, step: int) -> NoReturn:
    """Say which checkpoint is not there, and which steps are.

    ``pattern`` is a path with ``{step}`` in one of its parts. The folder above that part is
    searched for names that fit. ``node.fail`` raises an error that begins with the place in the
    file.
    """
    parts = Path(pattern).parts
    level = ["{step}" in part for part in parts].index(True)
    folder = Path(*parts[:level])
    step_name = re.compile(re.escape(parts[level]).replace(r"\{step\}", "([0-9]+)"))
    matches = [step_name.fullmatch(name) for name in _names_in(folder)]
    steps = sorted(int(match[1]) for match in matches if match is not None)
    present = ", ".join(map(str, steps)) or "none"
    node.fail(
        f"no checkpoint of step {step} at {shown(pattern, _PATH_WIDTH)}; steps there: {present}"
    )


def _names_in(folder: Path) -> list[str]:
    """Names of what is in a folder; none where it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except (OSError, ValueError):
        return []


@contextmanager
def _located(node: Node) -> Iterator[None]:
    """Put the place of a value in the study file before whatever goes wrong inside the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{node.place()}: {error}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{node.place()}: cannot be read: {error}") from None
