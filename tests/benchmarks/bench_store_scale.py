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

from rlbhpc.store import seal
from rlbhpc.store.grid import Grid
from rlbhpc.store.snapshot import COMPLETED_FLAG, RIGHT_FLAG, Inventory
from rlbhpc.study.keys import Block, Cell
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import store_study
from tests.benchmarks import Row, in_loops, journals
from tests.study.folder import write_arms

MISSING = """
from rlbhpc.store import snapshot
work = lambda: snapshot.take_inventory(layout, "base", "made")
"""
COMPACT = """
from rlbhpc.store.compact import compact
work = lambda: compact(layout, rebuild=True)
"""
PLAN = """
from rlbhpc.study.study import Study
from rlbhpc.sweep import plan
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.plan import read_presence
from tests.benchmarks.bench_store_scale import stock
study = Study.from_json(layout.study.read_text())
stocks = dict(((b.arm, b.set_name), stock(b, {n})) for b in study.blocks())
plan.take_inventory = lambda layout, arm, set_name, **options: stocks[arm, set_name]
work = lambda: make_plan(study, read_presence(layout, list(study.blocks())), 1 << 34)
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


def looks(folder: Path) -> Iterator[Row]:
    """A million samples, in journals and sealed."""
    layout, grid = filled(folder, problems=500, n=2000, steps=1, attempts=100)
    yield in_loops("10^6 in 100 journals, first look", measured(layout, MISSING)[0], 4)
    seal.seal(layout, journals.ARM, journals.SET, grid, "sampled")
    for path in layout.journals(journals.ARM, journals.SET).iterdir():
        path.unlink()
    yield in_loops("10^6 sealed, first look", measured(layout, MISSING)[0], 2)
    measured(layout, COMPACT)
    files = sum(path.is_file() for path in layout.cube.resolve().rglob("*"))
    yield at_most("files of the cube of 500 x 2,000", files, "", 50)


def ten_millions(folder: Path) -> Iterator[Row]:
    """Ten million samples in 100 journals, each with samples from everywhere."""
    layout, _ = filled(folder, problems=500, n=2000, steps=10, attempts=100)
    yield in_loops("10^7 in 100 journals, first look", measured(layout, MISSING)[0], 20)
    seconds, peak = measured(layout, COMPACT)
    yield in_loops("compact of 10^7 from 100 journals", seconds, 600)
    yield at_most("  peak memory", peak, "MB", 1500)


def many_journals(folder: Path) -> Iterator[Row]:
    """What ten thousand tasks left."""
    layout, _ = filled(folder, problems=500, n=200, steps=1, attempts=10_000, texts=80)
    yield in_loops("10,000 journals, first look", measured(layout, MISSING)[0], 15)


def filled(
    folder: Path, problems: int, n: int, steps: int, attempts: int, texts: int = 1000
) -> tuple[Layout, Grid]:
    layout = Layout(folder)
    grid = journals.plan(layout, problems, n, steps)
    journals.write(layout, grid, attempts, texts)
    return layout, grid


def plans(folder: Path) -> Iterator[Row]:
    """Plans of 10⁶ and 10⁹ samples."""
    million = study_of_arms(folder / "million", 500, 500)
    seconds, peak = measured(million.layout, PLAN.format(n=500))
    yield Row("plan of 10^6 samples", seconds, "s")
    yield at_most("  peak memory", peak, "MB", 800)
    billion = study_of_arms(folder / "billion", 1000, 250_000)
    seconds, peak = measured(billion.layout, PLAN.format(n=250_000))
    yield in_loops("plan of 10^9 samples", seconds, 200)
    yield at_most("  peak memory", peak, "MB", 1000)


def study_of_arms(folder: Path, problems: int, n: int) -> Study:
    """A study of four arms."""
    study = load_study(write_arms(folder, problems, n, ARMS, TOKENS))
    store_study(study)
    return study


def stock(block: Block, n: int) -> Inventory:
    """Stock of a block of which one sample in ten is missing."""
    flags = np.full((len(block.problems), n), COMPLETED_FLAG)
    flags[:, ::2] |= RIGHT_FLAG
    flags[:, : n // 10] = 0
    fingerprints = zip(block.problems, block.fingerprints.tolist(), strict=True)
    cells = [Cell(block.arm, block.step, *problem) for problem in fingerprints]
    inventory = Inventory(block.arm)
    inventory._rows_of_cells(cells)
    inventory._flags = flags
    inventory._tokens = TOKENS * np.count_nonzero(flags, axis=1).astype(np.float64)
    return inventory


if __name__ == "__main__":
    for row in run():
        print(row)
