"""What a training step is described by: its metrics, their files, and the line that is shown.

Names follow verl's, so that curves can be laid over each other. Only what the same run always
gives again stands in dynamics.jsonl and rollouts.jsonl; times and speeds belong to an attempt
and stand apart, in timings.jsonl.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rlbhpc import files
from rlbhpc.store import tables
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.store.tables import log_lines
from rlbhpc.sweep.process import LINE_SECONDS, duration
from rlbhpc.train.batch import Rollout


def describe(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Reward, length, entropy and the share of groups without a signal, over one rollout."""
    every = np.array([r.reward for r in rollouts])
    scored = ~np.isnan(every)
    rewards = every[scored] if scored.any() else every
    lengths = np.array([len(r.response.token_ids) for r in rollouts])
    correct = np.array([r.correct for r in rollouts])
    groups = np.array([r.group for r in rollouts])
    members = [groups == g for g in np.unique(groups)]
    return {
        "critic/rewards/mean": float(rewards.mean()),
        "critic/rewards/std": float(rewards.std()),
        "critic/score/mean": float(correct.mean()),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": float(np.mean([r.truncated for r in rollouts])),
        "actor/entropy": math.fsum(r.entropy_sum for r in rollouts) / int(lengths.sum()),
        "frac_reward_zero_std": float(
            np.mean([len(np.unique(every[m & scored])) < 2 for m in members])
        ),
        "frac_unscored": float(np.mean(~scored)),
        "frac_all_correct": float(np.mean([correct[m].all() for m in members])),
        "frac_all_wrong": float(np.mean([not correct[m].any() for m in members])),
    }


class StepLog:
    """A file of JSON lines, each with the training step that it belongs to.

    A run that goes on from step s first drops the lines after s: it will write them again, the
    same.
    """

    def __init__(self, path: Path, resumed_at: int) -> None:
        rows = [row for row in log_lines(path) if row["step"] <= resumed_at]
        files.put(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self._path = path

    def append(self, step: int, row: Mapping[str, Any]) -> None:
        """Add one line."""
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **dict(sorted(row.items()))}) + "\n")


