"""What a login node feels: the wall time of ``rlbhpc --help`` and of ``import rlbhpc``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from tests.benchmarks import Row

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import rlbhpc": [sys.executable, "-c", "import rlbhpc"],
    "rlbhpc --help": [sys.executable, "-m", "rlbhpc", "--help"],
}
LIMITS = {"import rlbhpc": 4, "rlbhpc --help": 10}


def wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def run(runs: int = 10) -> list[Row]:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs + 1):
        for name, command in COMMANDS.items():
            times[name].append(wall(command))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    rows = [Row("python -c pass", medians["python -c pass"], "s")]
    for name, limit in LIMITS.items():
        ratio = medians[name] / medians["python -c pass"]
        rows.append(Row(name, ratio, "x bare", f"<= {limit}", ratio <= limit))
    return rows
