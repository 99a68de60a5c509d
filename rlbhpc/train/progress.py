"""One line that says how far training is."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable

from rlbhpc.sweep.progress import LINE_SECONDS, duration

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
