"""Prompts that a study makes: a model's own chat format with its settings, and worked examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import PLACEHOLDER, Prompt, Shot, draw_shots, get_prompt, question_key
from rlbhpc.study.schema import PromptEntry, StudyFile
from rlbhpc.study.study import load_problems
from rlbhpc.study.tools import find_tool

# What stands between an example's answer and the next question where no chat format says it.
_BETWEEN_EXAMPLES: Final = "\n\n"


def made_prompt(name: str, entry: PromptEntry, file: StudyFile) -> Prompt:
    """Build the prompt that an entry of the study's ``prompts`` describes, as literal text.

    Everything is looked up now, so what a model sees is in the study and in its fingerprints.
    *Shots* are worked examples before the question. ``text`` shows all but the last;
    ``text_without`` has, for each question among these, the text that shows the last shot in its
    place, so that no problem sees its own answer. `question_key` is a question without regard to
    case and spaces.
    """
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
    # The last one is shown in place of an example whose own question is asked.
    usual_shots = shots[:-1]
    text = _prompt_text(entry, template, usual_shots, file)
    text_without = {}
    for question, _ in usual_shots:
        other_shots = [shot for shot in shots if shot[0] != question]
        text_without[question_key(question)] = _prompt_text(entry, template, other_shots, file)
    return literal_prompt(name, text, text_without)


def literal_prompt(name: str, text: str, without: Mapping[str, str]) -> Prompt:
    """Make a prompt of a text, and of other texts for some questions (by `question_key`)."""
    content = json.dumps([text, without], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Prompt(name, text, digest, without)


def _prompt_text(entry: PromptEntry, template: Prompt, shots: list[Shot], file: StudyFile) -> str:
    """Return the template after its worked examples, in a model's chat format if one is named.

    ``shots`` are pairs of question and answer. In a chat format each is a turn of the user and one
    of the assistant; else they are simply put before the template. ``thinking`` must make a
    difference to the text, or the chat format has no such switch.
    """
    turns = [(template.text.replace(PLACEHOLDER, question), answer) for question, answer in shots]
    if entry.chat is None:
        examples = [f"{asked}{answer}{_BETWEEN_EXAMPLES}" for asked, answer in turns]
        return "".join(examples) + template.text
    messages = [{"role": "system", "content": entry.system}] if entry.system else []
    for asked, answer in turns:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": template.text})
    folder = file.models[entry.chat].path
    if folder is None or "{step}" in folder:
        raise UserError(f"model {entry.chat} has no folder of its own to read a chat format from")
    settings = {}
    if entry.tools:
        settings["tools"] = [find_tool(reference).schema for reference in entry.tools]
    if entry.thinking is None:
        text = render_chat(Path(folder), messages, **settings)
    else:
        text = render_chat(Path(folder), messages, enable_thinking=entry.thinking, **settings)
        other = render_chat(Path(folder), messages, enable_thinking=not entry.thinking, **settings)
        if text == other:
            raise UserError(
                f"the chat format of model {entry.chat} cannot switch thinking; leave out"
                " `thinking`"
            )
    if PLACEHOLDER not in text:
        raise UserError(f"the chat format of model {entry.chat} leaves the question out")
    return text


def render_chat(folder: Path, messages: list[dict[str, Any]], **settings: Any) -> str:
    """Return messages in a model's own chat format, ending where its answer begins.

    ``folder`` is the model's, ``settings`` go to its template (such as ``enable_thinking``). The
    format is a Jinja template from the model's folder, so it runs in Jinja's sandbox. It is given
    no clock: a date in a prompt would make yesterday's samples stale.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source, special_tokens = _read_chat_template(folder)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    # The settings, filters and functions that transformers gives a chat template.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False} | options
    )
    environment.globals["raise_exception"] = raise_exception
    try:
        template = environment.from_string(source)
        settings = {"add_generation_prompt": True, **special_tokens, **settings}
        text: str = template.render(messages=messages, **settings)
    except (TemplateError, TypeError, ArithmeticError, RecursionError) as error:
        raise UserError(f"{folder}: its chat format refuses this prompt: {error}") from None
    return text


def _read_chat_template(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the chat template of a model folder, and its special tokens by name.

    The template is in a file of its own or in the tokenizer's configuration; of several named ones
    it is the default. A special token that the model lacks is an empty text.
    """
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        source: Any = config.get("chat_template")
        template_file = folder / "chat_template.jinja"
        if template_file.is_file():
            source = template_file.read_text(encoding="utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder}: no tokenizer_config.json that can be read: {error}") from None
    if isinstance(source, list):
        templates = {entry.get("name"): entry.get("template") for entry in source}
        source = templates.get("default")
    if not isinstance(source, str):
        raise UserError(f"{folder}: it has no chat format; take a `template` without `chat`")
    special_tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name) or ""
        special_tokens[name] = token.get("content", "") if isinstance(token, dict) else token
    return source, special_tokens
