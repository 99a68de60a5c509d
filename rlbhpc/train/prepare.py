"""From a study's recipe to a run: settings, data and folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rlbhpc.engines.hf_model import read_config
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import render
from rlbhpc.study.lineage import begin_training, check_weights
from rlbhpc.study.schema import Component, Recipe
from rlbhpc.study.study import Study
from rlbhpc.train.forecast import settings_for_this_device
from rlbhpc.train.mixture import Mixture
from rlbhpc.train.policy import image_processor_of
from rlbhpc.train.recipes import algorithm_of, check_material
from rlbhpc.train.rewards import make_reward
from rlbhpc.train.rollout import Export, Judge, Prompt, Run
from rlbhpc.train.sft import Distillation, learning_pairs, teacher_lessons
from rlbhpc.verify.running.pool import verify_apart


def prepare(study: Study, model: str) -> Run | Distillation:
    """Everything that training one model of a study needs, as a run to start.

    A recipe of the study says how the model is trained. The result is a ``Distillation`` for
    supervised training and a ``Run`` for reinforcement learning. ``exports`` says at which steps
    the model is written, and where; ``digests`` identify what made each of them. A judge verifies a
    response and turns the verdict into a reward; ``ask`` puts a problem into the prompt template.
    """
    origin = begin_training(study, model)
    training = study.models[model].train
    assert training is not None
    recipe = study.file.recipes[training.recipe]
    check_material(recipe)
    base = _start_folder(study, model, training.from_, recipe)
    digests = study.digests[model]
    common: dict[str, Any] = {
        "name": model,
        "base": base,
        "folder": study.layout.training(model),
        "exports": {
            step: Export(study.layout.checkpoint(model, step), digests[step], origin.run)
            for step in study.models[model].steps or []
        },
    }
    settings = settings_for_this_device(study, model)
    algorithm = algorithm_of(recipe)
    if algorithm is None:
        pairs = tuple(learning_pairs(study, recipe, Tokens(base), settings))
        if not pairs:
            raise UserError(f"recipe {training.recipe}: there is no response to learn from")
        return Distillation(settings=settings, pairs=pairs, **common)
    algorithm.check_settings(settings)
    tokens = Tokens(base)
    prompts_of_sets = [_read_prompts(study, each, tokens) for each in recipe.components]
    prompts = tuple(chain.from_iterable(prompts_of_sets))
    sizes = tuple(map(len, prompts_of_sets))
    stages = tuple((first_step, tuple(weights)) for first_step, weights in recipe.stages)
    template = study.prompts[recipe.components[0].prompt or ""]
    verify = partial(verify_apart, seconds=study.file.verification.timeout)
    return Run(
        settings=settings,
        algorithm=algorithm,
        prompts=prompts,
        ask=lambda problem: Prompt(problem, tokens.encode(render(template, problem))),
        judge=Judge(verify, make_reward(settings.rewards)),
        image_processor=image_processor_of(base),
        reference=_reference_folder(study, algorithm.reference_model, tokens),
        mixture=Mixture(sizes, stages) if recipe.mixture else None,
        hinted=_hinted_prompts(study, recipe, tokens, prompts, settings.hints),
        **common,
    )


def _reference_folder(study: Study, model: str, tokens: Tokens) -> Path | None:
    """Folder of the model that an algorithm measures against; None for the one it starts from.

    ``tokens`` is the tokeniser of the model that learns. The reference scores the tokens that were
    sampled, so an id must mean the same to both.
    """
    if not model:
        return None
    folder = _existing_folder(study, model, "the teacher")
    if Tokens(folder).tokenizer.get_vocab() != tokens.tokenizer.get_vocab():
        raise UserError(
            f"teacher {model}: {folder} has another vocabulary than {tokens.folder}; it scores the "
            "tokens that the student wrote, so take a teacher with the same tokeniser"
        )
    teacher_vocabulary = read_config(folder).get_text_config().vocab_size
    student_vocabulary = read_config(tokens.folder).get_text_config().vocab_size
    if teacher_vocabulary < student_vocabulary:
        raise UserError(
            f"teacher {model}: {folder} has embeddings of {teacher_vocabulary} tokens, and the "
            f"student samples from {student_vocabulary}; take a teacher with as many"
        )
    return folder


def _existing_folder(study: Study, model: str, role: str) -> Path:
    """Folder of a model that has to be there, whole and the study's own."""
    folder = study.folder(model, study.last_step(model))
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: {role} is not there; train or stage {model} first")
    check_weights(study, model, study.last_step(model))
    return folder


def _start_folder(study: Study, model: str, start: str | None, recipe: Recipe) -> Path:
    """Folder of the model to start from; random weights are made where the study names none.

    They are written under another name and renamed when complete.
    """
    if start is not None:
        return _existing_folder(study, start, "the model to start from")
    base = study.layout.training(model) / "random"
    if not (base / "config.json").is_file():
        shape = dict(recipe.architecture)
        partial = base.with_name(f"{base.name}.{os.getpid()}.partial")
        make_tiny_model(partial, shape.pop("model_type", "qwen2"), recipe.seed, **shape)
        try:
            partial.rename(base)
        except OSError:  # another rank was first, with the same weights
            shutil.rmtree(partial)
    return base


def _hinted_prompts(
    study: Study, recipe: Recipe, tokens: Tokens, prompts: Sequence[Prompt], share: float
) -> dict[str, Prompt]:
    """Prompts that end with a share of the tokens of a teacher's response, by problem."""
    if not share or recipe.teacher is None:
        return {}
    prompt_of_problem = {prompt.problem.id: prompt for prompt in prompts}
    hinted: dict[str, Prompt] = {}
    for lesson in teacher_lessons(study, recipe.teacher):
        prompt = prompt_of_problem.pop(lesson.problem, None)
        if prompt is None:
            continue
        ids = tokens.tokenizer(lesson.response[0][1], add_special_tokens=False)["input_ids"]
        hint_ids = ids[: int(share * len(ids))]
        hint = tokens.decode(hint_ids)
        hinted[lesson.problem] = Prompt(prompt.problem, (*prompt.ids, *hint_ids), hint)
    if not hinted:
        raise UserError(
            f"options.hints: arm {recipe.teacher.arm} has no response to learn from; sample it "
            "first, or take another teacher"
        )
    return hinted


def _read_prompts(study: Study, component: Component, tokens: Tokens) -> tuple[Prompt, ...]:
    """Put the problems of a set into its prompt template and tokenise them."""
    template = study.prompts[component.prompt or ""]
    problems = study.problems(component.problems)
    tokens.check_prompt(template, render(template, problems[0]))
    return tuple(Prompt(problem, tokens.encode(render(template, problem))) for problem in problems)
