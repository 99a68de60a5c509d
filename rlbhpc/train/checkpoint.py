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
from itertools import chain
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
# The reference in a training state, where it is no longer the model that training began from.
REFERENCE = "reference.pt"
# What a state says of itself, written last.
PROGRESS = "progress.json"
# What sampling needs beside weights and config.json; copied from the base as it is.
COMPANIONS = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "tekken.json", "chat_template*", "*processor_config.json", "generation_config.json",
)  # fmt: skip


def save_state(learner: Learner, folder: Path, step: int, progress: dict[str, Any]) -> None:
    """Save optimisers, weights and progress of all ranks after ``step``; keep the last two."""
    final = folder / f"step-{step:08d}"
    if final.exists():
        return
    with _commit_folder(final) as partial:
        ds.save(learner.policy, partial, "policy")
        if learner.critic is not None:
            ds.save(learner.critic, partial, "critic")
        if learner.renewed and learner.reference is not None and dist.get_rank() == 0:
            torch.save(learner.reference.state_dict(), partial / REFERENCE)
        dist.barrier()
        if dist.get_rank() == 0:
            record = {**progress, "step": step, "ranks": dist.get_world_size()}
            record |= {name: getattr(learner.settings, name) for name in ("zero_stage", "offload")}
            record["bytes"] = {
                str(path.relative_to(partial)): path.stat().st_size
                for path in _files_below(partial)
            }
            (partial / PROGRESS).write_text(json.dumps(record, indent=1, sort_keys=True))
    log.debug("saved %s", final)
    if dist.get_rank() == 0:
        for old in states(folder)[:-KEPT_STATES]:
            shutil.rmtree(old)


def states(folder: Path) -> list[Path]:
    """Complete training states, oldest first."""
    return sorted(p for p in folder.glob("step-*") if p.suffix != ".partial")


def read_progress(state: Path) -> dict[str, Any] | None:
    """Progress that a state was saved with; None if one of its files is not as it was written.

    A host that fails, or a disk that is full, can leave a file of a renamed folder short.
    """
    try:
        progress: dict[str, Any] = json.loads((state / PROGRESS).read_text())
    except (ValueError, FileNotFoundError):
        return None
    for name, size in progress.get("bytes", {}).items():
        file = state / name
        if not file.is_file() or file.stat().st_size != size:
            return None
    return progress


def _newest_whole_state(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest state that is whole, and its progress; damaged ones are removed and told of."""
    saved = states(folder)
    for state in reversed(saved):
        progress = read_progress(state)
        if progress is not None:
            return state, progress
        click.echo(f"{state}: damaged, and removed; an older state is tried", err=True)
        shutil.rmtree(state)
    if saved:
        raise UserError(f"{folder}: no state of this training is whole; run again to start anew")
    return None


def load_state(learner: Learner, folder: Path, identity: str) -> dict[str, Any] | None:
    """Go on from the newest whole state; None if there is none.

    ``identity`` is the digest of everything that must not change within a run.
    """
    # One rank decides for all: others may see a shared folder a moment later.
    found: list[Any] = [None]
    if dist.get_rank() == 0:
        found = [_newest_whole_state(folder)]
    dist.broadcast_object_list(found, device=learner.device)
    if found[0] is None:
        return None
    state, progress = found[0]
    if progress["identity"] != identity:
        raise UserError(
            f"{state}: this state was made with other settings, another base model or other "
            f"problems; go on with those, or remove {folder} to start anew"
        )
    ds.load(learner.policy, state, "policy", progress["ranks"])
    if learner.critic is not None:
        ds.load(learner.critic, state, "critic", progress["ranks"])
    if learner.reference is not None and (state / REFERENCE).is_file():
        weights = torch.load(state / REFERENCE, map_location=learner.device, weights_only=True)
        learner.reference.load_state_dict(weights)
        learner.renewed = True
    return progress


def export_model(learner: Learner, base: Path, export: Export | None) -> None:
    """Write the policy as a Hugging Face folder, if one is due; every rank must call it.

    The step's state goes before it: who finds the last model never comes back for anything.
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
            for file in filter(Path.is_file, chain(*map(base.glob, COMPANIONS))):
                shutil.copyfile(file, partial / file.name)
            record_checkpoint(partial, export.made_by, export.run)


@contextmanager
def _commit_folder(final: Path) -> Iterator[Path]:
    """Give a folder to fill on all ranks; rename it once all of them are through."""
    partial = final.with_name(final.name + ".partial")
    if dist.get_rank() == 0:
        for left in final.parent.glob("*.partial"):  # by a kill, perhaps after another step
            shutil.rmtree(left)
        partial.mkdir(parents=True)
    dist.barrier()
    yield partial
    # Every rank: on a shared file system only the host that wrote a file can flush it.
    for path in _files_below(partial):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    dist.barrier()
    if dist.get_rank() == 0:
        partial.rename(final)
        sync_folder(final.parent)
    dist.barrier()


def _files_below(folder: Path) -> Iterator[Path]:
    return filter(Path.is_file, folder.rglob("*"))
