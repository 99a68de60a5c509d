"""What a recipe of a study says to training: an algorithm, and the settings of the loop."""

from __future__ import annotations

import importlib.util
from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from rlbhpc.engines.folder import sees
from rlbhpc.errors import UserError
from rlbhpc.study.complaints import from_options
from rlbhpc.study.keys import Turns
from rlbhpc.study.schema import Recipe, TurnsEntry
from rlbhpc.study.study import Study
from rlbhpc.study.tools import find_tool
from rlbhpc.study.tree import shown
from rlbhpc.train.algorithms import algorithm_class, check_algorithm, make_algorithm
from rlbhpc.train.rewards import make_reward
from rlbhpc.train.settings import Settings, Traces

if TYPE_CHECKING:
    from rlbhpc.train.algorithms.algorithm import Algorithm

# Recipe keys that are settings of the loop under the same name.
SHARED_KEYS = (
    "seed", "prompts_per_step", "samples_per_prompt", "temperature", "max_tokens", "learning_rate",
)  # fmt: skip


# Largest count in a new model's architecture: layers, heads, tokens of a vocabulary.
MAX_COUNT: Final = 100_000_000
# What a GPU is for: set there where a recipe says nothing.
GPU_DEFAULTS = {"rollouts": "vllm", "dtype": "bfloat16", "recompute": True}


def check_recipes(study: Study) -> None:
    """Refuse what training a model of the study would refuse at its start.

    A recipe says how a model is trained. Options of an algorithm are known to its class alone,
    which needs torch: without it (a login node) only names are looked up. ``from_options``,
    ``make_reward`` and ``settings_of`` are called because they refuse what is wrong.
    """
    for model, entry in study.models.items():
        if entry.train is None:
            continue
        recipe = study.file.recipes[entry.train.recipe]
        try:
            check_algorithm(recipe.algorithm)
            for component in recipe.components:
                _refuse_images(study, model, recipe, component.problems)
            check_material(recipe)
            _check_architecture(recipe)
            if "traces" in recipe.options:
                from_options(Traces, recipe.options["traces"], "traces")
            make_reward(recipe.options.get("rewards", {}))
            if importlib.util.find_spec("torch") is not None:
                algorithm = algorithm_of(recipe)
                reference = model if algorithm is None else algorithm.reference_model or model
                if reference not in study.models:
                    allowed = ", ".join(study.models)
                    raise UserError(f"options: no model {reference!r}; allowed: {allowed}")
                settings = settings_of(recipe, study.last_step(model))
                if algorithm is not None:
                    algorithm.check_settings(settings)
                    _check_hints(study, recipe, settings)
        except UserError as error:
            raise UserError(f"recipes.{entry.train.recipe}: {error}") from None


def check_material(recipe: Recipe) -> None:
    """Refuse a recipe that has nothing to learn from.

    Supervised training learns from texts, a teacher's responses or worked traces, everything else
    from problems in a prompt.
    """
    has_traces = "traces" in recipe.options
    if not recipe.is_supervised or has_traces:
        for key in ("problems", "prompt"):
            if not recipe.mixture and getattr(recipe, key) is None:
                subject = "traces" if has_traces else recipe.algorithm
                raise UserError(f"{key}: missing; {subject} needs both `problems` and `prompt`")
    elif recipe.texts is None and recipe.teacher is None:
        raise UserError("sft needs `texts`, `teacher` or `options.traces` to learn from")


def _check_architecture(recipe: Recipe) -> None:
    """Refuse sizes and numbers of a new model that are no counts.

    ``architecture`` describes a model that starts from random weights.
    """
    for key, value in recipe.architecture.items():
        is_count = key.startswith("num_") or key.endswith("_size")
        if is_count and (type(value) is not int or not 1 <= value <= MAX_COUNT):
            raise UserError(
                f"architecture.{key}: found {shown(value)}; allowed: a whole number from 1 to "
                f"{MAX_COUNT:,}"
            )


def _check_hints(study: Study, recipe: Recipe, settings: Settings) -> None:
    """Refuse hints that no teacher gives on the problems that are learnt from."""
    if not settings.hints:
        return
    names = [component.problems for component in recipe.components]
    answered = () if recipe.teacher is None else study.sets(recipe.teacher.arm)
    if set(names).isdisjoint(answered):
        raise UserError(
            f"options.hints: found {settings.hints}; they need a `teacher`, whose arm answers "
            f"{' or '.join(names)} (name that in the arm's `problem_sets`)"
        )


def _refuse_images(study: Study, model: str, recipe: Recipe, problem_set: str) -> None:
    """Refuse images for a model that can't see them: it would learn to guess.

    A model may start from another one of the study (``from_``), and so on: the first of them shows
    whether there is a vision tower. If its folder is not there yet, nothing is refused.
    """
    problem_id = study.first_with_image(problem_set)
    if not problem_id:
        return
    if recipe.is_supervised:
        raise UserError(f"{problem_id} has images, and supervised training shows none")
    start = model
    training = study.models[start].train
    while training is not None and training.from_ is not None:
        start = training.from_
        training = study.models[start].train
    folder = study.folder(start, study.last_step(start))
    if training is None and (folder / "config.json").is_file() and not sees(folder):
        raise UserError(
            f"{problem_id} has images, which the model in {folder} cannot be shown; start "
            "from one that has a vision tower"
        )


def algorithm_of(recipe: Recipe) -> Algorithm | None:
    """The algorithm with those options that are its own; None for supervised training."""
    if recipe.is_supervised:
        return None
    known_options = algorithm_class(recipe.algorithm).__dataclass_fields__
    options = {name: value for name, value in recipe.options.items() if name in known_options}
    return make_algorithm(recipe.algorithm, recipe.preset, **options)


def settings_of(recipe: Recipe, steps: int, *, gpu: bool = False) -> Settings:
    """Settings of the loop: keys of the recipe, and those options that are not the algorithm's.

    What a recipe leaves open has the defaults of a GPU, or of processors. ``from_options`` makes
    the settings and refuses unknown names.
    """
    values: dict[str, Any] = dict(GPU_DEFAULTS) if gpu else {}
    for key in SHARED_KEYS:
        if getattr(recipe, key) is not None:
            values[key] = getattr(recipe, key)
    if recipe.kl is not None:
        values["kl_loss"] = recipe.kl
    options_of_algorithm: Container[str] = {"traces"}
    if not recipe.is_supervised:
        options_of_algorithm = algorithm_class(recipe.algorithm).__dataclass_fields__
    options = {
        name: value for name, value in recipe.options.items() if name not in options_of_algorithm
    }
    if "turns" in options:
        options["turns"] = _read_turns(options["turns"])
    if "steps" in options:
        raise UserError(
            f"options.steps: found {shown(options['steps'])}; the model's own `steps` say how long "
            "it is trained"
        )
    return from_options(Settings, {**values, "steps": steps, **options}, "training")


def _read_turns(option: Any) -> Turns:
    """How the responses of a training may call tools, as under an arm's ``turns``."""
    try:
        entry = TurnsEntry.model_validate(option)
    except ValidationError as error:
        mistake = error.errors()[0]
        key = ".".join(["options.turns", *map(str, mistake["loc"])])
        raise UserError(f"{key}: found {shown(mistake['input'])}; {mistake['msg']}") from None
    for tool in entry.tools:
        find_tool(tool)  # refuses one that there is not
    return Turns(**entry.model_dump() | {"tools": tuple(entry.tools)})


def rollout_rows(study: Study) -> int:
    """Responses of a rollout side by side: ``rows`` of the study's engine options, or 256."""
    return int(study.file.engine.options.get("rows", 256))
