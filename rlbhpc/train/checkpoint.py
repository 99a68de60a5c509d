"""Two kinds of checkpoint: the training state to go on from, and a model folder to sample from.

Both are written under a name that ends in ``.partial`` and renamed when they are complete, so a
folder with its final name is whole, whatever was killed when. A leftover ``.partial`` is removed by
the next save.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist

from rlbhpc.engines.folder import follow_umask
from rlbhpc.errors import UserError
from rlbhpc.files import sync_folder
from rlbhpc.study.lineage import read_origin, record_checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.learner import Learner
from rlbhpc.train.rollout import Export

log = logging.getLogger(__name__)

KEPT_STATES = 2
# The reference's weights in a training state, where an algorithm has renewed it.
REFERENCE_FILE = "reference.pt"
# What a state says of itself, written last.
PROGRESS_FILE = "progress.json"
# What sampling needs beside weights and config.json; copied from the base as it is.
COMPANIONS = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "tekken.json", "chat_template*", "*processor_config.json", "generation_config.json",
)  # fmt: skip


def save_state(learner: Learner, folder: Path, step: int, progress: dict[str, Any]) -> None:
    """Save optimisers, weights and progress of all ranks after ``step``; keep the last two states.

    A *state* is a folder from which training can go on. ``progress`` says how far the run is.
    ``_commit_folder`` gives all ranks a folder to fill and renames it when all have done so.
    """
    final = folder / f"step-{step:08d}"
    if final.exists():
        return
    is_first_rank = dist.get_rank() == 0
    with _commit_folder(final) as partial:
        ds.save(learner.policy, partial, "policy")
        if learner.critic is not None:
            ds.save(learner.critic, partial, "critic")
        if learner.reference is not None and learner.reference_was_renewed:
            _save_reference(learner, partial / REFERENCE_FILE)
        dist.barrier()
        if is_first_rank:
            record = {
                **progress,
                "step": step,
                "ranks": dist.get_world_size(),
                "zero_stage": learner.settings.zero_stage,
                "offload": learner.settings.offload,
                "bytes": _file_sizes(partial),
            }
            (partial / PROGRESS_FILE).write_text(json.dumps(record, indent=1, sort_keys=True))
    log.debug("saved %s", final)
    if is_first_rank:
        for old_state in list_states(folder)[:-KEPT_STATES]:
            shutil.rmtree(old_state)


def _save_reference(learner: Learner, path: Path) -> None:
    """Write the reference's weights on rank 0; every rank must call it."""
    is_first_rank = dist.get_rank() == 0
    weights = {}
    for name, weight in learner.named_reference_weights():
        if is_first_rank:
            weights[name] = weight.cpu()
    if is_first_rank:
        torch.save(weights, path)


def list_states(folder: Path) -> list[Path]:
    """Complete training states, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.suffix != ".partial")


def read_progress(state: Path) -> dict[str, Any] | None:
    """Progress that a state was saved with; None if one of its files is missing or too short.

    The progress file is written last and lists the size of every other file of the state. A host
    that fails, or a disk that is full, can leave a file of a renamed folder short.
    """
    try:
        progress: dict[str, Any] = json.loads((state / PROGRESS_FILE).read_text())
    except (ValueError, FileNotFoundError):
        return None
    saved_sizes = progress.get("bytes", {})
    sizes = _file_sizes(state)
    is_whole = all(sizes.get(name) == size for name, size in saved_sizes.items())
    return progress if is_whole else None


def _remove_damaged_states(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest whole training state and its progress, once damaged newer ones are removed.

    None if there are no states at all.
    """
    states = list_states(folder)
    for state in reversed(states):
        progress = read_progress(state)
        if progress is not None:
            return state, progress
        click.echo(f"{state}: damaged, and removed; an older state is tried", err=True)
        shutil.rmtree(state)
    if states:
        raise UserError(f"{folder}: no state of this training is whole; run again to start anew")
    return None


def load_state(learner: Learner, folder: Path, identity: str) -> dict[str, Any] | None:
    """Load the newest whole state and return its progress; None if there is none.

    A *state* has the weights and optimisers of a step, and the progress that goes with them.
    ``identity`` is the digest of everything that must not change within a run. The reference, the
    frozen policy of the penalty, is in a state only where the algorithm has renewed it.
    """
    # One rank decides for all: others may see a shared folder a moment later.
    broadcast: list[Any] = [None]
    if dist.get_rank() == 0:
        broadcast = [_remove_damaged_states(folder)]
    dist.broadcast_object_list(broadcast, device=learner.device)
    if broadcast[0] is None:
        return None
    state, progress = broadcast[0]
    if progress["identity"] != identity:
        raise UserError(
            f"{state}: this state was made with other settings, another base model or other "
            f"problems; go on with those, or remove {folder} to start anew"
        )
    ds.load(learner.policy, state, "policy", progress["ranks"])
    if learner.critic is not None:
        ds.load(learner.critic, state, "critic", progress["ranks"])
    reference_file = state / REFERENCE_FILE
    if learner.reference is not None and reference_file.is_file():
        weights = torch.load(reference_file, mmap=True, map_location="cpu", weights_only=True)
        learner.set_reference(weights.items())
    return progress


def export_model(learner: Learner, base: Path, export: Export | None) -> None:
    """Write the policy as a Hugging Face folder, if one is due; every rank must call it.

    ``export`` says where the model of this step goes and what made it; None if this step keeps
    none. ``base`` is the model that training started from: its tokeniser files are copied. Save the
    step's state before: once the last model is there, nobody runs the training again. The record in
    a model folder says which training made it (``made_by``) and in which run.
    """
    if export is None:
        return
    final = export.folder
    if final.exists():
        origin = read_origin(final)
        if origin is not None and (origin.made_by, origin.run) == (export.made_by, export.run):
            return  # by this run, before it was killed and went on from an earlier step
        raise UserError(
            f"{final}: a model of another training is in the place of this one's; move it away"
        )
    weights = {name: tensor.cpu() for name, tensor in learner.named_weights()}
    with _commit_folder(final) as partial:
        if dist.get_rank() == 0:
            learner.policy.module.model.save_pretrained(partial, state_dict=weights)
            follow_umask(partial)
            for pattern in COMPANIONS:
                for file in base.glob(pattern):
                    shutil.copyfile(file, partial / file.name)
            record_checkpoint(partial, export.made_by, export.run)


@contextmanager
def _commit_folder(final: Path) -> Iterator[Path]:
    """Give all ranks a folder to fill, and rename it to ``final`` once all have filled it.

    So a folder with its final name is always whole. Its files are flushed to disk before.
    """
    partial = final.with_name(final.name + ".partial")
    if dist.get_rank() == 0:
        for leftover in final.parent.glob("*.partial"):  # of a killed run
            shutil.rmtree(leftover)
        partial.mkdir(parents=True)
    dist.barrier()
    yield partial
    # Every rank: on a shared file system only the host that wrote a file can flush it.
    for name in _file_sizes(partial):
        with (partial / name).open("rb") as file:
            os.fsync(file.fileno())
    dist.barrier()
    if dist.get_rank() == 0:
        partial.rename(final)
        sync_folder(final.parent)
    dist.barrier()


def _file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file below a folder, by its path in the folder."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
