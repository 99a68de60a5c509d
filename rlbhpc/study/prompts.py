"""Prompts that a study makes: a model's own chat format with its settings, and worked examples."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import PLACEHOLDER, Prompt, Shot, draw_shots, get_prompt, same_question
from rlbhpc.study.schema import PromptEntry, StudyFile
from rlbhpc.study.study import load_problems

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
