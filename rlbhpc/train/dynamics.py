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
    """Metrics of some rollouts: reward, length, entropy, and the share of groups without a signal.

    A rollout is one sampled and judged response; a group is all responses to one prompt. The reward
    is NaN where a response could not be scored. A group whose rewards are all equal teaches
    nothing.
    """
    all_rewards = np.array([rollout.reward for rollout in rollouts])
    is_scored = ~np.isnan(all_rewards)
    rewards = all_rewards[is_scored] if is_scored.any() else all_rewards
    lengths = np.array([len(rollout.response.model_ids) for rollout in rollouts])
    is_correct = np.array([rollout.correct for rollout in rollouts])
    groups = np.array([rollout.group for rollout in rollouts])
    # For each group, which of the rollouts belong to it.
    is_member = [groups == group for group in np.unique(groups)]
    equal_rewards = [len(np.unique(all_rewards[of & is_scored])) < 2 for of in is_member]
    entropy_sum = math.fsum(rollout.entropy_sum for rollout in rollouts)
    n_turns = np.array([rollout.n_turns for rollout in rollouts])
    return {
        **({"num_turns/mean": float(n_turns.mean())} if n_turns.any() else {}),
        "critic/rewards/mean": float(rewards.mean()),
        "critic/rewards/std": float(rewards.std()),
        "critic/score/mean": float(is_correct.mean()),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": float(np.mean([r.truncated for r in rollouts])),
        "actor/entropy": entropy_sum / int(lengths.sum()),
        "frac_reward_zero_std": float(np.mean(equal_rewards)),
        "frac_unscored": float(np.mean(~is_scored)),
        "frac_all_correct": float(np.mean([is_correct[of].all() for of in is_member])),
        "frac_all_wrong": float(np.mean([not is_correct[of].any() for of in is_member])),
    }


class StepLog:
    """A file of JSON lines, each with the training step that it belongs to.

    A run that goes on from a step first drops the lines after it: it will write them again, the
    same.
    """

    def __init__(self, path: Path, resumed_step: int) -> None:
        rows = [row for row in log_lines(path) if row["step"] <= resumed_step]
        files.put(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self._path = path

    def append(self, step: int, row: Mapping[str, Any]) -> None:
        """Add one line."""
        sorted_row = dict(sorted(row.items()))
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **sorted_row}) + "\n")


class Logs:
    """The files that a run leaves beside its training state; rank 0 alone writes them.

    The rows for the cube, one for every response that was sampled, are held in memory until a
    state is saved: call ``flush`` before that and ``settle`` after it.
    """

    def __init__(self, folder: Path, resumed_step: int) -> None:
        """Open the log files in ``folder`` and drop their lines on steps after ``resumed_step``.

        A run that goes on writes those steps again.
        """
        self._dynamics = StepLog(folder / "dynamics.jsonl", resumed_step)
        self._examples = StepLog(folder / "rollouts.jsonl", resumed_step)
        self._timings = StepLog(folder / "timings.jsonl", resumed_step)
        self._rollout_folder = folder / "rollouts"
        self._rollout_folder.mkdir(exist_ok=True)
        self._held_rows: list[dict[str, Any]] = []
        self.settle(resumed_step)

    def add_metrics(
        self, step: int, metrics: Mapping[str, float], rollouts: Sequence[Rollout]
    ) -> None:
        """Write the step's metrics, which a repeated run gives again, and two responses to read.

        A rollout is one sampled and judged response; its reward is NaN where it could not be
        scored.
        """
        self._dynamics.append(step, metrics)
        for rollout in rollouts[:2]:
            row = {
                "problem": rollout.problem,
                "text": rollout.text,
                "correct": rollout.correct,
                "reward": None if math.isnan(rollout.reward) else rollout.reward,
                "tokens": len(rollout.response.model_ids),
                "truncated": rollout.truncated,
            }
            self._examples.append(step, row)

    def hold_rollouts(
        self,
        step: int,
        sampled: Sequence[Rollout],
        lessons: Sequence[Rollout],
        advantages: Sequence[float],
    ) -> None:
        """Hold a row for each sampled response, with the reward and advantage of the lessons.

        ``lessons`` are the sampled responses that were learnt from, maybe with another reward;
        ``advantages`` has one mean for each. Both lists share the ``response`` objects, by whose
        identity a lesson is found. A response that was not learnt from has advantage NaN.
        ``answer_id`` is the number by which an answer is stored, −1 where there is none.
        """
        learnt: dict[int, tuple[float, float]] = {}
        for lesson, advantage in zip(lessons, advantages, strict=True):
            # A lesson may be a copy of its rollout, with the very same response.
            learnt[id(lesson.response)] = lesson.reward, advantage
        times_sampled: Counter[str] = Counter()
        for rollout in sampled:
            verdict = rollout.verdict
            reward, advantage = learnt.get(id(rollout.response), (rollout.reward, math.nan))
            row = {
                "train_step": step,
                "problem": rollout.problem,
                "rollout": times_sampled[rollout.problem],
                "group": rollout.group,
                "verdict": int(verdict.status),
                "answer": answer_id(verdict.canonical) if verdict.canonical else -1,
                "n_tokens": len(rollout.response.model_ids),
                "logprob_sum": float(rollout.sampler_logprobs.sum(dtype="float64")),
                "entropy_sum": rollout.entropy_sum,
                "reward": reward,
                "advantage": advantage,
            }
            self._held_rows.append(row)
            times_sampled[rollout.problem] += 1

    def add_timings(
        self, step: int, moments: Mapping[str, float], rollouts: Sequence[Rollout]
    ) -> None:
        """Write the seconds of each part of a step, and its tokens per second, prompts included.

        ``moments`` are the times at which the step began and each of its parts ended, in order.
        """
        n_tokens = sum(len(r.response.prompt_ids) + len(r.response.token_ids) for r in rollouts)
        row = {}
        # Each part lasts from the moment before it to its own.
        for (_, begin), (part, end) in pairwise(moments.items()):
            row[f"timing_s/{part}"] = end - begin
        seconds = sum(row.values())
        row["timing_s/step"] = seconds
        row["perf/throughput"] = n_tokens / seconds
        self._timings.append(step, row)

    def flush(self) -> None:
        """Write the rows that are held."""
        if self._held_rows:
            table = pa.Table.from_pylist(self._held_rows, schema=tables.ROLLOUT_ROWS)
            tables.add_rollouts(self._rollout_folder, table)
            self._held_rows = []

    def settle(self, step: int) -> None:
        """Remove files of rows behind ``step``, which is saved, and those that another contains."""
        tables.settle_rollouts(self._rollout_folder, step)


