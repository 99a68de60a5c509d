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


#: The parts are about equally long in each group.
GROUPS = (
    ("engines_float32", "engines_bfloat16", "sleep"),
    ("step", "zero3", "drain"),
    ("speed", "memory", "rates"),
)


def test_each_part_is_in_a_group() -> None:
    assert sorted(part for group in GROUPS for part in group) == sorted(FIGURES)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.by_turns(3)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_the_check_of_a_gpu_passes_on_the_cpu(tmp_path: Path, group: tuple[str, ...]) -> None:
    report = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", *group, "--json", str(report)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["device"]["kind"] == "cpu" and told["device"]["name"]
    assert {"torch", "deepspeed", "vllm", "flash-attn"} <= told["versions"].keys()
    parts = {row["part"]: row for row in told["parts"]}
    assert list(parts) == list(group)
    for name, row in parts.items():
        assert row["status"] == ("not run" if name == "sleep" else "passed"), row
        assert FIGURES[name] <= row["figures"].keys()
        assert row["seconds"] > 0 and name in done.stdout
    if "sleep" in parts:
        assert "frees nothing" in parts["sleep"]["note"]
    if "drain" in parts:
        assert parts["drain"]["figures"]["exit code"] == 75
    if "memory" in parts:
        assert parts["memory"]["figures"]["lasting ratio"] == pytest.approx(1, abs=0.02)
