"""The store at the size of a large study: what is missing, what a task reads, the cube of 10⁷.

Needs about 8 GB in the temporary folder, removed at the end. Each figure comes from a process of
its own, so that its peak of memory is that of the work alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rlbhpc.store import bitmap, seal
from rlbhpc.store.bitmap import Bitmap
from rlbhpc.store.grid import Grid
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import remember
from tests.benchmarks import Row, journals
from tests.study.folder import write_arms

MISSING = """
from rlbhpc.store import inventory
work = lambda: inventory.take(layout, "base", "made")
"""
COMPACT = """
from rlbhpc.store.compact import compact
work = lambda: compact(layout, rebuild=True)
"""
PLAN = """
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.presence import presence
study = Study.from_json(layout.study.read_text())
work = lambda: make_plan(study, presence(layout, list(study.blocks())), 1 << 34)
"""
TASK = """
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.presence import presence
from rlbhpc.sweep.worker import still_missing
study = Study.from_json(layout.study.read_text())
present = presence(layout, list(study.blocks()))
whole = make_plan(study, present, 1 << 62)
plan = make_plan(study, present, whole.tokens // {shards})
del present
work = lambda: still_missing(study, plan, plan.shards[0])
"""
# Not ru_maxrss: that keeps the peak of the process that this one was forked from.
MEASURE = """
import json, sys, time
from pathlib import Path
from rlbhpc.study.layout import Layout
layout = Layout(Path(sys.argv[1]))
{body}
start = time.perf_counter()
work()
seconds = time.perf_counter() - start
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(json.dumps([seconds, peak / 1024]))
"""
ARMS, TOKENS = 4, 1024


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *looks(folder / "million"),
            *ten_millions(folder / "large"),
            *many_journals(folder / "many"),
            *plans(folder / "plans"),
        ]


def measured(layout: Layout, body: str) -> tuple[float, float]:
    """Seconds and peak memory in MB."""
    command = [sys.executable, "-c", MEASURE.format(body=body), layout.root]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return seconds, peak


def at_most(what: str, value: float, unit: str, most: float, note: str = "") -> Row:
    return Row(what, value, unit, f"<= {most:g}", value <= most, note)


def first_look(layout: Layout) -> float:
    """Seconds to find out what is missing where nothing was merged before."""
    layout.bitmap(journals.ARM, journals.SET).unlink(missing_ok=True)
    return measured(layout, MISSING)[0]


def looks(folder: Path) -> Iterator[Row]:
    """A million samples, in journals and sealed."""
    layout, grid = filled(folder, problems=500, n=2000, steps=1, attempts=100)
    yield at_most("10^6 in 100 journals, first look", first_look(layout), "s", 0.4)
    seal.seal(layout, journals.ARM, journals.SET, grid, "sampled")
    for path in layout.journals(journals.ARM, journals.SET).iterdir():
        path.unlink()
    yield at_most("10^6 sealed, first look", first_look(layout), "s", 0.2)
    measured(layout, COMPACT)
    files = sum(path.is_file() for path in layout.cube.resolve().rglob("*"))
    yield at_most("files of the cube of 500 x 2,000", files, "", 50)


def ten_millions(folder: Path) -> Iterator[Row]:
    """Ten million samples in 100 journals, each with samples from everywhere."""
    layout, _ = filled(folder, problems=500, n=2000, steps=10, attempts=100)
    yield at_most("10^7 in 100 journals, first look", first_look(layout), "s", 2)
    seconds, peak = measured(layout, COMPACT)
    yield at_most("compact of 10^7 from 100 journals", seconds, "s", 60)
    yield at_most("  peak memory", peak, "MB", 1500)


def many_journals(folder: Path) -> Iterator[Row]:
    """What ten thousand tasks left."""
    layout, _ = filled(folder, problems=500, n=200, steps=1, attempts=10_000, texts=80)
    yield at_most("10,000 journals, first look", first_look(layout), "s", 1.5)


def filled(
    folder: Path, problems: int, n: int, steps: int, attempts: int, texts: int = 1000
) -> tuple[Layout, Grid]:
    layout = Layout(folder)
    grid = journals.plan(layout, problems, n, steps)
    journals.write(layout, grid, attempts, texts)
    return layout, grid


def plans(folder: Path) -> Iterator[Row]:
    """Plans of 10⁶ and 10⁹ samples, and what a task reads of the second."""
    million = merged(folder / "million", 500, 500)
    seconds, peak = measured(million.layout, PLAN)
    yield Row("plan of 10^6 samples", seconds, "s")
    yield at_most("  peak memory", peak, "MB", 800)
    billion = merged(folder / "billion", 1000, 250_000)
    seconds, peak = measured(billion.layout, PLAN)
    yield at_most("plan of 10^9 samples", seconds, "s", 20)
    yield at_most("  peak memory", peak, "MB", 1000)
    for shards in (10, 100, 1000):
        seconds, _ = measured(billion.layout, TASK.format(shards=shards))
        yield Row(f"  what one of {shards} tasks reads first", seconds, "s")


def merged(folder: Path, problems: int, n: int) -> Study:
    """A study of four arms with the bits of its samples written directly; one in ten is missing."""
    study = load_study(write_arms(folder, problems, n, ARMS, TOKENS))
    remember(study)
    for block in study.blocks():
        count = len(block.problems)
        cells = np.zeros(count, bitmap.CELL)
        cells["problem"] = np.arange(count)
        cells["fingerprint"] = block.fingerprints
        bits = np.full((count, -(-n // 64) * 8), 255, np.uint8)
        bits[:, : bits.shape[1] // 10] = 0
        numbers = {problem: i for i, problem in enumerate(block.problems)}
        path = study.layout.bitmap(block.arm, block.set_name)
        cells["tokens"] = TOKENS * np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        right_bits = bits & np.uint8(0b01010101)
        Bitmap(problems=numbers, cells=cells, bits=bits, right_bits=right_bits).save(path)
    return study


if __name__ == "__main__":
    for row in run():
        print(row)
