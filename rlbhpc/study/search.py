"""``prompt: search``: the prompts that are tried for an arm, each by an arm of its own, a *try*.

Problems are split into two halves by a hash of their id. The prompt that is best on one half asks
the problems of the other half, so no problem is asked by a prompt that its own samples chose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import IMAGE, PLACEHOLDER, SEARCH, Prompt, get_prompt, question_key
from rlbhpc.study.keys import fingerprint
from rlbhpc.study.layout import Layout
from rlbhpc.study.prompts import literal_prompt, made_prompt
from rlbhpc.study.schema import ArmEntry, PromptEntry, Shots
from rlbhpc.study.study import Search, Study, half_of, searched_prompt

#: Texts that end a response to any candidate: the model goes on with a turn or a question.
STOPS: Final = ("\nuser\n", "\nUser:", "\nQuestion:")
# Prompts by which published models were trained or evaluated, by a word of the model's name.
_PUBLISHED: Final = {
    "simplerl": ("qwen-boxed", "simplerl-abel"),
    "oat-zero": ("qwen-math-cot",),
    "dapo": ("dapo", "dapo-large-k"),
    "open-reasoner": ("open-reasoner",),
    "code-r1": ("code-r1",),
}
# By verifier: the template of a base model, and that of a user's turn in a chat format.
_TEMPLATES: Final = {
    "math": ("completion-boxed", "boxed"),
    "countdown": ("countdown", "countdown-words"),
    "code": ("evalplus", "bare"),
}
_SYSTEM_TURN: Final = "You are a helpful assistant."
_NUMBERS_OF_SHOTS: Final = (4, 8)
# The prompt of an arm while it is searched.
_NOT_CHOSEN: Final = Prompt(SEARCH, PLACEHOLDER, "")


def with_searches(study: Study) -> Study:
    """Return the study with an arm for each try, and with the prompts that were chosen so far.

    An arm whose prompt is searched keeps its sampling setting; without a ``stop`` it gets `STOPS`,
    as its tries do. A try samples the last step of the model.
    """
    for name, recipe in study.file.recipes.items():
        if SEARCH in [component.prompt for component in recipe.components]:
            raise UserError(f"recipes.{name}.prompt: only an arm can search; name a prompt")
    outcomes = read_outcomes(study.layout)
    arms = dict(study.file.arms)
    prompts = dict(study.prompts)
    searches = {}
    for name, entry in study.file.arms.items():
        if entry.prompt != SEARCH:
            continue
        problems = [p for set_name in study.sets(name) for p in study.problems(set_name)]
        candidates = list(_candidates(study, name, problems))
        if not candidates:
            raise UserError(f"arms.{name}.prompt: no prompt fits its problems; name one")
        arms[name] = entry.model_copy(update={"stop": entry.stop or list(STOPS)})
        last_step = max(study.arms[name].steps)
        tries = {}
        for candidate in candidates:
            try_name = f"{name}+{candidate.name}"
            tries[candidate.name] = try_name
            prompts[try_name] = candidate
            changes = {"prompt": try_name, "steps": [last_step], "stop_after": 0}
            arms[try_name] = arms[name].model_copy(update=changes)
        key = _request_key(study, name, arms[name], candidates)
        search = Search(tries, key, **outcomes.get(key, {}))
        searches[name] = search
        prompts[searched_prompt(name)] = _NOT_CHOSEN
        if search.chosen:
            first, second = (prompts[tries[candidate]] for candidate in search.chosen)
            prompts[searched_prompt(name)] = cross(first, second, problems)
    file = study.file.model_copy(update={"arms": arms})
    return replace(study, file=file, prompts=prompts, searches=searches)


def describe_searches(study: Study) -> str:
    """Say what the searches for prompts cost, and what their arms will ask for after them."""
    tried = sum(study.count_samples(arm) for arm in study.tries)
    asked = sum(study.count_samples(arm) for arm in study.searches)
    return (
        f"{', '.join(study.searches)}: {tried:,} samples first try {len(study.tries)} prompts, "
        f"{tried / asked:.1%} of the {asked:,} that follow with the best"
    )


def read_outcomes(layout: Layout) -> dict[str, Any]:
    """Read what was chosen in a run, by the key of the search; nothing where no file is."""
    try:
        outcomes: dict[str, Any] = json.loads(layout.searches.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(
            f"{layout.searches}: damaged ({error}); delete it: the same tries choose the same"
        ) from None
    return outcomes


def cross(first: Prompt, second: Prompt, problems: Sequence[Problem]) -> Prompt:
    """Join two prompts: ``first`` asks the problems of half 0, ``second`` those of half 1.

    ``without`` has the texts for single questions.
    """
    if first.digest == second.digest:
        return first
    without = dict(first.without)
    for problem in problems:
        if half_of(problem.id) == 1:
            key = question_key(problem.fields["question"])
            without[key] = second.without.get(key, second.text)
    return literal_prompt(f"{first.name} / {second.name}", first.text, without)


def _request_key(study: Study, name: str, entry: ArmEntry, candidates: Sequence[Prompt]) -> str:
    """A key of all that decides which prompt is best; another key is another search."""
    request = {
        "model": study.digests[entry.model][max(study.arms[name].steps)],
        "prompts": [candidate.digest for candidate in candidates],
        "sampling": entry.sampling().record(),
        "problems": [dict(study.problem_hashes[set_name]) for set_name in study.sets(name)],
    }
    return str(fingerprint(request))


def _candidates(study: Study, name: str, problems: Sequence[Problem]) -> Iterator[Prompt]:
    """Yield the prompts to try for an arm, each text once.

    Left out is a prompt whose chat marks are not in the model's tokenizer, or that shows another
    number of images than the problems have. Of two equally good ones the earlier is taken.
    """
    tokenizer = _read_tokenizer(study, study.arms[name].model)
    seen = set()
    for prompt in _known_prompts(study, name, problems[0].verifier):
        fits_model = all(mark in tokenizer for mark in prompt.marks)
        fits_problems = prompt.text.count(IMAGE) == len(problems[0].images)
        if fits_model and fits_problems and prompt.text not in seen:
            seen.add(prompt.text)
            yield prompt


def _known_prompts(study: Study, name: str, verifier: str) -> Iterator[Prompt]:
    """Yield the study's own prompts, those of its trainings, published ones, and usual ones.

    Worked examples are of the arm's first problem set. A prompt that cannot be made, such as one
    in the chat format of a model that has none, is left out.
    """
    completion, user_turn = _TEMPLATES.get(verifier, _TEMPLATES["math"])
    named = [*study.file.prompts]
    for recipe in study.file.recipes.values():
        named += [component.prompt for component in recipe.components if component.prompt]
    yield from (study.prompts[prompt] for prompt in named)
    for model in study.models.values():
        published_name = (model.hub or model.path or "").lower()
        for word, prompts in _PUBLISHED.items():
            if word in published_name:
                yield from map(get_prompt, prompts)
    model_of_chat = _last_with_folder(study, study.arms[name].model)
    made = {}
    for prompt_name, system in (("chat", None), ("chat-system", _SYSTEM_TURN)):
        made[prompt_name] = PromptEntry(template=user_turn, chat=model_of_chat, system=system)
    for n in _NUMBERS_OF_SHOTS:
        shots = Shots.model_validate({"from": study.sets(name)[0], "n": n})
        made[f"{completion}-{n}"] = PromptEntry(template=completion, shots=shots)
    if verifier == "math":
        yield get_prompt("qwen-boxed")
    yield get_prompt(completion)
    yield get_prompt(user_turn)
    for prompt_name, entry in made.items():
        with suppress(UserError):
            yield made_prompt(prompt_name, entry, study.file)


def _last_with_folder(study: Study, model: str) -> str:
    """Name the model itself, or its nearest ancestor that is a single given folder."""
    while (parent := study.base(model)) is not None:
        path = study.models[model].path
        if path is not None and "{step}" not in path:
            break
        model = parent
    return model


def _read_tokenizer(study: Study, model: str) -> str:
    """Return the text of a model's tokenizer; empty where it has none yet, as one to be trained."""
    path = study.models[_last_with_folder(study, model)].path
    try:
        return (Path(path or "") / "tokenizer.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