log = logging.getLogger(__name__)

# What is called with each finished step and its metrics.
Progress = Callable[[int, dict[str, float]], None]

# The metrics of the progress line, with the words it uses.
SHOWN_METRICS = {
    "sft/loss": "loss",
    "critic/rewards/mean": "reward",
    "response_length/mean": "length",
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad",
}

# KL between sampler and trainer, nat per token, from which on they are no longer one policy.
MAX_SAMPLER_KL = 1e-2
SAMPLER_WARNING = (
    "\nsampler and trainer disagree at step {}: rollout_corr/kl is {:.2g}. Train in a wider "
    "`dtype`, or sample with `rollouts: hf`\n"
)
# Seconds between two updates of the line on a terminal.
TERMINAL_SECONDS = 0.2


class TrainingLine:
    """A line of progress on standard error: steps done, the last one's metrics, and time to go.

    Only rank 0 writes it. On a terminal it is updated in place.
    """

    def __init__(self, model: str, n_steps: int) -> None:
        """Get ready to show the steps of training ``model``; ranks other than 0 stay silent."""
        self._model = model
        self._n_steps = n_steps
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._is_silent = os.environ.get("RANK", "0") != "0"
        self._first_step: int | None = None
        self._started = self._written = time.monotonic()
        self._text = ""
        self._has_warned = False

    def show(self, step: int, metrics: dict[str, float]) -> None:
        """Take note of one finished step, and write the line if it is time.

        On a terminal the line is updated in place, elsewhere it is written now and then. A warning
        comes once if sampler and trainer give the same tokens too different probabilities.
        """
        log.debug("%s: step %d of %d: %s", self._model, step, self._n_steps, metrics)
        now = time.monotonic()
        if self._first_step is None:
            self._first_step = step
        seconds_per_step = (now - self._started) / (step - self._first_step + 1)
        seconds_left = seconds_per_step * (self._n_steps - step)
        words = [f"{self._model}: step {step}/{self._n_steps}"]
        for name, word in SHOWN_METRICS.items():
            if name in metrics:
                words.append(f"{word} {metrics[name]:.3g}")
        words.append(f"{duration(seconds_left)} to go")
        self._text = " · ".join(words)
        if self._is_silent:
            return
        sampler_kl = metrics.get("rollout_corr/kl", 0.0)
        # Of replayed responses it tells their age.
        is_replay = "replay/responses" in metrics
        if sampler_kl > MAX_SAMPLER_KL and not (self._has_warned or is_replay):
            self._has_warned = True
            self._write()
            self._stream.write(SAMPLER_WARNING.format(step, sampler_kl))
        if now - self._written >= (TERMINAL_SECONDS if self._is_terminal else LINE_SECONDS):
            self._written = now
            self._write()

    def finish(self) -> None:
        """Write the line of the last step."""
        if self._text and not self._is_silent:
            self._write()
            if self._is_terminal:
                self._stream.write("\n")

    def _write(self) -> None:
        text = f"\r\x1b[2K{self._text}" if self._is_terminal else f"{self._text}\n"
        self._stream.write(text)
        self._stream.flush()
