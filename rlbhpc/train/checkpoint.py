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
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlbhpc.engines.folder import follow_umask
from rlbhpc.errors import UserError
from rlbhpc.files import sync_folder
from rlbhpc.study.origin import read_origin, record_checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.learner import Learner

log = logging.getLogger(__name__)

KEPT_STATES = 2
# The reference in a training state, where it is no longer the model that training began from.
REFERENCE = "reference.pt"
# How images are cut; transformers 5 writes the second where older versions wrote the first.
EYES = ("preprocessor_config.json", "processor_config.json")
# What sampling needs beside weights and config.json; copied from the base as it is.
COMPANIONS = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "tekken.json", "chat_template*", "*processor_config.json", "generation_config.json",
)  # fmt: skip


@dataclass(frozen=True)
class Export:
    """Where the model of one step goes, and what its record says of it: see ``study.origin``."""

    folder: Path
    made_by: str
    run: str


def save_state(learner: Learner, folder: Path, step: int, progress: dict[str, Any]) -> None:
    """Save optimisers, weights and progress of all ranks after ``step``; keep the last two."""
    final = folder / f"step-{step:08d}"
    if final.exists():
        return
    with _committed(final) as partial:
        learner.policy.save_checkpoint(str(partial), tag="policy")
        if learner.critic is not None:
            learner.critic.save_checkpoint(str(partial), tag="critic")
        if dist.get_rank() == 0:
            if learner.renewed and learner.reference is not None:
                torch.save(learner.reference.state_dict(), partial / REFERENCE)
            record = {**progress, "step": step, "ranks": dist.get_world_size()}
            record |= {name: getattr(learner.settings, name) for name in ("zero_stage", "offload")}
            (partial / "progress.json").write_text(json.dumps(record, indent=1, sort_keys=True))
    log.debug("saved %s", final)
    if dist.get_rank() == 0:
        for old in states(folder)[:-KEPT_STATES]:
            shutil.rmtree(old)


def states(folder: Path) -> list[Path]:
    """Complete training states, oldest first."""
    return sorted(p for p in folder.glob("step-*") if p.suffix != ".partial")


def load_state(learner: Learner, folder: Path, identity: str) -> dict[str, Any] | None:
    """Go on from the newest state; None if there is none.

    ``identity`` is the digest of everything that must not change within a run.
    """
    saved = states(folder)
    if not saved:
        return None
    progress: dict[str, Any] = json.loads((saved[-1] / "progress.json").read_text())
    if progress["identity"] != identity:
        raise UserError(
            f"{saved[-1]}: this state was made with other settings, another base model or other "
            f"problems; go on with those, or remove {folder} to start anew"
        )
    ds.load(learner.policy, saved[-1], "policy", progress["ranks"])
    if learner.critic is not None:
        ds.load(learner.critic, saved[-1], "critic", progress["ranks"])
    if learner.reference is not None and (saved[-1] / REFERENCE).is_file():
        weights = torch.load(saved[-1] / REFERENCE, map_location=learner.device, weights_only=True)
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
    with _committed(final) as partial:
        if dist.get_rank() == 0:
            learner.policy.module.model.save_pretrained(partial, state_dict=weights)
            follow_umask(partial)
            for file in filter(Path.is_file, chain(*map(base.glob, COMPANIONS))):
                shutil.copyfile(file, partial / file.name)
            record_checkpoint(partial, export.made_by, export.run)


@contextmanager
def _committed(final: Path) -> Iterator[Path]:
    """Give a folder to fill on all ranks; rename it once all of them are through."""
    partial = final.with_name(final.name + ".partial")
    if dist.get_rank() == 0:
        for left in final.parent.glob("*.partial"):  # by a kill, perhaps after another step
            shutil.rmtree(left)
        partial.mkdir(parents=True)
    dist.barrier()
    yield partial
    dist.barrier()
    if dist.get_rank() == 0:
        for path in filter(Path.is_file, partial.rglob("*")):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        partial.rename(final)
        sync_folder(final.parent)
    dist.barrier()
