"""The whole report of a large study: 500 problems × 2,048 samples × 10 steps × 4 arms.

The cube (41 million samples with verdicts, lengths, log-probabilities, entropies and answers, about
0.5 GB) is made in a temporary folder and removed. So is a study of 6 problem sets × 6 arms × 10
checkpoints (79 million samples), whose page and terminal are measured. Reports run in processes of
their own, so that time and peak memory are those of the command as a user starts it, imports
included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats import Counts, ProblemWeights, k_grid
from rlbhpc.store import cube
from rlbhpc.store.grid import Grid
from rlbhpc.study.keys import Cell
from tests.benchmarks import Row, in_loops, median_seconds
from tests.report.large import make_large

PROBLEMS, SAMPLES, STEPS, REPLICATES = 500, 2048, 10, 1000
ARMS = ("base", "grpo", "ppo", "dapo")

REPORT = """
import json, resource, sys, time
start = time.perf_counter()
from rlbhpc.cli.main import cli
code = cli.main(sys.argv[1:], standalone_mode=False)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "wall": time.perf_counter() - start, "cpu": usage.ru_utime + usage.ru_stime,
    "peak": usage.ru_maxrss / 1e6, "code": code, "torch": "torch" in sys.modules,
}))
"""


SCRIPT = """
import runpy, sys, time
runpy.run_path(sys.argv[1], run_name="imported")
import matplotlib.backends.backend_pdf, matplotlib.backends.backend_agg
import scipy.optimize, scipy.sparse
sys.argv = sys.argv[1:]
start, cpu = time.perf_counter(), time.process_time()
runpy.run_path(sys.argv[0], run_name="__main__")
print(time.perf_counter() - start, time.process_time() - cpu)
"""
# A script says so where a run has nothing for it (4) or an argument is missing (2).
NOTHING = (2, 4)


def run() -> list[Row]:
    """Measure the bootstraps and the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = write_cube(folder / "cube.zarr")
        return [bootstraps(every), *whole_report(folder), *scripts(folder), *wide_study(folder)]


def bootstraps(every: list[Counts]) -> Row:
    """1,000 replicates of every curve at every k of the grid, from the counts."""
    k = k_grid(SAMPLES)

    def replicates() -> None:
        weights = ProblemWeights.draw(PROBLEMS, np.random.default_rng(1), REPLICATES)
        table = np.concatenate([counts.pass_at_k(k) for counts in every], axis=1)
        assert weights.means(table).shape == (REPLICATES, len(every) * len(k))

    seconds = median_seconds(replicates)
    what = f"{REPLICATES} bootstraps of all {len(every)} curves"
    return in_loops(what, seconds, 20)


def whole_report(folder: Path) -> Iterator[Row]:
    """``rlbhpc report`` on the cube, every arm against the base and the base over its steps."""
    pairs = [word for arm in ARMS for word in ("--compare", f"base:{arm}")]
    out = folder / "out"
    measures = measured([str(folder / "cube.zarr"), *pairs, "-o", str(out)])
    assert not measures["torch"], "a report must not need torch"
    yield from figures_of(measures, out, "the whole report, page and tables", seconds=30, size=5)


def measured(words: list[str]) -> dict[str, float]:
    """What ``rlbhpc report`` took, in a process of its own."""
    text = subprocess.run(
        [sys.executable, "-c", REPORT, "report", *words], check=True, capture_output=True, text=True
    ).stdout
    return json.loads(text.splitlines()[-1])


def figures_of(
    measures: dict[str, float], out: Path, what: str, seconds: float, size: float
) -> Iterator[Row]:
    """Time, memory and the page's size, beside the most that each may be."""
    wall, peak = measures["wall"], measures["peak"]
    note = f"{measures['cpu']:.1f} s of processor time, imports included"
    yield in_loops(what, wall, 10 * seconds, note)
    yield Row("  peak memory", peak, "GB", "<= 0.8", peak <= 0.8)
    page = (out / "report.html").stat().st_size / 1e6
    yield Row("  size of the page", page, "MB", f"<= {size:g}", page <= size)


