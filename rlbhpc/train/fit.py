"""What a recipe's training takes on the device at hand, and the nearest setting that fits it.

A recipe that says nothing of ``rollouts``, ``dtype``, ``recompute``, ``zero_stage`` and ``offload``
gets on a GPU what a GPU is for, and of ZeRO the least that fits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import torch

from rlbhpc.engines.hf.backend import read_config
from rlbhpc.engines.tiny import tiny_config
from rlbhpc.errors import UserError
from rlbhpc.study.recipe import Recipe
from rlbhpc.study.study import Study
from rlbhpc.train.checkpoint import read_progress, states
from rlbhpc.train.forecast import (
    BYTES,
    Forecast,
    flop_of,
    loading_of,
    memory_of,
    without_data,
    work_of,
)
from rlbhpc.train.lora import plain_size
from rlbhpc.train.recipes import algorithm_of, rollout_rows, settings_of
from rlbhpc.train.settings import Settings

#: Ways to divide the training state over ranks, from the least to the most that is given up.
ONE_RANK: Final = ((0, False), (0, True))
RANKS: Final = ((2, False), (3, False), (3, True))
MOST_RANKS: Final = 1024


def forecast(study: Study, model: str, ranks: int, limit: int = 0) -> Forecast:
    """Tell what training ``model`` on so many ranks will do and hold.

    ``limit`` is the memory of a rank's GPU in bytes; 0 where there is none.
    """
    recipe = _recipe(study, model)
    settings = settings_of(recipe, study.last_step(model), gpu=limit > 0)
    pinned = _saved_zero(study, model)
    if not limit or {"zero_stage", "offload"} & recipe.options.keys():
        ways = [(settings.zero_stage, settings.offload)]
    else:
        ways = [pinned] if pinned else list(RANKS if ranks > 1 else ONE_RANK)
    for stage, offload in ways:
        divided = replace(settings, zero_stage=stage, offload=offload)
        foretold = forecast_of(study, model, divided, ranks)
        if not limit or not foretold.shortfall(limit):
            break
    return foretold


def forecast_of(study: Study, model: str, settings: Settings, ranks: int) -> Forecast:
    """Tell what training ``model`` with these settings will do and hold."""
    recipe = _recipe(study, model)
    algorithm = algorithm_of(recipe)
    policy = without_data(_config(study, model), settings)
    parameters = plain_size(policy)
    beside = algorithm is not None and settings.rollouts == "vllm"
    largest = max(p.numel() for p in policy.parameters())
    learning = policy.model.num_parameters(only_trainable=True)
    reference = parameters
    if algorithm is not None and algorithm.reference_model:
        reference = _teacher_parameters(study, algorithm.reference_model, settings)
    memory = memory_of(policy, settings, algorithm, ranks, rollout_rows(study), reference)
    return Forecast(
        model, recipe.algorithm, parameters, ranks, work_of(settings, algorithm), memory,
        flop_of(parameters, learning, reference, settings, algorithm),
        loading=loading_of(policy, memory, settings),
        share=1 - settings.rollout_memory if beside else 1.0,
        handed=parameters * BYTES[settings.dtype] if beside else 0,
        largest=largest * BYTES[settings.dtype] if beside else 0,
        settings=asdict(settings),
    )  # fmt: skip


def refuse_what_cannot_fit(study: Study, foretold: Forecast, limit: int) -> None:
    """Refuse a training that a rank's memory is too small for, with the nearest that fits."""
    why = foretold.shortfall(limit)
    if not why:
        return
    changes = nearest_that_fits(study, foretold, limit)
    if changes is None:
        way_out = "Nothing that could be set makes it fit; take a smaller model or larger GPUs"
    else:
        listed = ", ".join(f"{name}: {json.dumps(value)}" for name, value in changes.items())
        way_out = f"The nearest setting that fits: {{{listed}}} under the recipe's `options`"
        if "ranks" in changes:
            way_out += " (`ranks` are GPUs that share the training)"
    raise UserError(f"model {foretold.model}: {why}. {way_out}")


