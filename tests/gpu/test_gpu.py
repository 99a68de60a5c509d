"""`make gpu` on the CPU: the first one with a GPU must not be the first to run its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = {
    "engines_float32": {"hf: log-prob off by", "vllm: log-prob off by", "equal greedy texts"},
    "engines_bfloat16": {"hf: log-prob off by", "vllm: log-prob off by", "equal greedy texts"},
    "step": {"float32: gradient off by", "bfloat16: gradient off by"},
    "zero3": {"ranks", "float32: gradient off by", "weights off by"},
    "sleep": set(),
    "drain": {"exit code", "steps before", "steps after"},
    "speed": {"ratio", "tokens/s"},
    "memory": {"lasting ratio", "activations ratio"},
    "rates": {"share of them, reading", "share of them, training"},
}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_check_of_a_gpu_passes_on_the_cpu(tmp_path: Path) -> None:
    report = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--json", str(report)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["device"]["kind"] == "cpu" and told["device"]["name"]
    assert {"torch", "deepspeed", "vllm", "flash-attn"} <= told["versions"].keys()
    parts = {row["part"]: row for row in told["parts"]}
    assert list(parts) == list(FIGURES)
    for name, row in parts.items():
        assert row["status"] == ("not run" if name == "sleep" else "passed"), row
        assert FIGURES[name] <= row["figures"].keys()
        assert row["seconds"] > 0 and name in done.stdout
    assert "frees nothing" in parts["sleep"]["note"]
    assert parts["drain"]["figures"]["exit code"] == 75
    assert parts["memory"]["figures"]["lasting ratio"] == pytest.approx(1, abs=0.02)
