"""One training step beside TRL's: the same model, prompts, lengths, groups and loss.

A Qwen2 of 4.8 million parameters on the processors of one host, 64 responses a step. Processes take
turns, and the median of the pairs' ratios is stated.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rlbhpc.engines.tiny import make_tiny_model
from tests.benchmarks import Row
from tests.benchmarks.train_sides import MARK

SHAPE = {
    "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
PAIRS = 3


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
    pairs = [(side("us", model, work, dtype), side("trl", model, work, dtype))
             for _ in range(PAIRS)]  # fmt: skip
    ratio = statistics.median(ours["step_s"] / theirs["step_s"] for ours, theirs in pairs)
    ours, theirs = pairs[-1]
    note = (
        f"{ours['step_s']:.2f} and {theirs['step_s']:.2f} s a step, "
        f"{ours['mib']:,.0f} and {theirs['mib']:,.0f} MiB at most"
    )
    if "products_s" in ours:
        least = statistics.median(ours["products_s"] / theirs["step_s"] for ours, theirs in pairs)
        note += f"; {least:.2f} × are our products and attention alone"
    rows = [Row(f"{what}: time of TRL's step", ratio, "×", f"≤ {target}", ratio <= target, note)]
    if "peak" in ours:
        share = statistics.median(o["flops"] / o["step_s"] / o["peak"] for o, _ in pairs)
        alone = statistics.median(o["flops"] / o["products_s"] / o["peak"] for o, _ in pairs)
        peak = (
            f"peak {ours['peak'] / 1e9:,.0f} GFLOP/s; {alone:.2f} if products and attention, at "
            "the speed that they have in the step, were all there is"
        )
        rows.append(
            Row(f"{what}: share of the matmul peak", share, "", "≥ 0.7", share >= 0.7, peak)
        )
    return rows


def side(name: str, model: Path, work: str, dtype: str) -> dict[str, float]:
    """Figures of one side in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.train_sides", name, str(model), work, dtype],
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        raise RuntimeError(f"{name} {work} {dtype}: {done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(lines[-1].removeprefix(MARK))
    return figures


if __name__ == "__main__":
    for row in run():
        print(row)
