"""A million rows of another tool into the store: memory and speed of the whole command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import Row
from tests.benchmarks.bench_store_write import texts

PROBLEMS, N = 1000, 1000
MOST_MB = 500
FILLER = texts(0, 50)


def run() -> list[Row]:
    measured = []
    for name in ("rows.jsonl", "rows.json"):
        with tempfile.TemporaryDirectory() as folder:
            measured += million(Path(folder, name))
    return measured


def million(path: Path) -> Iterator[Row]:
    """Import scored responses of 300 characters, as JSON Lines or a list, in another process."""
    is_list = path.suffix == ".json"
    with path.open("w") as file:
        file.write("[" * is_list)
        for number in range(PROBLEMS * N):
            text = f"{number} {FILLER[number % 50][:290]}"
            row = {"problem": str(number % PROBLEMS), "score": int(number % 7 == 0), "text": text}
            file.write(", " * (is_list and number > 0) + json.dumps(row) + "\n")
        file.write("]" * is_list)
    words = ["import", str(path.parent / "run"), str(path), "--arm", "theirs", "--set", "s"]
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "rlbhpc", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.returncode
    megabytes = usage.ru_maxrss * 1024 / 1e6
    note = f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time"
    yield Row(
        f"import of 10⁶ rows of {path.name}: largest memory", megabytes, "MB", f"<= {MOST_MB} MB",
        megabytes <= MOST_MB,
    )  # fmt: skip
    yield Row("the same: rows a second", PROBLEMS * N / seconds, "rows/s", note=note)
