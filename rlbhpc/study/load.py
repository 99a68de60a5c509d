"""From a study file to a `Study`: read, expand, validate, look everything up.

Whatever is wrong is told as one line with file, line and key path, before anything is run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import (
    PLACEHOLDER,
    Prompt,
    Shot,
    draw_shots,
    get_prompt,
    prompt_names,
    same_question,
)
from rlbhpc.problems.registry import SETS, is_set, set_names
from rlbhpc.study.complaints import listed, nearest, unknown_name, validated
from rlbhpc.study.content import file_digest, model_config, stated_length, steady_length
from rlbhpc.study.expand import MAX_CHAIN, expand
from rlbhpc.study.fields import Refers, Shape
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import Digests
from rlbhpc.study.schema import PromptEntry, StudyFile
from rlbhpc.study.study import Study, load_problems
from rlbhpc.study.tree import Node, is_file, is_folder, load_tree, shown, status_of

log = logging.getLogger(__name__)

KINDS: Final = {
    "models": "model",
    "problem_sets": "problem set",
    "recipes": "recipe",
    "arms": "arm",
    "prompts": "prompt",
    "registered sets": "registered problem set",
}


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
    in ``.json`` is a study as it was launched, with all that was looked up then.
    """
    path = Path(path)
    if path.suffix == ".json" and path.is_file():
        if overrides:
            raise UserError(f"{path}: a study as it was launched takes no --set")
        return stored_study(path)
    tree = expand(load_tree(path, overrides))
    file = validated(tree, StudyFile)
    _check_references(tree)
    _check_reported(tree)
    _check_training(tree, file)
    _check_cycles(tree, file)
    _check_matches(tree)
    if file.output is None:
        folder = Path.cwd() / path.parent / "runs" / file.name
        file = file.model_copy(update={"output": str(folder)})
    duplicates: dict[str, int] = {}
    study = Study(
        file=file,
        digests={},
        prompts=_prompts(tree, file),
        problem_hashes=_problem_hashes(tree, file, duplicates),
        text_digests=_text_digests(tree),
        plugins={name: plugins.identity(name) for name in plugins.references(tree.plain())},
        duplicates=duplicates,
    )
    _check_folders(tree, study)
    _check_steps(tree, study)
    _check_lengths(tree, study)
    study = replace(study, digests=_digests(tree, study))
    log.debug("study %s, set %s: hash %s, run %s", path, overrides, study.hash, study.layout.root)
    return study


def references(node: Node, shape: Shape) -> Iterator[tuple[Node, str]]:
    """Every value that names something, with the section that it refers to."""
    refers = shape.mark(Refers)
    if refers is not None and isinstance(node.value, str):
        yield node, refers.section
    for key, child in node.entries.items():
        below = shape.below(key)
        if below is not None:
            yield from references(child, below)
    for item in node.items:
        if shape.item is not None:
            yield from references(item, shape.item)


def _check_references(tree: Node) -> None:
    allowed_names: dict[str, Sequence[str]] = {
        section: list(tree.entries[section].entries)
        for section in ("models", "problem_sets", "recipes", "arms")
        if section in tree.entries
    }
    own_prompts = tree.entries["prompts"].entries if "prompts" in tree.entries else {}
    allowed_names |= {"prompts": [*own_prompts, *prompt_names()], "registered sets": list(SETS)}
    for node, section in references(tree, Shape(StudyFile)):
        if section == "prompts" and str(node.value).endswith(".txt"):
            continue
        if section == "registered sets" and is_set(str(node.value)):
            continue
        if node.value not in allowed_names.get(section, ()):
            raise unknown_name(node, KINDS[section], allowed_names.get(section, ()))
    for name, node in tree.entries["problem_sets"].entries.items():
        if {"set", "fields"} <= node.entries.keys():
            node.fail("found both `set` and `fields`; allowed: one of them reads the records")
        if not {"set", "fields"} & node.entries.keys() and not is_set(name):
            raise UserError(
                f"{node.place()}: {shown(name)} is not a registered problem set; say with `set:`"
                f" which one it is: {', '.join(set_names())}{nearest(name, set_names())}; or, for"
                " records of your own, with `fields:` what is called what in them"
            )


def _check_reported(tree: Node) -> None:
    """Refuse a statistic or figure that nobody brings before samples are drawn for it."""
    analysis = tree.entries.get("analysis", tree).entries
    for kind in ("statistics", "aspects"):
        for node in analysis[kind].items if kind in analysis else ():
            name = str(node.value)
            if not plugins.is_file(name) and name not in plugins.installed(kind):
                options = listed((*plugins.installed(kind), "a file such as ./mine.py"))
                node.fail(f"found {shown(name)}; allowed: {options}")


