"""What a new user waits for: ``pip install`` on a login node, and the first answer of ``ask``."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.benchmarks import Row, in_loops
from tests.wheel import PIP, ROOT, build_wheel

INSTALL_LIMIT, ASK_LIMIT = 60, 180
MODELS = ROOT / "configs/checkpoints"


def seconds(folder: Path, *command: object) -> tuple[float, float]:
    """Wall and processor time of a command that must succeed."""
    start, used = time.perf_counter(), processor_seconds()
    subprocess.run(list(map(str, command)), cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start, processor_seconds() - used


def processor_seconds() -> float:
    """Of all children that have ended, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run() -> list[Row]:
    """Measure each once, as it happens once: nothing of pip's cache, nothing sampled before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env/bin/python"
        install = seconds(folder, python, *PIP, "install", "--no-cache-dir", wheel)
        seconds(folder, folder / "env/bin/rlbhpc", "init", "countdown")
        ask = seconds(
            folder, sys.executable, "-m", "rlbhpc", "ask", "--cluster", "local",
            "--base", MODELS / "countdown-base", "--trained", MODELS / "countdown-rl",
        )  # fmt: skip
    return [
        in_loops(what, wall, 10 * limit, f"{used:.0f} s of processor time")
        for what, (wall, used), limit in (
            ("pip install of the wheel, empty environment", install, INSTALL_LIMIT),
            ("ask of two small models, to the answer", ask, ASK_LIMIT),
        )
    ]
