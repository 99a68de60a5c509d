"""Load the engine that a shard, or a scoring model, needs."""

from __future__ import annotations

from typing import Any

from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Shard


def engine_for(study: Study, shard: Shard) -> Engine:
    """Make the engine of one shard, with the study's engine settings."""
    return load_engine(study, shard.engine, shard.model, shard.step)


def load_engine(study: Study, kind: str, model: str, step: int) -> Engine:
    """Make an engine for a model of the study at one step."""
    entry = study.models[model].endpoint
    if entry is not None:
        return make_engine("endpoint", entry.model, **entry.model_dump(exclude={"model"}))
    settings: dict[str, Any] = dict(study.file.engine.options)
    if study.file.engine.dtype != "auto":
        settings["dtype"] = study.file.engine.dtype
    if kind == "vllm":
        settings["tensor_parallel"] = study.file.engine.tensor_parallel
    return make_engine(kind, study.folder(model, step), **settings)
