"""Load the engine that a shard, or a scoring model, needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlbhpc import plugins
from rlbhpc.engines.checkpoints import model_folder, needs_base
from rlbhpc.engines.engine import Engine, check_settings, make_engine
from rlbhpc.engines.folder import staged
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.complaints import nearest
from rlbhpc.study.lineage import check_weights
from rlbhpc.study.study import Study
from rlbhpc.verify.registry import KINDS

log = logging.getLogger(__name__)


def load_engine(study: Study, kind: str, model: str, step: int) -> Engine:
    """Make an engine for a model of the study at one step.

    ``kind``: name of the engine, such as vllm; a model behind an endpoint has its own. ``step``:
    training step, 0 for the base. ``staged`` gives a copy of the model's folder on the node's own
    disk, or the folder itself where there is none. If vLLM refuses the model, the user gets its
    reason; lack of GPU memory is passed on as it is, since another node may have enough.
    """
    endpoint = study.models[model].endpoint
    if endpoint is not None:
        return make_engine("endpoint", endpoint.model, **endpoint.model_dump(exclude={"model"}))
    folder = staged(model_to_load(study, model, step))
    settings = _engine_settings(study, kind)
    log.debug("engine %s for %s at step %d starts: %s, %s", kind, model, step, folder, settings)
    try:
        engine = make_engine(kind, folder, **settings)
    except ValueError as error:
        # Too little memory is no fault of the model: another node may have enough.
        if kind != "vllm" or "Free memory on device" in str(error):
            raise
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: vLLM does not load it: {reason}") from error
    log.debug("engine %s is loaded", kind)
    return engine


def check_engines(study: Study) -> None:
    """Refuse engines that are not there, and options that they would refuse in their job.

    ``place_of_kind`` keeps, for each kind of engine in use, where the study file names it, so that
    the message can say so. Models behind an endpoint need no engine.
    """
    place_of_kind: dict[str, str] = {}
    for name, arm in study.file.arms.items():
        if study.models[arm.model].endpoint is None:
            place = f"arms.{name}.engine" if arm.engine else "engine.name"
            place_of_kind[study.engine(name)] = place
    if study.file.scores:
        place_of_kind[study.file.engine.name] = "engine.name"
    for kind, place in sorted(place_of_kind.items()):
        try:
            check_settings(kind, _engine_settings(study, kind))
        except UserError as error:
            raise UserError(f"{place}: {error}") from None


def check_verifiers(study: Study) -> None:
    """Refuse a verifier that does not exist, before a model is loaded.

    A verifier is one of the package, a plugin, or a Python file. ``nearest`` gives the known names
    that look like a mistyped one.
    """
    known_kinds = (*KINDS, *plugins.installed("verifiers"))
    for name, problem_set in study.problem_sets.items():
        kind = problem_set.verifier
        if kind is not None and kind not in known_kinds and not plugins.is_file(kind):
            raise UserError(
                f"problem_sets.{name}.verifier: found {kind!r}; allowed: "
                f"{', '.join(known_kinds)}, or a file such as ./mine.py{nearest(kind, known_kinds)}"
            )


def _engine_settings(study: Study, kind: str) -> dict[str, Any]:
    """Options for the engine of this kind from the study file, with its data type and its GPUs."""
    settings: dict[str, Any] = dict(study.file.engine.options)
    if study.file.engine.dtype != "auto":
        settings["dtype"] = study.file.engine.dtype
    if kind == "vllm":
        settings["tensor_parallel"] = study.file.engine.tensor_parallel
    return settings


def reject_unseen_images(engine: Engine, arm: str, problems: Iterable[Problem]) -> None:
    """Refuse problems with images where the engine cannot show its model any.

    A model that does not see the figure of a question would only seem to fail at it.
    """
    with_images = [problem.id for problem in problems if problem.images]
    if with_images and not engine.sees:
        raise UserError(
            f"arm {arm}: {with_images[0]} has images, and this engine cannot show its model any; "
            "take a vision model with the vllm engine"
        )


def model_to_load(study: Study, model: str, step: int) -> Path:
    """Folder that an engine can load: the checkpoint itself, or what is made of it.

    ``step``: training step of ``model``; at step 0 of a trained line it is its parent's last.
    ``check_weights`` refuses weights that changed since the study began. ``model_folder`` turns a
    checkpoint of another form, such as an adapter or weights in pieces, into a model folder, which
    is named by the checkpoint's digest. ``base`` is the model that it was trained from, where the
    checkpoint is none by itself (``needs_base``).
    """
    parent = study.base(model)
    if step == 0 and study.models[model].steps is not None and parent is not None:
        return model_to_load(study, parent, study.last_step(parent))
    check_weights(study, model, step)
    folder = study.folder(model, step)
    if study.models[model].path is None or not folder.is_dir():
        return folder
    base = None
    if needs_base(folder) and parent is not None:
        base = model_to_load(study, parent, study.last_step(parent))
    return model_folder(folder, base, study.layout.converted(study.digests[model][step]))