def wide_study(folder: Path) -> Iterator[Row]:
    """The page of a study of many sets, arms and checkpoints, and what a terminal shows of it."""
    study = make_large(folder / "wide")
    out = folder / "wide-report"
    measures = measured([str(study.layout.root), "-o", str(out)])
    what = "6 sets × 6 arms × 10 checkpoints, page and tables"
    yield from figures_of(measures, out, what, seconds=8, size=3)
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", "report", str(study.layout.root), "--terminal"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = len(done.stdout.splitlines())
    yield Row("  lines of --terminal", lines, "lines", "<= 60", lines <= 60)


def scripts(folder: Path) -> Iterator[Row]:
    """Each script of ``analysis/`` that has something to show of the cube, after its imports."""
    pairs = [word for arm in ARMS for word in ("--compare", f"base:{arm}")]
    here = Path(__file__).parents[2] / "analysis"
    for path in sorted(here.glob("*.py")):
        out = ["-o", str(folder / "figures")]
        words = (
            out if path.stem.startswith("published") else [str(folder / "cube.zarr"), *pairs, *out]
        )
        command = [sys.executable, "-c", SCRIPT, str(path), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode in NOTHING:
            continue
        done.check_returncode()
        seconds, processor = map(float, done.stdout.splitlines()[-1].split())
        note = f"{processor:.1f} s of processor time"
        yield in_loops(f"analysis/{path.name}", seconds, 50, note)


def write_cube(path: Path) -> list[Counts]:
    """Write samples of four arms, each sharper at every step; the counts of each arm and step."""
    rng = np.random.default_rng(0)
    rates = np.maximum(rng.beta(0.3, 2, PROBLEMS), 1e-4)
    steps = tuple(range(0, 100 * STEPS, 100))
    root = cube.create(path)
    found = []
    for arm in ARMS:
        cells = [Cell(arm, step, f"made/{i}", 1) for step in steps for i in range(PROBLEMS)]
        grid = Grid("model").grown(dict.fromkeys(cells, SAMPLES))
        group = cube.create_samples(root, arm, "made", grid)
        for j in range(STEPS):
            sharper = rates ** (1 - 0.05 * j)
            right = rng.random((PROBLEMS, SAMPLES), np.float32) < sharper[:, None]
            found.append(Counts.of(SAMPLES, right.sum(axis=1)))
            for row in range(grid.chunk_rows):
                first = row * grid.chunk.problems
                band = right[first : first + grid.chunk.problems]
                arrays = {n: v[:, :, None] for n, v in samples(band, rng).items()}
                n = np.full((len(band), 1), SAMPLES, np.int32)
                counts = {"n": n, "c": band.sum(axis=1, dtype=np.int32)[:, None]}
                cube.write_band(group, grid, row, j, arrays | counts)
    cube.consolidate(path)
    return found


def samples(right: NDArray[np.bool_], rng: np.random.Generator) -> dict[str, NDArray[np.generic]]:
    """Everything that is stored of samples: a few common wrong answers and many rare ones."""
    shape = right.shape
    tokens = rng.integers(100, 2500, shape, np.int32)
    wrong = rng.integers(1, 1 << 10, shape, np.int64) ** 2 >> 8
    return {
        "verdict": right.astype(np.int8),
        "finish": (rng.random(shape, np.float32) < 0.1).astype(np.int8),
        "n_tokens": tokens,
        "logprob_sum": -tokens * rng.random(shape, np.float32),
        "entropy_sum": tokens * rng.random(shape, np.float32),
        "answer": np.where(right, 0, wrong),
        "seed": np.arange(right.size, dtype=np.int64).reshape(shape),
    }


if __name__ == "__main__":
    start = time.perf_counter()
    for row in run():
        print(f"{row.what:<60} {row.value:9.3f} {row.unit}  {row.target}  {row.note}")
    print(f"with making the cube {time.perf_counter() - start:.0f} s")