def _check_cycles(tree: Node, file: StudyFile) -> None:
    """Refuse a model that is, through others, made from itself.

    Cycles of ``from`` and ``base`` were found before the sweeps; here come those that go through
    a teacher, or the responses of its arm.
    """

    def sources(model: str) -> Iterator[str]:
        entry = file.models[model]
        if entry.base is not None:
            yield entry.base
        if entry.train is not None:
            if entry.train.from_ is not None:
                yield entry.train.from_
            recipe = file.recipes[entry.train.recipe]
            if recipe.teacher is not None:
                yield file.arms[recipe.teacher.arm].model
            own = recipe.options.get("teacher")
            if isinstance(own, str) and own in file.models:
                yield own

    depths: dict[str, int] = {}

    def visit(model: str, chain: tuple[str, ...]) -> int:
        node = tree.entries["models"].entries[model]
        if model in chain:
            node.fail(f"a cycle: {' <- '.join((*chain[chain.index(model) :], model))}")
        if model not in depths:
            depths[model] = 1 + max(
                (visit(source, (*chain, model)) for source in sources(model)), default=0
            )
            if depths[model] > MAX_CHAIN:
                node.fail(f"more than {MAX_CHAIN} models in a chain, each made from the one before")
        return depths[model]

    for model in file.models:
        visit(model, ())


def _check_matches(tree: Node) -> None:
    """Refuse an entropy match, which makes an arm, with the name of an arm that is there."""
    matches = tree.entries.get("match_entropy")
    for name, node in matches.entries.items() if matches else ():
        if name in tree.entries["arms"].entries:
            node.fail(f"{name} is an arm already; a match makes a new arm, so name it differently")


def _prompts(tree: Node, file: StudyFile) -> dict[str, Prompt]:
    """Every prompt that is named, and those that the study makes."""
    prompts = {}
    for name in file.prompts:
        node = tree.entries["prompts"].entries[name]
        if name in prompt_names():
            node.fail(f"{name} is a registered prompt; name yours differently")
        with _placed(node):
            prompts[name] = made_prompt(name, file)
    for node, section in references(tree, Shape(StudyFile)):
        if section == "prompts" and node.value not in prompts:
            path = Path(str(node.value))
            if path.suffix == ".txt" and not is_file(path):
                _missing(node, path, "prompt file")
            with _placed(node):
                prompts[str(node.value)] = get_prompt(str(node.value))
    return prompts


def _problem_hashes(
    tree: Node, file: StudyFile, duplicates: dict[str, int]
) -> dict[str, Mapping[str, str]]:
    """Content hashes of all problems of all sets; ``duplicates`` counts what was left out."""
    hashes: dict[str, Mapping[str, str]] = {}
    for name, entry in file.problem_sets.items():
        node = tree.entries["problem_sets"].entries[name]
        path = node.entries.get("path")
        if entry.path is not None and path is not None and status_of(Path(entry.path)) is None:
            _missing(
                path, Path(entry.path), "file or folder", _stage(entry.set or name, entry.path)
            )
        with _placed(node):
            dropped: list[str] = []
            problems = load_problems(name, entry, dropped)
            hashes[name] = {problem.id: problem.content_hash for problem in problems}
            if dropped:
                duplicates[name] = len(dropped)
            if not hashes[name]:
                raise UserError(f"no problem is in the subset {entry.subset!r}")
    return hashes


def _digests(tree: Node, study: Study) -> dict[str, dict[int, str]]:
    digests, digest_of = Digests(study), {}
    for name, node in tree.entries["models"].entries.items():
        with _placed(node):
            digest_of[name] = {step: digests.digest(name, step) for step in study.steps(name)}
    return digest_of


def _text_digests(tree: Node) -> dict[str, str]:
    digests = {}
    for section in ("recipes", "scores"):
        for entry in tree.entries[section].entries.values() if section in tree.entries else ():
            node = entry.entries.get("texts")
            if node is not None:
                file = Path(str(node.value))
                if not is_file(file):
                    _missing(node, file, "file")
                with _placed(node):
                    digests[str(file)] = file_digest(file)
    return digests


def _check_training(tree: Node, file: StudyFile) -> None:
    """Refuse training that has no model to start from, or two."""
    for name, model in file.models.items():
        if model.train is None:
            continue
        fresh = bool(file.recipes[model.train.recipe].architecture)
        if fresh == (model.train.from_ is not None):
            tree.entries["models"].entries[name].entries["train"].fail(
                f"recipe {model.train.recipe} has an `architecture`, so it starts from random"
                " weights; leave out `from`, or take another recipe"
                if fresh
                else f"no `from`, and recipe {model.train.recipe} has no `architecture` for a new"
                " model; give the one or the other"
            )