class Logs:
    """The files that a run leaves beside its training state; rank 0 alone writes them.

    What of a step enters the cube, a row for every response that was sampled, is held until a state
    is saved: ``flush`` goes before a model or a state is saved and ``settle`` after a state.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        names = ("dynamics", "rollouts", "timings")
        self._files = {name: StepLog(folder / f"{name}.jsonl", resumed_at) for name in names}
        self._cube = folder / "rollouts"
        self._rows: list[dict[str, Any]] = []
        self._cube.mkdir(exist_ok=True)
        self.settle(resumed_at)

    def results(self, step: int, metrics: Mapping[str, float], rollouts: Sequence[Rollout]) -> None:
        """What the step found, the same whenever it is run again, and two responses to read."""
        self._files["dynamics"].append(step, metrics)
        for r in rollouts[:2]:
            row = {
                "problem": r.problem,
                "text": r.text,
                "correct": r.correct,
                "reward": None if math.isnan(r.reward) else r.reward,
                "tokens": len(r.response.token_ids),
                "truncated": r.truncated,
            }
            self._files["rollouts"].append(step, row)

    def sampled(
        self,
        step: int,
        rollouts: Sequence[Rollout],
        chosen: Sequence[Rollout],
        advantages: Sequence[float],
    ) -> None:
        """Keep what was sampled, with the rewards and advantages of what was learnt from."""
        pairs = zip(chosen, advantages, strict=True)
        learnt = {id(r.response): (r.reward, advantage) for r, advantage in pairs}
        seen: Counter[str] = Counter()
        for rollout in rollouts:
            verdict = rollout.verdict
            reward, advantage = learnt.get(id(rollout.response), (rollout.reward, math.nan))
            self._rows.append({
                "train_step": step,
                "problem": rollout.problem,
                "rollout": seen[rollout.problem],
                "group": rollout.group,
                "verdict": int(verdict.status),
                "answer": answer_id(verdict.canonical) if verdict.canonical else -1,
                "n_tokens": len(rollout.response.token_ids),
                "logprob_sum": float(rollout.sampler_logprobs.sum(dtype="float64")),
                "entropy_sum": rollout.entropy_sum,
                "reward": reward,
                "advantage": advantage,
            })  # fmt: skip
            seen[rollout.problem] += 1

    def times(self, step: int, ends: Mapping[str, float], rollouts: Sequence[Rollout]) -> None:
        """How long the step took: per part, and tokens (prompts included) per second in all.

        ``ends`` are the moments at which the step began and each of its parts ended.
        """
        tokens = sum(len(r.response.prompt_ids) + len(r.response.token_ids) for r in rollouts)
        row = {
            f"timing_s/{part}": end - begin for (_, begin), (part, end) in pairwise(ends.items())
        }
        total = sum(row.values())
        row |= {"timing_s/step": total, "perf/throughput": tokens / total}
        self._files["timings"].append(step, row)

    def flush(self) -> None:
        """Write the rows that are held."""
        if self._rows:
            tables.add_rollouts(
                self._cube, pa.Table.from_pylist(self._rows, schema=tables.ROLLOUT_ROWS)
            )
            self._rows = []

    def settle(self, step: int) -> None:
        """Drop parts of rows that the saved ones contain."""
        tables.settle_rollouts(self._cube, step)


log = logging.getLogger(__name__)

# What is called with each finished step and its metrics.
Progress = Callable[[int, dict[str, float]], None]

# What the line shows of a step, with the words it uses.
SHOWN = {
    "sft/loss": "loss",
    "critic/rewards/mean": "reward",
    "response_length/mean": "length",
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad",
}

# KL between sampler and trainer, nat per token, from which on they are no longer one policy.
MISMATCH = 1e-2
WARNING = (
    "\nsampler and trainer disagree at step {}: rollout_corr/kl is {:.2g}. Train in a wider "
    "`dtype`, or sample with `rollouts: hf`\n"
)


class TrainingLine:
    """Steps done, what the last one looked like, and time to go; rank 0 alone speaks."""

    def __init__(self, model: str, steps: int) -> None:
        self._model, self._steps = model, steps
        self._stream = sys.stderr
        self._live = self._stream.isatty()
        self._quiet = os.environ.get("RANK", "0") != "0"
        self._first: int | None = None
        self._start = self._said = time.monotonic()
        self._text = ""
        self._warned = False

    def show(self, step: int, metrics: dict[str, float]) -> None:
        """Take note of one finished step."""
        log.debug("%s: step %d of %d: %s", self._model, step, self._steps, metrics)
        now = time.monotonic()
        self._first = step - 1 if self._first is None else self._first
        seconds_left = (now - self._start) / (step - self._first) * (self._steps - step)
        words = [f"{word} {metrics[name]:.3g}" for name, word in SHOWN.items() if name in metrics]
        self._text = " · ".join(
            [f"{self._model}: step {step}/{self._steps}", *words, f"{duration(seconds_left)} to go"]
        )
        if metrics.get("rollout_corr/kl", 0.0) > MISMATCH and not (self._quiet or self._warned):
            self._warned = True
            self._write()
            self._stream.write(WARNING.format(step, metrics["rollout_corr/kl"]))
        if not self._quiet and now - self._said >= (0.2 if self._live else LINE_SECONDS):
            self._said = now
            self._write()

    def finish(self) -> None:
        """Say the final state."""
        if self._text and not self._quiet:
            self._write()
            if self._live:
                self._stream.write("\n")

    def _write(self) -> None:
        self._stream.write(f"\r\x1b[2K{self._text}" if self._live else f"{self._text}\n")
        self._stream.flush()
