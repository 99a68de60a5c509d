"""One training step beside TRL's: the same model, prompts, lengths, loss.

A Qwen2 of 4.8 million parameters on one core, 64 responses a step, in seconds of the processor: a
neighbour on the machine changes them little, and no thread waits for another. Two processes take
turns step by step, and the median of the pairs' ratios is stated.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rlbhpc.engines import SETTINGS
from rlbhpc.engines.tiny import make_tiny_model
from tests.benchmarks import Row
from tests.benchmarks.train_sides import MARK, TURN

SHAPE = {
    "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
SIDES = "tests.benchmarks.train_sides"


def run() -> list[Row]:
    """All comparisons."""
    with tempfile.TemporaryDirectory() as name:
        model = make_tiny_model(Path(name) / "model", **SHAPE)
        return [
            compared(model, "fixed", "64 + 24 tokens, training: time of TRL's step"),
            compared(model, "uneven", "8 to 256 + 24 tokens, training: time of TRL's step"),
            compared(model, "sampled", "end to end, with rollouts: time of TRL's step"),
        ]


def compared(model: Path, work: str, what: str) -> Row:
    """Ratio of processor seconds a step in float32, with memory beside it."""
    with Side("us", model, work) as us, Side("trl", model, work) as them:
        while not us.figures or not them.figures:
            us.take_turn()
            them.take_turn()
    ours, theirs = us.figures, them.figures
    ratios = [a / b for a, b in zip(ours["seconds"], theirs["seconds"], strict=True)]
    ratio = statistics.median(ratios)
    our_step, their_step = (statistics.median(side["seconds"]) for side in (ours, theirs))
    note = (
        f"{our_step:.2f} and {their_step:.2f} s a step, "
        f"{ours['mib']:,.0f} and {theirs['mib']:,.0f} MiB at most; "
        f"pairs from {min(ratios):.2f} to {max(ratios):.2f}"
    )
    return Row(what, ratio, "×", note=note)


class Side:
    """One side in a process of its own, which works when it is told to."""

    def __init__(self, name: str, model: Path, work: str) -> None:
        self.figures: dict[str, Any] = {}
        self._log = model.with_name(f"{name}.log")
        # Ours are no part of what others' users have.
        kept = {k: v for k, v in os.environ.items() if name != "trl" or k not in SETTINGS}
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", SIDES, name, str(model), work],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self._hear()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def take_turn(self) -> None:
        """Let it go on until it waits again or has told its figures."""
        if self.figures:
            return
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(MARK):
                message = line.removeprefix(MARK).strip()
                self.figures = {} if message == TURN else json.loads(message)
                return
        raise RuntimeError(f"{self._process.args}: {self._log.read_text()[-3000:]}")


if __name__ == "__main__":
    for row in run():
        print(row)