def _check_steps(tree: Node, study: Study) -> None:
    for name, entry in study.file.arms.items():
        have = study.steps(entry.model)
        for index, step in enumerate(entry.steps or []):
            if step not in have:
                node = tree.entries["arms"].entries[name].entries["steps"]
                steps = ", ".join(map(str, have))
                base = "" if 0 in have else "; for step 0 name its `base`"
                node.items[index].fail(
                    f"found {step}; allowed: a step of model {entry.model}: {steps}{base}"
                )


def _check_folders(tree: Node, study: Study) -> None:
    for name, entry in study.models.items():
        if entry.path is None:
            continue
        node = tree.entries["models"].entries[name]
        for step in entry.steps or [0]:
            folder = study.folder(name, step)
            if not is_folder(folder):
                if entry.steps is not None:
                    _missing_step(node.entries["path"], entry.path, step)
                _missing(node.entries["path"], folder, "folder", _download(entry.hub, folder))
            with _placed(node):
                config = model_config(folder)
            if study.base(name) is None and not config:
                node.fail(
                    f"no config.json in {shown(str(folder), 200)}; for an adapter or a DeepSpeed"
                    " folder say with `base:` which model it belongs to"
                )


def _check_lengths(tree: Node, study: Study) -> None:
    """Refuse responses longer than a model can hold: it would be cut, or fail on the cluster."""
    for name, arm in study.file.arms.items():
        node = tree.entries["arms"].entries[name]
        limit = longest(study, arm.model, steady=study.engine(name) == "hf")
        _check_length(node, arm.max_tokens, limit, arm.model)
    for name, model in study.models.items():
        if model.train is not None:
            recipe = study.file.recipes[model.train.recipe]
            node = tree.entries["recipes"].entries[model.train.recipe]
            limit = longest(study, name, steady=True)
            _check_length(node, recipe.max_tokens or 0, limit, name)


def _check_length(node: Node, tokens: int, limit: int | None, model: str) -> None:
    if limit is not None and tokens >= limit:
        node.entries["max_tokens"].fail(
            f"found {tokens}; model {model} holds {limit:,} tokens, prompt and response together"
        )


def longest(study: Study, model: str, steady: bool = False) -> int | None:
    """Most tokens that a model can hold, as far as it says; ``steady``: in ``hf`` and training."""
    length = steady_length if steady else stated_length
    entry, base = study.models[model], study.base(model)
    if entry.endpoint is not None:
        return entry.endpoint.context
    if entry.path is not None:
        config = model_config(study.folder(model, study.last_step(model)))
        if config or base is None:
            return length(config)
    if base is None:
        assert entry.train is not None
        return length(study.file.recipes[entry.train.recipe].architecture)
    return longest(study, base, steady)


def _stage(name: str, path: str) -> str:
    """The command that fetches a problem set to where the study looks for it.

    Records of the study's own are no registered set: those may lie on the hub, as owner/name.
    """
    if name not in SETS:
        hub = shlex.quote("/".join(Path(path).parts[-2:]))
        return f"hf download --repo-type dataset {hub} --local-dir {shlex.quote(path)}"
    return f"rlbhpc stage {shlex.quote(name)} --to {shlex.quote(str(Path(path).parent))}"


def _download(hub: str | None, folder: Path) -> str:
    """The command that fetches a model, where the study says from where."""
    if hub is None:
        return ""
    name, _, revision = hub.partition("@")
    option = f" --revision {shlex.quote(revision)}" if revision else ""
    return f"hf download {shlex.quote(name)}{option} --local-dir {shlex.quote(str(folder))}"


def _missing(node: Node, path: Path, kind: str, fetch: str = "") -> NoReturn:
    """Say that a path is not there, and what is there instead."""
    if status_of(path) is not None:
        node.fail(f"not a {kind}: {shown(str(path), 200)}")
    try:
        neighbours = [p.name for p in path.parent.iterdir()]
    except (OSError, ValueError):
        neighbours = []
    how = f"; where there is a network: {fetch}" if fetch else ""
    node.fail(f"no such {kind}: {shown(str(path), 200)}{nearest(path.name, neighbours)}{how}")


