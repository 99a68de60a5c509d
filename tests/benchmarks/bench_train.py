"""One training step beside TRL's: the same model, prompts, lengths, groups and loss.

A Qwen2 of 4.8 million parameters on the processors of one host, 64 responses a step. Two processes
take turns step by step, so that a neighbour who comes or goes meets both, and the median of the
pairs' ratios is stated.
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
            *compared(model, "fixed", "float32", "64 + 24 tokens, training", 0.75),
            *compared(model, "fixed", "bfloat16", "64 + 24 tokens, bfloat16", 0.5),
            *compared(model, "uneven", "float32", "8 to 256 + 24 tokens, training", 0.75),
            *compared(model, "uneven", "bfloat16", "8 to 256 + 24 tokens, bfloat16", 0.5),
            *compared(model, "sampled", "float32", "end to end, with rollouts", 0.6),
        ]


def compared(model: Path, work: str, dtype: str, what: str, target: float) -> list[Row]:
    """Ratio of step times, both sides computing in ``dtype``, with memory beside it."""
    with Side("us", model, work, dtype) as us, Side("trl", model, work, dtype) as trl:
        while not us.figures or not trl.figures:
            us.take_turn()
            trl.take_turn()
    ours, theirs = us.figures, trl.figures
    pairs = list(zip(ours["seconds"], theirs["seconds"], strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    our_step, their_step = (statistics.median(one["seconds"]) for one in (ours, theirs))
    note = (
        f"{our_step:.2f} and {their_step:.2f} s a step, "
        f"{ours['mib']:,.0f} and {theirs['mib']:,.0f} MiB at most; "
        f"pairs from {min(a / b for a, b in pairs):.2f} to {max(a / b for a, b in pairs):.2f}"
    )
    if "products_s" in ours:
        least = ours["products_s"] / their_step
        note += f"; {least:.2f} × are our products and attention alone"
    rows = [Row(f"{what}: time of TRL's step", ratio, "×", f"≤ {target}", ratio <= target, note)]
    if "peak" in ours:
        share = ours["flops"] / our_step / ours["peak"]
        alone = ours["flops"] / ours["products_s"] / ours["peak"]
        peak = (
            f"peak {ours['peak'] / 1e9:,.0f} GFLOP/s; {alone:.2f} if products and attention, at "
            "the speed that they have in the step, were all there is"
        )
        rows.append(
            Row(f"{what}: share of the matmul peak", share, "", "≥ 0.7", share >= 0.7, peak)
        )
    return rows


class Side:
    """One side in a process of its own, which works when it is told to."""

    def __init__(self, name: str, model: Path, work: str, dtype: str) -> None:
        self.figures: dict[str, Any] = {}
        self._log = model.with_name(f"{name}.log")
        # Ours are no part of what others' users have.
        kept = {k: v for k, v in os.environ.items() if name == "us" or k not in SETTINGS}
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", SIDES, name, str(model), work, dtype],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**kept, "HF_HUB_OFFLINE": "1"},
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
                said = line.removeprefix(MARK).strip()
                self.figures = {} if said == TURN else json.loads(said)
                return
        raise RuntimeError(f"{self._process.args}: {self._log.read_text()[-3000:]}")


if __name__ == "__main__":
    for row in run():
        print(row)