def nearest_that_fits(study: Study, foretold: Forecast, limit: int) -> dict[str, Any] | None:
    """Fewest changes, the mildest first, with which a training fits; None if nothing does."""
    start = Settings(**foretold.settings)
    changes: dict[str, Any] = {}

    def fits(options: Mapping[str, Any]) -> bool:
        named = {name: value for name, value in options.items() if name != "ranks"}
        ranks = options.get("ranks", foretold.ranks)
        tried = forecast_of(study, foretold.model, replace(start, **named), ranks)
        return not tried.shortfall(limit)

    for name, value in _milder(start, foretold, limit):
        changes[name] = value
        if fits(changes):
            break
    else:
        return None
    # What turned out to be of no use on the way is taken back.
    for name in list(changes):
        rest = {key: value for key, value in changes.items() if key != name}
        if rest and fits(rest):
            changes = rest
    if "zero_stage" in changes and start.offload:
        changes["offload"] = True  # a recipe that names a stage has neither chosen for it
    return changes


def _milder(settings: Settings, foretold: Forecast, limit: int) -> Iterator[tuple[str, Any]]:
    """Changes that make a rank hold less, in the order in which they cost."""
    if foretold.handed:
        # Its cache and its own buffers take a tenth more, and a little of any GPU.
        yield "rollout_memory", round(min(0.9, 1.1 * foretold.handed / limit + 0.02), 2)
    if not settings.recompute:
        yield "recompute", True
    if settings.micro_tokens > settings.max_tokens:
        yield "micro_tokens", settings.max_tokens
    if settings.zero_stage < 3 and foretold.ranks > 1:
        yield "zero_stage", 3
    if not settings.offload:
        yield "offload", True
    ranks = foretold.ranks
    while ranks < MOST_RANKS:
        ranks *= 2
        yield "zero_stage", 3
        yield "ranks", ranks


def settings_here(study: Study, model: str) -> Settings:
    """Settings of a training that starts now, on the device of this process."""
    limit = device_memory()
    if not limit:
        return settings_of(_recipe(study, model), study.last_step(model))
    foretold = forecast(study, model, int(os.environ.get("WORLD_SIZE", "1")), limit)
    refuse_what_cannot_fit(study, foretold, limit)
    return Settings(**foretold.settings)


def device_memory() -> int:
    """Bytes of this process's GPU; 0 where there is none."""
    if not torch.cuda.is_available():
        return 0
    # Asked of the first GPU, every rank of a node would hold a part of it from here on.
    own = int(os.environ.get("LOCAL_RANK", "0"))
    return int(torch.cuda.mem_get_info(own)[1])


def _recipe(study: Study, model: str) -> Recipe:
    training = study.models[model].train
    assert training is not None
    return study.file.recipes[training.recipe]


def _saved_zero(study: Study, model: str) -> tuple[int, bool] | None:
    """How a run that goes on had divided its state, whatever would be chosen today."""
    for state in reversed(states(study.layout.states(model))):
        progress = read_progress(state)
        if progress is not None and "zero_stage" in progress:
            return progress["zero_stage"], progress["offload"]
    return None


def _teacher_parameters(study: Study, teacher: str, settings: Settings) -> int:
    """Parameters of the model that an algorithm measures against."""
    folder = study.folder(teacher, study.last_step(teacher))
    made = (folder / "config.json").is_file()
    config = read_config(folder) if made else _config(study, teacher)
    return plain_size(without_data(config, replace(settings, lora_rank=0)))


def _config(study: Study, model: str) -> Any:
    """Configuration of the model that a training starts from, trained itself or not yet."""
    while (training := study.models[model].train) is not None and training.from_ is not None:
        model = training.from_
        folder = study.folder(model, study.last_step(model))
        if (folder / "config.json").is_file():
            return read_config(folder)
    if training is None:
        raise UserError(f"model {model}: no config.json in its folder; bring it there first")
    shape = dict(study.file.recipes[training.recipe].architecture)
    return tiny_config(shape.pop("model_type", "qwen2"), **shape)
