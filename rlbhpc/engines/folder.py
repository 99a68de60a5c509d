"""What the configuration files of a model folder say, read without loading the model."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import util
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.study import lineage


def configuration(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder in the Hugging Face layout."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder}: no config.json; a model is a folder in the Hugging Face layout")
    config: dict[str, Any] = json.loads(path.read_text())
    return config


def follow_umask(folder: Path) -> None:
    """Let who may read ``config.json`` read the weights: safetensors makes files for one user."""
    mode = (folder / "config.json").stat().st_mode
    for path in folder.glob("*.safetensors"):
        path.chmod(mode & 0o777)


def context_length(folder: Path) -> int:
    """Tokens, prompt and response together, that a model can hold.

    ``stated_length`` reads it from ``config.json``. Where the file leaves it to the family, as
    Gemma 3's do, it is what transformers takes.
    """
    length = lineage.stated_length(configuration(folder))
    if length is None:
        from transformers import AutoConfig

        with contextlib.suppress(OSError, ValueError, AttributeError):
            length = AutoConfig.from_pretrained(folder).get_text_config().max_position_embeddings
    if length is None:
        raise UserError(f"{folder}/config.json: does not say how many positions the model has")
    return length


def steady_length(folder: Path) -> int:
    """As many as ``hf`` and training hold."""
    return lineage.steady_length(configuration(folder)) or context_length(folder)


def sees(folder: Path) -> bool:
    """Whether a model has a vision tower."""
    return "vision_config" in configuration(folder)


def end_ids(folder: Path) -> set[int]:
    """End-of-text ids that the configuration files name; chat models have several of them."""
    end_tokens: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.is_file():
            ids = json.loads(path.read_text()).get("eos_token_id")
            end_tokens |= set(ids) if isinstance(ids, list) else {ids} - {None}
    return end_tokens


def weight_files(folder: Path) -> list[Path]:
    """Safetensors files that transformers reads: one file, or those that the index names.

    Some folders have the weights once more for another program, as those of Mistral have.
    """
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    places = json.loads(index.read_text())["weight_map"].values()
    return sorted(folder / name for name in set(places))


def weight_bytes(folder: Path, dtype: str) -> int:
    """Bytes that a model's weights take in memory at least, as numbers of type ``dtype``.

    A model without data is built to count its parameters. The size of the files stands in where
    torch is missing, or where it cannot count the weights: models with code of their own
    (``auto_map``), and quantised ones.
    """
    config = configuration(folder)
    is_countable = not config.keys() & {"quantization_config", "auto_map"}
    if not is_countable or util.find_spec("torch") is None:
        return sum(path.stat().st_size for path in weight_files(folder))
    from rlbhpc.engines.hf_model import make_module_without_data  # loads torch

    parameters = sum(weight.numel() for weight in make_module_without_data(folder).parameters())
    return parameters * (4 if dtype == "float32" else 2)


# ---- staging -------------------------------------------------------------------------------------
# Copy a model to the node's own disk, once for all tasks that run there.
#
# A hundred tasks that start at once and read the same 60 GB from a parallel file system wait for
# each other, and so does everybody else. With ``RLBHPC_STAGE`` set to a folder on the node, the
# first task copies, the others wait for it, and all of them load the copy.


VARIABLE: Final = "RLBHPC_STAGE"
# What must stay free on the node's disk after a copy, for compiler caches and scratch files.
SPARE: Final = 2 * 1024**3

log = logging.getLogger(__name__)
# Open files whose locks say that this process uses a copy; they live as long as the process.
_in_use: dict[Path, int] = {}


def staged(model: Path) -> Path:
    """The copy of a model folder on this node, or the folder itself where none can be had.

    The environment variable ``RLBHPC_STAGE`` names a folder on the node's own disk; without it
    nothing is copied. A copy is named after what it was made from (place, names, sizes and times of
    change), so a model that has been changed is copied anew. ``_hold_copy`` marks the copy as used
    by this process; one that no process uses makes room for another.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return model
    stage = Path(named)
    copy = stage / _copy_name(model)
    try:
        stage.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (stage / "lock").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)  # one copies, the others wait for the whole copy
            _hold_copy(copy)
            if not copy.is_dir():
                _copy_model(model, copy)
    except OSError as error:
        log.warning("%s is read from where it lies, not from %s: %s", model, stage, error)
        return model
    return copy


def _model_files(model: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path in sorted(model.iterdir()):
        if path.is_file():
            yield path.name, path.stat()


def _copy_name(model: Path) -> str:
    facts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in _model_files(model)]
    return hashlib.sha256(repr((str(model.resolve()), facts)).encode()).hexdigest()[:16]


def _hold_copy(copy: Path) -> None:
    """Hold a shared lock beside the copy for as long as this process lives."""
    if copy not in _in_use:
        fd = os.open(copy.with_suffix(".used"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _in_use[copy] = fd


def _copy_model(model: Path, copy: Path) -> None:
    """Copy a model into a folder that gets its name when it is whole.

    ``SPARE`` bytes stay free on the disk beside it.
    """
    needed = sum(stat.st_size for _, stat in _model_files(model)) + SPARE
    _make_room(copy.parent, needed)
    partial = copy.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, _ in _model_files(model):
        shutil.copyfile(model / name, partial / name)
    partial.rename(copy)


def _make_room(stage: Path, needed: int) -> None:
    """Remove copies that nobody uses, and what was left half done, until there is room.

    ``needed`` is in bytes. A copy is in use while a process holds a lock on the file ``.used`` of
    the same name.
    """
    for path in sorted(stage.iterdir()):
        if shutil.disk_usage(stage).free >= needed:
            return
        if path.is_dir() and not _is_held(path.with_suffix(".used")):
            shutil.rmtree(path, ignore_errors=True)
            path.with_suffix(".used").unlink(missing_ok=True)
    free = shutil.disk_usage(stage).free
    if free < needed:
        raise OSError(f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed")


def _is_held(lock: Path) -> bool:
    with lock.open("a") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True
