"""Supervised fine-tuning: pre-training of toy bases, and distillation from a teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from rlbhpc.errors import DONE, TRY_AGAIN
from rlbhpc.sweep.drain import Drain
from rlbhpc.train import checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.dynamics import StepLog
from rlbhpc.train.learner import Learner
from rlbhpc.train.rollout import draw_order
from rlbhpc.train.settings import Settings


@dataclass(frozen=True)
class Distillation:
    """One fine-tuning run.

    ``settings.prompts_per_step`` × ``settings.samples_per_prompt`` is the number of pairs per
    optimiser step; the loss is the mean negative log-likelihood of their response tokens at
    temperature 1. Prompts are read and never learnt.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, checkpoint.Export]
    settings: Settings
    pairs: Sequence[Response]

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on."""
        digest = hashlib.sha256((self.base / "config.json").read_bytes())
        s = self.settings
        rate = (s.learning_rate, s.warmup_steps, s.half_life)
        digest.update(repr((s.seed, *rate, s.weight_decay)).encode())
        digest.update(repr((s.prompts_per_step, s.samples_per_prompt, s.zero_stage)).encode())
        if s.lora_rank:  # left out at its default, so that no run from before it is another now
            digest.update(repr(s.lora_rank).encode())
        for pair in self.pairs:
            digest.update(repr(pair.prompt_ids).encode() + pair.token_ids.tobytes())
        return digest.hexdigest()[:16]


def fine_tune(
    run: Distillation,
    drain: Drain,
    progress: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
) -> int:
    """Train to the last step, or until drained. Returns an exit code; again goes on from there."""
    s = run.settings
    learner = Learner(run.base, s, Algorithm())
    saved = checkpoint.load_state(learner, run.folder / "state", run.identity) or {}
    step = int(saved.get("step", 0))
    dynamics = StepLog(run.folder / "dynamics.jsonl", step) if dist.get_rank() == 0 else None
    per_step = s.prompts_per_step * s.samples_per_prompt
    checkpoint.export_model(learner, run.base, run.exports.get(step))
    try:
        while step < s.steps:
            drawn = draw_order(s.seed, len(run.pairs), step * per_step, per_step)
            step += 1
            metrics = learner.imitate([run.pairs[i] for i in drawn], step)
            if dynamics is not None:
                dynamics.append(step, metrics)
            stopping = ds.any_rank(drain.requested)
            if step % s.save_every == 0 or step == s.steps or stopping:
                state = {"identity": run.identity}
                checkpoint.save_state(learner, run.folder / "state", step, state)
            checkpoint.export_model(learner, run.base, run.exports.get(step))
            progress(step, metrics)
            if stopping and step < s.steps:
                return TRY_AGAIN
    finally:
        if dynamics is not None:
            dynamics.close()
    return DONE