def _missing_step(node: Node, pattern: str, step: int) -> NoReturn:
    """Say which checkpoint of a line is not there, and which are."""
    whole = Path(pattern)
    level = next(i for i, part in enumerate(whole.parts) if "{step}" in part)
    parent = Path(*whole.parts[:level])
    name = re.compile(re.escape(whole.parts[level]).replace(r"\{step\}", "([0-9]+)"))
    try:
        steps = sorted(int(m[1]) for p in parent.iterdir() if (m := name.fullmatch(p.name)))
    except (OSError, ValueError):
        steps = []
    listed = ", ".join(map(str, steps)) or "none"
    node.fail(f"no checkpoint of step {step} at {shown(pattern, 200)}; steps there: {listed}")


@contextmanager
def _placed(node: Node) -> Iterator[None]:
    """Put the place of a node before whatever goes wrong inside the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{node.place()}: {error}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{node.place()}: cannot be read: {error}") from None


# Prompts that a study makes: a model's own chat format with its settings, and worked examples.


# What stands between an example's answer and the next question where no chat format says it.
_BETWEEN = "\n\n"


def made_prompt(name: str, file: StudyFile) -> Prompt:
    """The prompt that an entry of ``prompts`` describes, as literal text.

    Everything is looked up now, so what a model sees is in the study and in its fingerprints.
    """
    entry = file.prompts[name]
    template = get_prompt(entry.template) if entry.template else Prompt(name, PLACEHOLDER, "")
    shots: list[Shot] = []
    if entry.shots is not None:
        source = entry.shots.from_
        problems = load_problems(source, file.problem_sets[source])
        shots = draw_shots(problems, entry.shots.n, entry.shots.seed, f"problem set {source}")
    if entry.chat is None and template.marks and shots:
        raise UserError(
            f"prompts.{name}: template {template.name} writes a chat format itself ("
            f"{template.marks[0]}), and examples are turns of their own; name the model in `chat`"
            " and take a template of the user's words alone"
        )
    first = shots[:-1]
    text = _with_shots(entry, template, first, file)
    without = {}
    for question, _ in first:
        others = [shot for shot in shots if shot[0] != question]
        without[same_question(question)] = _with_shots(entry, template, others, file)
    digest = hashlib.sha256(json.dumps([text, without], sort_keys=True).encode()).hexdigest()[:16]
    return Prompt(name, text, digest, without)


def _with_shots(entry: PromptEntry, template: Prompt, shots: list[Shot], file: StudyFile) -> str:
    turns = [(template.text.replace(PLACEHOLDER, question), answer) for question, answer in shots]
    if entry.chat is None:
        return "".join(f"{ask}{answer}{_BETWEEN}" for ask, answer in turns) + template.text
    messages = [{"role": "system", "content": entry.system}] if entry.system else []
    for ask, answer in turns:
        messages.append({"role": "user", "content": ask})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": template.text})
    folder = file.models[entry.chat].path
    if folder is None or "{step}" in folder:
        raise UserError(f"model {entry.chat} has no folder of its own to read a chat format from")
    settings = {} if entry.thinking is None else {"enable_thinking": entry.thinking}
    text = render_chat(Path(folder), messages, settings)
    other = {name: not value for name, value in settings.items()}
    if settings and text == render_chat(Path(folder), messages, other):
        raise UserError(
            f"the chat format of model {entry.chat} cannot switch thinking; leave out `thinking`"
        )
    if PLACEHOLDER not in text:
        raise UserError(f"the chat format of model {entry.chat} leaves the question out")
    return text


def render_chat(folder: Path, messages: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """Messages in a model's own chat format, ending where its answer begins.

    The format is a Jinja template from the model's folder, so it runs in Jinja's sandbox. It is
    given no clock: a date in a prompt would make yesterday's samples stale.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source, tokens = _chat_template(folder)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    try:
        text: str = environment.from_string(source).render(
            messages=messages, add_generation_prompt=True, **tokens, **settings
        )
    except (TemplateError, TypeError, ArithmeticError, RecursionError) as error:
        raise UserError(f"{folder}: its chat format refuses this prompt: {error}") from None
    return text


def _chat_template(folder: Path) -> tuple[str, dict[str, str]]:
    """The template of a model folder, and its special tokens by name."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        separate = folder / "chat_template.jinja"
        source: Any = config.get("chat_template")
        if separate.is_file():
            source = separate.read_text(encoding="utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder}: no tokenizer_config.json that can be read: {error}") from None
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source}
        source = named.get("default")
    if not isinstance(source, str):
        raise UserError(f"{folder}: it has no chat format; take a `template` without `chat`")
    tokens = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(key)
        tokens[key] = token.get("content", "") if isinstance(token, dict) else token or ""
    return source, tokens
